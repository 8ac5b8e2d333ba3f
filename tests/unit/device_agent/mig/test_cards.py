"""The cards that a plan is for."""

import pytest

from device_agent.errors import ConfigurationError
from device_agent.mig.cards import named_cards, parse_mig_cards
from device_agent.mig.tables import MODELS
from device_agent.profiles.cards_file import parse_cards

CARD = "version: v1\ncards: [{index: 3, uuid: GPU-0, product: %s, %s}]"


def test_cards_are_named_by_their_model() -> None:
    """One after the other, in any letters."""
    cards = named_cards(["a30", "A100-40:2"])
    assert [(card.index, card.product, card.enabled) for card in cards] == [
        (0, "A30", False), (1, "A100-40", False), (2, "A100-40", False)
    ]  # fmt: skip


@pytest.mark.parametrize(
    ("names", "message"),
    [
        pytest.param(
            ["L4"], "--card: 'L4' is not MODEL or MODEL:COUNT with a model of A100-40, A100-80, A30,", id="model"
        ),
        pytest.param(["A30:x"], "--card: 'A30:x' is not MODEL or MODEL:COUNT", id="no count"),
        pytest.param(["A30:0"], "--card: 0 cards: write 1 to 64", id="none"),
        pytest.param(["A30:60", "A30:5"], "--card: 65 cards: write 1 to 64", id="too many"),
    ],
)
def test_a_name_that_is_none_is_refused(names: list[str], message: str) -> None:
    """With the models that there are."""
    with pytest.raises(ConfigurationError) as caught:
        named_cards(names)
    assert str(caught.value).startswith(message)


@pytest.mark.parametrize(
    ("product", "model"),
    [
        pytest.param("NVIDIA A100-SXM4-40GB", "A100-40", id="A100 with 40 GB"),
        pytest.param("A100-SXM4-40GB", "A100-40", id="as older drivers write it"),
        pytest.param("NVIDIA A100 80GB PCIe", "A100-80", id="A100 with 80 GB"),
        pytest.param("NVIDIA H100 80GB HBM3", "H100-80", id="H100"),
        pytest.param("NVIDIA A30", "A30", id="A30"),
        pytest.param("NVIDIA L4", None, id="without MIG"),
    ],
)
def test_the_model_is_found_by_the_product(product: str, model: str | None) -> None:
    """With its placements, and the PCI ids that it may have."""
    (card,) = parse_mig_cards(CARD % (product, "migMode: disabled"), "f")
    assert card.model == (MODELS[model] if model else None)
    assert card.pci_ids == (MODELS[model].pci_ids if model else frozenset())


def test_the_file_has_the_last_word() -> None:
    """What it says of profiles and of the PCI id comes before the table of the model."""
    more = "pciId: '0x20B010DE', migProfiles: [{name: 1g.5gb, starts: [0, 1], size: 1, most: 1}]"
    (card,) = parse_mig_cards(CARD % ("NVIDIA A100-SXM4-40GB", more), "f")
    assert card.pci_ids == {"0x20b010de"}
    assert card.model is not None
    assert [(one.name, one.compute, one.starts, one.most) for one in card.model.profiles] == [("1g.5gb", 1, (0, 1), 1)]


def test_devices_of_one_instance_are_put_together() -> None:
    """By their ``gi``; a device that has all of an instance is one by itself, also where the file has no ids."""
    parts = "{uuid: a, profile: 1c.3g.20gb, gi: 1, start: 4}, {uuid: b, profile: 2c.3g.20gb, gi: 1}"
    more = f"instances: [{parts}, {{uuid: c, profile: 1g.5gb}}, {{uuid: d, profile: 1g.5gb}}]"
    (card,) = parse_mig_cards(CARD % ("A100-SXM4-40GB", more), "f")
    assert card.enabled
    assert [(str(one.instance), one.start) for one in card.existing] == [
        ("2c.3g.20gb+1c.3g.20gb", 4), ("1g.5gb", None), ("1g.5gb", None)
    ]  # fmt: skip


@pytest.mark.parametrize(
    ("more", "message"),
    [
        pytest.param("pciId: A100", "cards[0].pciId: 'A100' is not valid: it must be device and vendor", id="PCI id"),
        pytest.param(
            "migProfiles: [{name: x, starts: [0], size: 1}]",
            "f: card 3: migProfiles: 'x' is not a profile of GPU instances",
            id="no profile",
        ),
        pytest.param(
            "migProfiles: [{name: 1c.3g.20gb, starts: [0], size: 1}]",
            "'1c.3g.20gb' is not a profile of GPU instances",
            id="a part of one",
        ),
        pytest.param(
            "migProfiles: [{name: 3g.20gb, starts: [0, 6], size: 4}]",
            "f: card 3: migProfiles: 3g.20gb ends after slice 7: correct starts or size",
            id="too long",
        ),
        pytest.param(
            "migProfiles: [{name: 1g.5gb, starts: [0], size: 1}, {name: 1g.5gb, starts: [1], size: 1}]",
            "f: card 3: migProfiles: two have one name",
            id="a name twice",
        ),
        pytest.param(
            "migProfiles: [{name: 1g.5gb, starts: [8], size: 1}]",
            "migProfiles[0].starts[0]: 8 is not a whole number from 0 to 7",
            id="no slice",
        ),
        pytest.param(
            "instances: [{uuid: a, profile: x}]", "f: card 3: instances: 'x' is not a MIG profile", id="instance"
        ),
        pytest.param(
            "instances: [{uuid: a, profile: 3g.20gb, start: 1}]",
            "f: card 3: instances: 3g.20gb cannot start at 1: correct start",
            id="a place that it cannot have",
        ),
        pytest.param(
            "instances: [{uuid: a, profile: 1g.5gb, start: 5}, {uuid: b, profile: 3g.20gb, start: 4}]",
            "f: card 3: instances: 3g.20gb cannot start at 4",
            id="two at one place",
        ),
    ],
)
def test_a_mistake_is_named(more: str, message: str) -> None:
    """With the card."""
    with pytest.raises(ConfigurationError) as caught:
        parse_mig_cards(CARD % ("A100-SXM4-40GB", more), "f")
    assert message in str(caught.value)


def test_profiles_are_checked_with_the_same_file() -> None:
    """What only MIG needs of it changes nothing there."""
    more = "pciId: '0x20B010DE', migProfiles: [{name: 1g.5gb, starts: [0], size: 1}]"
    assert parse_cards(CARD % ("L4", more), "f") == parse_cards(CARD % ("L4", "pci: ''"), "f")


@pytest.mark.parametrize("model", [pytest.param(one, id=one.name) for one in MODELS.values()])
def test_tables_are_complete(model: object) -> None:
    """Each profile has places within the card, and its name says how many compute slices it has."""
    table = next(one for one in MODELS.values() if one is model)
    for profile in table.profiles:
        assert profile.name.startswith(f"{profile.compute}g.")
        assert max(profile.starts) + profile.size <= 8
        assert 1 <= profile.most <= len(profile.starts)
    assert len({one.name for one in table.profiles}) == len(table.profiles)
    assert all(one == one.lower() for one in table.pci_ids)
