"""What somebody, or time, does to a change of a MIG layout at the wrong moment."""

import json
from dataclasses import replace

import pytest

from device_agent.mig.decide import decide
from device_agent.mig.values import MigSettings
from kube_api.names import GPU_DEPLOY_PREFIX, MIG_ANNOTATION, MIG_CONFIG_LABEL, PAUSED_FOR_MIG_CHANGE
from tests.unit.device_agent.mig.world import World, a100s
from tests.unit.device_agent.mig.world_card import Card, enabled

DEPLOY = f"{GPU_DEPLOY_PREFIX}dcgm-exporter"


def test_users_that_were_seen_long_ago_are_looked_at_again() -> None:
    """A pod that has another card by now, with the same name as before, is not drained for the card that changes."""
    world = a100s(2, settings=MigSettings(drain=True))
    world.pods["a/db-0"] = ("nvidia.com/gpu", "GPU-0")
    world.look()
    world.pods["a/db-0"] = ("nvidia.com/gpu", "GPU-1")
    world.clock += 3600
    world.ask("first")
    for _ in range(20):
        world.round()
    assert (world.state, world.evicted) == ("success", [])


def test_nobody_seen_long_ago_is_not_nobody() -> None:
    """Pods of gpu-operator stay, and nothing is held, while a pod that has come since has the card."""
    world = a100s(1)
    world.labels[DEPLOY] = "true"
    world.look()
    world.pods["a/new"] = ("nvidia.com/gpu", "GPU-0")
    world.clock += 3600
    world.ask("first")
    for _ in range(10):
        step = world.round()
        assert (step.held, world.labels[DEPLOY]) == (frozenset(), "true")
    assert world.state == "pending"


def test_a_change_that_is_done_and_changes_nothing_is_a_failure() -> None:
    """What the driver makes is not what was asked, and it says that all is done: given up, and tried again later."""
    world = a100s(1)
    card = world.cards[0]
    create = card.create

    def other(profile: str, start: int, compute: tuple[int, ...]) -> None:
        assert (profile, compute) == ("3g.20gb", (3,))
        create("1g.5gb", start, (1,))

    card.create = other  # type: ignore[method-assign]
    world.ask("first")
    for _ in range(30):
        world.round()
    assert "failed" in world.states
    assert len(world.changes) < 12


@pytest.mark.parametrize("what", ["broken", "removed", "no-node"])
def test_cards_of_a_change_that_is_not_answered_stay_held(what: str) -> None:
    """Whatever happens to the Node meanwhile: a pod that came now would lose what it gets."""
    world = a100s(1)
    world.ask("first")
    while not world.step().change:
        world.clock += 1
    match what:
        case "broken":
            world.annotations[MIG_ANNOTATION] = "{"
        case "removed":
            del world.annotations[MIG_ANNOTATION], world.labels[MIG_CONFIG_LABEL]
    world.touch()
    sight = world.sight()
    step = decide(replace(sight, node=None) if what == "no-node" else sight)
    assert step.held == {"GPU-0"}
    assert step.memory.sent is not None


def test_another_layout_is_tried_though_its_pods_are_waited_for_while_the_last_is_taken_back() -> None:
    """What was given up was another one."""
    world = World(cards=[Card(0), enabled(1, ("7g.40gb", 0, (7,)))])
    world.cards[0].fails = ["create"] * 2
    world.pods["a/b"] = ("nvidia.com/gpu", "MIG-1-7g.40gb-0-0")
    world.ask("first")
    while world.annotations.get(MIG_ANNOTATION) is None or world.record["step"] != "restoring":
        world.round()
    world.ask("two-sevens")
    for _ in range(4):
        world.round()
    assert world.state == "pending"
    assert "failed" not in world.states
    assert json.loads(world.annotations[MIG_ANNOTATION])["step"] != "restoring"
    assert world.labels.get(DEPLOY) != PAUSED_FOR_MIG_CHANGE


def test_a_boot_is_waited_for_quietly() -> None:
    """Nobody is looked at, and one reason is said, until it comes."""
    world = a100s(1)
    world.cards[0].needs_boot = True
    world.ask("first")
    while world.state != "rebooting":
        world.round()
    steps = [world.round(10.0) for _ in range(30)][2:]
    assert len({step.why for step in steps}) == 1
    assert not any(step.looks for step in steps)


def test_a_boot_is_waited_for_by_who_has_not_heard_of_it() -> None:
    """Agent and nvml have begun anew: the Node says it, and the driver is not asked again."""
    world = World(cards=[Card(0, needs_boot=True)])
    world.ask("sevens")
    for _ in range(20):
        world.round()
    asked = len(world.changes)
    world.start_agent()
    world.changed = ()
    for _ in range(20):
        world.round()
    assert (world.state, len(world.changes)) == ("rebooting", asked)


def test_a_pod_that_came_between_the_last_look_and_the_hold_is_seen() -> None:
    """Also where both are at one time of the clock."""
    world = World(cards=[enabled(0, ("1g.5gb", 0, (1,)))])
    world.ask("first")
    for _ in range(2):
        world.step()
    assert world.run_pod("a/late", "MIG-0-1g.5gb-0-0")
    for _ in range(5):
        world.round()
    assert (world.state, world.changes) == ("pending", [])
    assert "a/late" in str(world.record["message"])
