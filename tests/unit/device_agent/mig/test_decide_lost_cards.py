"""A card falls off the bus in the middle of a change: NVML cannot read it, or lists it no more."""

import pytest

from kube_api.names import MIG_ANNOTATION
from tests.unit.device_agent.mig.test_decide_crashes import BEFORE, DEPLOY, begun
from tests.unit.device_agent.mig.world import World, a100s
from tests.unit.device_agent.mig.world_card import Card, enabled

AT_WORK = range(2, 7)
"""Rounds of the change after which the Node says what was before, and which are not the last."""
LISTED = "unreadable"
NAMED = {LISTED: "card {} cannot be read: GPU is lost", "unlisted": "NVML lists GPU-{} no more"}


def rounds(world: World, number: int = 40) -> World:
    """Let everybody work."""
    for _ in range(number):
        world.round()
    return world


@pytest.mark.parametrize("after", AT_WORK)
@pytest.mark.parametrize("which", [0, 1])
@pytest.mark.parametrize("how", NAMED)
def test_the_others_become_as_before_and_it_is_named(how: str, which: int, after: int) -> None:
    """Failed, with the card's name. It alone is held; no card that the file does not name is touched for it."""
    world = begun()
    world.ask("two-balanced")
    rounds(world, after)
    lost, other = world.cards[which], world.cards[1 - which]
    lost.lose(is_listed=how == LISTED)
    rounds(world)
    assert world.state == "failed"
    assert NAMED[how].format(which) in str(world.record["message"])
    assert world.record["before"].keys() == {lost.uuid}  # type: ignore[attr-defined] # an object
    assert other.key == ((1, BEFORE) if which else (0, ()))
    assert world.shown.cards == {lost.uuid}
    assert (world.leftovers, world.labels[DEPLOY]) == ([], "true")
    assert all(change.card != "GPU-2" for change in world.changes)
    assert "a/stays" not in world.evicted

    lost.come_back()
    rounds(world, 60)
    assert (world.state, world.devices("2g.10gb"), world.leftovers) == ("success", 2, [])
    assert not world.shown.cards


@pytest.mark.parametrize("after", range(1, 16))
@pytest.mark.parametrize("back", [3, 8, 40])
@pytest.mark.parametrize("how", NAMED)
def test_an_agent_that_is_killed_at_any_moment_ends_right(how: str, back: int, after: int) -> None:
    """The card comes back before, while and after the other one becomes as before."""
    world = begun()
    world.ask("two-balanced")
    rounds(world, 5)
    world.cards[0].lose(is_listed=how == LISTED)
    for number in range(back):
        if number == after:
            world.start_agent()
        world.round()
    world.cards[0].come_back()
    if after >= back:
        rounds(world, after - back)
        world.start_agent()
    rounds(world, 80)
    assert (world.state, world.devices("2g.10gb"), world.leftovers) == ("success", 2, [])
    assert not world.shown.cards


@pytest.mark.parametrize("after", AT_WORK)
def test_a_card_that_was_replaced_is_another_one(after: int) -> None:
    """Its successor has its index: it is touched when a key is asked for, and not before."""
    world = begun()
    world.ask("two-balanced")
    rounds(world, after)
    world.cards[0].lose(is_listed=False)
    new = Card(3)
    world.cards.insert(0, new)
    rounds(world)
    assert (world.state, new.key, world.cards[2].key) == ("failed", (0, ()), (0, ()))
    assert "NVML lists GPU-0 no more" in str(world.record["message"])
    assert world.shown.cards == {"GPU-0"}
    assert all(change.card != new.uuid for change in world.changes)
    world.ask("first")
    rounds(world)
    assert (world.state, world.leftovers) == ("success", [])
    assert new.key == (1, (("3g.20gb", 0, (3,)), ("3g.20gb", 4, (3,))))


@pytest.mark.parametrize("how", NAMED)
def test_what_is_back_in_a_moment_has_cost_nothing(how: str) -> None:
    """The other card is not touched for it."""
    world = begun()
    world.ask("two-balanced")
    rounds(world, 5)
    assert [change.card for change in world.changes] == ["GPU-0"]
    world.cards[1].lose(is_listed=how == LISTED)
    rounds(world, 2)
    assert (world.state, world.leftovers) == ("failed", [])
    world.cards[1].come_back()
    rounds(world)
    assert (world.state, [change.card for change in world.changes]) == ("success", ["GPU-0", "GPU-1"])


@pytest.mark.parametrize("how", NAMED)
def test_the_label_goes_and_the_card_comes_back(how: str) -> None:
    """It becomes as before, and nothing is left on the Node."""
    world = begun()
    world.ask("two-balanced")
    rounds(world, 5)
    world.cards[0].lose(is_listed=how == LISTED)
    world.ask(None)
    rounds(world)
    assert (world.state, world.cards[1].key, world.leftovers) == ("failed", (0, ()), [])
    world.cards[0].come_back()
    rounds(world)
    assert (world.state, world.annotations, world.cards[0].key) == (None, {}, (1, BEFORE))


def test_another_layout_does_not_wait_for_what_is_not_listed() -> None:
    """It may never come back: the new layout is planned from what NVML lists, and the card is named no more."""
    world = begun()
    world.ask("two-balanced")
    rounds(world, 5)
    world.cards[1].lose(is_listed=False)
    rounds(world)
    assert world.state == "failed"
    world.ask("first")
    rounds(world)
    assert (world.state, world.record["before"]) == ("success", None)
    assert not world.shown.cards
    assert world.cards[0].key == (1, (("3g.20gb", 0, (3,)), ("3g.20gb", 4, (3,))))


@pytest.mark.parametrize(("how", "state"), [(LISTED, "failed"), ("unlisted", "success")])
def test_a_layout_that_was_reached_is_made_again_on_the_others(how: str, state: str) -> None:
    """After a boot. One that is listed is named until it can be read, and made again then."""
    world = a100s(3)
    world.ask("sevens")
    rounds(world)
    world.boot()
    while not world.devices("1g.5gb"):
        world.round()
    world.cards[2].lose(is_listed=how == LISTED)
    rounds(world)
    assert world.state == state
    assert [len(card.instances) for card in world.cards[:2]] == [7, 7]
    assert world.shown.cards == ({"GPU-2"} if state == "failed" else set())
    assert world.leftovers == []
    world.cards[2].come_back()
    rounds(world)
    assert (world.state, world.devices("1g.5gb")) == ("success", 21)


def test_a_card_that_a_boot_does_not_bring_back() -> None:
    """The boot was to switch its mode, and another card's: that one goes back with one more boot."""
    world = World(cards=[Card(0, needs_boot=True), Card(1, needs_boot=True)])
    world.ask("sevens")
    rounds(world)
    assert world.state == "rebooting"
    world.cards[0].lose(is_listed=False)
    world.boot()
    rounds(world)
    assert (world.state, world.states[-2:]) == ("rebooting", ["pending", "rebooting"])
    assert "; NVML lists GPU-0 no more" in str(world.record["message"])
    world.boot()
    rounds(world)
    assert (world.state, world.cards[1].key, world.leftovers) == ("failed", (0, ()), [])
    assert "NVML lists GPU-0 no more" in str(world.record["message"])


def test_the_refusal_of_a_card_that_is_lost_is_not_the_others() -> None:
    """What was asked of it comes back as a failure while the other one becomes as before."""
    world = World(cards=[enabled(0, *BEFORE), Card(1)])
    world.ask("two-balanced")
    world.cards[1].fails = ["create"] * 2
    while world.annotations.get(MIG_ANNOTATION, "").find("restoring") < 0:
        world.round()
    while len(world.queue) == 0:
        world.step()
        world.clock += 1
    next(card for card in world.cards if card.uuid == world.queue[0].card).lose(is_listed=True)
    rounds(world)
    assert world.state == "failed"
    assert str(world.record["message"]).endswith("cannot be read: GPU is lost")
    assert len(world.record["before"]) == 1  # type: ignore[arg-type] # an object


def test_another_card_that_cannot_become_as_before_is_named_as_well() -> None:
    """Both stay held, and it is tried again until it works."""
    world = begun()
    world.ask("two-balanced")
    rounds(world, 6)
    world.cards[1].lose(is_listed=False)
    world.cards[0].fails = ["destroy"] * 2
    found = []
    for _ in range(60):
        world.round()
        found.append(str(world.record["message"]))
    (both,) = {one for one in found if "could not be made as before" in one}
    assert both.startswith("NVML lists GPU-1 no more")
    assert "card 0: destroy: Unknown Error" in both
    assert world.cards[0].key == (1, BEFORE)
    assert world.shown.cards == {"GPU-1"}
