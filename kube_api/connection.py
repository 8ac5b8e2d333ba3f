"""What a connection to the API server is: one request, one response. Those there are: pooled, and for once."""

from collections.abc import Iterator, Mapping
from typing import Protocol

CONNECTIONS = 64
"""Idle connections that a pool keeps: one for each thread that watches or asks. urllib3 keeps one, and warns."""

Timeout = float | tuple[float, float]
"""Seconds for all of a request, or for connecting and for each read."""


class Response(Protocol):
    """A response. Reading it raises Unreachable when the connection breaks."""

    status: int

    def header(self, name: str) -> str | None:
        """Return a header's value."""

    def read(self) -> bytes:
        """Read all of the body."""

    def chunks(self) -> Iterator[bytes]:
        """Read the body as it comes."""

    def close(self) -> None:
        """Close it, read to its end or not."""


class Connection(Protocol):
    """A connection to one API server."""

    def send(
        self, method: str, path: str, *, body: str | None, headers: Mapping[str, str], timeout: Timeout
    ) -> Response:
        """Send a request and wait for the head of its response, whatever its status.

        Raises:
            Unreachable: there is no response, or there are no credentials.
        """
