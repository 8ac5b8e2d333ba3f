"""A change that is cut short at each of its steps ends in the layout that is asked for, or in the one before."""

from collections.abc import Callable

import pytest

from device_agent.mig.values import MigSettings
from kube_api.names import GPU_DEPLOY_PREFIX
from tests.unit.device_agent.mig.world import World
from tests.unit.device_agent.mig.world_card import Card, enabled

DEPLOY = f"{GPU_DEPLOY_PREFIX}dcgm-exporter"
BEFORE = (("1g.5gb", 0, (1,)), ("1g.5gb", 1, (1,)), ("3g.20gb", 4, (3,)))


def begun() -> World:
    """Make a node with a card to change, one whose mode changes, and one that stays; pods are on the first and last."""
    world = World(
        cards=[enabled(0, *BEFORE), Card(1), enabled(2, ("7g.40gb", 0, (7,)))],
        settings=MigSettings(drain=True),
        pods={
            "a/goes": ("nvidia.com/mig-1g.5gb", "MIG-0-1g.5gb-0-0"),
            "a/stays": ("nvidia.com/mig-7g.40gb", "MIG-2-7g.40gb-0-0"),
        },
    )
    world.labels[DEPLOY] = "true"
    return world


def length() -> int:
    """Count the rounds of a change that nothing disturbs."""
    world = begun()
    world.ask("two-balanced")
    for number in range(100):
        world.round()
        if world.state == "success":
            return number + 1
    raise AssertionError


ROUNDS = length()


def kill_agent(world: World) -> None:
    """Kill the agent: what it knew is lost."""
    world.start_agent()


def kill_agent_and_wait(world: World) -> None:
    """Have it away so long that its lock has ended, and that driver-builder has cleaned up."""
    world.work()
    world.clock += 700
    world.build()
    world.work()
    world.start_agent()


def kill_both(world: World) -> None:
    """Kill the whole pod: what was asked is not done."""
    world.queue.clear()
    world.changed = ()
    world.start_agent()


def boot(world: World) -> None:
    """Boot the node."""
    world.boot(900)


def relabel(world: World) -> None:
    """Ask for something else."""
    world.ask("two-sevens")


def unlabel(world: World) -> None:
    """Ask for nothing any more."""
    world.ask(None)


CUTS = (kill_agent, kill_agent_and_wait, kill_both, boot, relabel, unlabel)


def end(world: World) -> None:
    """Let everybody work, and expect an end in one of the two layouts."""
    for _ in range(120):
        world.round()
    assert world.leftovers == []
    assert world.labels[DEPLOY] == "true"
    assert world.shown.cards == frozenset()
    key = world.labels.get("nvidia.com/mig.config")
    if key is None:
        is_booted = world.boots > 1
        assert world.keys[0] in ((1, BEFORE), *([(1, ())] if is_booted else []))
        assert world.keys[1] == (0, ())
        assert "driverwright.io/mig" not in world.annotations
    else:
        expected = {"two-balanced": [("1g.5gb", 4), ("2g.10gb", 2), ("3g.20gb", 2)], "two-sevens": [("1g.5gb", 14)]}
        assert [(name, world.devices(name)) for name, _ in expected[key]] == expected[key]
        assert world.state == "success"
    assert "a/stays" not in world.evicted


@pytest.mark.parametrize("after", range(ROUNDS))
@pytest.mark.parametrize("cut", CUTS, ids=lambda one: one.__name__)
def test_cut_short_after_each_round(cut: Callable[[World], None], after: int) -> None:
    """Whoever is killed, and whatever happens then."""
    world = begun()
    world.ask("two-balanced")
    for _ in range(after):
        world.round()
    world.step()  # and before nvml and driver-builder have done their part
    was_over = world.state == "success"
    cut(world)
    if was_over and cut is unlabel:  # then the layout stays
        world.ask("two-balanced")
    end(world)


@pytest.mark.parametrize("calls", range(16))
def test_nvml_dies_between_two_calls(calls: int) -> None:
    """Instances are destroyed and none are made, or some: there is no answer, and the cards say what is there."""
    world = begun()
    world.crash_after = calls
    world.ask("two-balanced")
    end(world)


@pytest.mark.parametrize("calls", range(16))
def test_nvml_dies_and_the_label_goes(calls: int) -> None:
    """What was destroyed is made again, where it was."""
    world = begun()
    world.crash_after = calls
    world.ask("two-balanced")
    for _ in range(100):
        world.round()
        if world.crash_after is None:
            break
    world.ask(None)
    if world.state == "success":  # it has ended before
        return
    end(world)
    assert world.keys[0] == (1, BEFORE)
