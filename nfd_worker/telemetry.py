"""``/healthz`` and ``/metrics`` on a raw socket in the daemon's loop.

One request a connection, answered when its head is there. No client can hold up the loop: connections are few, and an
answer goes into the kernel's buffer whole.
"""

import socket
from collections.abc import Callable, Mapping
from contextlib import suppress
from functools import partial

from kube_api.pages import Pages, answer_request
from nfd_worker.errors import ConfigurationError

_MOST_CONNECTIONS = 16
_LONGEST_REQUEST = 8192
_SEND_BUFFER = 1 << 17
"""More than any answer has, so that none waits for the other side to read."""


class Endpoint:
    """Listens on a port of all addresses; 0 lets the system choose one (``port`` says which)."""

    def __init__(self, port: int, pages: Pages) -> None:
        self._pages = pages
        try:
            self._listener = _listen(port)
        except OSError as error:
            raise ConfigurationError(
                f"cannot listen on port {port}: {error.strerror}; choose another with --port, or 0 for none"
            ) from error
        self._connections: dict[int, socket.socket] = {}
        self._requests: dict[int, bytes] = {}

    @property
    def port(self) -> int:
        """The port that is listened on."""
        return int(self._listener.getsockname()[1])

    def readers(self) -> Mapping[int, Callable[[float], None]]:
        """Name the file descriptors to wait for, and what to call when one is ready."""
        connections = {descriptor: partial(self._read, descriptor) for descriptor in self._connections}
        return {self._listener.fileno(): self._accept, **connections}

    def close(self) -> None:
        """Stop listening."""
        for connection in (*self._connections.values(), self._listener):
            connection.close()

    def _accept(self, _now: float) -> None:
        try:
            connection, _ = self._listener.accept()
        except OSError:
            return  # gone again before we came to it
        connection.setblocking(False)
        connection.setsockopt(socket.SOL_SOCKET, socket.SO_SNDBUF, _SEND_BUFFER)
        if len(self._connections) >= _MOST_CONNECTIONS:
            self._drop(next(iter(self._connections)))
        self._connections[connection.fileno()] = connection

    def _read(self, descriptor: int, _now: float) -> None:
        connection = self._connections.get(descriptor)
        if connection is None:
            return  # dropped in favour of a newer one since the poll
        try:
            chunk = connection.recv(_LONGEST_REQUEST)
        except BlockingIOError:
            return
        except OSError:
            self._drop(descriptor)
            return
        request = self._requests.get(descriptor, b"") + chunk
        self._requests[descriptor] = request
        if chunk and not _is_whole(request) and len(request) < _LONGEST_REQUEST:
            return
        with suppress(OSError):  # the client may be gone
            connection.sendall(answer_request(request, self._pages))
        self._drop(descriptor)

    def _drop(self, descriptor: int) -> None:
        self._requests.pop(descriptor, None)
        self._connections.pop(descriptor).close()


def _is_whole(request: bytes) -> bool:
    """Return whether the head is there to its end; an earlier answer is lost when the connection is reset."""
    return b"\r\n\r\n" in request or b"\n\n" in request


def _listen(port: int) -> socket.socket:
    if socket.has_dualstack_ipv6():
        listener = socket.create_server(("", port), family=socket.AF_INET6, dualstack_ipv6=True)
    else:
        listener = socket.create_server(("", port))
    listener.setblocking(False)
    return listener
