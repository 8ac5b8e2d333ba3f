"""The fleet of ``bench/scale.py``: objects as they are in a cluster, of which a controller has nothing to do."""

import json
from pathlib import Path
from typing import Any

import pytest

from bench.scale_parts import in_process, recorded
from bench.scale_parts.cells import Cell
from bench.scale_parts.fleet import NODE_LABELS, Fleet, kernel
from kube_api import names
from kube_api.resources import DAEMON_SETS, NODES, PODS

CELL = Cell(30, 3, 2)
Json = dict[str, Any]


@pytest.fixture(scope="module")
def fleet() -> Fleet:
    """Make a small fleet."""
    return Fleet(CELL)


@pytest.fixture
def folder(fleet: Fleet, tmp_path: Path) -> Path:
    """Write it into files."""
    recorded.write(fleet, tmp_path)
    return tmp_path


def _size(obj: Json) -> int:
    return len(json.dumps(obj, separators=(",", ":")))


def test_nodes_are_whole_objects(fleet: Fleet) -> None:
    """With 110 labels, images and conditions, 8 to 15 kB and what the controller writes for two drivers."""
    nodes = list(fleet.objects(NODES))
    assert len(nodes) == CELL.nodes
    assert {len(node["metadata"]["labels"]) for node in nodes} == {NODE_LABELS}
    assert all(8_000 < _size(node) < 20_000 for node in nodes)
    assert {len(node["status"]["conditions"]) for node in nodes} == {4}
    assert len({len(node["status"]["images"]) for node in nodes}) > 10
    found = {node["metadata"]["labels"][names.KERNEL_VERSION_LABEL] for node in nodes}
    assert found == {kernel(number) for number in range(CELL.kernels)}


def test_every_driver_has_a_pod_on_every_node(fleet: Fleet) -> None:
    """Of 5 to 8 kB with managedFields, controlled by the DaemonSet of its kernel, and with uid and name of its own."""
    pods, owners = list(fleet.objects(PODS)), {item["metadata"]["uid"] for item in fleet.objects(DAEMON_SETS)}
    assert len(pods) == CELL.pods
    assert len(owners) == CELL.kernels * CELL.drivers
    assert all(5_000 < _size(pod) < 8_000 and pod["metadata"]["managedFields"] for pod in pods)
    assert {pod["metadata"]["ownerReferences"][0]["uid"] for pod in pods} == owners
    for field in ("uid", "name"):
        assert len({pod["metadata"][field] for pod in pods}) == CELL.pods


def test_a_fleet_is_the_same_each_time(fleet: Fleet) -> None:
    """Figures of two versions of the controller can be compared."""
    again = Fleet(CELL)
    for resource in (NODES, PODS):
        assert list(again.objects(resource)) == list(fleet.objects(resource))


def test_a_controller_of_the_fleet_has_nothing_to_do(folder: Path) -> None:
    """It is at rest: every node is proven to run every driver."""
    controller = in_process.Controller(folder)
    controller.follow()
    controller.reconcile()
    (decided,) = controller.plans
    assert decided.actions == ()
    assert [(part.nodes, part.ready_nodes) for item in decided.drivers for part in item.targets] == [(10, 10)] * 6
    before = controller.connection.requests.copy()
    controller.follow()
    controller.reconcile()
    assert {word.partition(" ")[0] for word in controller.connection.requests - before} == {"WATCH"}


def test_a_changed_pod_is_news_without_an_action(folder: Path) -> None:
    """What is measured after it is a reconcile, not a write to the cluster."""
    controller = in_process.Controller(folder)
    controller.follow()
    controller.reconcile()
    for number in range(2):
        before = controller.cache.namespaces[0].pods.collection.values()
        controller.change_a_pod(number)
        controller.follow()
        assert controller.cache.namespaces[0].pods.collection.values() != before
        controller.reconcile()
        assert controller.plans[0].actions == ()


def test_a_relisting_asks_for_everything(folder: Path) -> None:
    """In pages, and what was known is known again."""
    controller = in_process.Controller(folder)
    controller.follow()
    known = controller.cache.nodes.collection.values()
    before = controller.connection.requests.copy()
    controller.relist()
    listed = {word for word in controller.connection.requests - before if word.startswith("LIST")}
    assert listed == {f"LIST {kind}" for kind in ("nodes", "pods", "daemonsets", "drivercontainers", "configmaps")}
    assert controller.cache.nodes.collection.values() == known
