"""Nodes leave the selector, the driver is edited, and they return in time: that is an upgrade, as of any node."""

import pytest

from driver_builder.nodes.changes import batches
from driver_builder.objects.slots import Place
from driver_builder.plan.removal import OUTSIDE_SECONDS
from kube_api import names
from kube_api.resources import NODES
from tests.support.driver_builder.changes import done, patches
from tests.support.driver_builder.factories import KERNEL, NAMESPACE, OTHER_KERNEL
from tests.support.driver_builder.memory_client import copied
from tests.support.driver_builder.model_world import World
from tests.support.driver_builder.removals import fleet, is_gone, memory, rounds
from tests.support.driver_builder.worlds import DRIVER_PATH

NODES_OF_FLEET = ("node-0", "node-1", "node-2")
LABEL = names.yield_label(NAMESPACE, "edu")


def select(world: World, pool: str) -> None:
    """Let the driver select another pool."""
    world.client.patch(DRIVER_PATH, {"spec": {"nodeSelector": {"pool": pool}}})


def move_all(world: World, pool: str) -> None:
    """Let all nodes be in another pool."""
    for node in NODES_OF_FLEET:
        world.move_node(node, pool)


def kept_out(world: World) -> set[str]:
    """Name the nodes from which the driver's pods are kept."""
    nodes = {name: world.client.objects[NODES.path(name=name)] for name in world.kernels}
    return {name for name, node in nodes.items() if LABEL in node["metadata"]["labels"]}


def fleet_outside(*, by_spec: bool) -> World:
    """Make a fleet whose nodes have the modules and are outside the selector."""
    world = fleet(KERNEL, KERNEL, KERNEL)
    (select if by_spec else move_all)(world, "web")
    rounds(world, 60)
    return world


@pytest.mark.parametrize("is_built_before", [True, False], ids=["built before", "built then"])
@pytest.mark.parametrize("by_spec", [True, False], ids=["the spec changes", "labels change"])
def test_nodes_that_return_get_another_image_one_after_the_other(*, by_spec: bool, is_built_before: bool) -> None:
    """They still have the modules of before: no node loses them before it is its turn."""
    world = fleet_outside(by_spec=by_spec)
    before = {node: dict(modules) for node, modules in world.live.items()}
    world.change_source("int changed;")
    if is_built_before:
        # Another node is served from the same image.
        world.add_node("node-3", KERNEL, pool="web" if by_spec else "edu")
        world.reconcile()
        world.finish_builds()
        world.remove_node("node-3")
    (select if by_spec else move_all)(world, "edu")
    changed = [0]
    for _ in range(120):
        rounds(world, 5)
        changed.append(sum(world.live[node] != before[node] for node in NODES_OF_FLEET))
        if changed[-1] == len(NODES_OF_FLEET):
            break
    rounds(world, 30)
    assert [*dict.fromkeys(changed)] == [0, 1, 2, 3]
    assert kept_out(world) == set()


@pytest.mark.parametrize("returns", ["before the wave", "in the wave", "after the wave"])
def test_nodes_that_return_to_others_wait_for_their_turn(returns: str) -> None:
    """The others keep the target, and are upgraded meanwhile: never more than one node is without its modules."""
    world = fleet(KERNEL, KERNEL, KERNEL, KERNEL)
    before = {node: dict(modules) for node, modules in world.live.items()}
    for node in ("node-0", "node-1"):
        world.move_node(node, "web")
    rounds(world, 20)
    assert kept_out(world) == {"node-0", "node-1"}
    world.change_source("int changed;")
    rounds(world, {"before the wave": 5, "in the wave": 20, "after the wave": 200}[returns])
    changed = {node for node in before if world.live[node] != before[node]}
    assert len(changed) == {"before the wave": 0, "in the wave": 1, "after the wave": 2}[returns]
    for node in ("node-0", "node-1"):
        world.move_node(node, "edu")
    for _ in range(60):
        rounds(world, 5)
        now = {node for node in before if world.live[node] != before[node]}
        assert len(now - changed) <= 1
        changed = now
        if changed == set(before):
            break
    rounds(world, 30)
    assert changed == set(before)
    assert kept_out(world) == set()
    assert all(READY_LABEL in labels for labels in world.nodes().values())


READY_LABEL = names.ready_label(NAMESPACE, "edu")


def test_a_node_that_left_in_the_middle_of_a_wave_waits_for_its_turn_again() -> None:
    """The wave had moved it, and it had not loaded yet."""
    world = fleet(KERNEL, KERNEL, KERNEL)
    before = {node: dict(modules) for node, modules in world.live.items()}
    wave = names.wave_label(NAMESPACE, "edu")
    world.change_source("int changed;")
    while wave not in world.client.objects[NODES.path(name="node-0")]["metadata"]["labels"]:
        world.reconcile()
        world.finish_builds()
        for step in world.steps():
            if step not in (world._load, world._schedule):
                step()
        world.now += 5.0
    world.move_node("node-0", "web")
    rounds(world, 120)
    assert world.live["node-0"] == before["node-0"]
    assert world.live["node-1"] != before["node-1"]
    world.change_source("int once_more;")
    world.move_node("node-0", "edu")
    world.reconcile()
    assert world.pods_on("node-0") == []
    rounds(world, 300)
    assert len({str(modules) for modules in world.live.values()}) == 1
    assert world.live["node-0"] != before["node-0"]
    assert kept_out(world) == set()


def test_the_image_comes_first_to_a_node_that_has_returned() -> None:
    """While it cannot be pulled the node keeps its modules, and the status says why."""
    world = fleet(KERNEL, KERNEL)
    before = dict(world.live["node-0"])
    world.move_node("node-0", "web")
    rounds(world, 20)
    world.change_source("int changed;")
    rounds(world, 100)
    world.without_images.add("node-0")
    world.move_node("node-0", "edu")
    rounds(world, 100)
    assert world.live["node-0"] == before
    assert READY_LABEL in world.nodes()["node-0"]
    assert "node-0: the next image cannot be pulled there" in world.status()["rollout"]["message"]
    world.without_images.clear()
    rounds(world, 100)
    assert world.live["node-0"] == world.live["node-1"] != before


@pytest.mark.parametrize("what", ["the same image", "another boot"])
def test_a_node_whose_pod_takes_nothing_away_gets_it_at_once(what: str) -> None:
    """What it would load is loaded, or nothing is."""
    world = fleet(KERNEL, KERNEL)
    world.move_node("node-0", "web")
    rounds(world, 60)
    assert kept_out(world) == {"node-0"}
    if what == "another boot":
        world.change_source("int changed;")
        rounds(world, 100)
        world.reboot("node-0", KERNEL)
        rounds(world, 10)
    before = dict(world.live["node-1"])
    world.move_node("node-0", "edu")
    world.reconcile()
    assert kept_out(world) == set()
    world.turn()
    assert world.live["node-0"] == before
    world.settle()
    assert all(READY_LABEL in labels for labels in world.nodes().values())


@pytest.mark.parametrize(
    ("label", "who", "is_edited"),
    [
        pytest.param(names.KERNEL_VERSION_LABEL, NODES_OF_FLEET[:2], False, id="the same image"),
        pytest.param(names.KERNEL_VERSION_LABEL, NODES_OF_FLEET[:2], True, id="another image"),
        pytest.param(names.KERNEL_VERSION_LABEL, NODES_OF_FLEET, True, id="another image, all nodes"),
        pytest.param(names.OS_ID_LABEL, NODES_OF_FLEET[:2], True, id="another image, the id of the OS"),
        pytest.param(names.ARCHITECTURE_LABEL, NODES_OF_FLEET[:2], True, id="another image, the architecture"),
    ],
)
def test_a_node_that_loses_a_label_of_its_kernel_keeps_modules_and_ready_label(
    label: str, who: tuple[str, ...], *, is_edited: bool
) -> None:
    """However long; with the label back it gets another image in its turn, and its pod at once if that is the same."""
    world = fleet(KERNEL, KERNEL, KERNEL)
    before = {node: dict(modules) for node, modules in world.live.items()}
    value = world.client.objects[NODES.path(name="node-0")]["metadata"]["labels"][label]
    for node in who:
        world.client.patch(NODES.path(name=node), {"metadata": {"labels": {label: None}}})
    rounds(world, 20)
    assert (kept_out(world), sum(len(world.pods_on(node)) for node in who)) == (set(who), 0)
    if is_edited:
        world.change_source("int changed;")
    rounds(world, 2 * OUTSIDE_SECONDS, 20)
    assert [world.live[node] for node in who] == [before[node] for node in who]
    assert all(READY_LABEL in labels for labels in world.nodes().values())
    for node in who:
        world.client.patch(NODES.path(name=node), {"metadata": {"labels": {label: value}}})
    changed = {node for node in before if world.live[node] != before[node]}
    for _ in range(40):
        rounds(world, 5)
        now = {node for node in before if world.live[node] != before[node]}
        assert len(now - changed) <= 1
        changed = now
        assert all(READY_LABEL in labels for labels in world.nodes().values()) or is_edited
    assert changed == (set(before) if is_edited else set())
    assert kept_out(world) == set()
    assert all(READY_LABEL in labels and world.pods_on(node) for node, labels in world.nodes().items())


def test_who_leaves_and_returns_costs_one_patch_each() -> None:
    """The label goes with the record since when a node is outside."""
    world = fleet(KERNEL, KERNEL)
    for pool in ("web", "edu"):
        world.move_node("node-0", pool)
        (patch,) = batches(world.decide().actions)
        assert set(done(patch)) == {"label Node", "record loads"}
        assert {part.node for part in patches(patch)} == {"node-0"}
        world.reconcile()
        assert world.decide().actions == ()
        rounds(world, 60)


def test_a_node_that_stays_outside_keeps_nothing_of_ours() -> None:
    """The label goes with the record of what was loaded."""
    world = fleet(KERNEL, KERNEL)
    world.move_node("node-0", "web")
    rounds(world, OUTSIDE_SECONDS + 60, 20)
    assert (world.live["node-0"], memory(world), kept_out(world)) == ({}, None, set())
    assert not any("edu" in key for key in world.client.objects[NODES.path(name="node-0")]["metadata"]["labels"])


@pytest.mark.parametrize("when", ["outside", "returned"])
def test_a_driver_that_is_deleted_leaves_no_label(when: str) -> None:
    """Also on nodes from which its pods are kept."""
    world = fleet(KERNEL, KERNEL)
    world.move_node("node-0", "web")
    rounds(world, 20)
    if when == "returned":
        world.change_source("int changed;")
        world.fail_builds = 1
        rounds(world, 20)
        world.move_node("node-0", "edu")
        rounds(world, 20)
    world.delete_driver("edu")
    world.settle()
    assert (is_gone(world), kept_out(world), any(world.live.values())) == (True, set(), False)


def test_killed_after_any_write_a_node_that_returns_ends_the_same() -> None:
    """It is upgraded in its turn, and nothing is left on it."""
    world = fleet(KERNEL, KERNEL)
    world.move_node("node-0", "web")
    rounds(world, 20)
    start = copied(world.client.objects), {node: dict(live) for node, live in world.live.items()}

    def end(number: int) -> int:
        world.client.objects = copied(start[0])
        world.live = {node: dict(live) for node, live in start[1].items()}
        world.kill()
        world.kills, writes = 0, 0

        def look(_action: object) -> bool:
            nonlocal writes
            writes += 1
            return writes == number

        world.change_source(f"int changed_{number};")
        world.rounds(10, look)
        world.move_node("node-0", "edu")
        world.rounds(14, look)
        world.settle()
        assert kept_out(world) == set()
        assert world.live["node-0"] == world.live["node-1"] != start[1]["node-0"]
        return writes

    writes = end(0)
    assert writes > 10
    for number in range(1, writes + 1, 3):
        end(number)


def test_a_daemon_set_is_for_all_nodes_whatever_has_returned() -> None:
    """Nodes that return to the same image get their pods back, and nothing is loaded anew."""
    world = fleet_outside(by_spec=True)
    before = {node: dict(modules) for node, modules in world.live.items()}
    assert world.daemon_sets() == []
    select(world, "edu")
    world.settle()
    (left,) = world.observe().daemon_sets
    assert left.slot.place is Place.ALL
    assert all(world.pods_on(node) for node in NODES_OF_FLEET)
    assert world.live == before


def test_a_node_that_returns_with_another_kernel_gets_its_driver_at_once() -> None:
    """Nothing is loaded there."""
    world = fleet(KERNEL, OTHER_KERNEL)
    world.move_node("node-0", "web")
    rounds(world, 20)
    world.reboot("node-0", OTHER_KERNEL)
    world.move_node("node-0", "edu")
    world.settle()
    assert kept_out(world) == set()
    assert world.live["node-0"] == world.live["node-1"]
