"""Text that comes in chunks, as lines."""

from collections.abc import Iterator, Mapping
from dataclasses import dataclass

import pytest

from kube_api.client import MAX_LOG_LINE, Client
from kube_api.connection import Timeout
from kube_api.errors import Unreachable


@dataclass
class Chunks:
    """An answer, and the connection that gives it."""

    given: list[bytes]
    status: int = 200

    def send(
        self, _method: str, _path: str, *, body: str | None, headers: Mapping[str, str], timeout: Timeout
    ) -> "Chunks":
        """Answer every request alike."""
        del body, headers, timeout
        return self

    def header(self, _name: str) -> str | None:
        """Have none."""
        return None

    def read(self) -> bytes:
        """Return all at once."""
        return b"".join(self.given)

    def chunks(self) -> Iterator[bytes]:
        """Return one after the other."""
        return iter(self.given)

    def close(self) -> None:
        """Be closed."""


def test_a_log_comes_line_by_line() -> None:
    """Lines are complete, wherever the chunks of the response end."""
    assert list(Client(Chunks([b"one\ntw", b"o\n\nthr", b"ee"])).follow("/log")) == ["one", "two", "three"]


def test_a_line_of_a_log_without_an_end_is_cut() -> None:
    """A pod that prints one for ever takes no memory of ours."""
    (line,) = Client(Chunks([b"x" * 8192] * 1000)).follow("/log")
    assert len(line) <= MAX_LOG_LINE + 8192


@pytest.mark.parametrize(
    "line",
    [
        pytest.param(b'{"type": "MODIFIFD", "object": {"metadata": {"uid": "u"}}}', id="an unknown type"),
        pytest.param(b'{"type": "MODIFIED", "object": {"metbdata": {}}}', id="no metadata"),
        pytest.param(b'{"type": "MODIFIED", "object": {"metadata": null}}', id="metadata is null"),
        pytest.param(b'{"type": "MODIFIED", "object": null}', id="no object"),
    ],
)
def test_a_line_that_is_json_and_no_event_breaks_the_watch(line: bytes) -> None:
    """A flipped bit makes no object vanish, and ends no thread."""
    with pytest.raises(Unreachable, match="is not a watch event"):
        list(Client(Chunks([line + b"\n"])).watch("/api/v1/nodes", resource_version="1"))
