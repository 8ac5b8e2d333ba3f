"""Run commands in a guest through its second serial port, where process 1 listens (guest-init.sh).

Works without network, kubelet and container runtime. Output travels in base64 between marks that hold a number drawn
for the one command, so that nothing a command prints, and nothing left over from an earlier one, can be taken for it.
"""

from __future__ import annotations

import base64
import re
import secrets
import socket
import time
from collections.abc import Callable
from pathlib import Path

from testbed.errors import NotReadyError

_KNOCK_SECONDS = 1.0
_LONGEST_PAUSE_SECONDS = 3.0


def encode_command(identity: str, command: str, seconds: int) -> bytes:
    """Return the line that asks a guest to run a command for at most so many seconds.

    It begins with an end of line, in case the port has kept half of an earlier one.
    """
    return f"\n{identity} {seconds} {base64.b64encode(command.encode()).decode()}\n".encode()


def decode_answer(identity: str, received: bytes) -> tuple[int, str] | None:
    """Return status and output when the answer to this command is complete, else None."""
    mark = re.escape(identity.encode())
    match = re.search(rb"\[%s (\d+)\r?\n(.*?)%s\]" % (mark, mark), received, re.DOTALL)
    if match is None:
        return None
    return int(match[1]), base64.b64decode(match[2]).decode(errors="replace")


def run_command(path: Path, command: str, *, timeout: float, is_running: Callable[[], bool]) -> tuple[int, str]:
    """Run a command in the guest whose serial port is the socket `path`; return its status and output.

    A guest that is still booting is waited for. The command itself is sent once. One that runs too long is ended by
    the guest, with status 143.
    """
    deadline = time.monotonic() + timeout
    while time.monotonic() < deadline:
        if not is_running():
            raise NotReadyError(f"the guest ended before it could run `{command[:200]}`")
        try:
            with socket.socket(socket.AF_UNIX) as port:
                port.settimeout(_KNOCK_SECONDS)
                port.connect(str(path))
                _knock(port, deadline)
                left = deadline - time.monotonic()
                return _ask(port, command, max(1, int(left)), left + 2)
        except (FileNotFoundError, ConnectionRefusedError):
            time.sleep(0.1)  # QEMU has only just been started.
        except (TimeoutError, ConnectionError):
            break
    raise NotReadyError(f"no answer from the guest to `{command[:200]}` within {timeout:.0f} s")


def _knock(port: socket.socket, deadline: float) -> None:
    """Wait until somebody answers: the port loses what is sent before the guest listens.

    All knocks have one number: a busy guest answers the first of them when others were sent meanwhile. They come less
    often the longer it takes: the guest runs each of them before the command.
    """
    identity, received, pause = secrets.token_hex(6), bytearray(), _KNOCK_SECONDS
    while time.monotonic() < deadline:
        port.settimeout(pause)
        try:
            # It waits when some seventy knocks lie before a guest that has booted for minutes.
            port.sendall(encode_command(identity, ":", 5))
            _receive(port, identity, received, pause)
        except TimeoutError:
            pause = min(1.5 * pause, _LONGEST_PAUSE_SECONDS)
        else:
            return
    raise TimeoutError


def _ask(port: socket.socket, command: str, seconds: int, wait: float) -> tuple[int, str]:
    identity = secrets.token_hex(6)
    port.settimeout(wait)
    port.sendall(encode_command(identity, command, seconds))
    return _receive(port, identity, bytearray(), wait)


def _receive(port: socket.socket, identity: str, received: bytearray, wait: float) -> tuple[int, str]:
    """Wait for the answer to a command; ``received`` is what came before, and gets what comes now."""
    deadline = time.monotonic() + wait
    while (answer := decode_answer(identity, bytes(received))) is None:
        port.settimeout(max(0.01, deadline - time.monotonic()))
        chunk = port.recv(1 << 16)
        if not chunk:
            raise ConnectionResetError("the guest's QEMU has ended")
        received += chunk
    return answer
