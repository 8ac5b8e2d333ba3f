"""``device-agent get``: prints a page of the agent that runs beside it, for probes and people. It loads little."""

import socket
import sys
from collections.abc import Mapping

_SECONDS = 5.0
_LONGEST = 1 << 24


def get_page(path: str, environment: Mapping[str, str]) -> int:
    """Print a page; 1 unless its status is 200. The agent is where the environment says that it listens."""
    answer = fetch_page(path, environment)
    if answer is None:
        return 1
    status, body = answer
    sys.stdout.write(body)
    return 0 if status == b"200" else 1


def fetch_page(path: str, environment: Mapping[str, str]) -> tuple[bytes, str] | None:
    """Return the status of a page and its text; None, and a message on stderr, if no agent answers."""
    name, port = environment.get("DEVICE_AGENT_SOCKET"), environment.get("DEVICE_AGENT_PORT") or "8080"
    where = name or f"127.0.0.1:{port}"
    try:
        family, address = (socket.AF_UNIX, name) if name else (socket.AF_INET, ("127.0.0.1", int(port)))
        with socket.socket(family) as connection:
            connection.settimeout(_SECONDS)
            connection.connect(address)
            connection.sendall(f"GET {path} HTTP/1.0\r\n\r\n".encode())
            with connection.makefile("rb") as answer:
                head, _, body = answer.read(_LONGEST).partition(b"\r\n\r\n")
    except (OSError, ValueError) as error:
        sys.stderr.write(f"device-agent: no agent answers at {where}: {error}\n")
        return None
    return b"".join(head.split()[1:2]), body.decode(errors="replace")
