"""The one map from HTTP status to class."""

import json

import pytest

from kube_api.errors import (
    Conflict,
    Forbidden,
    Gone,
    Invalid,
    KubeApiError,
    NotFound,
    ServerUnavailable,
    TooManyRequests,
    Unauthorized,
    Unreachable,
    from_response,
)

STATUS = json.dumps({"kind": "Status", "reason": "AlreadyExists", "message": 'pods "a" already exists'})


@pytest.mark.parametrize(
    ("status", "kind", "temporary"),
    [
        pytest.param(400, KubeApiError, False, id="400"),
        pytest.param(401, Unauthorized, False, id="401"),
        pytest.param(403, Forbidden, False, id="403"),
        pytest.param(404, NotFound, False, id="404"),
        pytest.param(405, KubeApiError, False, id="405"),
        pytest.param(409, Conflict, True, id="409"),
        pytest.param(410, Gone, False, id="410"),
        pytest.param(415, KubeApiError, False, id="415"),
        pytest.param(422, Invalid, False, id="422"),
        pytest.param(429, TooManyRequests, True, id="429"),
        pytest.param(500, ServerUnavailable, True, id="500"),
        pytest.param(502, ServerUnavailable, True, id="502"),
        pytest.param(504, ServerUnavailable, True, id="504"),
    ],
)
def test_a_status_has_its_class(status: int, kind: type[KubeApiError], temporary: bool) -> None:
    """Each status a caller treats differently has a class, and the class says whether trying again helps."""
    error = from_response("GET /api/v1/nodes", status, STATUS)
    assert type(error) is kind
    assert (error.status, error.is_temporary) == (status, temporary)


def test_no_answer_is_temporary() -> None:
    """A server that is away comes back."""
    assert Unreachable("GET /: refused").is_temporary


def test_the_message_says_what_was_attempted_and_why_it_failed() -> None:
    """Request, status, reason and the server's own words."""
    error = from_response("POST /api/v1/pods", 409, STATUS)
    assert str(error) == 'POST /api/v1/pods: 409 AlreadyExists: pods "a" already exists'
    assert error.reason == "AlreadyExists"


@pytest.mark.parametrize(
    ("body", "words"),
    [
        pytest.param(None, "GET /: 502 ServerUnavailable: ", id="none"),
        pytest.param(b"", "GET /: 502 ServerUnavailable: ", id="empty"),
        pytest.param(b"<h1>Bad Gateway</h1>", "<h1>Bad Gateway</h1>", id="HTML"),
        pytest.param(b"\xff\xfe", "\ufffd", id="not text"),
        pytest.param("[1]", "[1]", id="JSON that is no object"),
        pytest.param('{"reason": null, "message": null}', "null", id="a status without words"),
        pytest.param("x" * 1000, "x" * 297 + "...", id="much text"),
    ],
)
def test_any_body_makes_an_error(body: str | bytes | None, words: str) -> None:
    """What a proxy sends is quoted, not trusted."""
    error = from_response("GET /", 502, body)
    assert words in str(error)
    assert len(str(error)) < 400


@pytest.mark.parametrize(
    ("header", "seconds"),
    [
        pytest.param("3", 3.0, id="seconds"),
        pytest.param(None, None, id="no header"),
        pytest.param("", None, id="empty"),
        pytest.param("-1", None, id="negative"),
        pytest.param("soon", None, id="a word"),
        pytest.param("\u00b2", None, id="a digit that is not a number"),
    ],
)
def test_retry_after_is_seconds_or_nothing(header: str | None, seconds: float | None) -> None:
    """Only whole seconds are understood."""
    assert from_response("GET /", 429, None, header).retry_after == seconds


def test_a_conflict_of_an_apply_says_who_owns_which_field() -> None:
    """By the causes: the message names the first few alone. What is no such cause is left out."""
    causes: list[object] = [
        {"reason": "FieldManagerConflict", "message": 'conflict with "nfd-worker" using v1 at 2026-01-01T00:00:00Z',
         "field": ".metadata.labels.nvidia.com/gpu.count"},
        {"reason": "FieldManagerConflict", "message": 'conflict with "kubelet" with subresource "status" using v1',
         "field": ".metadata.labels.pool"},
        {"reason": "FieldManagerConflict", "message": "in other words", "field": ".spec"},
        {"reason": "Other", "message": 'conflict with "x"', "field": ".metadata.labels.x"},
        "text",
    ]  # fmt: skip
    body = {"reason": "Conflict", "message": "Apply failed with 2 conflicts", "details": {"causes": causes}}
    error = from_response("PATCH /api/v1/nodes/n", 409, json.dumps(body))
    assert isinstance(error, Conflict)
    assert error.owners == {
        ".metadata.labels.nvidia.com/gpu.count": "nfd-worker",
        ".metadata.labels.pool": "kubelet",
    }
    other = from_response("POST /api/v1/pods", 409, STATUS)
    assert isinstance(other, Conflict)
    assert other.owners == {}
