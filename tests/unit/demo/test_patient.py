"""The tests' client waits where the API server asks for it."""

from collections.abc import Iterator, Mapping

import pytest

from demo import patient
from demo.patient import APPLIES, ATTEMPTS, BUSY, PatientClient
from kube_api.connection import Response, Timeout
from kube_api.errors import KubeApiError, NotFound, ServerUnavailable, TooManyRequests, Unreachable


class _Reply:
    def __init__(self, status: int, retry_after: str | None = None, content: bytes = b"{}") -> None:
        self.status = status
        self._retry_after = retry_after
        self._content = content

    def header(self, name: str) -> str | None:
        return self._retry_after if name == "Retry-After" else None

    def read(self) -> bytes:
        return self._content

    def chunks(self) -> Iterator[bytes]:
        yield b"{}"

    def close(self) -> None:
        pass


class _Server:
    def __init__(self, *replies: _Reply | Unreachable) -> None:
        self.replies = list(replies)

    def send(
        self, method: str, path: str, *, body: str | None, headers: Mapping[str, str], timeout: Timeout
    ) -> Response:
        assert (method, path, body) in [("GET", "/x", None), ("PATCH", "/x?fieldManager=m&force=true", "{}")]
        assert headers
        assert timeout
        reply = self.replies.pop(0)
        if isinstance(reply, Unreachable):
            raise reply
        return reply


def test_it_asks_again_until_there_is_an_answer() -> None:
    """A new definition is there a second later."""
    server = _Server(_Reply(429, "0"), _Reply(429, "0"), _Reply(200))
    assert PatientClient(server).get("/x") == {}
    assert server.replies == []


def test_a_server_that_is_too_busy_to_decide_is_asked_again() -> None:
    """It has written nothing."""
    server = _Server(_Reply(500, content=f"Internal error occurred: {BUSY}".encode()), _Reply(200))
    assert PatientClient(server).get("/x") == {}
    assert server.replies == []


SILENT = Unreachable("read timed out")


def test_an_apply_that_gets_no_answer_is_repeated(monkeypatch: pytest.MonkeyPatch) -> None:
    """It is the same if the first one has been done; not for ever, and what else gets no answer is an error at once."""
    monkeypatch.setattr(patient, "BUSY_PAUSE_SECONDS", 0.0)
    server = _Server(SILENT, SILENT, _Reply(200))
    assert PatientClient(server).apply("/x", {}, field_manager="m") == {}
    assert server.replies == []
    server = _Server(*[SILENT] * APPLIES)
    with pytest.raises(Unreachable):
        PatientClient(server).apply("/x", {}, field_manager="m")
    assert server.replies == []
    with pytest.raises(Unreachable):
        PatientClient(_Server(SILENT, _Reply(200))).get("/x")


@pytest.mark.parametrize("replies", [1, ATTEMPTS])
def test_it_does_not_ask_for_ever(replies: int) -> None:
    """Neither where no time is named, nor where the time never comes."""
    server = _Server(*[_Reply(429, None if replies == 1 else "0")] * replies)
    with pytest.raises(TooManyRequests):
        PatientClient(server).get("/x")
    assert server.replies == []


@pytest.mark.parametrize(("status", "error"), [(404, NotFound), (500, ServerUnavailable)])
def test_any_other_answer_is_an_error_at_once(status: int, error: type[KubeApiError]) -> None:
    """Only these pass by themselves."""
    server = _Server(_Reply(status))
    with pytest.raises(error):
        PatientClient(server).get("/x")
