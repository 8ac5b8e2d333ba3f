"""An error is reported with its remedy."""

import json

import pytest

from kube_api.errors import from_response
from nfd_worker.publish.publish_errors import explain

RBAC = 'nodes "n" is forbidden: User "system:serviceaccount:a:b" cannot patch resource "nodes" in API group ""'
POLICY = (
    "nodes \"n\" is forbidden: ValidatingAdmissionPolicy 'nfd-worker' with binding 'nfd-worker' denied request: "
    "nfd-worker on node a may not change node n"
)


@pytest.mark.parametrize(
    ("words", "is_rbac"),
    [
        pytest.param(RBAC, True, id="RBAC"),
        pytest.param(POLICY, False, id="admission policy"),
        pytest.param('admission webhook "w" denied the request: no', False, id="webhook"),
        pytest.param('nodes "n" is forbidden: node "a" is not allowed to modify node "n"', False, id="NodeRestriction"),
        pytest.param("<h1>no</h1>", False, id="proxy"),
    ],
)
def test_a_403_blames_a_missing_clusterrole_only_where_one_is_missing(words: str, *, is_rbac: bool) -> None:
    """Only a refusal by RBAC names the missing verb; any other one shows its own message."""
    said = explain(
        from_response("PATCH /api/v1/nodes/n", 403, json.dumps({"reason": "Forbidden", "message": words})), "n"
    )
    assert ("needs the verb patch on nodes" in said) is is_rbac
    assert ("admission policy" in said) is not is_rbac
    assert words in said


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
        pytest.param("PATCH /api/v1/nodes/n", 409, "changed by other clients", id="409"),
        pytest.param("PATCH /api/v1/nodes/n", 422, "report", id="422"),
        pytest.param("PATCH /api/v1/nodes/n", 429, "overloaded", id="429"),
        pytest.param("PATCH /api/v1/nodes/n", 503, "failed temporarily", id="503"),
        pytest.param("PATCH /api/v1/nodes/n", 418, "failed temporarily", id="anything else"),
    ],
)
def test_an_error_says_what_to_do(request_line: str, status: int, words: str) -> None:
    """A message has the remedy and the server's words."""
    message = f"labels: Invalid value: 'x y'; {RBAC}"
    said = explain(from_response(request_line, status, json.dumps({"message": message})), "n")
    assert words in said
    assert f"{request_line}: {status}" in said
    assert "Invalid value: 'x y'" in said
