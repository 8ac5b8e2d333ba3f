"""Errors are told with their remedy."""

import pytest

from kube_api.errors import from_response
from nfd_worker.publish_errors import explain


@pytest.mark.parametrize(
    ("request_line", "status", "words"),
    [
        pytest.param("PATCH /api/v1/nodes/n", 401, "token", id="401"),
        pytest.param("PATCH /api/v1/nodes/n", 403, "the verb patch on nodes,", id="403 node"),
        pytest.param(
            "PATCH /api/v1/nodes/n/status?fieldManager=x", 403, "the verb patch on nodes/status,", id="403 status"
        ),
        pytest.param("GET /api/v1/nodes/n", 403, "the verb get on nodes,", id="403 read"),
        pytest.param("PATCH /api/v1/nodes/n", 404, "NODE_NAME", id="404"),
        pytest.param("PATCH /api/v1/nodes/n", 409, "changed by others", id="409"),
        pytest.param("PATCH /api/v1/nodes/n", 422, "report", id="422"),
        pytest.param("PATCH /api/v1/nodes/n", 429, "too much to do", id="429"),
        pytest.param("PATCH /api/v1/nodes/n", 503, "could not do it now", id="503"),
        pytest.param("PATCH /api/v1/nodes/n", 418, "could not do it now", id="anything else"),
    ],
)
def test_an_error_says_what_to_do(request_line: str, status: int, words: str) -> None:
    """And what the server said, to the letter."""
    said = explain(from_response(request_line, status, b"labels: Invalid value: 'x y'"), "n")
    assert words in said
    assert f"{request_line}: {status}" in said
    assert "Invalid value: 'x y'" in said
