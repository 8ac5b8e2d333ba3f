"""All nodes leave the selector, the driver is edited, and they return in time: that is an upgrade."""

import pytest

from driver_builder.objects.slots import Place
from driver_builder.removal.removal import OUTSIDE_SECONDS
from tests.support.driver_builder.factories import KERNEL
from tests.support.driver_builder.model_world import World
from tests.support.driver_builder.removals import fleet, rounds
from tests.support.driver_builder.worlds import DRIVER_PATH

NODES_OF_FLEET = ("node-0", "node-1", "node-2")


def select(world: World, pool: str) -> None:
    """Let the driver select another pool."""
    world.client.patch(DRIVER_PATH, {"spec": {"nodeSelector": {"pool": pool}}})


def move_all(world: World, pool: str) -> None:
    """Let all nodes be in another pool."""
    for node in NODES_OF_FLEET:
        world.move_node(node, pool)


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
    assert [*dict.fromkeys(changed)] == [0, 1, 2, 3]


def test_a_daemon_set_has_no_pods_while_all_its_nodes_are_outside_the_selector() -> None:
    """It is for no node: another one that joins gets no pod either. Then it goes with the modules."""
    world = fleet_outside(by_spec=True)
    world.add_node("node-3", KERNEL)
    rounds(world, 60)
    (kept,) = world.observe().daemon_sets
    assert kept.slot.place is Place.MOVED
    assert not any(world.pods_on(node) for node in (*NODES_OF_FLEET, "node-3"))
    rounds(world, OUTSIDE_SECONDS)
    assert (world.daemon_sets(), any(world.live.values())) == ([], False)


def test_nodes_that_return_to_the_same_image_get_their_pods_back() -> None:
    """Nothing is loaded anew, and the DaemonSet is for all of them again."""
    world = fleet_outside(by_spec=True)
    before = {node: dict(modules) for node, modules in world.live.items()}
    select(world, "edu")
    world.settle()
    (left,) = world.observe().daemon_sets
    assert left.slot.place is Place.ALL
    assert all(world.pods_on(node) for node in NODES_OF_FLEET)
    assert world.live == before
