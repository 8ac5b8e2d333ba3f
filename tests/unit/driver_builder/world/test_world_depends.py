"""Two drivers of which one depends on the other: the order in which nodes get and lose them."""

from collections.abc import Callable
from typing import Any

import pytest

from driver_builder.nodes.changes import Change
from kube_api.resources import DRIVER_CONTAINERS
from tests.support.driver_builder.factories import KERNEL, NAMESPACE
from tests.support.driver_builder.model_world import World

OFED, PEERMEM = f"{NAMESPACE}/ofed", f"{NAMESPACE}/mem"


def depends(world: World, name: str, *others: str) -> None:
    """Let an admin write what a driver depends on."""
    body = {"spec": {"dependsOn": [{"name": other} for other in others]}}
    world.client.patch(DRIVER_CONTAINERS.path(namespace=NAMESPACE, name=name), body)


def fleet(*, has_first: bool = True) -> World:
    """Make a world of two nodes and two drivers; the one that depends on the other comes first by its name."""
    world = World()
    for name in ("node-0", "node-1"):
        world.add_node(name, KERNEL)
    world.add_driver("mem", dependsOn=[{"name": "ofed"}])
    if has_first:
        world.add_driver("ofed")
    return world


def settled(world: World) -> World:
    """Let everything come to rest."""
    world.settle()
    return world


def target(world: World, name: str) -> Any:
    """Return the only target in a driver's status."""
    (found,) = world.status(name)["targets"]
    return found


def unloading(world: World, name: str) -> Any:
    """Return the condition about the removal of a driver."""
    return next((item for item in world.status(name)["conditions"] if item["type"] == "Unloading"), None)


def exists(world: World, name: str) -> bool:
    """Return whether a DriverContainer is there."""
    return DRIVER_CONTAINERS.path(namespace=NAMESPACE, name=name) in world.client.objects


def loads_on(world: World, node: str) -> list[str]:
    """Return the drivers that were loaded on a node, in order."""
    return [driver for driver, where in world.loads if where == node]


def assert_ready(world: World) -> None:
    """Both drivers work everywhere, and the second one has never been loaded before the first."""
    assert {target(world, name)["state"] for name in ("mem", "ofed")} == {"Ready"}
    for node in ("node-0", "node-1"):
        assert loads_on(world, node)[:2] == [OFED, PEERMEM]


def test_the_second_driver_loads_after_the_first() -> None:
    """On every node, whichever pod was there first."""
    assert_ready(settled(fleet()))


def test_after_a_boot_the_order_is_the_same_without_a_controller() -> None:
    """The pods themselves wait."""
    world = settled(fleet())
    world.loads.clear()
    world.reboot("node-0", KERNEL)
    for _ in range(3):
        world.turn()
    assert loads_on(world, "node-0") == [OFED, PEERMEM]


def test_killed_after_any_action_the_order_is_the_same() -> None:
    """For each action on the way: kill the controller right after it."""

    def run(after_each: Callable[[Change], bool]) -> World:
        world = fleet()
        for _ in range(15):
            if not world.kills:
                world.reconcile(after_each)
                world.finish_builds()
                world.turn()
                world.now += 5
        world.settle()
        return world

    actions: list[Change] = []

    def note(action: Change) -> bool:
        actions.append(action)
        return False

    assert_ready(run(note))
    assert actions
    for number in range(len(actions)):
        left = iter(range(number + 1))
        assert_ready(run(lambda _action, left=left: next(left, None) == number))  # type: ignore[misc]  # noqa: B023


def test_without_the_first_driver_the_second_says_so() -> None:
    """It is not rolled out; once the first one exists, it is."""
    world = settled(fleet(has_first=False))
    found = target(world, "mem")
    assert (found["state"], found["reason"]) == ("Blocked", "DependencyNotFound")
    assert found["message"].startswith(f"driver {OFED}, which spec.dependsOn names, does not exist")
    assert world.loads == []
    world.add_driver("ofed")
    assert_ready(settled(world))


def test_where_the_first_driver_is_not_the_second_waits_and_says_so() -> None:
    """A node of the second one that the first does not select; the other node has both."""
    world = World()
    world.add_node("node-0", KERNEL)
    world.add_node("node-1", KERNEL, pool="other")
    world.add_driver("mem", dependsOn=[{"name": "ofed"}], nodeSelector=None)
    world.add_driver("ofed")
    settled(world)
    found = target(world, "mem")
    assert (found["state"], found["reason"], found["readyNodes"]) == ("RollingOut", "WaitingForDependency", 1)
    assert found["message"].startswith(f"node-1: driver {OFED} has not loaded")
    assert world.loads == [(OFED, "node-0"), (PEERMEM, "node-0")]


def test_without_an_image_of_the_first_driver_nothing_is_built() -> None:
    """The first one is for other kernels: there are no symbols to build the second one with."""
    world = fleet(has_first=False)
    world.add_driver("ofed", nodeSelector={"pool": "other"})
    settled(world)
    found = target(world, "mem")
    assert (found["state"], found["reason"]) == ("Blocked", "WaitingForDependency")
    assert found["message"].startswith(f"driver {OFED} selects no node of kernel {KERNEL}")
    assert world.pushed == []


def test_the_second_driver_is_built_after_the_first_and_again_with_it() -> None:
    """Its image has a key of its own for each image of the first."""
    world = settled(fleet())
    assert world.pushed == [target(world, name)["buildKey"] for name in ("ofed", "mem")]
    world.annotate_driver("ofed", "1")
    settled(world)
    assert world.pushed[2:] == [target(world, name)["buildKey"] for name in ("ofed", "mem")]


def test_a_cycle_stops_its_drivers_and_takes_nothing_away() -> None:
    """What works stays, labels included."""
    world = settled(fleet())
    before = (dict(world.live), world.daemon_sets())
    depends(world, "ofed", "mem")
    settled(world)
    assert [(target(world, name)["state"], target(world, name)["reason"]) for name in ("mem", "ofed")] == [
        ("Blocked", "DependencyCycle")
    ] * 2
    assert (world.live, world.daemon_sets()) == before
    assert target(world, "mem")["readyNodes"] == 2


@pytest.mark.parametrize("named", [True, False])
def test_a_new_dependency_replaces_no_pod(named: bool) -> None:
    """Neither does one that is no longer named. The module is built anew, and is the same."""
    world = fleet()
    world.identity = "SAME"
    settled(world)
    depends(world, "mem", *(["ofed"] if not named else []))
    settled(world)
    before = list(world.loads)
    depends(world, "mem", *(["ofed"] if named else []))
    settled(world)
    assert world.loads == before
    assert_ready(world)


def test_the_first_driver_is_not_removed_before_the_second() -> None:
    """It says which driver keeps it, works on, and goes when that one is gone."""
    world = settled(fleet())
    world.delete_driver("ofed")
    settled(world)
    assert unloading(world, "ofed")["reason"] == "WaitingForDependents"
    assert PEERMEM in unloading(world, "ofed")["message"]
    assert world.live["node-0"].keys() == {"ofeddrv", "memdrv"}
    assert target(world, "mem")["state"] == "Ready"
    world.delete_driver("mem")
    for _ in range(40):
        world.reconcile()
        world.turn()
        world.now += 5
        # What was loaded last goes first.
        assert "ofeddrv" in world.live["node-0"] or "memdrv" not in world.live["node-0"]
    assert (exists(world, "ofed"), exists(world, "mem"), world.live["node-0"]) == (False, False, {})


def test_the_first_driver_goes_once_the_second_depends_on_it_no_longer() -> None:
    """Then only the kernel says whether its modules are in use."""
    world = settled(fleet())
    world.delete_driver("ofed")
    settled(world)
    depends(world, "mem")
    for _ in range(40):
        world.reconcile()
        world.turn()
        world.now += 5
    assert not exists(world, "ofed")
    assert world.live["node-0"].keys() == {"memdrv"}


def test_drivers_of_a_cycle_can_be_deleted() -> None:
    """None of them waits for the other."""
    world = settled(fleet())
    depends(world, "ofed", "mem")
    settled(world)
    world.delete_driver("ofed")
    world.delete_driver("mem")
    for _ in range(40):
        world.reconcile()
        world.turn()
        world.now += 5
    assert (exists(world, "ofed"), exists(world, "mem")) == (False, False)
