"""The file of a node's cards: what is written is read again, and one that people write is checked."""

import json

import pytest
from hypothesis import given
from hypothesis import strategies as st

from device_agent.errors import ConfigurationError
from device_agent.gpu_state.state import GpuInstanceState, InstanceState, MigProfileState
from device_agent.mig.cards import parse_mig_cards
from device_agent.mig.model import Profile
from device_agent.profiles.cards_file import parse_cards, plain_cards
from tests.unit.device_agent.nvidia.states import card, split

CARDS = (
    card(0),
    split(1, "1g.5gb", "1g.10gb+me"),
    card(2, minor=None, memory_mib=None, mig_mode=None, pci="", name="N" * 500),
)


def test_cards_are_read_as_they_were_written() -> None:
    """All that a profile asks for, and where each card is."""
    text = json.dumps(plain_cards(CARDS))
    assert parse_cards(text, "f") == tuple(one._replace(recovery_action=None, numa_node=None) for one in CARDS)


def test_what_a_plan_of_mig_needs_is_written() -> None:
    """PCI id, profiles with their places, and where each instance is; the planner reads it."""
    instances = (InstanceState("MIG-1", "2c.3g.20gb", 2, 0, 19968), InstanceState("MIG-2", "1g.5gb", 7, 0, 4864))
    known = CARDS[0]._replace(
        mig_mode=1,
        pci_id="0x20b010de",
        instances=instances,
        gpu_instances=(GpuInstanceState(2, "3g.20gb", 4, 4, (2,)),),
        mig_profiles=(MigProfileState("3g.20gb", (0, 4), 4, 2), MigProfileState("1g.5gb", (0, 6), 1, 7)),
    )
    (plain,) = plain_cards([known])["cards"]
    assert plain["pciId"] == "0x20b010de"
    assert [one.get("start") for one in plain["instances"]] == [4, None]
    (read,) = parse_mig_cards(json.dumps(plain_cards([known])), "f")
    assert read.pci_ids == {"0x20b010de"}
    assert [one.start for one in read.existing] == [4, None]
    assert read.model is not None
    assert read.model.profile("3g.20gb") == Profile(name="3g.20gb", compute=3, size=4, starts=(0, 4), most=2)


@pytest.mark.parametrize(
    ("text", "message"),
    [
        pytest.param("", "f: None is not an object", id="empty"),
        pytest.param("version: v2\ncards: []", "f: version: 'v2' is unknown: use one of v1", id="another version"),
        pytest.param("version: v1", "f: cards: is missing", id="no cards"),
        pytest.param("version: v1\ncards: [{index: 0, uuid: GPU-0, name: L4}]", "cards[0].product: is missing",
                     id="no product"),
        pytest.param("version: v1\ncards: [{index: 0, uuid: 'GPU 0', product: L4}]",
                     "cards[0].uuid: 'GPU 0' is not valid", id="no UUID"),
        pytest.param("version: v1\ncards: [{index: 0, uuid: GPU-0, product: a}, {index: 0, uuid: GPU-1, product: a}]",
                     "cards: two have one index or one UUID", id="one index twice"),
        pytest.param("version: v1\ncards: [{index: 0, uuid: GPU-0, product: a}, {index: 1, uuid: GPU-0, product: a}]",
                     "cards: two have one index or one UUID", id="one UUID twice"),
    ],
)  # fmt: skip
def test_a_mistake_is_named(text: str, message: str) -> None:
    """With its path."""
    with pytest.raises(ConfigurationError) as caught:
        parse_cards(text, "f")
    assert message in str(caught.value)


def test_a_card_with_instances_is_in_mig_mode() -> None:
    """Whoever writes the file by hand need not say so."""
    text = "version: v1\ncards: [{index: 0, uuid: GPU-0, product: A100, instances: [{uuid: MIG-0, profile: 1g.5gb}]}]"
    (one,) = parse_cards(text, "f")
    assert one.mig_mode == 1


@given(st.text() | st.recursive(st.none() | st.integers() | st.text(max_size=3), st.lists).map(json.dumps))
def test_any_text_is_read_or_refused(text: str) -> None:
    """No other error comes out."""
    try:
        parse_cards(text, "f")
    except ConfigurationError:
        return
