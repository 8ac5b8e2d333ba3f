"""A file makes the same plan in worlds with stages, drains, DRA drivers, images' own programs, several drivers."""

from collections.abc import Callable
from typing import Any

import pytest

from driver_builder.plan.plan import plan
from tests.support.driver_builder.factories import KERNEL, OTHER_KERNEL
from tests.support.driver_builder.model_world import World
from tests.support.driver_builder.snapshot_files import check, through
from tests.unit.driver_builder.world import test_world_dra, test_world_drain, test_world_programs, test_world_stages

PROFILES: dict[str, Any] = {"devicePlugin": {"nvidia": {"profiles": {"configMap": "p"}}}}


def _dra() -> World:
    world = test_world_dra.fleet("ab", rollout=test_world_dra.DRAIN)
    world.client.patch(test_world_dra.DRIVER, {"spec": {"stages": {"devicePlugin": {"dra": {"env": []}}}}})
    return world


def _depends() -> World:
    world = World()
    world.add_node("node-a", KERNEL)
    world.add_node("node-b", OTHER_KERNEL)
    world.add_driver()
    world.add_driver("top", dependsOn=[{"name": "edu"}], validation={"image": "r.io/x/y:1", "command": ["/test"]})
    return world


WORLDS: dict[str, Callable[[], World]] = {
    "stages": lambda: test_world_stages.fleet("ab", stages=test_world_stages.CHAIN),
    "a vendor's plugin": lambda: test_world_stages.fleet("a", stages=test_world_stages.VENDOR),
    "profiles": lambda: test_world_stages.fleet("a", stages=PROFILES),
    "drain": lambda: test_world_drain.drained_world(KERNEL, KERNEL),
    "DRA": _dra,
    "programs": lambda: test_world_programs.ProgramWorld(rollout={"drain": test_world_drain.DRAIN}),
    "depends": _depends,
}


@pytest.mark.parametrize("make", WORLDS.values(), ids=WORLDS.keys())
def test_the_plan_is_the_same_while_a_fleet_is_rolled_out_rebuilt_and_removed(make: Callable[[], World]) -> None:
    """Each field that a plan reads of an object is in the file, whatever the object is."""
    world = make()
    for number in range(24):
        if number == 9:
            world.annotate_driver("edu", "again")
        if number == 19:
            world.delete_driver("edu")
        check(world)
        world.rounds(1)


def test_a_plugin_with_variables_is_as_wanted_in_a_file() -> None:
    """Their values are hidden in its DaemonSet as in the driver's spec: nothing is to be applied again."""
    world = test_world_dra.fleet("a")
    for _ in range(10):
        world.rounds(1)
        seen, read, known = through(world)
        words = [[str(action) for action in plan(each, known).actions] for each in (seen, read)]
        assert words[0] == words[1]
    assert read.plugin_sets != seen.plugin_sets
