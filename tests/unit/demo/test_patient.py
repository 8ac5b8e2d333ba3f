"""The tests' client waits where the API server asks for it."""

from collections.abc import Iterator, Mapping

import pytest

from demo.patient import ATTEMPTS, PatientClient
from kube_api.connection import Response, Timeout
from kube_api.errors import NotFound, TooManyRequests


class _Reply:
    def __init__(self, status: int, retry_after: str | None = None) -> None:
        self.status = status
        self._retry_after = retry_after

    def header(self, name: str) -> str | None:
        return self._retry_after if name == "Retry-After" else None

    def read(self) -> bytes:
        return b"{}"

    def chunks(self) -> Iterator[bytes]:
        yield b"{}"

    def close(self) -> None:
        pass


class _Server:
    def __init__(self, *replies: _Reply) -> None:
        self.replies = list(replies)

    def send(
        self, method: str, path: str, *, body: str | None, headers: Mapping[str, str], timeout: Timeout
    ) -> Response:
        assert (method, path, body) == ("GET", "/x", None)
        assert headers
        assert timeout
        return self.replies.pop(0)


def test_it_asks_again_until_there_is_an_answer() -> None:
    """A new definition is there a second later."""
    server = _Server(_Reply(429, "0"), _Reply(429, "0"), _Reply(200))
    assert PatientClient(server).get("/x") == {}
    assert server.replies == []


@pytest.mark.parametrize("replies", [1, ATTEMPTS])
def test_it_does_not_ask_for_ever(replies: int) -> None:
    """Neither where no time is named, nor where the time never comes."""
    server = _Server(*[_Reply(429, None if replies == 1 else "0")] * replies)
    with pytest.raises(TooManyRequests):
        PatientClient(server).get("/x")
    assert server.replies == []


def test_any_other_answer_is_an_error_at_once() -> None:
    """Only 429 passes by itself."""
    server = _Server(_Reply(404))
    with pytest.raises(NotFound):
        PatientClient(server).get("/x")
