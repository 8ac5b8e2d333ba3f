"""What is listed from one profile to the next: counts of allocatable devices, ids of holders, and why others wait."""

from collections import Counter
from collections.abc import Collection, Iterable

import pytest

from device_agent.devices.model import MAX_DEVICES, DeviceNode, Unit, is_too_much, offered
from device_agent.profiles.offered import Offered
from device_agent.profiles.transition import Held, Listed, Listing, held_before, listed_units, transition, with_late

GPU, SHARED, L4 = "nvidia.com/gpu", "nvidia.com/gpu.shared", "nvidia.com/l4"
MIG = "nvidia.com/mig-1g.5gb"
CARDS = ("GPU-0", "GPU-1", "GPU-2", "GPU-3")
NOBODY: frozenset[Held] = frozenset()


def profile(resource: str = GPU, shares: int = 1, cards: Iterable[str] = CARDS) -> list[Offered]:
    """Offer cards alike."""
    return [Offered(resource=resource, unit=card, shares=shares) for card in cards]


WHOLE, SLICE_4, SLICE_4_RENAMED = profile(), profile(shares=4), profile(SHARED, 4)


def held(resource: str, *ids: str, shares: int = 1) -> frozenset[Held]:
    """Say that containers have devices."""
    return frozenset(Held(resource=resource, id=name, shares=shares) for name in ids)


def settled(wanted: Collection[Offered], before: Listing, users: frozenset[Held] | None) -> Listing:
    """Go on until nothing changes any more: two steps at most."""
    once = transition(wanted, before, users)
    twice = transition(wanted, once, users)
    assert transition(wanted, twice, users) == twice
    return twice


def fresh(wanted: Collection[Offered]) -> Listing:
    """List a profile on a node that nobody uses."""
    return transition(wanted, {}, NOBODY)


def healthy(listing: Listing) -> dict[str, set[str]]:
    """Name the ids that may be given, by resource."""
    return {resource: {one.id for one in devices if not one.why} for resource, devices in listing.items()}


def counts(listing: Listing) -> dict[str, tuple[int, int]]:
    """Count what is allocatable and what is listed in all, by resource."""
    return {name: (sum(not one.why for one in devices), len(devices)) for name, devices in listing.items()}


@pytest.mark.parametrize(
    ("first", "then", "users", "at_once", "after"),
    [
        pytest.param(
            WHOLE, SLICE_4_RENAMED, held(GPU, "GPU-0"), {GPU: (1, 1), SHARED: (12, 16)}, {SHARED: (16, 16)},
            id="slice-4 with a new name, one card held whole",
        ),
        pytest.param(
            WHOLE, SLICE_4, held(GPU, "GPU-0"), {GPU: (13, 17)}, {GPU: (16, 16)},
            id="slice-4 with the same name, one card held whole",
        ),
        pytest.param(
            SLICE_4, WHOLE, held(GPU, *(f"GPU-0::{n}" for n in range(4)), shares=4), {GPU: (7, 8)}, {GPU: (4, 4)},
            id="back, with four shares of one card held",
        ),
        pytest.param(
            SLICE_4, profile(shares=8), held(GPU, "GPU-0::1", shares=4), {GPU: (25, 32)}, {GPU: (32, 32)},
            id="eight shares instead of four under the same name, one held",
        ),
        pytest.param(
            profile(shares=8), SLICE_4, held(GPU, "GPU-0::6", shares=8), {GPU: (13, 17)}, {GPU: (16, 16)},
            id="four shares instead of eight, one held that four do not have",
        ),
        pytest.param(
            WHOLE, [*profile(L4, cards=["GPU-0"]), *profile(cards=CARDS[1:])], held(GPU, "GPU-0"),
            {L4: (0, 1), GPU: (4, 4)}, {L4: (1, 1), GPU: (3, 3)}, id="one card under another name, held under the old",
        ),
        pytest.param(
            WHOLE, profile(cards=CARDS[1:]), held(GPU, "GPU-0"), {GPU: (4, 4)}, {GPU: (3, 3)},
            id="a card that is not offered any more, held",
        ),
        pytest.param(WHOLE, [], held(GPU, "GPU-0"), {GPU: (1, 1)}, {}, id="nothing is offered any more, one held"),
        pytest.param(
            WHOLE, SLICE_4_RENAMED, NOBODY, {SHARED: (16, 16)}, {SHARED: (16, 16)}, id="nobody has a card"
        ),
        pytest.param(
            WHOLE, WHOLE, held(GPU, "GPU-0"), {GPU: (4, 4)}, {GPU: (4, 4)}, id="the same profile, one card held"
        ),
        pytest.param(
            SLICE_4, [*profile(cards=["GPU-0"]), *profile(SHARED, 4, CARDS[1:])],
            held(GPU, "GPU-0::0", "GPU-1::3", shares=4),
            {GPU: (2, 3), SHARED: (8, 12)}, {GPU: (1, 1), SHARED: (12, 12)},
            id="some cards whole and the others shared, shares of both held",
        ),
    ],
)  # fmt: skip
def test_what_is_held_stays_and_the_rest_follows(
    first: Collection[Offered],
    then: Collection[Offered],
    users: frozenset[Held],
    at_once: dict[str, tuple[int, int]],
    after: dict[str, tuple[int, int]],
) -> None:
    """Devices in use stay allocatable under their old name; their cards' new ones follow when they are free."""
    before = fresh(first)
    changed = settled(then, before, users)
    assert counts(changed) == at_once
    assert all(one.id in healthy(changed)[one.resource] for one in users)
    assert counts(settled(then, changed, NOBODY)) == after


def test_a_way_ends_before_the_next_one_begins() -> None:
    """In the first step no device of a card that changes may be given, neither an old nor a new one."""
    first = transition(SLICE_4, fresh(WHOLE), NOBODY)
    assert healthy(first) == {GPU: set()}
    assert {one.why for one in first[GPU] if one.unit == "GPU-1"} == {"GPU-1 was still offered as nvidia.com/gpu"}
    late = transition(SLICE_4, first, held(GPU, "GPU-0"))  # given before the first step counted
    assert counts(late) == {GPU: (13, 17)}
    assert healthy(late)[GPU] >= {"GPU-0", "GPU-1::0"}


def test_a_device_that_becomes_free_ends_its_way_first() -> None:
    """The kubelet may have given it again, as it was listed, since it was asked who has it."""
    held_one = settled(SLICE_4, fresh(WHOLE), held(GPU, "GPU-0"))
    free = transition(SLICE_4, held_one, NOBODY)
    assert "GPU-0" not in healthy(free)[GPU]
    assert "GPU-0::0" not in healthy(free)[GPU]
    assert healthy(transition(SLICE_4, free, NOBODY)) == healthy(fresh(SLICE_4))


def test_what_waits_says_for_whom() -> None:
    """The message names the card, the resource and the number of containers."""
    one = settled(SLICE_4_RENAMED, fresh(WHOLE), held(GPU, "GPU-0"))
    assert {device.why for device in one[SHARED]} == {"GPU-0 is still held as nvidia.com/gpu (1 device)", ""}
    three = settled(WHOLE, fresh(SLICE_4), held(GPU, "GPU-2::0", "GPU-2::2", "GPU-2::3", shares=4))
    assert [device.why for device in three[GPU] if device.id == "GPU-2"] == [
        "GPU-2 is still held as nvidia.com/gpu (3 devices)"
    ]


def test_a_held_share_and_a_new_one_of_the_same_id_are_told_apart() -> None:
    """The id is listed once, as it was given; the other shares of the new number wait, also that of a free old id."""
    listing = settled(profile(shares=8, cards=["GPU-0"]), fresh(SLICE_4), held(GPU, "GPU-0::1", shares=4))
    assert healthy(listing) == {GPU: {"GPU-0::1"}}
    assert [(one.id, one.shares) for one in listing[GPU]] == [
        (f"GPU-0::{number}", 4 if number == 1 else 8) for number in range(8)
    ]


def test_a_profile_that_changes_twice_keeps_the_first_ones_holders() -> None:
    """What was never given of the second profile goes; the third one's waits for the first one's holder."""
    second = settled(SLICE_4_RENAMED, fresh(WHOLE), held(GPU, "GPU-0"))
    both = held(GPU, "GPU-0") | held(SHARED, "GPU-1::0", shares=4)
    third = settled(profile(L4), second, both)
    assert healthy(third) == {L4: {"GPU-2", "GPU-3"}, GPU: {"GPU-0"}, SHARED: {"GPU-1::0"}}
    back = settled(WHOLE, third, both)
    assert healthy(back) == {GPU: {"GPU-0", "GPU-2", "GPU-3"}, SHARED: {"GPU-1::0"}}


def test_what_changes_waits_while_it_is_not_known_who_uses_it() -> None:
    """Units that change stay as they are, and so do others; what is not listed yet may not be given."""
    before = fresh(WHOLE)
    wanted = [*profile(SHARED, 4, ["GPU-0"]), *profile(cards=["GPU-1", "GPU-9"])]
    waiting = transition(wanted, before, None)
    assert healthy(waiting) == {GPU: {*CARDS}}
    assert [one for one in waiting[GPU] if one.why] == [
        Listed(id="GPU-9", unit="GPU-9", shares=1, why="it is not known yet whether GPU-9 is in use")
    ]
    assert transition(wanted, waiting, None) == waiting


def test_what_waits_for_a_holder_goes_on_waiting_while_nothing_is_known() -> None:
    """Also when the next profile asks for something else, and for what waited already."""
    blocked = settled(SLICE_4_RENAMED, fresh(WHOLE), held(GPU, "GPU-0"))
    assert healthy(transition(SLICE_4_RENAMED, blocked, None)) == healthy(blocked)
    assert healthy(transition(profile(L4), blocked, None)) == healthy(blocked)


def test_a_way_that_is_about_to_begin_does_not_while_nothing_is_known() -> None:
    """The old one may have been given until the moment at which it ended."""
    first = transition(SLICE_4, fresh(WHOLE), NOBODY)
    assert transition(SLICE_4, first, None) == first


def test_a_card_and_its_instances_are_not_given_beside_each_other() -> None:
    """The card waits for the instance that is held, and each instance for the card; both ways take two steps."""
    parent = {"MIG-1": "GPU-0", "MIG-2": "GPU-0"}
    card, instances = profile(cards=["GPU-0"]), profile(MIG, cards=["MIG-1", "MIG-2"])
    split = fresh(instances)
    first = transition(card, split, NOBODY, parent=parent)
    assert healthy(first) == {GPU: set()}
    assert transition(card, first, None, parent=parent) == first
    assert healthy(transition(card, first, NOBODY, parent=parent)) == {GPU: {"GPU-0"}}
    waiting = transition(card, first, held(MIG, "MIG-1"), parent=parent)
    assert healthy(waiting) == {GPU: set(), MIG: {"MIG-1"}}
    assert healthy(transition(card, waiting, held(MIG, "MIG-1"), parent=parent)) == healthy(waiting)
    assert healthy(transition(instances, fresh(card), held(GPU, "GPU-0"), parent=parent)) == {
        MIG: set(),
        GPU: {"GPU-0"},
    }
    assert healthy(transition(instances, fresh(card), NOBODY, parent=parent)) == {MIG: set()}
    assert healthy(transition(instances, split, held(MIG, "MIG-1"), parent=parent)) == {MIG: {"MIG-1", "MIG-2"}}


def test_after_a_start_neither_a_card_nor_its_instance_is_given_while_nothing_is_known() -> None:
    """Both were given once, and only one of the two may be in use."""
    before = held_before([Held(resource=MIG, id="MIG-1", shares=1), Held(resource=GPU, id="GPU-0", shares=1)])
    parent = {"MIG-1": "GPU-0"}
    assert healthy(transition(WHOLE[:1], before, None, parent=parent)) == {GPU: set(), MIG: set()}
    seen = transition(WHOLE[:1], before, held(GPU, "GPU-0"), parent=parent)
    assert healthy(transition(WHOLE[:1], seen, held(GPU, "GPU-0"), parent=parent)) == {GPU: {"GPU-0"}}


@pytest.mark.parametrize(
    ("name", "shares", "before", "is_blocked"),
    [
        pytest.param("GPU-0::1", 0, {}, True, id="nothing says how many there were"),
        pytest.param("GPU-0::1", 0, fresh(SLICE_4), False, id="as many as were listed"),
        pytest.param("GPU-0::1", 0, fresh(profile(shares=8)), True, id="listed as another number"),
        pytest.param("GPU-0::1", 8, fresh(SLICE_4), True, id="known, whatever was listed"),
        pytest.param("GPU-0", 0, {}, True, id="a whole one"),
    ],
)
def test_unknown_shares_are_those_that_were_listed(name: str, shares: int, before: Listing, is_blocked: bool) -> None:
    """Where nothing was listed they count as another number; an id without a share was given whole."""
    listing = settled(SLICE_4, before, held(GPU, name, shares=shares))
    assert name in healthy(listing)[GPU]
    assert ("GPU-0::2" not in healthy(listing)[GPU]) == is_blocked


@pytest.mark.parametrize(
    "other",
    [
        pytest.param(Held(resource="example.com/gpu", id="GPU-0"), id="another domain"),
        pytest.param(Held(resource="nvidia.com/gpu", id="GPU-77"), id="a card that is not known"),
    ],
)
def test_devices_of_other_plugins_are_none_of_ours(other: Held) -> None:
    """They are neither listed nor waited for."""
    assert settled(SLICE_4, fresh(WHOLE), frozenset({other})) == fresh(SLICE_4)


def test_a_name_that_another_plugin_gave_a_card_is_waited_for() -> None:
    """A pod that NVIDIA's plugin gave a share keeps it: it is listed in its place."""
    listing = transition(WHOLE, {}, held(SHARED, "GPU-1::0", shares=0))
    assert healthy(listing) == {GPU: {"GPU-0", "GPU-2", "GPU-3"}, SHARED: {"GPU-1::0"}}


def test_a_card_that_is_not_offered_is_still_its_holders() -> None:
    """It was given, so that the agent remembers it, just before a profile that leaves it out counted."""
    listing = transition([], {}, held(GPU, "GPU-0"), known=CARDS)
    assert listing == {GPU: (Listed(id="GPU-0", unit="GPU-0", shares=1),)}


def test_what_is_given_while_a_change_is_decided_stays() -> None:
    """As it was listed; what was given in the way that begins is no other."""
    before = fresh([*profile(cards=["GPU-0", "GPU-1"]), *profile(shares=4, cards=["GPU-2"])])
    wanted = [*profile(SHARED, 4, ["GPU-0", "GPU-1"]), *profile(shares=8, cards=["GPU-2"])]
    listing = with_late(transition(wanted, before, NOBODY), before, {(GPU, "GPU-0"), (GPU, "GPU-2::1"), (L4, "x")})
    assert healthy(listing) == {GPU: {"GPU-0", "GPU-2::1"}, SHARED: set()}
    assert counts(listing) == {GPU: (2, 9), SHARED: (0, 8)}
    assert with_late(listing, listing, {(GPU, "GPU-0")}).keys() == listing.keys()
    assert with_late(fresh(WHOLE), fresh(WHOLE), {(GPU, "GPU-0")})[GPU][-1] == Listed(
        id="GPU-0", unit="GPU-0", shares=1
    )


def test_after_a_start_each_card_is_as_it_was_given_last() -> None:
    """What was given in another way before cannot be in use: the card was free in between."""
    given = [
        Held(resource=GPU, id="GPU-0", shares=1),
        Held(resource=SHARED, id="GPU-1::0", shares=8),
        Held(resource=SHARED, id="GPU-0::1", shares=4),
        Held(resource=SHARED, id="GPU-1::0", shares=4),
        Held(resource=SHARED, id="GPU-0::2", shares=4),
        Held(resource=GPU, id="GPU-2", shares=0),
    ]
    before = held_before(given)
    assert before == {
        SHARED: (
            Listed(id="GPU-1::0", unit="GPU-1", shares=4),
            Listed(id="GPU-0::1", unit="GPU-0", shares=4),
            Listed(id="GPU-0::2", unit="GPU-0", shares=4),
        ),
        GPU: (Listed(id="GPU-2", unit="GPU-2", shares=1),),
    }
    assert healthy(transition(WHOLE, before, None)) == {
        GPU: {"GPU-2"}, SHARED: {"GPU-1::0", "GPU-0::1", "GPU-0::2"},
    }  # fmt: skip
    assert counts(transition(SLICE_4_RENAMED, before, None)) == {SHARED: (3, 12), GPU: (1, 1)}


def test_a_resource_has_no_more_devices_than_the_kubelet_reads() -> None:
    """Units for which there is no room are left out; what is held is not."""
    cards = [f"GPU-{number}" for number in range(5)]
    listing = settled(profile(shares=1000, cards=cards), fresh(WHOLE), held(GPU, "GPU-0"))
    assert len(listing[GPU]) == 4001 <= MAX_DEVICES
    assert Counter(one.unit for one in listing[GPU]) == {"GPU-0": 1001, **dict.fromkeys(cards[1:4], 1000)}
    last = settled(profile(shares=1000, cards=cards), fresh(profile(cards=cards)), held(GPU, "GPU-4"))
    assert "GPU-4" in healthy(last)[GPU]
    assert Counter(one.unit for one in last[GPU])["GPU-4"] == 1


def test_units_are_made_for_each_way_in_which_a_card_is_listed() -> None:
    """Its files are the same; a card that is not healthy is healthy in no way, as one of which nothing is known."""
    files = (DeviceNode(path="/dev/nvidia0", mount_path="/dev/nvidia0"),)
    cards = {"GPU-0": Unit(id="GPU-0", files=files), "GPU-1": Unit(id="GPU-1", why="Xid 79")}
    wanted = profile(shares=4, cards=["GPU-0", "GPU-1", "GPU-9"])
    listing = settled(wanted, fresh(profile(shares=2, cards=["GPU-0"])), held(GPU, "GPU-0::1", shares=2))
    why = "GPU-0 is still held as nvidia.com/gpu (1 device)"
    units = listed_units(listing, cards)[GPU]
    assert sorted(units, key=lambda unit: (unit.id, unit.shares)) == [
        Unit(id="GPU-0", shares=2, ids=("GPU-0::1",), files=files),
        Unit(id="GPU-0", shares=4, ids=("GPU-0::0", "GPU-0::2", "GPU-0::3"), why=why, is_waiting=True, files=files),
        Unit(id="GPU-1", shares=4, why="Xid 79"),
        Unit(id="GPU-9", shares=4, why="nothing is known of it"),
    ]
    devices = offered(units)
    assert devices.keys() == {one.id for one in listing[GPU]}
    assert [name for name, device in devices.items() if device.unit.is_healthy] == ["GPU-0::1"]
    assert not is_too_much(units)
