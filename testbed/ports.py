"""Free TCP ports for the parts of one testbed."""

from __future__ import annotations

import random
import socket

# Below the kernel's ephemeral range, from which any client on the machine may take a port at any moment.
_RANGE = range(20000, 32000)
_claims: list[socket.socket] = []


def free_ports(count: int) -> list[int]:
    """Return ports that nobody listens on; no other test process is given them while this one lives.

    A part may start to listen minutes later: the first testbed of a machine builds Kubernetes before.
    """
    ports: list[int] = []
    for port in random.SystemRandom().sample(_RANGE, len(_RANGE)):
        if _is_free(port) and _claim(port):
            ports.append(port)
        if len(ports) == count:
            return ports
    raise OSError(f"no {count} free ports in {_RANGE}")


def _claim(port: int) -> bool:
    """Hold a name that stands for the port; the kernel gives it up when this process ends, however that happens."""
    claim = socket.socket(socket.AF_UNIX)
    try:
        claim.bind(f"\0driverwright-test-port-{port}")
    except OSError:
        claim.close()
        return False
    _claims.append(claim)
    return True


def _is_free(port: int) -> bool:
    with socket.socket() as probe:
        probe.setsockopt(socket.SOL_SOCKET, socket.SO_REUSEADDR, 1)
        try:
            probe.bind(("0.0.0.0", port))
        except OSError:
            return False
    return True


def accepts_connections(port: int) -> bool:
    """Return whether somebody listens on 127.0.0.1:port."""
    try:
        with socket.create_connection(("127.0.0.1", port), timeout=2):
            return True
    except OSError:
        return False
