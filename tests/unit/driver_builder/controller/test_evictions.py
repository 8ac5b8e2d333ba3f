"""How pods are evicted: by the version that the server has, within what budgets and permissions allow."""

import json
from typing import Any

import pytest

from driver_builder.controller.evictions import Evictions
from driver_builder.nodes.changes import EvictPod
from driver_builder.snapshot.node_pods import EvictionRefused
from kube_api.client import Object
from kube_api.errors import Forbidden, KubeApiError, NotFound, Unreachable, from_response
from tests.support.driver_builder.memory_client import MemoryClient

ACTION = EvictPod(namespace="apps", name="web", uid="u", node="node-a", at=7.0)
PATH = "/api/v1/namespaces/apps/pods/web/eviction"
BUDGET = json.dumps(
    {
        "reason": "TooManyRequests",
        "message": "Cannot evict pod as it would violate the pod's disruption budget.",
        "details": {
            "causes": [
                {"reason": "DisruptionBudget", "message": "The disruption budget web needs 1 healthy pods and has 1"}
            ]
        },
    }
)


class Server(MemoryClient):
    """An API server that has one version of evictions, and may refuse them."""

    def __init__(self, version: str | None = "v1", refusal: KubeApiError | None = None) -> None:
        super().__init__()
        self.version, self.refusal = version, refusal
        self.posted: list[tuple[str, Object]] = []

    def get(self, path: str) -> Object:
        """Say which version there is."""
        assert path == "/api/v1"
        if self.version is None:
            raise Forbidden("GET /api/v1: 403", status=403)
        others: list[dict[str, Any]] = [{"name": "pods"}, {"name": "pods/log"}]
        return {"resources": [*others, {"name": "pods/eviction", "group": "policy", "version": self.version}]}

    def create(self, path: str, body: Object) -> Object:
        """Keep what was asked for."""
        self.posted.append((path, body))
        if self.refusal is not None:
            raise self.refusal
        return {"kind": "Status", "status": "Success"}


@pytest.mark.parametrize(
    ("version", "expected"), [("v1", "policy/v1"), ("v1beta1", "policy/v1beta1"), (None, "policy/v1")]
)
def test_the_version_is_the_servers(version: str | None, expected: str) -> None:
    """1.20 to 1.21 have only v1beta1, 1.25 and later only v1; without an answer it is the newer one."""
    server = Server(version)
    Evictions(server, {}).evict(ACTION)
    body = {
        "apiVersion": expected, "kind": "Eviction", "metadata": {"namespace": "apps", "name": "web"},
        "deleteOptions": {"preconditions": {"uid": "u"}},
    }  # fmt: skip
    assert server.posted == [(PATH, body)]


@pytest.mark.parametrize(
    ("error", "expected"),
    [
        pytest.param(
            from_response(f"POST {PATH}", 429, BUDGET),
            EvictionRefused(
                message="TooManyRequests: Cannot evict pod as it would violate the pod's disruption budget. "
                "The disruption budget web needs 1 healthy pods and has 1", at=7.0,
            ),
            id="a budget",
        ),
        pytest.param(
            from_response(f"POST {PATH}", 403, '{"reason":"Forbidden","message":"pods is forbidden"}'),
            EvictionRefused(message="Forbidden: pods is forbidden", at=7.0, is_forbidden=True),
            id="no permission",
        ),
        pytest.param(
            from_response(f"POST {PATH}", 500, '{"message":"more than one PodDisruptionBudget"}'),
            EvictionRefused(message="ServerUnavailable: more than one PodDisruptionBudget", at=7.0),
            id="two budgets",
        ),
    ],
)  # fmt: skip
def test_a_refusal_is_remembered(error: KubeApiError, expected: EvictionRefused) -> None:
    """It is no error of the reconcile; once the pod was evicted it is forgotten."""
    refused: dict[str, EvictionRefused] = {}
    server = Server(refusal=error)
    evictions = Evictions(server, refused)
    evictions.evict(ACTION)
    assert refused == {"u": expected}
    server.refusal = None
    evictions.evict(ACTION)
    assert refused == {}


@pytest.mark.parametrize("error", [NotFound("404", status=404), Unreachable("no response")])
def test_what_is_no_refusal_is_raised(error: KubeApiError) -> None:
    """The pod is gone, or nothing is known."""
    refused: dict[str, EvictionRefused] = {}
    with pytest.raises(type(error)):
        Evictions(Server(refusal=error), refused).evict(ACTION)
    assert refused == {}
