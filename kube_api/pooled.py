"""Connections that are kept and shared between threads (urllib3): for programs with many requests."""

from collections.abc import Callable, Iterator, Mapping
from contextlib import contextmanager

import urllib3

from kube_api.connection import Response, Timeout
from kube_api.errors import Unreachable

_CHUNK = 1 << 16


class PooledResponse:
    """A response of urllib3."""

    def __init__(self, response: urllib3.BaseHTTPResponse) -> None:
        self._response = response
        self.status = response.status

    def header(self, name: str) -> str | None:
        """Return a header's value."""
        return self._response.headers.get(name)

    def read(self) -> bytes:
        """Read all of the body."""
        with _translated():
            return self._response.data

    def chunks(self) -> Iterator[bytes]:
        """Read the body as it comes."""
        with _translated():
            if self._response.chunked:
                yield from self._response.stream(None, decode_content=True)
                return
            # A proxy may send a watch without chunks, up to the end of the connection: stream() would wait for that.
            while chunk := self._response.read1(_CHUNK, decode_content=True):
                yield chunk

    def close(self) -> None:
        """Close it, read to its end or not."""
        self._response.close()
        self._response.release_conn()


class PooledConnection:
    """``authorization`` returns the headers with credentials; it is called for each request."""

    def __init__(self, server: str, pool: urllib3.PoolManager, authorization: Callable[[], Mapping[str, str]]) -> None:
        self.server = server
        self.pool = pool
        self._authorization = authorization

    def send(
        self, method: str, path: str, *, body: str | None, headers: Mapping[str, str], timeout: Timeout
    ) -> Response:
        """Send a request; see :class:`kube_api.connection.Connection`."""
        with _translated():
            response = self.pool.request(
                method, self.server + path, body=body, headers={**headers, **self._authorization()},
                preload_content=False, redirect=False, retries=False, timeout=_urllib3_timeout(timeout),
            )  # fmt: skip
        return PooledResponse(response)


def _urllib3_timeout(timeout: Timeout) -> urllib3.Timeout:
    if isinstance(timeout, tuple):
        return urllib3.Timeout(connect=timeout[0], read=timeout[1])
    return urllib3.Timeout(total=timeout)


@contextmanager
def _translated() -> Iterator[None]:
    try:
        yield
    except (urllib3.exceptions.HTTPError, OSError) as error:
        raise Unreachable(str(error)) from error
