"""What is read of the pods of a node that is drained, and of which nodes they are read."""

from dataclasses import replace
from typing import Any

import pytest

from driver_builder.cluster.read_node_pods import drained, read_node_pod, read_node_pods
from driver_builder.rollout.draining import Draining, render_draining
from driver_builder.snapshot.node_pods import NodePod, NodePods
from kube_api import names
from kube_api.client import Object
from tests.support.driver_builder.factories import node
from tests.support.driver_builder.memory_client import MemoryClient


def pod(metadata: Object | None = None, spec: Object | None = None, status: Object | None = None) -> Object:
    """Make a pod of the API server."""
    return {
        "metadata": {"name": "web", "namespace": "apps", "uid": "u", **(metadata or {})},
        "spec": {"nodeName": "node-a", **(spec or {})},
        "status": status or {},
    }


def container(**resources: Any) -> Object:
    """Make a container."""
    return {"name": "a", "resources": resources}


def owned(metadata: Object | None = None, spec: Object | None = None, uid: str = "job") -> Object:
    """Make a pod that a controller creates again."""
    owner = {"kind": "Job", "controller": True, "uid": uid}
    return pod({"ownerReferences": [owner], **(metadata or {})}, spec)


def claiming(claims: list[Object], **status: Any) -> Object:
    """Make a pod with ResourceClaims."""
    return {**owned(spec={"resourceClaims": claims}), "status": status}


@pytest.mark.parametrize(
    ("obj", "expected"),
    [
        pytest.param(pod(), {"is_bare": True}, id="nothing said"),
        pytest.param(pod({"labels": {"a": "b"}}), {"labels": {"a": "b"}, "is_bare": True}, id="labels"),
        pytest.param(
            pod(spec={"containers": [container(requests={"cpu": 1, "a.b/c": "1"})]}),
            {"resources": frozenset({"a.b/c"}), "is_bare": True}, id="a request",
        ),
        pytest.param(
            pod(spec={"initContainers": [container(limits={"a.b/c": 2}), container(limits={"a.b/d": "0"})]}),
            {"resources": frozenset({"a.b/c"}), "is_bare": True},
            id="a limit of an init container, and none of another resource",
        ),
        pytest.param(owned(spec={"nodeSelector": {"a": "b"}}), {"node_selector": frozenset("a")}, id="selector"),
        pytest.param(
            pod({"ownerReferences": [{"kind": "DaemonSet", "controller": True}]}), {"is_daemon": True}, id="DaemonSet"
        ),
        pytest.param(
            pod({"ownerReferences": [{"kind": "DaemonSet", "name": "agent", "controller": True}]}),
            {"is_daemon": True, "daemon_set": "agent"},
            id="a DaemonSet with its name",
        ),
        pytest.param(pod({"ownerReferences": [{"kind": "Job", "name": "agent", "controller": True}]}), {}, id="Job"),
        pytest.param(pod({"annotations": {"kubernetes.io/config.mirror": "x"}}), {"is_mirror": True}, id="mirror"),
        pytest.param(pod(status={"phase": "Succeeded"}), {"has_ended": True, "is_bare": True}, id="ended"),
        pytest.param(owned({"deletionTimestamp": "2023-11-14T22:13:20Z"}), {"deleting": True}, id="on its way"),
        pytest.param(owned(spec={"volumes": [{"emptyDir": {}}]}), {"has_local_data": True}, id="files on the disk"),
        pytest.param(owned(spec={"volumes": [{"emptyDir": {"medium": "Memory"}}, {"secret": {}}]}), {}, id="in memory"),
        pytest.param(owned({"labels": {"driverwright.io/driver-container": "x"}}),
                     {"labels": {"driverwright.io/driver-container": "x"}}, id="our label, which anybody may write"),
        pytest.param(owned(spec={"priorityClassName": "system-node-critical"}), {"is_critical": True}, id="critical"),
        pytest.param(owned(spec={"priorityClassName": "mine"}), {}, id="a priority of somebody's own"),
        pytest.param(
            claiming([{"name": "a", "resourceClaimName": "by-name"}]), {"claims": frozenset({"by-name"})},
            id="a claim by its name",
        ),
        pytest.param(
            claiming([{"name": "a", "resourceClaimTemplateName": "t"}, {"name": "b", "resourceClaimTemplateName": "u"}],
                     resourceClaimStatuses=[{"name": "a", "resourceClaimName": "web-a-x"}, {"name": "b"}]),
            {"claims": frozenset({"web-a-x"})}, id="claims of templates, of which one is not needed",
        ),
        pytest.param(
            claiming([], extendedResourceClaimStatus={"resourceClaimName": "web-ext", "requestMappings": []}),
            {"claims": frozenset({"web-ext"})}, id="a claim of an extended resource",
        ),
        pytest.param(pod(spec={"containers": 7}), {}, id="beyond us"),
    ],
)  # fmt: skip
def test_what_a_pod_says(obj: Object, expected: dict[str, Any]) -> None:
    """Whoever wrote it."""
    assert read_node_pod(obj) == NodePod(namespace="apps", name="web", uid="u", **expected)


@pytest.mark.parametrize(
    ("namespace", "uid", "expected"),
    [("apps", "known", True), ("apps", "another", False), ("tenant", "known", False)],
    ids=["known", "unknown", "known in another namespace"],
)
def test_ours_is_what_an_object_of_ours_controls(namespace: str, uid: str, expected: bool) -> None:
    """By uid, in the namespace of that object: an owner reference reaches no further."""
    assert read_node_pod(owned({"namespace": namespace}, uid=uid), {("apps", "known")}).is_ours is expected


def test_the_pods_of_one_node_are_listed_in_all_namespaces() -> None:
    """And no others."""
    client = MemoryClient()
    for namespace, where in (("apps", "node-a"), ("more", "node-a"), ("apps", "node-b")):
        body = pod({"name": f"{namespace}-{where}"}, {"nodeName": where})
        client.create(f"/api/v1/namespaces/{namespace}/pods", body)
    found = read_node_pods(client, ["node-a"])["node-a"]
    assert [str(item) for item in found.pods] == ["pod apps/apps-node-a", "pod more/more-node-a"]


def test_without_the_right_to_list_that_is_what_is_known() -> None:
    """It is no error of the reconcile."""
    client = MemoryClient()
    client.forbidden = ("/api/v1/pods",)
    assert read_node_pods(client, ["node-a"]) == {"node-a": NodePods(unread="GET /api/v1/pods: 403 Forbidden")}


@pytest.mark.parametrize(
    ("record", "expected"),
    [
        pytest.param(Draining(driver="ns/edu", since=7), ("node-a",), id="it drains"),
        pytest.param(Draining(driver="ns/edu", is_drained=True), (), id="it is drained"),
        pytest.param(Draining(driver="ns/edu", failed="x", retry_at=9), (), id="it rests"),
        pytest.param(Draining(driver="ns/other"), (), id="another controller's"),
    ],
)
def test_pods_are_read_only_while_a_node_drains(record: Draining, expected: tuple[str, ...]) -> None:
    """A fleet has a hundred thousand of them."""
    made = node()
    noted = replace(made, annotations={**made.annotations, names.DRAINING_ANNOTATION: render_draining(record)})
    assert drained((noted, node("node-b")), ["ns/edu"]) == expected
