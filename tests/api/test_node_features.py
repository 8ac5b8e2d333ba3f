"""NodeFeature objects on a real API server label nodes, with the controller's own rights."""

import threading
import time
from collections.abc import Callable, Iterator
from typing import Any

import pytest

from driver_builder.cluster.cluster_cache import ClusterCache
from driver_builder.cluster.follower import Follower
from driver_builder.cluster.kept_writes import KeptWrites
from driver_builder.model.third_party_labels import FIELD_MANAGER
from driver_builder.node_features.sync import NodeFeaturesSync
from kube_api.client import Client, Object
from kube_api.connection import Response
from kube_api.errors import Invalid
from kube_api.resources import EVENTS, NODE_FEATURES, NODES
from testbed.testbed import Testbed
from tests.support.driver_builder.labelled_nodes import node_feature
from tests.support.real_parts.acts import wait_for
from tests.support.real_parts.cluster_setup import admin, as_service_account, install, make_namespace

NAMESPACE, ELSEWHERE = "driverwright", "features-elsewhere"
NODE = "labelled-by-others"
COUNT, PRODUCT, RACK = "nvidia.com/gpu.count", "nvidia.com/gpu.product", "feature.node.kubernetes.io/rack"


@pytest.fixture
def root(control_plane_ground: Testbed) -> Iterator[Client]:
    """Return an administrator of a cluster with one more node and no NodeFeatures."""
    client = admin(control_plane_ground)
    install(client)
    make_namespace(client, ELSEWHERE)
    # Before the first apply, older servers do not know who owns what.
    body = {"apiVersion": "v1", "kind": "Node", "metadata": {"name": NODE, "annotations": {"example.io/made": "1"}}}
    client.apply(NODES.path(name=NODE), body, field_manager="kubelet")
    yield client
    client.delete(NODES.path(name=NODE))
    for namespace in (NAMESPACE, ELSEWHERE):
        for obj in client.list(NODE_FEATURES.path(namespace=namespace)).items:
            client.delete(NODE_FEATURES.path(namespace=namespace, name=obj["metadata"]["name"]))


@pytest.fixture
def start(control_plane_ground: Testbed, root: Client) -> Callable[..., NodeFeaturesSync]:
    """Start a controller's part, which knows nothing yet."""
    assert root
    own = as_service_account(control_plane_ground, NAMESPACE, "driver-builder")

    def started(*namespaces: str, stop: threading.Event | None = None) -> NodeFeaturesSync:
        cache = ClusterCache(own, namespaces=[])
        return NodeFeaturesSync(own, cache, namespaces=namespaces or [NAMESPACE], stop=stop or threading.Event())

    return started


def put(root: Client, name: str, labels: dict[str, str], *, namespace: str = NAMESPACE, node: str = NODE) -> None:
    """Make an object, or change it."""
    path = NODE_FEATURES.path(namespace=namespace, name=name)
    root.apply(path, node_feature(namespace, name, node, labels), field_manager="gfd")


def labels(root: Client) -> dict[str, str]:
    """Return the labels of the node."""
    return dict(root.get(NODES.path(name=NODE))["metadata"].get("labels") or {})


def managers(root: Client) -> set[str]:
    """Return who owns something of the node's labels."""
    entries = root.get(NODES.path(name=NODE))["metadata"].get("managedFields") or []
    return {item["manager"] for item in entries if "f:labels" in item["fieldsV1"].get("f:metadata", {})}


def noted(monkeypatch: pytest.MonkeyPatch) -> list[str]:
    """Note the method of each request to the API server."""
    methods: list[str] = []
    send = Client._send

    def noting(client: Client, method: str, path: str, **more: Any) -> Response:
        methods.append(method)
        return send(client, method, path, **more)

    monkeypatch.setattr(Client, "_send", noting)
    return methods


def said(root: Client, name: str) -> list[tuple[str, str]]:
    """Return the Events on an object."""
    found = root.list(EVENTS.path(namespace=NAMESPACE), field_selector=f"involvedObject.name={name}").items
    return [(item["reason"], item["message"]) for item in found]


def test_labels_come_and_go_and_a_steady_state_writes_nothing(
    root: Client, start: Callable[..., NodeFeaturesSync], monkeypatch: pytest.MonkeyPatch
) -> None:
    """Also for a controller that is new; at the end nothing of ours is left on the node."""
    put(root, "gfd", {COUNT: "8", "rack": "r1"})
    sync, anew = start(), start()
    sync.sync()
    assert labels(root) == {COUNT: "8", RACK: "r1"}
    # By its requests: the cluster's own controllers write to a node without a kubelet when they come to it.
    with monkeypatch.context() as patched:
        sent = noted(patched)
        sync.sync()
        anew.sync()
    assert set(sent) == {"GET"}
    assert labels(root) == {COUNT: "8", RACK: "r1"}
    put(root, "gfd", {COUNT: "4"})
    sync.sync()
    assert labels(root) == {COUNT: "4"}
    root.delete(NODE_FEATURES.path(namespace=NAMESPACE, name="gfd"))
    start().sync()
    assert labels(root) == {}
    assert FIELD_MANAGER not in managers(root)


def test_the_workers_label_wins_and_the_event_names_it(root: Client, start: Callable[..., NodeFeaturesSync]) -> None:
    """It is not taken, and it is let go when the worker takes it; the others stay."""
    own = {"apiVersion": "v1", "kind": "Node", "metadata": {"name": NODE, "labels": {COUNT: "8"}}}
    root.apply(NODES.path(name=NODE), own, field_manager="nfd-worker")
    put(root, "worker-wins", {COUNT: "1", PRODUCT: "A100", "kubernetes.io/arch": "arm64"})
    sync = start()
    sync.sync()
    sync.sync()
    assert labels(root) == {COUNT: "8", PRODUCT: "A100"}
    assert said(root, "worker-wins") == [
        ("LabelRefused", f"not set on node {NODE}: kubernetes.io/arch=arm64: the namespace kubernetes.io belongs to "
         "Kubernetes (and 1 more)")
    ]  # fmt: skip
    own["metadata"]["labels"] = {COUNT: "8", PRODUCT: "H100"}  # type: ignore[index]
    root.apply(NODES.path(name=NODE), own, field_manager="nfd-worker")
    sync.sync()
    assert labels(root) == {COUNT: "8", PRODUCT: "H100"}
    assert FIELD_MANAGER not in managers(root)


def test_a_conflict_that_comes_with_the_write_leaves_the_other_labels(
    root: Client, start: Callable[..., NodeFeaturesSync], monkeypatch: pytest.MonkeyPatch
) -> None:
    """A person was quicker: the API server names the manager of each field, and so does the Event."""
    apply, patch = KeptWrites.apply, {"metadata": {"labels": {COUNT: "9"}}}
    path = f"{NODES.path(name=NODE)}?fieldManager=somebody"

    def slowly(self: KeptWrites, *args: Any, **options: Any) -> Object:
        root.patch(path, patch)
        return apply(self, *args, **options)

    monkeypatch.setattr(KeptWrites, "apply", slowly)
    put(root, "quick", {COUNT: "1", PRODUCT: "A100", RACK: "r1"})
    start().sync()
    assert labels(root) == {COUNT: "9", PRODUCT: "A100", RACK: "r1"}
    assert said(root, "quick") == [
        ("LabelRefused", f"not set on node {NODE}: {COUNT}=1: field manager 'somebody' has set another value")
    ]


def test_a_namespace_that_is_not_allowed_is_not_read(root: Client, start: Callable[..., NodeFeaturesSync]) -> None:
    """By the list; and by RBAC, which removes nothing of what was set."""
    put(root, "gfd", {COUNT: "1"})
    put(root, "gfd", {PRODUCT: "A100"}, namespace=ELSEWHERE)
    start().sync()
    assert labels(root) == {COUNT: "1"}
    root.delete(NODE_FEATURES.path(namespace=NAMESPACE, name="gfd"))
    start(ELSEWHERE, NAMESPACE).sync()
    assert labels(root) == {COUNT: "1"}
    start("driverwright-none", NAMESPACE).sync()
    assert labels(root) == {COUNT: "1"}, "RBAC says no to a namespace that does not exist, too"
    start().sync()
    assert labels(root) == {}


def test_the_threads_follow_changes(
    control_plane_ground: Testbed, root: Client, start: Callable[..., NodeFeaturesSync]
) -> None:
    """The watches bring what happens, as in a controller."""
    assert control_plane_ground
    stop = threading.Event()
    sync = start(stop=stop)
    followers: list[Follower[Any]] = [sync._followed, *(item.follower for item in sync.namespaces)]
    threads = [threading.Thread(target=sync.run)]
    threads += [threading.Thread(target=item.run, args=(stop, lambda: None), daemon=True) for item in followers]
    for thread in threads:
        thread.start()
    try:
        put(root, "late", {COUNT: "1"})
        wait_for("the label is set", lambda: labels(root) == {COUNT: "1"})
        root.delete(NODE_FEATURES.path(namespace=NAMESPACE, name="late"))
        wait_for("the label is gone", lambda: labels(root) == {})
    finally:
        stop.set()
        threads[0].join(120)
        # A watch ends with the next event.
        root.patch(NODES.path(name=NODE), {"metadata": {"annotations": {"example.io/t": str(time.time())}}})
    assert not threads[0].is_alive()


@pytest.mark.parametrize(
    "spec", [{"labels": {"x": 1}}, {"labels": ["x"]}, {"features": {"flags": {"a.b": {}}}}, "x"], ids=str
)
def test_the_definition_refuses_what_is_no_node_feature(root: Client, spec: object) -> None:
    """As Node Feature Discovery's does."""
    obj = {**node_feature(NAMESPACE, "wrong", NODE, {}), "spec": spec}
    with pytest.raises(Invalid, match="spec"):
        root.create(NODE_FEATURES.path(namespace=NAMESPACE), obj)
