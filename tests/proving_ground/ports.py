"""Free TCP ports for the parts of one ground."""

from __future__ import annotations

import random
import socket

# Below the kernel's ephemeral range, from which any client on the machine may take a port at any moment.
_RANGE = range(20000, 32000)


def free_ports(count: int) -> list[int]:
    """Return ports that nobody listens on, drawn at random so that two grounds seldom meet."""
    ports: list[int] = []
    for port in random.sample(_RANGE, len(_RANGE)):
        if _is_free(port):
            ports.append(port)
        if len(ports) == count:
            return ports
    raise OSError(f"no {count} free ports in {_RANGE}")


def _is_free(port: int) -> bool:
    with socket.socket() as probe:
        probe.setsockopt(socket.SOL_SOCKET, socket.SO_REUSEADDR, 1)
        try:
            probe.bind(("0.0.0.0", port))
        except OSError:
            return False
    return True


def accepts_connections(port: int) -> bool:
    """Tell whether somebody listens on 127.0.0.1:port."""
    try:
        with socket.create_connection(("127.0.0.1", port), timeout=2):
            return True
    except OSError:
        return False
