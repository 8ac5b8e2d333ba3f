"""A connection for one or two requests: a socket, TLS and :mod:`kube_api.http_response`, for short children.

Neither pooling nor proxies nor redirects. It imports little, because each publish child imports it anew.
"""

import socket
import time
from collections.abc import Callable, Iterator, Mapping
from contextlib import contextmanager
from typing import Any

from kube_api.connection import Response, Timeout
from kube_api.errors import Unreachable
from kube_api.http_response import MalformedResponse, ResponseReader

MAX_BODY = 1 << 26
"""Bytes of a response that is read as a whole. A Node has at most a few megabytes."""

_METHODS = frozenset({"GET", "POST", "PUT", "PATCH", "DELETE"})


class OnceResponse:
    """A response, with its connection."""

    def __init__(self, channel: "_Channel") -> None:
        self._channel = channel
        self._reader = ResponseReader(channel.receive)
        self._head = self._reader.read_head()
        self.status = self._head.status

    def header(self, name: str) -> str | None:
        """Return a header's value."""
        return self._head.headers.get(name.lower())

    def read(self) -> bytes:
        """Read all of the body."""
        parts: list[bytes] = []
        size = 0
        for chunk in self.chunks():
            size += len(chunk)
            if size > MAX_BODY:
                raise Unreachable(f"the response has more than {MAX_BODY >> 20} MiB")
            parts.append(chunk)
        return b"".join(parts)

    def chunks(self) -> Iterator[bytes]:
        """Read the body as it comes."""
        with _translated():
            yield from self._reader.chunks(self._head)

    def close(self) -> None:
        """Close it."""
        self._channel.close()


class OnceConnection:
    """Each request opens a connection of its own, with TLS checked against ``ca_file``.

    ``server``: ``https://HOST:PORT``, or ``http`` without TLS; an IPv6 address in brackets.
    ``authorization`` gives the headers that say who asks; it is called for each request.
    """

    def __init__(self, server: str, ca_file: str, authorization: Callable[[], Mapping[str, str]]) -> None:
        self.server = server
        scheme, _, self._authority = server.partition("://")
        self._has_tls = scheme == "https"
        self._ca_file = ca_file
        self._authorization = authorization

    def send(
        self, method: str, path: str, *, body: str | None, headers: Mapping[str, str], timeout: Timeout
    ) -> Response:
        """Send a request; see :class:`kube_api.connection.Connection`."""
        with _translated():
            words = {"Host": self._authority, **headers, **self._authorization()}
            request = format_request(method, path, words, body)
            channel = _Channel(timeout)
            try:
                channel.open(*_address(self._authority, self._has_tls), self._ca_file if self._has_tls else None)
                channel.send(request)
                return OnceResponse(channel)
            except BaseException:
                channel.close()
                raise


def format_request(method: str, path: str, headers: Mapping[str, str], body: str | None) -> bytes:
    """Write a request, after which the server closes the connection.

    Raises:
        Unreachable: when a name in the path, or a token, would end the line it stands in.
    """
    content = b"" if body is None else body.encode()
    words = {**headers, "Accept-Encoding": "identity", "Connection": "close"}
    if body is not None or method != "GET":
        words["Content-Length"] = str(len(content))
    if method not in _METHODS or not path.startswith("/") or not _is_plain(path) or " " in path:
        raise Unreachable(f"{method} {path!r} cannot be a request: it has characters that no path may have")
    for name, value in words.items():
        if not _is_plain(name + value):
            raise Unreachable(f"the header {name} cannot be sent: it has characters that no header may have")
    head = "".join(f"{name}: {value}\r\n" for name, value in words.items())
    return f"{method} {path} HTTP/1.1\r\n{head}\r\n".encode("ascii") + content


class _Channel:
    """A socket whose every operation ends in time.

    ``timeout``: seconds for all of it, however slowly it comes; or for connecting and for each read.
    """

    def __init__(self, timeout: Timeout) -> None:
        self._is_whole = not isinstance(timeout, tuple)
        self._connecting, self._reading = timeout if isinstance(timeout, tuple) else (timeout, timeout)
        self._deadline = time.monotonic() + self._reading
        self._socket: socket.socket | None = None

    def open(self, host: str, port: int, ca_file: str | None) -> None:
        # As bytes: for a text, Python imports its tables of international names, 3 ms of CPU for each short child.
        name: Any = host.encode("ascii")
        plain = self._socket = socket.create_connection((name, port), timeout=self._connecting)
        if ca_file is not None:
            import ssl  # noqa: PLC0415 - only here, and slow to import

            plain.settimeout(min(self._connecting, self._left()))
            context = ssl.create_default_context(cafile=ca_file)
            # A connection that ends without TLS's own end was cut off by somebody: that is an error, and not the end.
            # Python 3.10 to 3.11.3 let OpenSSL 3 take it for the end: so does Debian 12's, which our images have.
            context.options &= ~getattr(ssl, "OP_IGNORE_UNEXPECTED_EOF", 0)
            self._socket = context.wrap_socket(plain, server_hostname=name, suppress_ragged_eofs=False)

    def send(self, content: bytes) -> None:
        self._ready().sendall(content)

    def receive(self, most: int) -> bytes:
        return self._ready().recv(most)

    def close(self) -> None:
        if self._socket is not None:
            self._socket.close()

    def _ready(self) -> socket.socket:
        assert self._socket is not None  # noqa: S101 - opened before
        self._socket.settimeout(self._left())
        return self._socket

    def _left(self) -> float:
        left = self._deadline - time.monotonic() if self._is_whole else self._reading
        if left <= 0:
            raise TimeoutError("timed out")
        return left


def _address(authority: str, has_tls: bool) -> tuple[str, int]:
    host, colon, port = authority.rpartition(":")
    if not colon or authority.endswith("]"):
        host, port = authority, "443" if has_tls else "80"
    if not (port.isascii() and port.isdigit()):
        raise Unreachable(f"{authority} is not the address of a server")
    return host.strip("[]"), int(port)


def _is_plain(text: str) -> bool:
    return text.isascii() and text.isprintable()


@contextmanager
def _translated() -> Iterator[None]:
    try:
        yield
    except (MalformedResponse, OSError) as error:
        raise Unreachable(str(error) or type(error).__name__) from error
