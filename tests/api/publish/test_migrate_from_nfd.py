"""The steps of docs/migrate/nfd.md, with a watch on the Node that sees every state it was in.

Node Feature Discovery (NFD) is played: its requests are those of nfd-master v0.20, word for word (JSON patches with one
operation for each key, its tracking annotations, its prune), for the labels of a recorded host. The worker is the real
process, and what sets the labels of a third program's NodeFeature object the controller's own code, both with the
rights of ``deploy/``.
"""

import subprocess
import sys
import threading
from collections.abc import Callable, Iterator
from pathlib import Path
from typing import Any

import pytest
import yaml

from driver_builder.cluster.cluster_cache import ClusterCache
from driver_builder.model.third_party_labels import FIELD_MANAGER
from driver_builder.node_features.sync import NodeFeaturesSync
from kube_api.client import JSON_PATCH, Client
from kube_api.resources import NODE_FEATURES, NODES
from nfd_worker.publish.publish_child import unpublish
from testbed.testbed import Testbed
from tests.support.nfd_worker.publishing import FEATURE, NAMESPACE, NFD, read
from tests.support.real_parts.cluster_setup import Json, as_service_account, make_namespace

HOSTS = Path(__file__).parents[3] / "tests/data/hosts"
HOST = "intel-gpu-server"
FOUND: dict[str, str] = yaml.safe_load((HOSTS / f"{HOST}.labels.yaml").read_text())
"""What NFD and nfd-worker find on the recorded host."""
RACK = f"{FEATURE}/rack"
"""A label of a rule that only NFD has."""
CARD = "vendor.example/card"
"""A label of a NodeFeature object that a third program made, and that stays."""
TRACKING = f"{NFD}/feature-labels"
OF_NFD = "node-feature-discovery"
"""The namespace of NFD, which is not one whose objects driver-builder reads."""


class Nfd:
    """An nfd-master and what it works on: the NodeFeature objects of one node."""

    def __init__(self, root: Client, node: str) -> None:
        self._root, self._node = root, node

    def install(self) -> None:
        """Label the Node, as the object of its worker and that of a third program say."""
        make_namespace(self._root, OF_NFD)
        self._object(OF_NFD, self._node, FOUND)
        self._object(NAMESPACE, f"{self._node}-cards", {CARD: "a"})
        self.reconcile({**FOUND, RACK: "r7", CARD: "a"})

    def _object(self, namespace: str, name: str, labels: dict[str, str]) -> None:
        self._root.create(NODE_FEATURES.path(namespace=namespace), {
            "apiVersion": NODE_FEATURES.api_version, "kind": NODE_FEATURES.kind,
            "metadata": {"name": name, "namespace": namespace, "labels": {f"{NFD}/node-name": self._node}},
            "spec": {"features": {"flags": {}, "attributes": {}, "instances": {}}, "labels": labels},
        })  # fmt: skip

    def reconcile(self, labels: dict[str, str]) -> None:
        """Write what differs, remove what it tracked and does not want any more, and track the rest."""
        metadata = read(self._root, self._node)["metadata"]
        before, annotations = metadata.get("labels", {}), metadata.get("annotations", {})
        tracked = {_full(name) for name in filter(None, annotations.get(TRACKING, "").split(","))}
        text = ",".join(sorted(key.removeprefix(f"{FEATURE}/") for key in labels))
        operations = [
            *_changes("labels", before, labels, tracked),
            *_changes("annotations", annotations, {TRACKING: text} if text else {}, {TRACKING}),
        ]
        if operations:
            path = f"{NODES.path(name=self._node)}?fieldManager=nfd-master"
            self._root.patch(path, operations, content_type=JSON_PATCH)

    def remove_objects(self) -> None:
        """Delete the object of NFD's worker, as Kubernetes does when its owner, the worker's pod, is gone."""
        self._root.delete(NODE_FEATURES.path(namespace=OF_NFD, name=self._node))

    def change_card(self, value: str) -> None:
        """Let the third program find something else."""
        path = NODE_FEATURES.path(namespace=NAMESPACE, name=f"{self._node}-cards")
        self._root.patch(path, {"spec": {"labels": {CARD: value}}})

    def prune(self) -> None:
        """Remove all that it tracks, as the Job does that runs after ``helm uninstall``."""
        self.reconcile({})


def _full(name: str) -> str:
    return name if "/" in name else f"{FEATURE}/{name}"


def _changes(field: str, before: dict[str, str], wanted: dict[str, str], tracked: set[str]) -> Iterator[Json]:
    for key in sorted(wanted.keys() | tracked):
        path = f"/metadata/{field}/{key.replace('~', '~0').replace('/', '~1')}"
        if key in wanted and before.get(key) != wanted[key]:
            yield {"op": "replace" if key in before else "add", "path": path, "value": wanted[key]}
        elif key not in wanted and key in before:
            yield {"op": "remove", "path": path}


class Watched:
    """All states that a Node was in since the begin of a watch."""

    def __init__(self, root: Client, node: str) -> None:
        self.states: list[Json] = []
        self._root, self._node = root, node
        version = root.list(NODES.path()).resource_version
        events = root.watch(NODES.path(), resource_version=version, seconds=600)
        self._thread = threading.Thread(target=self._follow, args=(events,), daemon=True)
        self._thread.start()

    def _follow(self, events: Iterator[Any]) -> None:
        for event in events:
            metadata = event.object.get("metadata", {})
            if event.kind == "BOOKMARK" or metadata.get("name") != self._node:
                continue
            self.states.append(metadata)
            if "example.io/end" in metadata.get("annotations", {}):
                return

    def end(self) -> list[Json]:
        """Mark the Node, and return what was seen until then."""
        mark = {"metadata": {"annotations": {"example.io/end": "1"}}}
        self._root.patch(NODES.path(name=self._node), mark)
        self._thread.join(600)
        assert not self._thread.is_alive(), "the watch has not seen the mark"
        return self.states


def absent(states: list[Json], labels: dict[str, str]) -> set[str]:
    """Return the labels that one of the states lacks, or has with another value."""
    return {key for state in states for key in labels if state.get("labels", {}).get(key) != labels[key]}


@pytest.fixture
def nfd(root: Client, node: str) -> Nfd:
    """Install NFD."""
    made = Nfd(root, node)
    made.install()
    return made


@pytest.fixture
def run_worker(node: str, kubeconfig: str) -> Callable[..., str]:
    """Run nfd-worker once on the recorded host; returns what it logged."""

    def run(*flags: str) -> str:
        argv = [sys.executable, "-m", "nfd_worker", "run", "--oneshot", "--root", str(HOSTS / HOST), "--port", "0"]
        argv += ["--node-name", node, "--kubeconfig", kubeconfig, *flags]
        done = subprocess.run(argv, capture_output=True, text=True, check=False, timeout=600)
        assert done.returncode == 0, done.stderr
        return done.stderr

    return run


@pytest.fixture
def controller(control_plane_ground: Testbed, root: Client) -> NodeFeaturesSync:
    """Return the part of driver-builder that sets third parties' labels."""
    assert root
    own = as_service_account(control_plane_ground, NAMESPACE, "driver-builder")
    return NodeFeaturesSync(own, ClusterCache(own, namespaces=[]), namespaces=[NAMESPACE], stop=threading.Event())


def managers_of(root: Client, node: str, key: str) -> set[str]:
    """Return who owns a label."""
    entries = read(root, node)["metadata"]["managedFields"]
    return {entry["manager"] for entry in entries
            if f"f:{key}" in entry["fieldsV1"].get("f:metadata", {}).get("f:labels", {})}  # fmt: skip


def test_moving_over_as_documented_lacks_no_label_at_any_time(
    root: Client, node: str, nfd: Nfd, run_worker: Callable[..., str], controller: NodeFeaturesSync
) -> None:
    """Side by side, NFD stopped, its object gone, taken over, uninstalled; a third party's label is followed on."""
    wanted, label = {**FOUND, CARD: "a"}, next(iter(FOUND))
    watched = Watched(root, node)

    run_worker()
    controller.sync()
    nfd.reconcile({**FOUND, RACK: "r7", CARD: "a"})
    assert managers_of(root, node, label) == {"nfd-master", "nfd-worker"}
    assert managers_of(root, node, CARD) == {"nfd-master", FIELD_MANAGER}

    # nfd-master is stopped: what happens to its objects now changes nothing.
    nfd.remove_objects()
    controller.sync()
    assert RACK in read(root, node)["metadata"]["labels"]
    nfd.change_card("b")
    controller.sync()

    assert "adopted the node" in run_worker("--take-over=true")
    assert managers_of(root, node, label) == {"nfd-worker"}
    assert managers_of(root, node, CARD) == {FIELD_MANAGER}
    now = read(root, node)["metadata"]
    assert RACK not in now["labels"]
    assert not any(key.startswith(f"{NFD}/") for key in now["annotations"])

    nfd.prune()
    states = watched.end()
    assert absent(states, wanted) == set()
    assert {TRACKING in state.get("annotations", {}) for state in states} == {True, False}
    controller.sync()
    assert read(root, node)["metadata"]["labels"][CARD] == "b"


def test_a_prune_before_the_node_is_taken_over_is_what_the_watch_sees(
    root: Client, node: str, nfd: Nfd, run_worker: Callable[..., str]
) -> None:
    """NFD removes what it tracks, although nfd-worker owns it, too: the page says in which order to go."""
    watched = Watched(root, node)
    run_worker()
    nfd.prune()
    run_worker("--take-over=true")
    assert absent(watched.end(), FOUND) == set(FOUND)


def test_the_way_back_lacks_no_label_either(
    root: Client, node: str, worker: Client, nfd: Nfd, run_worker: Callable[..., str]
) -> None:
    """NFD comes first: a label that is right already it only tracks, and unpublishing leaves it those."""
    run_worker("--take-over=true")
    watched = Watched(root, node)
    nfd.reconcile(FOUND)
    unpublish(node, worker)
    assert managers_of(root, node, next(iter(FOUND))) == set()
    assert "driverwright.io/boot-id" not in read(root, node)["metadata"]["annotations"]
    nfd.reconcile(FOUND)
    assert absent(watched.end(), FOUND) == set()
    nfd.prune()
    assert absent([read(root, node)["metadata"]], FOUND) == set(FOUND)
