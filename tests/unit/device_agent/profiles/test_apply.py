"""A profile and the cards of a node: what is offered, and why a profile does not fit."""

from collections import Counter

import pytest
from hypothesis import given
from hypothesis import strategies as st

from device_agent.errors import ProfileRefused
from device_agent.gpu_state.state import CardState
from device_agent.profiles.apply import apply, shares_of_others
from device_agent.profiles.offered import Offered
from device_agent.profiles.parse import parse_profile
from device_agent.profiles.profile import Naming, Profile, Shared
from device_agent.profiles.strategy import Sorted, by_strategy
from device_resources.nvidia import MigStrategy
from tests.unit.device_agent.nvidia.states import card, split, uuid

GPU, SHARED = "nvidia.com/gpu", "nvidia.com/gpu.shared"
SMALL, LARGE = "nvidia.com/mig-1g.5gb", "nvidia.com/mig-3g.20gb"
FOUR = tuple(card(number) for number in range(4))
MIXED_CARDS = (card(0), split(1, "1g.5gb", "3g.20gb"), split(2, "1g.5gb"))
L4 = "NVIDIA L4"


def profile_of(entries: str = "", further: str = "", before: str = "") -> Profile:
    """Write a profile and read it."""
    slicing = f"sharing: {{timeSlicing: {{{further}resources: [{entries}]}}}}\n" if entries else ""
    return parse_profile(f"version: v1\n{before}{slicing}", "k")


A100 = profile_of(
    "{name: nvidia.com/gpu, replicas: 8}, {name: nvidia.com/mig-1g.5gb, replicas: 2}, "
    "{name: nvidia.com/mig-2g.10gb, replicas: 2}, {name: nvidia.com/mig-3g.20gb, replicas: 3}, "
    "{name: nvidia.com/mig-7g.40gb, replicas: 7}",
    before="flags: {migStrategy: mixed}\n",
)


def counts(profile: Profile, cards: tuple[CardState, ...], default: MigStrategy = MigStrategy.NONE) -> dict[str, int]:
    """Return what the kubelet would count of each resource."""
    total: Counter[str] = Counter()
    for one in apply(profile, Sorted(cards), default):
        total[one.resource] += one.shares
    return dict(total)


@pytest.mark.parametrize(
    ("profile", "cards", "expected"),
    [
        pytest.param(profile_of(), FOUR, {GPU: 4}, id="an empty one"),
        pytest.param(profile_of("{name: nvidia.com/gpu, replicas: 10}"), tuple(map(card, range(8))), {GPU: 80},
                     id="NVIDIA's first example: ten shares of eight"),
        pytest.param(profile_of("{name: nvidia.com/gpu, replicas: 10}", "renameByDefault: true, "),
                     tuple(map(card, range(8))), {SHARED: 80}, id="NVIDIA's second example: with another name"),
        pytest.param(profile_of("{name: gpu, replicas: 4}", "renameByDefault: true, "), FOUR, {SHARED: 16},
                     id="slice-4"),
        pytest.param(profile_of("{name: gpu, replicas: 4, devices: [0, 1]}", "renameByDefault: true, "), FOUR,
                     {SHARED: 8, GPU: 2}, id="two of four by index"),
        pytest.param(profile_of("{name: gpu, replicas: 4, devices: ['0', GPU-3]}", "renameByDefault: true, "), FOUR,
                     {SHARED: 8, GPU: 2}, id="two of four by index and UUID"),
        pytest.param(profile_of("{name: gpu, replicas: 4, devices: 3, rename: quarter}"), FOUR,
                     {"nvidia.com/quarter": 12, GPU: 1}, id="three of four by count"),
        pytest.param(profile_of("{name: gpu, replicas: 4, devices: [0, 1, 2, 3]}"), FOUR, {GPU: 16},
                     id="all of them by index need no other name"),
        pytest.param(profile_of("{name: gpu, replicas: 4, devices: [0], rename: a}, "
                                "{name: gpu, replicas: 2, devices: [1], rename: b}"), FOUR,
                     {"nvidia.com/a": 4, "nvidia.com/b": 2, GPU: 2}, id="two numbers of shares"),
        pytest.param(profile_of("{name: gpu, replicas: 1, devices: [0]}"), FOUR, {GPU: 4},
                     id="one share is a whole card"),
        pytest.param(profile_of("{name: mig-1g.5gb, replicas: 4}"), FOUR, {GPU: 4}, id="shares of what is not there"),
        pytest.param(profile_of("{name: a.b/c, replicas: 4}"), FOUR, {GPU: 4}, id="shares of something else"),
        pytest.param(profile_of("{name: gpu, replicas: 4}"), (), {}, id="no card"),
        pytest.param(profile_of(before="resources: {gpus: [{pattern: '*L4*', name: l4}, {pattern: '*', name: gpu}]}\n"),
                     (card(0, name=L4), card(1)), {"nvidia.com/l4": 1, GPU: 1}, id="names by product"),
        pytest.param(profile_of(before="resources: {gpus: [{pattern: '*', name: any}, {pattern: '*L4', name: l4}]}\n"),
                     (card(0, name=L4), card(1)), {"nvidia.com/any": 2}, id="the first pattern counts"),
        pytest.param(profile_of(before="resources: {gpus: [{pattern: '*L4', name: l4}]}\n"),
                     (card(0, name=L4), card(1)), {"nvidia.com/l4": 1, GPU: 1}, id="no pattern: as without"),
        pytest.param(profile_of("{name: l4, replicas: 3}", before="resources: {gpus: [{pattern: '*L4', name: l4}]}\n"),
                     (card(0, name=L4), card(1)), {"nvidia.com/l4": 3, GPU: 1}, id="shares of one product"),
    ],
)  # fmt: skip
def test_cards(profile: Profile, cards: tuple[CardState, ...], expected: dict[str, int]) -> None:
    """Shares by resource, as the kubelet counts them."""
    assert counts(profile, cards) == expected


@pytest.mark.parametrize(
    ("profile", "default", "expected"),
    [
        pytest.param(A100, MigStrategy.NONE, {GPU: 8, SMALL: 4, LARGE: 3}, id="the example of NVIDIA's GPU operator"),
        pytest.param(profile_of(), MigStrategy.NONE, {GPU: 3}, id="none"),
        pytest.param(profile_of(), MigStrategy.MIXED, {GPU: 1, SMALL: 2, LARGE: 1}, id="mixed by config.yaml"),
        pytest.param(profile_of(before="flags: {migStrategy: mixed}\n"), MigStrategy.NONE, {GPU: 1, SMALL: 2, LARGE: 1},
                     id="mixed by the profile"),
        pytest.param(profile_of("{name: mig-1g.5gb, replicas: 3}"), MigStrategy.MIXED, {GPU: 1, SMALL: 6, LARGE: 1},
                     id="shares of one MIG profile"),
        pytest.param(profile_of("{name: mig-1g.5gb, replicas: 3, devices: ['1:0'], rename: small}"), MigStrategy.MIXED,
                     {GPU: 1, SMALL: 1, LARGE: 1, "nvidia.com/small": 3}, id="shares of one instance by index"),
        pytest.param(profile_of("{name: mig-1g.5gb, replicas: 3, devices: [MIG-2-1], rename: small}"),
                     MigStrategy.MIXED, {GPU: 1, SMALL: 1, LARGE: 1, "nvidia.com/small": 3}, id="by UUID"),
        pytest.param(profile_of(before="resources: {mig: [{pattern: 1g.*, name: small}]}\n"), MigStrategy.MIXED,
                     {GPU: 1, "nvidia.com/small": 2, LARGE: 1}, id="names by MIG profile"),
    ],
)  # fmt: skip
def test_instances(profile: Profile, default: MigStrategy, expected: dict[str, int]) -> None:
    """A card, one with two instances, and one with one."""
    assert counts(profile, MIXED_CARDS, default) == expected


@pytest.mark.parametrize(
    ("entries", "message"),
    [
        pytest.param("{name: gpu, replicas: 2, devices: [4], rename: a}",
                     "sharing.timeSlicing.resources[0]: device '4' is not there: 'nvidia.com/gpu' has 0, 3",
                     id="index"),
        pytest.param("{name: gpu, replicas: 2, devices: [GPU-x], rename: a}", "device 'GPU-x' is not there", id="UUID"),
        pytest.param("{name: gpu, replicas: 2, devices: [1], rename: a}",
                     "device '1' is not offered with this migStrategy", id="a card in MIG mode"),
        pytest.param("{name: gpu, replicas: 2, devices: ['1:0'], rename: a}",
                     "device '1:0' is of 'nvidia.com/mig-1g.5gb'", id="a device of another resource"),
        pytest.param("{name: gpu, replicas: 2, devices: 3, rename: a}",
                     "3 devices are not there: 'nvidia.com/gpu' has 2", id="count"),
        pytest.param("{name: gpu, replicas: 2, devices: [0], rename: a}, {name: gpu, replicas: 2, devices: ['00', 3]}",
                     "resources[1]: GPU-0 is in two entries", id="a card in two entries"),
        pytest.param("{name: gpu, replicas: 2, devices: [0], rename: a}, {name: gpu, replicas: 2, devices: 1}",
                     "resources[1]: GPU-0 is in two entries", id="a card in a list and in a count"),
        pytest.param("{name: gpu, replicas: 2, devices: [0, GPU-0], rename: a}", "GPU-0 is named twice",
                     id="a card by index and UUID"),
        pytest.param("{name: gpu, replicas: 2, devices: [0]}",
                     "'nvidia.com/gpu' would be whole and shared devices: write rename, or renameByDefault: true",
                     id="whole and shared under one name"),
        pytest.param("{name: mig-1g.5gb, replicas: 2, rename: gpu}", "'nvidia.com/gpu' would be whole and shared",
                     id="a new name that others have"),
        pytest.param("{name: gpu, replicas: 1000}, {name: mig-1g.5gb, replicas: 1000, rename: gpu}, "
                     "{name: mig-3g.20gb, replicas: 1000, rename: gpu}", "would have 5000 shares: at most 4096",
                     id="more than the kubelet can count"),
    ],
)  # fmt: skip
def test_a_profile_that_does_not_fit_is_refused(entries: str, message: str) -> None:
    """The message names the device, and what there is."""
    with pytest.raises(ProfileRefused) as caught:
        apply(profile_of(entries), Sorted((*MIXED_CARDS, card(3))), MigStrategy.MIXED)
    assert "the profile does not fit this node: " in str(caught.value)
    assert message in str(caught.value)


def test_an_index_is_that_of_a_card_that_is_listed() -> None:
    """One that NVML does not list any more is remembered, with the index that it had."""
    gone = card(0, uuid="GPU-old", why="NVML does not list it any more")
    profile = profile_of("{name: gpu, replicas: 2, devices: [0], rename: a}")
    offered = apply(profile, Sorted((card(0), gone)), MigStrategy.NONE)
    assert offered == (Offered(resource="nvidia.com/a", unit="GPU-0", shares=2), Offered(resource=GPU, unit="GPU-old"))


def test_other_resources_are_shared_by_their_names() -> None:
    """Those that the node's files do not describe are left to other nodes."""
    profile = profile_of(
        "{name: a.b/c, replicas: 4}, {name: a.b/d, replicas: 2, rename: a.b/half}, {name: gpu, replicas: 3}"
    )
    assert shares_of_others(profile, ["a.b/c", "a.b/d", "a.b/e"]) == {"a.b/c": ("a.b/c", 4), "a.b/d": ("a.b/half", 2)}
    assert shares_of_others(profile, ["a.b/e"]) == {}


def test_two_resources_do_not_become_one() -> None:
    """Their devices would be mixed."""
    with pytest.raises(ProfileRefused, match=r"the profile makes two resources 'a\.b/d'"):
        shares_of_others(profile_of("{name: a.b/c, replicas: 4, rename: a.b/d}"), ["a.b/c", "a.b/d"])


NAMES = st.sampled_from([GPU, "nvidia.com/l4", SMALL, LARGE, "nvidia.com/x"])
PRODUCTS = st.sampled_from([L4, "NVIDIA A100-SXM4-40GB"])
REFERENCES = st.sampled_from(
    [*map(str, range(4)), "0:0", "1:0", "1:1", "2:0", *map(uuid, range(3)), "MIG-1-1", "GPU-9"]
)
NAMINGS = st.lists(
    st.builds(Naming, pattern=st.sampled_from(["*", "*L4", "NVIDIA*", "1g*"]), name=NAMES), max_size=3
).map(tuple)
ENTRIES = st.lists(
    st.builds(
        Shared,
        name=NAMES,
        becomes=NAMES,
        replicas=st.integers(1, 5),
        devices=st.none() | st.integers(1, 3) | st.lists(REFERENCES, min_size=1, max_size=3, unique=True).map(tuple),
    ),
    max_size=3,
).map(tuple)
PROFILES = st.builds(
    Profile, mig_strategy=st.none() | st.sampled_from(MigStrategy), gpus=NAMINGS, migs=NAMINGS, shared=ENTRIES
)
CARDS = st.lists(
    st.tuples(PRODUCTS, st.none() | st.lists(st.sampled_from(["1g.5gb", "3g.20gb", ""]), max_size=3)), max_size=4
).map(
    lambda some: tuple(
        card(number, name=name) if profiles is None else split(number, *profiles, name=name)
        for number, (name, profiles) in enumerate(some)
    )
)


@given(PROFILES, CARDS, st.sampled_from(MigStrategy))
def test_each_unit_is_offered_once_or_nothing_is(
    profile: Profile, cards: tuple[CardState, ...], default: MigStrategy
) -> None:
    """Under one name and number of shares, and no name has whole devices beside shared ones."""
    try:
        offered = apply(profile, Sorted(cards), default)
    except ProfileRefused:
        return
    parts = by_strategy(cards, profile.mig_strategy or default).resources.values()
    assert [one.unit for one in offered] == [part.uuid for some in parts for part in some]
    assert len({one.unit for one in offered}) == len(offered)
    whole = {one.resource for one in offered if one.shares == 1}
    assert whole.isdisjoint(one.resource for one in offered if one.shares > 1)


def test_cards_are_sorted_once_by_each_strategy() -> None:
    """Whoever asks how often in one look."""
    cards = Sorted(MIXED_CARDS)
    assert {strategy: cards.by(strategy) for strategy in MigStrategy} == {
        strategy: by_strategy(MIXED_CARDS, strategy) for strategy in MigStrategy
    }
    assert all(cards.by(strategy) is cards.by(strategy) for strategy in MigStrategy)
