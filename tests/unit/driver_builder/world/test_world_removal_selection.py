"""Which nodes a driver leaves: the kernel is skipped, or outside the selector for long; lost labels do not count."""

import pytest

from driver_builder.plan.removal import OUTSIDE_SECONDS
from kube_api import names
from kube_api.resources import NODES
from tests.support.driver_builder.factories import KERNEL, NAMESPACE, OTHER_KERNEL
from tests.support.driver_builder.model_world import World
from tests.support.driver_builder.removals import READY, condition, fleet, memory, rounds, skip, unload_pods
from tests.support.driver_builder.worlds import DRIVER_PATH

LOST = {names.KERNEL_VERSION_LABEL: None}


def test_a_skipped_kernel_gives_the_driver_back() -> None:
    """Its nodes lose label, DaemonSet and modules, and nothing is left to do."""
    world = fleet()
    skip(world)
    world.settle()
    assert (world.nodes()["node-0"], world.daemon_sets(), world.live) == ({}, [], {"node-0": {}})
    assert memory(world) is None
    assert condition(world) == {}


def test_a_skipped_kernel_in_use_stays_loaded_and_says_so_until_it_boots() -> None:
    """Nothing is tried after the deadline; a boot ends it."""
    world = fleet()
    world.in_use.add("node-0")
    skip(world)
    rounds(world, 800, 20)
    assert (condition(world)["status"], condition(world)["reason"]) == ("False", "StaysLoaded")
    assert world.decide().actions == ()
    world.reboot("node-0", KERNEL)
    annotations = {names.BOOT_ID_ANNOTATION: "another-boot"}
    world.client.patch(NODES.path(name="node-0"), {"metadata": {"annotations": annotations}})
    world.settle()
    assert condition(world) == {}
    assert memory(world) is None


def test_a_kernel_that_is_wanted_again_keeps_its_driver() -> None:
    """What was begun is forgotten."""
    world = fleet()
    world.in_use.add("node-0")
    skip(world)
    rounds(world, 60)
    world.client.patch(DRIVER_PATH, {"spec": {"kernelMappings": []}})
    world.settle()
    assert world.nodes()["node-0"] == {READY: "1.0.0"}
    known = memory(world)
    assert known is not None
    assert (known.unload_since, known.given_up, unload_pods(world)) == (None, "", [])


def test_a_node_outside_the_selector_keeps_module_and_label_for_ten_minutes() -> None:
    """Labels come back: only then is it a removal."""
    world = fleet()
    world.move_node("node-0", "web")
    rounds(world, OUTSIDE_SECONDS - 30, 10)
    assert world.nodes()["node-0"] == {READY: "1.0.0", names.yield_label(NAMESPACE, "edu"): "outside"}
    assert world.live["node-0"]
    world.kill()
    rounds(world, 120)
    assert world.nodes()["node-0"] == {}
    assert world.live == {"node-0": {}}
    assert memory(world) is None


def test_a_node_that_comes_back_in_time_loses_nothing() -> None:
    """Since when it was outside is forgotten."""
    world = fleet()
    world.move_node("node-0", "web")
    rounds(world, 300, 20)
    world.move_node("node-0", "edu")
    rounds(world, 600, 20)
    assert world.nodes()["node-0"] == {READY: "1.0.0"}
    known = memory(world)
    assert known is not None
    assert known.outside_since is None


def test_labels_that_vanished_are_no_removal() -> None:
    """Without nfd-worker's labels nobody knows what the node is: its module stays, however long it takes."""
    world = fleet()
    labels = {names.KERNEL_VERSION_LABEL: None, "pool": None}
    world.client.patch(NODES.path(name="node-0"), {"metadata": {"labels": labels}})
    rounds(world, 2 * OUTSIDE_SECONDS, 20)
    assert world.live["node-0"]
    assert unload_pods(world) == []


def relabel(world: World, node: str, **labels: str | None) -> None:
    """Let the labels of a node change."""
    world.client.patch(NODES.path(name=node), {"metadata": {"labels": labels}})


@pytest.mark.parametrize("lost", [LOST, {**LOST, "pool": None}], ids=["selected", "not even selected"])
def test_a_daemon_set_and_its_status_outlive_labels_that_vanished(lost: dict[str, None]) -> None:
    """Version of the system and digest are as recorded when the labels come back; nothing was built or loaded anew."""
    world = fleet()
    before, known, pushed = world.observe().daemon_sets, world.status()["targets"][0], len(world.pushed)
    relabel(world, "node-0", **lost)
    rounds(world, 60)
    (entry,) = world.status()["targets"]
    assert (entry["nodes"], entry["imageDigest"]) == (0, known["imageDigest"])
    assert (world.status()["readyTargets"], world.status()["desiredNodes"]) == ("0/0", 0)
    relabel(world, "node-0", **{names.KERNEL_VERSION_LABEL: KERNEL, "pool": "edu"})
    world.settle()
    assert world.observe().daemon_sets == before
    assert len(world.pushed) == pushed
    assert world.status()["targets"][0]["state"] == "Ready"


def test_a_daemon_set_goes_once_its_nodes_are_known_to_be_elsewhere() -> None:
    """The other node's kernel is served all the while."""
    world = fleet(KERNEL, OTHER_KERNEL)
    relabel(world, "node-0", **LOST)
    rounds(world, 60)
    assert world.daemon_sets() == sorted([KERNEL, OTHER_KERNEL])
    world.reboot("node-0", OTHER_KERNEL)
    world.settle()
    assert world.daemon_sets() == [OTHER_KERNEL]
    assert [entry["kernel"] for entry in world.status()["targets"]] == [OTHER_KERNEL]


def test_a_daemon_set_on_nodes_that_are_not_selected_goes_whatever_others_have_lost() -> None:
    """What its pods stand on is known, and not to have the driver any more: they go, and it goes later."""
    world = fleet()
    world.add_node("node-1", KERNEL, pool="web")
    relabel(world, "node-1", **LOST)
    world.client.patch(DRIVER_PATH, {"spec": {"nodeSelector": {"pool": "web"}}})
    rounds(world, 10)
    assert world.pods_on("node-0") == []
    rounds(world, OUTSIDE_SECONDS, 20)
    assert world.daemon_sets() == []


def test_a_yield_label_that_nothing_records_is_removed() -> None:
    """Whoever has removed the annotation: the driver comes back."""
    world = fleet()
    label = names.yield_label("driverwright", "edu")
    relabel(world, "node-0", **{label: "ofed"})
    rounds(world, 4)
    assert label not in world.client.objects[NODES.path(name="node-0")]["metadata"]["labels"]
    assert READY in world.nodes()["node-0"]
