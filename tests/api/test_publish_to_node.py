"""Publishing to a Node of a real API server: what is owned, shared, taken over, left alone, and what is refused.

Everything here goes through the publish child's own code, with the service account of ``deploy/`` and no more. There is
no kubelet, and the controller manager is stopped: that of Kubernetes 1.20 writes lists of taints without looking
whether somebody has changed them meanwhile. ``test_worker_publish.py`` drives the whole worker beside it.
"""

import itertools
import os
import select
import threading
import time
from collections.abc import Callable, Iterator
from contextlib import suppress
from pathlib import Path
from typing import Any, cast

import pytest
import yaml

from feature_rules.model import Taint
from kube_api.client import JSON_PATCH, Client
from kube_api.errors import Conflict, Forbidden, Invalid, NotFound
from kube_api.resources import CLUSTER_ROLE_BINDINGS, CLUSTER_ROLES, NODES, SERVICE_ACCOUNTS
from nfd_worker.labels.node_content import NodeContent, Unknown
from nfd_worker.publish.publish_child import ATTEMPTS, publish, unpublish
from nfd_worker.publish.publish_errors import explain
from nfd_worker.publish.publisher import start_child
from nfd_worker.publish.tracking import EXTENDED_RESOURCES, TAINTS
from nfd_worker.publish.wire import UNPUBLISH, PublishAnswer, PublishRequest
from testbed.testbed import Testbed
from tests.support.real_parts.cluster_setup import Json, admin, as_service_account, install

NAMESPACE = "driverwright"
FEATURE = "feature.node.kubernetes.io"
NFD = "nfd.node.kubernetes.io"
GPU, OLD, SLOTS, CARDS = (f"{FEATURE}/{name}" for name in ("gpu", "old", "slots", "cards"))
TAINT = Taint(GPU, "true", "NoSchedule")
THEIRS: Json = {"key": "example.io/theirs", "value": "1", "effect": "PreferNoSchedule"}
FULL = NodeContent({GPU: "true"}, {f"{FEATURE}/note": "hello"}, {SLOTS: "2"}, (TAINT,))
BARE: Json = {
    "labels": {"example.io/rack": "r1"},
    "annotations": {"example.io/owner": "me"},
    "capacity": {"cpu": "4"},
    "allocatable": {"cpu": "4"},
    "taints": [THEIRS],
}
PUBLISHED: Json = {
    "labels": {"example.io/rack": "r1", GPU: "true"},
    "annotations": {
        "example.io/owner": "me",
        f"{FEATURE}/note": "hello",
        **dict.fromkeys(EXTENDED_RESOURCES, "slots"),
        **dict.fromkeys(TAINTS, f"{GPU}=true:NoSchedule"),
    },
    "capacity": {"cpu": "4", SLOTS: "2"},
    "allocatable": {"cpu": "4", SLOTS: "2"},
    "taints": [THEIRS, {"key": GPU, "value": "true", "effect": "NoSchedule"}],
}


@pytest.fixture(scope="module")
def root(control_plane_ground: Testbed) -> Iterator[Client]:
    """Install the accounts and stop the controller manager; give the administrator."""
    client = admin(control_plane_ground)
    install(client)
    control_plane_ground.control_plane.stop("kube-controller-manager")
    yield client
    control_plane_ground.control_plane.start("kube-controller-manager")


@pytest.fixture(scope="module")
def worker(control_plane_ground: Testbed, root: Client) -> Client:
    """Connect as nfd-worker."""
    assert root
    return as_service_account(control_plane_ground, NAMESPACE, "nfd-worker")


@pytest.fixture
def make_node(root: Client) -> Iterator[Callable[[], str]]:
    """Make Nodes that somebody else has labelled and tainted."""
    made: list[str] = []

    def make() -> str:
        made.append(f"publish-test-{time.monotonic_ns()}")
        root.create(NODES.path(), node_object(made[-1]))
        return made[-1]

    yield make
    for name in made:
        with suppress(NotFound):
            root.delete(NODES.path(name=name))


@pytest.fixture
def node(make_node: Callable[[], str]) -> str:
    """Make one Node."""
    return make_node()


def node_object(name: str) -> Json:
    """Make a Node as others leave it."""
    return {
        "apiVersion": "v1",
        "kind": "Node",
        "metadata": {"name": name, "labels": BARE["labels"], "annotations": BARE["annotations"]},
        "spec": {"taints": BARE["taints"]},
        "status": {"capacity": BARE["capacity"], "allocatable": BARE["allocatable"]},
    }


def request(name: str, content: NodeContent = FULL, unknown: Unknown | None = None, **others: Any) -> PublishRequest:
    """Make a request."""
    return PublishRequest(name, content, unknown, **others)


def read(root: Client, name: str) -> Json:
    """Read the Node."""
    return root.get(NODES.path(name=name))


def carried(root: Client, name: str) -> Json:
    """Give all that publishing can change; what the cluster's own controllers write is left out."""
    found = read(root, name)
    metadata, status = found["metadata"], found["status"]
    return {
        "labels": _ours_or_theirs(metadata.get("labels", {})),
        "annotations": _ours_or_theirs(metadata.get("annotations", {})),
        "capacity": status.get("capacity", {}),
        "allocatable": status.get("allocatable", {}),
        "taints": [t for t in found["spec"].get("taints", []) if not t["key"].startswith("node.kubernetes.io/")],
    }


def _ours_or_theirs(values: Json) -> Json:
    known = (FEATURE, NFD, "example.io/", "vendor.example/", "driverwright.io/")
    return {key: value for key, value in values.items() if key.startswith(known) or f".{NFD}/" in key}


def version(root: Client, name: str) -> str:
    """Give what is written of the Node by which managers: changes of controllers elsewhere do not count."""
    ours = [e for e in read(root, name)["metadata"]["managedFields"] if e["manager"].startswith("nfd-")]
    return repr(sorted((e["manager"], e["operation"], e.get("time")) for e in ours))


# ---------------------------------------------------------------- publish


def test_everything_comes_and_goes_and_what_others_wrote_stays(root: Client, worker: Client, node: str) -> None:
    """Labels, annotations, extended resources and taints, with the rights of deploy/ and no more."""
    assert publish(request(node), worker) == PublishAnswer()
    assert carried(root, node) == PUBLISHED
    publish(request(node, NodeContent()), worker)
    assert carried(root, node) == BARE


def test_publishing_the_same_again_writes_nothing(root: Client, worker: Client, node: str) -> None:
    """A second publish of the same content changes nothing, not even managedFields."""
    publish(request(node), worker)
    before = version(root, node)
    time.sleep(1.1)
    publish(request(node), worker)
    assert version(root, node) == before


@pytest.mark.parametrize(
    ("wanted", "written"),
    [
        pytest.param("2048", "2048", id="as it is"),
        pytest.param("3000", "3k", id="made shorter by the API server"),
        pytest.param("1024Ki", "1Mi", id="binary"),
        pytest.param("1500m", "1500m", id="a fraction"),
        pytest.param("0", "0", id="none"),
    ],
)
def test_quantities_are_compared_by_value(root: Client, worker: Client, node: str, wanted: str, written: str) -> None:
    """The API server writes them its own way; that is no reason to write again."""
    content = NodeContent(extended_resources={SLOTS: wanted})
    publish(request(node, content), worker)
    assert carried(root, node)["capacity"][SLOTS] == written
    before = version(root, node)
    time.sleep(1.1)
    publish(request(node, content), worker)
    assert version(root, node) == before


def test_a_node_without_a_status_gets_resources(root: Client, worker: Client, node: str) -> None:
    """It has just been registered."""
    bare = f"{node}-bare"
    root.create(NODES.path(), {"metadata": {"name": bare}})
    publish(request(bare), worker)
    assert carried(root, bare)["allocatable"] == {SLOTS: "2"}
    unpublish(bare, worker)
    assert carried(root, bare) == {
        **{part: {} for part in ("labels", "annotations", "capacity", "allocatable")},
        "taints": [],
    }
    root.delete(NODES.path(name=bare))


def test_what_others_change_of_ours_is_set_again(root: Client, worker: Client, node: str) -> None:
    """A kubelet that restarts may set resources to 0; people do anything."""
    publish(request(node), worker)
    zero = {"status": {"capacity": {SLOTS: "0"}, "allocatable": {SLOTS: "0"}}}
    root.patch(NODES.path(name=node, subresource="status") + "?fieldManager=kubelet", zero)
    root.patch(NODES.path(name=node), {"metadata": {"labels": {GPU: None}}, "spec": {"taints": [THEIRS]}})
    publish(request(node), worker)
    assert carried(root, node) == PUBLISHED
    publish(request(node, NodeContent()), worker)
    assert carried(root, node) == BARE


def test_what_no_source_could_say_stays(root: Client, worker: Client, node: str) -> None:
    """Until all is known again."""
    publish(request(node), worker)
    publish(request(node, NodeContent(), Unknown(known_prefixes=(f"{FEATURE}/slots",))), worker)
    kept = carried(root, node)
    assert (kept["labels"], kept["taints"]) == (PUBLISHED["labels"], PUBLISHED["taints"])
    assert kept["capacity"] == BARE["capacity"]
    publish(request(node, NodeContent()), worker)
    assert carried(root, node) == BARE


def test_a_bad_file_holds_what_the_record_says_and_nothing_else(root: Client, worker: Client, node: str) -> None:
    """Across restarts: the record comes with the labels, and goes with the last of them."""
    made = FULL._replace(labels={**FULL.labels, OLD: "1"})
    publish(request(node, made, origins={"rules.d/a.yaml": (GPU, SLOTS), "features.d/f": (OLD,)}), worker)
    for _ in range(2):
        publish(request(node, NodeContent(), Unknown(origins=("rules.d/a.yaml", "custom.d/README"))), worker)
        kept = carried(root, node)
        assert (kept["labels"], kept["taints"]) == (PUBLISHED["labels"], PUBLISHED["taints"])
        assert kept["capacity"] == PUBLISHED["capacity"]
    publish(request(node, NodeContent(), Unknown(origins=("custom.d/README",))), worker)
    assert carried(root, node) == BARE


def test_a_taint_of_somebody_else_is_left_though_we_want_the_same(root: Client, worker: Client, node: str) -> None:
    """It is not removed later either."""
    held = Taint(THEIRS["key"], "other", THEIRS["effect"])
    answer = publish(request(node, NodeContent(taints=(held,))), worker)
    assert "another client" in answer.notes[0]
    publish(request(node, NodeContent()), worker)
    assert carried(root, node) == BARE


def test_taints_that_others_change_at_the_same_time_survive(root: Client, worker: Client, node: str) -> None:
    """Neither side loses one, over many conflicts."""
    stop = threading.Event()
    theirs: list[set[str]] = []

    def meddle() -> None:
        for number in itertools.count():
            if stop.is_set():
                return
            with suppress(Conflict):
                theirs.append(_toggle(root, node, f"example.io/{number % 3}"))
            time.sleep(0.02)

    other = threading.Thread(target=meddle)
    other.start()
    try:
        for number in itertools.takewhile(lambda number: number < 30 or len(theirs) < 3, itertools.count()):
            with suppress(Conflict):
                publish(request(node, FULL if number % 2 else NodeContent({GPU: str(number)})), worker)
    finally:
        stop.set()
        other.join()
    publish(request(node), worker)
    now = {taint["key"] for taint in carried(root, node)["taints"]}
    assert now == theirs[-1] | {GPU}
    publish(request(node, NodeContent()), worker)
    assert {taint["key"] for taint in carried(root, node)["taints"]} == theirs[-1]


class Meddled:
    """The worker's client, but somebody else changes the taints just before each of its first patches."""

    def __init__(self, worker: Client, meddle: Callable[[int], object], *, times: int) -> None:
        self.get, self.apply = worker.get, worker.apply
        self._patch = worker.patch
        self._meddle = meddle
        self._left = times

    def patch(self, path: str, body: Json) -> Json:
        """Let the other one go first."""
        if self._left:
            self._left -= 1
            self._meddle(self._left)
        return self._patch(path, body)


@pytest.mark.parametrize("times", [1, ATTEMPTS - 1, ATTEMPTS])
def test_a_list_of_taints_that_is_no_longer_the_one_read_is_never_written(
    root: Client, worker: Client, node: str, times: int
) -> None:
    """It is read again a few times; then the worker backs off."""
    meddled = Meddled(worker, lambda left: _toggle(root, node, f"example.io/{left}"), times=times)
    content = NodeContent({GPU: "true"}, taints=(TAINT,))
    if times == ATTEMPTS:
        with pytest.raises(Conflict):
            publish(request(node, content), cast(Client, meddled))
    else:
        publish(request(node, content), cast(Client, meddled))
    theirs = {THEIRS["key"], *(f"example.io/{left}" for left in range(times))}
    assert {t["key"] for t in carried(root, node)["taints"]} == theirs | ({GPU} if times < ATTEMPTS else set())


def _toggle(root: Client, name: str, key: str) -> set[str]:
    """Add or remove a taint as a careful program does; gives all keys but the worker's and the cluster's."""
    found = read(root, name)
    taints = found["spec"].get("taints", [])
    left = [taint for taint in taints if taint["key"] != key]
    taints = left if left != taints else [*taints, {"key": key, "effect": "NoSchedule"}]
    guard = {"resourceVersion": found["metadata"]["resourceVersion"]}
    root.patch(NODES.path(name=name), {"metadata": guard, "spec": {"taints": taints}})
    return {t["key"] for t in taints if t["key"] != GPU and not t["key"].startswith("node.kubernetes.io/")}


def test_workers_of_two_nodes_do_not_touch_each_others(
    root: Client, worker: Client, make_node: Callable[[], str]
) -> None:
    """One field manager, many Nodes."""
    one, other = make_node(), make_node()
    publish(request(one), worker)
    publish(request(other), worker)
    publish(request(one, NodeContent()), worker)
    assert (carried(root, one), carried(root, other)) == (BARE, PUBLISHED)


# ---------------------------------------------------------------- interruptions


@pytest.fixture
def kubeconfig(control_plane_ground: Testbed, worker: Client, tmp_path: Path) -> str:
    """Write the service account's credentials for a child process."""
    assert worker
    token = control_plane_ground.ca_file.with_name(f"token-{NAMESPACE}-nfd-worker").read_text()
    cluster = {
        "server": control_plane_ground.api_server,
        "certificate-authority": str(control_plane_ground.ca_file),
    }
    file = tmp_path / "kubeconfig"
    file.write_text(yaml.safe_dump({
        "apiVersion": "v1", "kind": "Config", "current-context": "it",
        "users": [{"name": "it", "user": {"token": token}}],
        "clusters": [{"name": "it", "cluster": cluster}],
        "contexts": [{"name": "it", "context": {"cluster": "it", "user": "it"}}],
    }))  # fmt: skip
    return str(file)


def run_child(asked: PublishRequest, *, kill_after: float | None = None) -> PublishAnswer | None:
    """Run the publish child; kill it after so many seconds, unless it has ended."""
    child = start_child(asked.to_bytes())
    deadline = time.monotonic() + (120 if kill_after is None else kill_after)
    while (left := deadline - time.monotonic()) > 0:
        ready, _, _ = select.select([child.answer_pipe], [], [], left)
        if ready and child.has_ended():
            break
    else:
        with suppress(ProcessLookupError):
            child.kill()
    return PublishAnswer.from_line(child.reap().output)


@pytest.mark.parametrize("action", ["publish", UNPUBLISH])
def test_a_child_killed_at_any_moment_leaves_nothing_that_the_next_does_not_mend(
    root: Client, worker: Client, node: str, kubeconfig: str, action: str
) -> None:
    """Killed sooner and sooner, from its usual end on."""
    start = time.monotonic()
    assert run_child(request(node, kubeconfig=kubeconfig)) == PublishAnswer()
    usual = time.monotonic() - start
    ends: set[bool] = set()
    for tenth in range(10, 0, -1):
        publish(request(node, NodeContent() if action == "publish" else FULL), worker)
        answer = run_child(request(node, kubeconfig=kubeconfig, action=action), kill_after=usual * tenth / 10)
        ends.add(answer is None)
        assert run_child(request(node, kubeconfig=kubeconfig, action=action)) == PublishAnswer()
        assert carried(root, node) == (PUBLISHED if action == "publish" else BARE)
    assert True in ends, "none was killed early"


# ---------------------------------------------------------------- taking over


def make_upstream(root: Client, name: str, *, instance: str = "") -> None:
    """Write to a Node as nfd-master does: JSON patches, a list of operations each."""
    annotations = {
        f"{instance}{NFD}/feature-labels": "gpu,old,vendor.example/card",
        f"{instance}{NFD}/feature-annotations": "note,old-note",
        f"{instance}{NFD}/extended-resources": "cards,slots",
        f"{NFD}/taints": f"{GPU}=true:NoSchedule,{OLD}=1:NoExecute",
        f"{instance}{NFD}/master.version": "v0.18.0",
        f"{FEATURE}/note": "hello",
        f"{FEATURE}/old-note": "x",
    }
    labels = {GPU: "true", OLD: "1", "vendor.example/card": "a", "watched": name}
    taints = [
        {"key": GPU, "value": "true", "effect": "NoSchedule"},
        {"key": OLD, "value": "1", "effect": "NoExecute"},
    ]
    _as_upstream(root, name, "status", [
        _add("status", part, key, "1" if key == CARDS else "2")
        for part in ("capacity", "allocatable") for key in (CARDS, SLOTS)
    ])  # fmt: skip
    _as_upstream(root, name, None, [
        *(_add("metadata", "labels", key, value) for key, value in labels.items()),
        *(_add("metadata", "annotations", key, value) for key, value in annotations.items()),
        *({"op": "add", "path": "/spec/taints/-", "value": taint} for taint in taints),
    ])  # fmt: skip


def _add(*path: str) -> Json:
    *where, key, value = path
    return {"op": "add", "path": f"/{'/'.join(where)}/{key.replace('/', '~1')}", "value": value}


def _as_upstream(root: Client, name: str, subresource: str | None, operations: list[Json]) -> None:
    path = NODES.path(name=name, subresource=subresource) + "?fieldManager=nfd-master"
    root.patch(path, operations, content_type=JSON_PATCH)


TAKEN_OVER = {**PUBLISHED, "taints": [THEIRS, {"key": GPU, "value": "true", "effect": "NoSchedule"}]}


@pytest.mark.parametrize("instance", ["", "x."], ids=["no instance", "an instance"])
def test_taking_over_never_lacks_a_label_and_ends_upstreams_part(
    root: Client, worker: Client, node: str, instance: str
) -> None:
    """A watch sees each state the Node was in: what both want is always there."""
    make_upstream(root, node, instance=instance)
    before = root.list(NODES.path()).resource_version
    answer = publish(request(node, take_over=True), worker)
    assert answer.took_over == "3 labels, 2 annotations, 2 extended resources, 2 taints"
    assert carried(root, node) == TAKEN_OVER
    events = list(root.watch(NODES.path(), resource_version=before, label_selector=f"watched={node}", seconds=2))
    seen = [event.object for event in events if event.kind != "BOOKMARK"]
    assert len(seen) >= 2
    for state in seen:
        assert state["metadata"]["labels"][GPU] == "true"
        assert state["metadata"]["annotations"][f"{FEATURE}/note"] == "hello"
        assert state["status"]["capacity"][SLOTS] == "2"
        assert GPU in {taint["key"] for taint in state["spec"]["taints"]}


def test_after_taking_over_we_own_alone(root: Client, worker: Client, node: str) -> None:
    """Nothing is written by taking over again, and all of ours can go."""
    make_upstream(root, node)
    publish(request(node, take_over=True), worker)
    before = version(root, node)
    time.sleep(1.1)
    assert publish(request(node, take_over=True), worker) == PublishAnswer()
    assert version(root, node) == before
    publish(request(node, NodeContent()), worker)
    assert carried(root, node) == BARE


def test_the_very_same_content_changes_hands(root: Client, worker: Client, node: str) -> None:
    """Equal texts of the annotations are no obstacle."""
    make_upstream(root, node)
    taints = (TAINT, Taint(OLD, "1", "NoExecute"))
    labels = {GPU: "true", OLD: "1", "vendor.example/card": "a"}
    notes = {f"{FEATURE}/note": "hello", f"{FEATURE}/old-note": "x"}
    same = NodeContent(labels, notes, {CARDS: "1", SLOTS: "2"}, taints)
    assert publish(request(node, same, take_over=True), worker).took_over
    assert publish(request(node, same, take_over=True), worker) == PublishAnswer()
    publish(request(node, NodeContent()), worker)
    assert carried(root, node) == BARE


def test_an_upstream_that_still_runs_is_told_each_time(root: Client, worker: Client, node: str) -> None:
    """Its annotations come back, and are taken over again."""
    make_upstream(root, node)
    publish(request(node, take_over=True), worker)
    _as_upstream(root, node, None, [_add("metadata", "annotations", f"{NFD}/feature-labels", "gpu")])
    assert publish(request(node, take_over=True), worker).took_over == "1 labels"
    assert carried(root, node) == TAKEN_OVER


def test_without_taking_over_upstreams_things_stay(root: Client, worker: Client, node: str) -> None:
    """Unpublishing, too, leaves them alone."""
    make_upstream(root, node)
    before = carried(root, node)
    publish(request(node), worker)
    unpublish(node, worker)
    assert carried(root, node) == before


def test_what_upstream_left_stays_while_nobody_knows_better(root: Client, worker: Client, node: str) -> None:
    """It becomes ours and goes when all is known."""
    make_upstream(root, node)
    publish(request(node, unknown=Unknown(), take_over=True), worker)
    kept = carried(root, node)
    assert (kept["labels"][OLD], kept["capacity"][CARDS]) == ("1", "1")
    publish(request(node, take_over=True), worker)
    assert carried(root, node) == TAKEN_OVER


# ---------------------------------------------------------------- unpublishing


def test_unpublishing_removes_all_of_ours_and_nothing_else(root: Client, worker: Client, node: str) -> None:
    """Unpublishing removes only what nfd-worker set, and may be repeated."""
    publish(request(node), worker)
    for _ in range(2):
        assert unpublish(node, worker) == PublishAnswer()
        assert carried(root, node) == BARE
    entries = read(root, node)["metadata"]["managedFields"]
    assert ("nfd-worker", "Apply") not in {(entry["manager"], entry["operation"]) for entry in entries}


def test_unpublishing_a_node_that_is_gone_is_success(worker: Client) -> None:
    """There is nothing to remove."""
    answer = unpublish("no-such-node", worker)
    assert answer.is_published
    assert "does not exist" in answer.notes[0]


# ---------------------------------------------------------------- refusals


def test_a_missing_node_is_not_made_and_is_told(root: Client, worker: Client) -> None:
    """The API server says 403, because applying would create it; we say that it is missing."""
    with pytest.raises(NotFound) as caught:
        publish(request("no-such-node"), worker)
    assert "node no-such-node does not exist" in explain(caught.value, "no-such-node")
    with pytest.raises(NotFound):
        read(root, "no-such-node")


def test_a_node_that_is_made_anew_gets_everything_again(root: Client, worker: Client, node: str) -> None:
    """As when a machine is reinstalled under its old name."""
    publish(request(node), worker)
    root.delete(NODES.path(name=node))
    with pytest.raises(NotFound):
        publish(request(node), worker)
    root.create(NODES.path(), node_object(node))
    publish(request(node), worker)
    assert carried(root, node) == PUBLISHED


def test_a_value_that_cannot_be_is_named(root: Client, worker: Client, node: str) -> None:
    """It should have been left out before; the words to find the bug are there."""
    with pytest.raises(Invalid) as caught:
        publish(request(node, NodeContent({GPU: "not a value"})), worker)
    assert "not a value" in explain(caught.value, node)
    assert carried(root, node) == BARE


@pytest.mark.parametrize(
    ("rules", "words"),
    [
        pytest.param([], "the verb get on nodes,", id="nothing at all"),
        pytest.param([{"resources": ["nodes"], "verbs": ["get"]}], "the verb patch on nodes,", id="no patch"),
        pytest.param(
            [{"resources": ["nodes"], "verbs": ["get", "patch"]}],
            "the verb patch on nodes/status,",
            id="no status",
        ),
    ],
)
def test_a_missing_right_is_named(
    control_plane_ground: Testbed, root: Client, node: str, rules: list[Json], words: str
) -> None:
    """Which rule the ClusterRole lacks."""
    name = f"poor-{os.getpid()}-{time.monotonic_ns()}"
    root.create(SERVICE_ACCOUNTS.path(namespace=NAMESPACE), {"metadata": {"name": name}})
    role = {"metadata": {"name": name}, "rules": [{"apiGroups": [""], **rule} for rule in rules]}
    root.create(CLUSTER_ROLES.path(), role)
    root.create(CLUSTER_ROLE_BINDINGS.path(), {
        "metadata": {"name": name},
        "roleRef": {"apiGroup": "rbac.authorization.k8s.io", "kind": "ClusterRole", "name": name},
        "subjects": [{"kind": "ServiceAccount", "name": name, "namespace": NAMESPACE}],
    })  # fmt: skip
    poor = as_service_account(control_plane_ground, NAMESPACE, name)
    said = ""
    # The authorizer reads its rules from a cache.
    end = time.monotonic() + 120
    while words not in said and time.monotonic() < end:
        with pytest.raises(Forbidden) as caught:
            publish(request(node), poor)
        said = explain(caught.value, node)
        time.sleep(0.2)
    assert words in said
    for resource in (CLUSTER_ROLE_BINDINGS, CLUSTER_ROLES):
        root.delete(resource.path(name=name))
