"""What happens to each card: what stays, goes and comes, and which entry counts."""

from device_agent.mig.cards import named_cards, parse_mig_cards
from device_agent.mig.parse import parse_layouts
from device_agent.mig.plan import CardPlan, MigCard, plan_cards

SPLIT = """\
version: v1
cards:
- index: 0
  uuid: GPU-0
  product: NVIDIA A100-SXM4-40GB
  migMode: enabled
  instances:
  - {uuid: MIG-0, profile: 1g.5gb, gi: 7, start: 0}
  - {uuid: MIG-1, profile: 1g.5gb, gi: 8, start: 1}
  - {uuid: MIG-2, profile: 3g.20gb, gi: 2, start: 4}
"""


def planned(entries: str, cards: tuple[MigCard, ...]) -> tuple[CardPlan, ...]:
    """Plan what the entries ask for."""
    return plan_cards(parse_layouts(f"version: v1\nmig-configs: {{a: [{entries}]}}", "f", "a"), cards)


def one(entries: str, text: str = SPLIT) -> CardPlan:
    """Plan for a file of one card."""
    (found,) = planned(entries, parse_mig_cards(text, "cards"))
    return found


def mig(devices: str, more: str = "devices: all") -> str:
    """Make an entry."""
    return f"{{{more}, mig-enabled: true, mig-devices: {{{devices}}}}}"


OFF = "{devices: all, mig-enabled: false}"


def shown(plan: CardPlan) -> tuple[list[str], list[str], list[str]]:
    """Return what stays, goes and comes, as ``PROFILE@START``."""
    groups = plan.stays, plan.destroyed, plan.created
    stays, destroyed, created = ([f"{it.instance}@{it.start}" for it in group] for group in groups)
    return stays, destroyed, created


def test_a_card_that_is_as_asked_is_left_alone() -> None:
    """Wherever its instances are."""
    plan = one(mig("1g.5gb: 2, 3g.20gb: 1"))
    assert plan.is_as_asked
    assert shown(plan) == (["1g.5gb@0", "1g.5gb@1", "3g.20gb@4"], [], [])


def test_instances_that_can_stay_do() -> None:
    """The others go, and what comes is put beside them."""
    plan = one(mig("1g.5gb: 1, 2g.10gb: 1, 3g.20gb: 1"))
    assert not plan.is_as_asked
    assert not plan.changes_mode
    assert shown(plan) == (["1g.5gb@0", "3g.20gb@4"], ["1g.5gb@1"], ["2g.10gb@2"])


def test_no_instance_stays_when_mig_mode_goes() -> None:
    """The mode changes as well."""
    plan = one(OFF)
    assert plan.changes_mode
    assert shown(plan) == ([], ["1g.5gb@0", "1g.5gb@1", "3g.20gb@4"], [])


def test_all_instances_go_where_none_is_asked_for() -> None:
    """MIG mode stays."""
    plan = one(mig(""))
    assert not plan.changes_mode
    assert shown(plan)[1:] == (["1g.5gb@0", "1g.5gb@1", "3g.20gb@4"], [])


def test_nothing_of_a_refused_card_goes() -> None:
    """The message names card and profile."""
    plan = one(mig("3g.20gb: 2, 1g.5gb: 1"))
    assert plan.refused == ("card 0 (NVIDIA A100-SXM4-40GB): 1g.5gb does not fit beside 2x 3g.20gb, wherever these are")
    assert not plan.is_as_asked
    assert not plan.changes_mode
    assert shown(plan) == (["1g.5gb@0", "1g.5gb@1", "3g.20gb@4"], [], [])


def test_instances_at_unknown_places_are_made_anew() -> None:
    """``device-agent cards`` does not write where they are; a card that is as asked is left alone all the same."""
    text = SPLIT.replace(", start: 0", "").replace(", start: 1", "").replace(", start: 4", "")
    assert one(mig("1g.5gb: 2, 3g.20gb: 1"), text).is_as_asked
    plan = one(mig("1g.5gb: 1, 3g.20gb: 1"), text)
    assert len(plan.destroyed) == 3
    assert len(plan.created) == 2


def test_a_card_without_an_entry_is_left_alone() -> None:
    """Also one beside cards that change."""
    plans = planned(mig("1g.5gb: 7", "devices: [1]"), named_cards(["A100-40:2"]))
    assert [(plan.is_as_asked, plan.layout is None, plan.changes_mode) for plan in plans] == [
        (True, True, False),
        (False, False, True),
    ]


def test_the_order_of_entries_means_nothing() -> None:
    """Nor does that of filters and indexes: each card gets what is for it."""
    cards = named_cards(["A30", "A100-40:2"])
    first = mig("1g.5gb: 7", "device-filter: ['0x20F110DE', '0x20B010DE'], devices: [2, 1]")
    second = mig("1g.6gb: 4", "device-filter: '0x20b710de', devices: all")
    one_way, other = planned(f"{first}, {second}", cards), planned(f"{second}, {first}", cards)
    assert [shown(plan) for plan in one_way] == [shown(plan) for plan in other]
    assert [len(plan.created) for plan in one_way] == [4, 7, 7]


def test_entries_that_differ_are_refused_for_the_cards_of_both() -> None:
    """Not for others, and not where they ask for the same."""
    cards = named_cards(["A100-40:3"])
    entries = [mig("1g.5gb: 7", "devices: [0, 1]"), mig("2g.10gb: 3", "devices: [1, 2]")]
    plans = planned(", ".join(entries), cards)
    assert [plan.refused for plan in plans] == [
        "",
        "card 1 (A100-40): entries 0, 1 of the key are for it and differ: narrow their devices or device-filter",
        "",
    ]
    assert not any(plan.refused for plan in planned(f"{entries[0]}, {entries[0]}", cards))


def test_a_card_whose_pci_id_is_not_known_is_refused_where_entries_filter() -> None:
    """It may be one of these, or not."""
    text = SPLIT.replace("NVIDIA A100-SXM4-40GB", "X200")
    entries = mig("1g.5gb: 7", "device-filter: '0x20B010DE', devices: all")
    assert (
        "card 0 (X200): entry 0 has a device-filter, and its PCI id is not known: add pciId"
        in one(entries, text).refused
    )
    assert one(entries, f"{text}  pciId: '0x29010000'\n").layout is None


def test_a_card_without_a_table_is_refused_until_it_has_one() -> None:
    """``migProfiles`` of the file of cards is one; to switch MIG off, none is needed."""
    text = "version: v1\ncards: [{index: 0, uuid: GPU-0, product: X200, migMode: disabled%s}]"
    assert (
        "card 0 (X200): no MIG placements are known of it: add migProfiles" in one(mig("2g.9gb: 2"), text % "").refused
    )
    assert one(OFF, text % "").is_as_asked
    table = ", migProfiles: [{name: 2g.9gb, starts: [2, 0], size: 2}]"
    assert shown(one(mig("2g.9gb: 2"), text % table)) == ([], [], ["2g.9gb@0", "2g.9gb@2"])
