"""Files become units: in the order of squat/generic-device-plugin, and never moved to another one."""

from collections.abc import Mapping, Sequence

import pytest
from hypothesis import given
from hypothesis import strategies as st

from device_agent.devices.model import MAX_DEVICES
from device_agent.sources.files.assemble import assemble
from device_agent.sources.files.file_unit import FileUnit as Unit
from device_agent.sources.files.file_unit import UnitState
from device_resources.resource import Resource
from tests.unit.device_agent.file_devices import is_too_much, offered
from tests.unit.device_agent.host_tree import resource


def files_of(units: Sequence[Unit]) -> list[list[str]]:
    """Name the files of units."""
    return [[file.path for file in unit.files] for unit in units]


PAIRS = resource("/dev/a*", "/dev/b*")
LIMITED = resource("/dev/a*", {"path": "/dev/ctl", "limit": 10})
OPTIONAL = resource("/dev/a*", {"path": "/dev/b*", "optional": True})
ALL_OPTIONAL = resource({"path": "/dev/a*", "optional": True}, {"path": "/dev/b*", "optional": True})


@pytest.mark.parametrize(
    ("described", "matches", "expected"),
    [
        pytest.param(resource("/dev/a*"), {"/dev/a*": ["a0", "a1"]}, [["a0"], ["a1"]], id="one path"),
        pytest.param(resource("/dev/a*"), {"/dev/a*": []}, [], id="nothing there"),
        pytest.param(
            PAIRS, {"/dev/a*": ["a0", "a1"], "/dev/b*": ["b0", "b1"]}, [["a0", "b0"], ["a1", "b1"]], id="pairs"
        ),
        pytest.param(PAIRS, {"/dev/a*": ["a0", "a1"], "/dev/b*": ["b0"]}, [["a0", "b0"]], id="the shorter list counts"),
        pytest.param(
            LIMITED, {"/dev/a*": ["a0", "a1", "a2"], "/dev/ctl": ["c"]}, [["a0", "c"], ["a1", "c"], ["a2", "c"]],
            id="a file that several share",
        ),
        pytest.param(LIMITED, {"/dev/a*": ["a0"], "/dev/ctl": ["c"]}, [["a0", "c"]], id="a limit makes no units"),
        pytest.param(
            OPTIONAL, {"/dev/a*": ["a0", "a1"], "/dev/b*": ["b0"]}, [["a0", "b0"], ["a1"]], id="an optional file"
        ),
        pytest.param(OPTIONAL, {"/dev/a*": [], "/dev/b*": ["b0"]}, [], id="optional files alone are no unit"),
        pytest.param(
            ALL_OPTIONAL, {"/dev/a*": ["a0"], "/dev/b*": ["b0", "b1"]}, [["a0", "b0"], ["b1"]], id="all are optional"
        ),
    ],
)  # fmt: skip
def test_files_become_units(
    described: Resource, matches: Mapping[str, Sequence[str]], expected: list[list[str]]
) -> None:
    """The i-th match of each path makes the i-th unit."""
    assert files_of(assemble(described, matches, ())) == expected


def test_a_file_that_vanishes_moves_no_other() -> None:
    """The unit stays with what is left of it, and its files are not given to another."""
    before = assemble(PAIRS, {"/dev/a*": ["a0", "a1"], "/dev/b*": ["b0", "b1"]}, ())
    after = assemble(PAIRS, {"/dev/a*": ["a1", "a2"], "/dev/b*": ["b0", "b1"]}, before)
    assert files_of(after) == [["b0"], ["a1", "b1"]]
    assert [unit.id for unit in after] == [unit.id for unit in before]


@pytest.mark.parametrize(
    ("described", "left", "expected"),
    [
        pytest.param(("/dev/card*", "/dev/ctl*"), ("card0 card1", "ctl1"), ["card1 ctl1"], id="one is unplugged"),
        pytest.param(("/dev/card*", "/dev/ctl*"), ("card0 card2", "ctl1 ctl2"), ["card2 ctl2"], id="one of each"),
        pytest.param(("/dev/card?", "/dev/ctl[0-9]"), ("card0 card1", "ctl1"), ["card1 ctl1"], id="other globs"),
        pytest.param(("/dev/nv*", "/dev/dri128*"), ("nv0 nv1", "dri1281"), ["nv1 dri1281"], id="a number before it"),
        pytest.param(("/dev/nv*", "/dev/render*"), ("nv0 nv1", "render128"), ["nv0 render128"], id="other numbers"),
        pytest.param(("/dev/card*", "/dev/ctl"), ("card1", "ctl"), ["card1 ctl"], id="one is the same for all"),
    ],
)
def test_an_agent_that_starts_after_an_unplug_mixes_no_two_devices(
    described: tuple[str, str], left: tuple[str, str], expected: list[str]
) -> None:
    """It knows nothing of the units before: files with the same number are one device."""
    matches = {glob: [f"/dev/{name}" for name in names.split()] for glob, names in zip(described, left, strict=True)}
    found = files_of(assemble(resource(*described), matches, ()))
    assert [" ".join(file.removeprefix("/dev/") for file in files) for files in found] == expected


def test_a_unit_that_is_back_is_the_same() -> None:
    """Its id depends on its files alone, also for an agent that has started since."""
    matches = {"/dev/a*": ["a0", "a1"], "/dev/b*": ["b0", "b1"]}
    before = assemble(PAIRS, matches, ())
    gone = assemble(PAIRS, {"/dev/a*": [], "/dev/b*": []}, before)
    assert files_of(gone) == [[], []]
    assert assemble(PAIRS, matches, gone) == assemble(PAIRS, matches, ()) == before


def test_a_share_is_a_device_of_its_own() -> None:
    """Each unit is offered as often as its group says."""
    shared = resource("/dev/a*", count=3)
    (unit,) = assemble(shared, {"/dev/a*": ["/dev/a0"]}, ())
    ids = list(offered(shared, [UnitState(unit=unit)]))
    assert ids == [f"{unit.id}::{number}" for number in range(3)]
    assert unit.id.startswith("a0-")


def test_no_resource_has_more_devices_than_the_kubelet_can_be_told() -> None:
    """However many files there are, and however often each is shared."""
    shared = resource("/dev/a*", count=1000)
    units = assemble(shared, {"/dev/a*": [f"a{number}" for number in range(1024)]}, ())
    states = [UnitState(unit=unit) for unit in units]
    assert len(offered(shared, states)) == 4000
    assert is_too_much(shared, states)


def test_a_rescan_of_many_devices_searches_no_list() -> None:
    """What it costs grows with the devices, and not with their square."""

    class Unsearched(list[str]):
        def __contains__(self, _item: object) -> bool:
            raise AssertionError("the whole list is searched for each device")

    cards = resource("/dev/a*", {"path": "/dev/b*", "optional": True})
    matches = {glob: Unsearched(f"{glob[:-1]}{number:05}" for number in range(5000)) for glob in ("/dev/a*", "/dev/b*")}
    units = assemble(cards, matches, ())
    assert assemble(cards, matches, units) == units
    states = [UnitState(unit=unit) for unit in units]
    assert (len(units), len(offered(cards, states)), is_too_much(cards, states)) == (MAX_DEVICES + 1, MAX_DEVICES, True)


_FILES = st.lists(st.sampled_from([f"f{number}" for number in range(6)]), unique=True).map(sorted)
_HISTORY = st.lists(st.fixed_dictionaries({"/dev/a*": _FILES, "/dev/b*": _FILES}), min_size=1, max_size=5)


@given(_HISTORY, st.integers(1, 2), st.integers(1, 3))
def test_no_file_is_in_more_units_than_its_limit(
    history: list[Mapping[str, Sequence[str]]], of_a: int, of_b: int
) -> None:
    """Whatever comes and goes; ids stay different, and the files of a unit never change."""
    described = resource({"path": "/dev/a*", "limit": of_a}, {"path": "/dev/b*", "limit": of_b})
    units: tuple[Unit, ...] = ()
    for matches in history:
        after = assemble(described, matches, units)
        assert [unit.required for unit in after[: len(units)]] == [unit.required for unit in units]
        for position, limit in ((0, of_a), (1, of_b)):
            used = [unit.required[position] for unit in after]
            assert all(used.count(file) <= limit for file in used)
        if of_a == of_b == 1:
            assert len({unit.id for unit in after}) == len(after)
        units = after
