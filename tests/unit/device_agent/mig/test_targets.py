"""What cards are to become, where it is not known what one of them has."""

import pytest

from device_agent.errors import MigRefused
from device_agent.gpu_state.state import CardState, InstanceState
from device_agent.mig.record import CardBefore, PlacedInstance
from device_agent.mig.targets import before_of, described, targets_asked, targets_before
from tests.unit.device_agent.mig.world import LAYOUTS, read_layouts
from tests.unit.device_agent.mig.world_card import Card, enabled

UNKNOWN = Card(1).state()._replace(mig_mode=1, instances=(InstanceState("MIG-x", "1g.5gb", 7, 0, 1),))
"""A card with a MIG device whose GPU instance the driver does not show."""
THREE = ("3g.20gb", 4, (3,))


def asked(key: str, *cards: CardState) -> list[bool]:
    """Return which cards have to be changed."""
    return [not one.is_reached for one in targets_asked(cards, read_layouts(LAYOUTS, key).entries, {}, {})]


def test_a_card_that_no_entry_is_for_need_not_be_known() -> None:
    """The others get their layout."""
    assert asked("first", Card(0).state(), UNKNOWN) == [True, False]


def test_a_card_whose_instances_are_not_known_is_refused() -> None:
    """They could not be made again."""
    with pytest.raises(MigRefused, match=r"card 1 .*: it is not known where its GPU instance 7 is"):
        asked("sevens", Card(0).state(), UNKNOWN)


def test_a_card_is_made_as_it_was() -> None:
    """What is at its place stays; the rest goes, and what is missing is created there."""
    now = enabled(0, THREE, ("1g.5gb", 0, (1,))).state()
    was = CardBefore(1, (PlacedInstance("2g.10gb", 2, (2,)), PlacedInstance(*THREE)))
    (target,) = targets_before([now], {now.uuid: was}, {})
    change = target.change(5.0)
    assert (change.destroy, [tuple(one) for one in change.create]) == ((2,), [("2g.10gb", 2, (2,))])
    assert (change.mode, change.id, change.at) == (1, 5_000_000, 5.0)
    assert target.units == {"GPU-0", "MIG-0-1g.5gb-0-0"}


def test_what_was_is_written_by_place() -> None:
    """Whatever order NVML has."""
    card = enabled(0, THREE, ("1g.5gb", 0, (1,))).state()
    assert before_of(card) == CardBefore(1, (PlacedInstance("1g.5gb", 0, (1,)), PlacedInstance(*THREE)))
    assert described(card) == "card 0 has 3g.20gb at 4, 1g.5gb at 0"
    assert described(Card(1).state()) == "card 1 is not in MIG mode"
