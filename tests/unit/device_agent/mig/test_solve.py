"""Where instances go: against all layouts that the tables allow, and with instances that are there."""

from collections import Counter
from collections.abc import Mapping, Sequence
from itertools import product

import pytest
from hypothesis import given
from hypothesis import strategies as st

from device_agent.errors import MigRefused
from device_agent.mig.model import DeviceName, Model, parse_device_name
from device_agent.mig.solve import Existing, Instance, Placed, place
from device_agent.mig.tables import MODELS
from tests.unit.device_agent.mig.brute_force import Layout, layouts, multisets, profile_of

A100, A30 = MODELS["A100-40"], MODELS["A30"]
ALL_LAYOUTS = {model.name: sorted(layouts(model)) for model in (A100, A30)}


def named(name: str) -> DeviceName:
    """Read the name of a device that is one."""
    device = parse_device_name(name)
    assert device is not None
    return device


def devices(counts: Mapping[str, int]) -> dict[DeviceName, int]:
    """Make what a card is asked for."""
    return {named(name): count for name, count in counts.items()}


def whole(name: str) -> Instance:
    """Make an instance with one device that has all of it."""
    device = named(name)
    return Instance(profile=device.profile, compute=(device.of,), of=device.of)


def there(layout: Layout, users: Sequence[int] = ()) -> tuple[Existing, ...]:
    """Make the instances of a card."""
    counts = [*users, *([0] * len(layout))]
    return tuple(
        Existing(instance=whole(name), start=start, users=count)
        for (start, name), count in zip(layout, counts, strict=False)
    )


def assert_valid(model: Model, placed: Sequence[Placed], counts: Mapping[str, int]) -> None:
    """Each is where its profile may be, no slice is taken twice, and all are there that are asked for."""
    taken: set[int] = set()
    for one in placed:
        profile = profile_of(model, one.instance.profile)
        slices = set(range(one.start, one.start + profile.size))
        assert one.start in profile.starts
        assert one.size == profile.size
        assert not slices & taken
        taken |= slices
    assert Counter(str(device) for one in placed for device in one.instance.devices) == Counter(counts)


@pytest.mark.parametrize("model", [pytest.param(A100, id="A100-40"), pytest.param(A30, id="A30")])
def test_every_multiset_of_profiles_is_placed_exactly_if_some_layout_has_it(model: Model) -> None:
    """Both ways, up to how many of each profile a card has room for alone."""
    possible = multisets(model)
    names = [profile.name for profile in model.profiles]
    tried = list(product(*(range(profile.most + 1) for profile in model.profiles)))
    assert possible <= set(tried)
    for numbers in tried:
        counts = {name: count for name, count in zip(names, numbers, strict=True) if count}
        if numbers in possible:
            assert_valid(model, place(model, devices(counts)), counts)
        else:
            with pytest.raises(MigRefused, match="fit"):
                place(model, devices(counts))


@pytest.mark.parametrize("model", [pytest.param(one, id=name) for name, one in MODELS.items()])
def test_one_more_than_a_profile_has_room_for_is_refused(model: Model) -> None:
    """And the message says how many there may be."""
    for profile in model.profiles:
        with pytest.raises(MigRefused) as caught:
            place(model, devices({profile.name: profile.most + 1}))
        assert str(caught.value) == (
            f"{profile.most + 1} instances of {profile.name} do not fit: it has room for {profile.most}"
        )


def test_what_first_fit_does_not_find_is_found() -> None:
    """The largest one goes to the end of the card, which no order of first fit does."""
    placed = place(A100, devices({"1g.5gb": 2, "2g.10gb": 1, "3g.20gb": 1}))
    assert [(one.start, one.instance.profile) for one in placed] == [
        (0, "2g.10gb"), (2, "1g.5gb"), (3, "1g.5gb"), (4, "3g.20gb")
    ]  # fmt: skip


@pytest.mark.parametrize(
    ("counts", "message"),
    [
        pytest.param({"3g.20gb": 2, "1g.5gb": 1}, "1g.5gb does not fit beside 2x 3g.20gb, wherever these are",
                     id="a free compute slice without memory"),
        pytest.param({"9g.20gb": 1}, "there is no profile 9g.20gb: it has 1g.5gb, 1g.5gb+me, 1g.10gb, 2g.10gb,",
                     id="no such profile"),
        pytest.param({"1c.3g.20gb": 7}, "3 instances of 3g.20gb do not fit: it has room for 2", id="too many parts"),
        pytest.param({"2c.3g.20gb": 2, "2g.10gb": 1}, "2g.10gb does not fit beside 2x 2c.3g.20gb",
                     id="parts that cannot share an instance"),
        pytest.param({"1c.9g.20gb": 1}, "there is no profile 9g.20gb", id="a part of no profile"),
    ],
)  # fmt: skip
def test_what_cannot_fit_is_named(counts: Mapping[str, int], message: str) -> None:
    """By its profile."""
    with pytest.raises(MigRefused) as caught:
        place(A100, devices(counts))
    assert message in str(caught.value)


def test_only_one_instance_has_media_extensions() -> None:
    """Two profiles with them do not fit beside each other, though there are slices."""
    with pytest.raises(MigRefused, match=r"^1g.6gb\+me does not fit beside 2g.12gb\+me: only one instance has media"):
        place(A30, devices({"1g.6gb+me": 1, "2g.12gb+me": 1}))


@pytest.mark.parametrize(
    ("counts", "instances"),
    [
        pytest.param({"1c.3g.20gb": 3}, ["1c.3g.20gb+1c.3g.20gb+1c.3g.20gb"], id="three parts of one"),
        pytest.param({"1c.3g.20gb": 4, "2c.3g.20gb": 1},
                     ["2c.3g.20gb+1c.3g.20gb", "1c.3g.20gb+1c.3g.20gb+1c.3g.20gb"], id="parts of two"),
        pytest.param({"1c.3g.20gb": 1, "3g.20gb": 1}, ["3g.20gb", "1c.3g.20gb"], id="beside a whole one"),
        pytest.param({"4c.7g.40gb": 1, "3c.7g.40gb": 1}, ["4c.7g.40gb+3c.7g.40gb"], id="all of a card"),
    ],
)  # fmt: skip
def test_devices_with_a_part_of_an_instance_share_as_few_as_possible(
    counts: Mapping[str, int], instances: list[str]
) -> None:
    """The largest first."""
    placed = place(A100, devices(counts))
    assert [str(one.instance) for one in placed] == instances
    assert_valid(A100, placed, counts)


def test_the_instances_with_most_users_stay() -> None:
    """Of those of one profile, where fewer are asked for."""
    existing = there(((0, "1g.5gb"), (3, "1g.5gb"), (6, "1g.5gb")), users=(0, 2, 1))
    placed = place(A100, devices({"1g.5gb": 2, "1g.5gb+me": 1}), existing)
    assert [(one.start, one.kept) for one in placed if one.instance.profile == "1g.5gb"] == [(3, True), (6, True)]


def test_users_count_more_than_instances() -> None:
    """Where not all can stay, two instances without users give way to one that has some."""
    idle = there(((0, "1g.5gb"), (1, "1g.5gb"), (5, "1g.5gb")))
    used = there(((0, "1g.5gb"), (1, "1g.5gb"), (5, "1g.5gb")), users=(0, 0, 1))
    wanted = devices({"3g.20gb": 1, "1g.5gb": 3})
    assert [one.start for one in place(A100, wanted, idle) if one.kept] == [0, 1]
    assert [one.start for one in place(A100, wanted, used) if one.kept] == [5]


def test_an_instance_whose_compute_instances_differ_does_not_stay() -> None:
    """It is another one, though its profile is the same."""
    whole_one = Existing(instance=whole("3g.20gb"), start=4)
    assert [one.kept for one in place(A100, devices({"1c.3g.20gb": 3}), (whole_one,))] == [False]


@pytest.mark.parametrize(
    ("parts", "counts", "kept"),
    [
        pytest.param([(1,)], {"1c.3g.20gb": 2}, ["1c.3g.20gb"], id="two would fit into one"),
        pytest.param([(1, 1)], {"1c.3g.20gb": 3}, ["1c.3g.20gb+1c.3g.20gb"], id="three would fit into one"),
        pytest.param([(2,), (1, 1)], {"1c.3g.20gb": 2}, ["1c.3g.20gb+1c.3g.20gb"], id="one is asked for no more"),
        pytest.param([(1,)], {"1c.3g.20gb": 2, "4g.20gb": 1}, [], id="there is no room for two"),
    ],
)
def test_instances_that_devices_share_stay_where_there_is_room(
    parts: list[tuple[int, ...]], counts: Mapping[str, int], kept: list[str]
) -> None:
    """Although the devices would fit into fewer."""
    existing = [
        Existing(instance=Instance(profile="3g.20gb", compute=one, of=3), start=start, users=1)
        for one, start in zip(parts, (4, 0), strict=False)
    ]
    placed = place(A100, devices(counts), existing)
    assert_valid(A100, placed, counts)
    assert [str(one.instance) for one in placed if one.kept] == kept
    assert placed == place(A100, devices(counts), existing[::-1])


def test_an_instance_at_an_unknown_place_does_not_stay() -> None:
    """Nobody could say what it is in the way of."""
    placed = place(A100, devices({"3g.20gb": 1}), (Existing(instance=whole("3g.20gb"), start=None, users=5),))
    assert [(one.start, one.kept) for one in placed] == [(0, False)]


def _fits(layout: Layout, counts: Counter[str]) -> bool:
    return Counter(name for _, name in layout) == counts


@given(st.data(), st.sampled_from(["A100-40", "A30"]))
def test_no_other_layout_keeps_more(data: st.DataObject, name: str) -> None:
    """Of all layouts that have what is asked for, none loses fewer users or, with as few, keeps more instances.

    Nothing is made anew where the same instance is, and the order of what is there changes nothing.
    """
    model, known = MODELS[name], ALL_LAYOUTS[name]
    layout, target = data.draw(st.sampled_from(known)), data.draw(st.sampled_from(known))
    existing = there(layout, data.draw(st.lists(st.integers(0, 3), max_size=8)))
    counts = Counter(name for _, name in target)
    placed = place(model, devices(counts), existing)
    assert_valid(model, placed, counts)
    users = {(one.start, one.instance.profile): one.users for one in existing}
    assert {(one.start, one.instance.profile) for one in placed if one.kept} == {
        (one.start, one.instance.profile) for one in placed
    } & set(users)

    def worth(way: Layout) -> tuple[int, int]:
        stays = [users[one] for one in way if one in users]
        return sum(stays), len(stays)

    found = tuple((one.start, one.instance.profile) for one in placed)
    assert worth(found) == max(worth(way) for way in known if _fits(way, counts))
    assert placed == place(model, devices(counts), data.draw(st.permutations(existing)))


@given(st.sampled_from(ALL_LAYOUTS["A100-40"]))
def test_a_layout_that_is_there_stays_as_it_is(layout: Layout) -> None:
    """Nothing is moved."""
    placed = place(A100, devices(Counter(name for _, name in layout)), there(layout))
    assert [(one.start, one.instance.profile) for one in placed] == list(layout)
    assert all(one.kept for one in placed)
