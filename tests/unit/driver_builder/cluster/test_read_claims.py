"""Which drivers allocated the claims of pods on a node that is drained: asked only where it matters."""

from typing import Any

import pytest

from driver_builder.cluster.read_claims import with_claims
from driver_builder.snapshot.node_pods import NodePod, NodePods
from kube_api.client import Object
from kube_api.errors import Unreachable
from kube_api.resources import RESOURCE_CLAIMS
from tests.support.driver_builder.memory_client import MemoryClient

GROUP = "/apis/resource.k8s.io"


class Asked(MemoryClient):
    """An API server that keeps in mind what was read."""

    def __init__(self, *versions: str) -> None:
        super().__init__()
        self.asked: list[str] = []
        if versions:
            self.objects[GROUP] = {"metadata": {}, "versions": [{"version": version} for version in versions]}

    def get(self, path: str) -> Object:
        """Read an object."""
        self.asked.append(path)
        return super().get(path)

    def allocate(self, name: str, *drivers: str) -> None:
        """Add a claim that these drivers allocated."""
        results = [{"request": "a", "pool": "p", "device": "d", "driver": driver} for driver in drivers]
        allocated = {"status": {"allocation": {"devices": {"results": results}}}} if drivers else {}
        self.objects[claim(name)] = {"metadata": {"name": name, "namespace": "apps"}, **allocated}


def claim(name: str) -> str:
    """Return the path of a claim."""
    return RESOURCE_CLAIMS.path(namespace="apps", name=name)


def pods(*claims: str, **others: Any) -> NodePods:
    """Make a node with a pod that has these claims, and one without any."""
    using = NodePod(namespace="apps", name="web", uid="u", claims=frozenset(claims), **others)
    return NodePods(pods=(using, NodePod(namespace="apps", name="other", uid="o")))


@pytest.mark.parametrize(
    ("claims", "expected"),
    [
        pytest.param(["gpu"], {"gpu.example.com"}, id="one driver"),
        pytest.param(["both"], {"gpu.example.com", "net.example.com"}, id="devices of two drivers"),
        pytest.param(["gpu", "net"], {"gpu.example.com", "net.example.com"}, id="two claims"),
        pytest.param(["pending"], set(), id="not allocated"),
        pytest.param(["gone"], set(), id="gone"),
    ],
)
def test_a_claim_leads_to_its_drivers(claims: list[str], expected: set[str]) -> None:
    """By what was allocated, not by what was requested."""
    client = Asked("v1beta1", "v1")
    client.allocate("gpu", "gpu.example.com")
    client.allocate("net", "net.example.com")
    client.allocate("both", "gpu.example.com", "net.example.com")
    client.allocate("pending")
    found = with_claims(client, {"node-a": pods(*claims)}, {"node-a"})["node-a"]
    assert [pod.claim_drivers for pod in found.pods] == [expected, set()]
    assert found.unseen == ""
    assert sorted(client.asked) == sorted([GROUP, *map(claim, claims)]), "each is asked for once"


@pytest.mark.parametrize(
    ("found", "nodes"),
    [
        pytest.param(pods(), {"node-a"}, id="no pod has a claim"),
        pytest.param(pods("gpu"), set(), id="no driver wants to know"),
        pytest.param(NodePods(unread="403"), {"node-a"}, id="the pods may not be listed"),
    ],
)
def test_nothing_is_asked_where_it_changes_nothing(found: NodePods, nodes: set[str]) -> None:
    """Most clusters have no claims."""
    client = Asked("v1")
    assert with_claims(client, {"node-a": found}, nodes) == {"node-a": found}
    assert client.asked == []


def test_an_api_server_without_the_group_is_asked_for_no_claim() -> None:
    """It has none."""
    client = Asked()
    assert with_claims(client, {"node-a": pods("gpu")}, {"node-a"}) == {"node-a": pods("gpu")}
    assert client.asked == [GROUP]


@pytest.mark.parametrize(
    ("versions", "forbidden", "expected"),
    [
        pytest.param(("v1beta2", "v1beta1"), (), "resource.k8s.io as v1beta2, v1beta1, and not as v1", id="before v1"),
        pytest.param(("v1",), ("/apis/resource.k8s.io/v1",), "may not be read: GET", id="no right"),
        pytest.param(("v1",), ("/apis/resource.k8s.io",), "may not be read: GET", id="no right to ask for versions"),
    ],
)  # fmt: skip
def test_claims_that_cannot_be_read_are_said(
    versions: tuple[str, ...], forbidden: tuple[str, ...], expected: str
) -> None:
    """And change nothing of the other pods."""
    client = Asked(*versions)
    client.forbidden = forbidden
    found = with_claims(client, {"node-a": pods("gpu"), "node-b": pods("gpu")}, {"node-a"})
    assert expected in found["node-a"].unseen
    assert found["node-a"].pods == pods("gpu").pods
    assert found["node-b"] == pods("gpu")


def test_an_api_server_that_does_not_answer_is_no_answer() -> None:
    """The reconcile ends, as where pods cannot be listed: a user that is not seen would lose its driver."""
    client = Asked("v1")
    client.faults = [Unreachable("no answer")]
    with pytest.raises(Unreachable):
        with_claims(client, {"node-a": pods("gpu")}, {"node-a"})
