"""A connection for one or two requests (``http.client``): half the start-up time of a pool, for short children."""

import http.client
import ssl
from collections.abc import Callable, Iterator, Mapping
from contextlib import contextmanager
from urllib.parse import urlsplit

from kube_api.connection import Answer, Timeout
from kube_api.errors import Unreachable

_CHUNK = 1 << 16


class OnceAnswer:
    """An answer of ``http.client``, with the connection that it came over."""

    def __init__(self, response: http.client.HTTPResponse, connection: http.client.HTTPConnection) -> None:
        self._response = response
        self._connection = connection
        self.status = response.status

    def header(self, name: str) -> str | None:
        """Give a header's value."""
        return self._response.headers.get(name)

    def read(self) -> bytes:
        """Read all of the body."""
        with _translated():
            return self._response.read()

    def chunks(self) -> Iterator[bytes]:
        """Read the body as it comes."""
        with _translated():
            while chunk := self._response.read1(_CHUNK):
                yield chunk
            if self._response.length:
                # Unlike read(), read1() takes a connection that broke for the end.
                raise http.client.IncompleteRead(b"", self._response.length)

    def close(self) -> None:
        """Be done with it."""
        self._connection.close()


class OnceConnection:
    """Each request opens a connection of its own, with TLS checked against ``ca_file``.

    ``authorization`` gives the headers that say who asks; it is called for each request.
    """

    def __init__(self, server: str, ca_file: str, authorization: Callable[[], Mapping[str, str]]) -> None:
        self.server = server
        self._address = urlsplit(server)
        self._ca_file = ca_file
        self._authorization = authorization

    def send(self, method: str, path: str, *, body: str | None, headers: Mapping[str, str], timeout: Timeout) -> Answer:
        """Send a request; see :class:`kube_api.connection.Connection`."""
        seconds = max(timeout) if isinstance(timeout, tuple) else timeout
        with _translated():
            connection = self._open(seconds)
            try:
                connection.request(method, path, body, {**headers, **self._authorization()})
                return OnceAnswer(connection.getresponse(), connection)
            except BaseException:
                connection.close()
                raise

    def _open(self, seconds: float) -> http.client.HTTPConnection:
        host, port = self._address.hostname or "", self._address.port
        if self._address.scheme != "https":
            return http.client.HTTPConnection(host, port, timeout=seconds)
        return http.client.HTTPSConnection(
            host, port, timeout=seconds, context=ssl.create_default_context(cafile=self._ca_file)
        )


@contextmanager
def _translated() -> Iterator[None]:
    try:
        yield
    except (http.client.HTTPException, OSError) as error:
        raise Unreachable(str(error) or type(error).__name__) from error
