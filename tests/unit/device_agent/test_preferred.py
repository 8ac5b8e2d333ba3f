"""A container should get devices of one NUMA node, of different units."""

from collections.abc import Sequence

import pytest
from hypothesis import given
from hypothesis import strategies as st

from device_agent.devices.preferred import preferred
from device_agent.sources.files.file_unit import FileUnit as Unit
from device_agent.sources.files.file_unit import UnitState
from tests.unit.device_agent.file_devices import OfferedDevice

PLACES = {"a": 0, "b": 0, "c": 1, "d": 1, "e": 1}
"""Unit -> NUMA node."""


def device(name: str) -> OfferedDevice:
    """Make a device: a letter for its unit and a number for its share."""
    unit = Unit(group=0, ordinal=0, required=(f"/dev/{name[0]}",), files=())
    return OfferedDevice(id=name, state=UnitState(unit=unit, numa_nodes=(PLACES[name[0]],)))


DEVICES = {name: device(name) for name in ("a1", "a2", "b1", "b2", "c1", "c2", "d1", "d2", "e1", "e2")}


@pytest.mark.parametrize(
    ("available", "must", "size", "expected"),
    [
        pytest.param(["a1", "b1", "c1", "d1", "e1"], [], 2, ["a1", "b1"], id="the node that has just enough"),
        pytest.param(["a1", "b1", "c1", "d1", "e1"], [], 3, ["c1", "d1", "e1"], id="the only node that has enough"),
        pytest.param(["a1", "b1", "c1", "d1", "e1"], [], 4, ["a1", "c1", "d1", "e1"], id="more than any node has"),
        pytest.param(["a1", "b1", "c1", "d1"], ["c1"], 2, ["c1", "d1"], id="near what must be included"),
        pytest.param(["a1", "a2", "b1", "b2"], [], 2, ["a1", "b1"], id="different units"),
        pytest.param(["a1", "b1", "b2"], [], 1, ["b1"], id="the unit that is used least"),
        pytest.param(["a1", "a2", "b1"], ["a1"], 2, ["a1", "b1"], id="another unit than the included one"),
        pytest.param(["a1"], [], 5, ["a1"], id="fewer than asked for"),
        pytest.param(["a1", "x9"], [], 2, ["a1", "x9"], id="a device that nobody knows"),
        pytest.param([], [], 0, [], id="nothing"),
        pytest.param(["a1"], [], -1, [], id="less than nothing"),
    ],
)
def test_preferred(available: list[str], must: list[str], size: int, expected: list[str]) -> None:
    """One NUMA node if possible."""
    assert sorted(preferred(DEVICES, available, must, size)) == expected


@given(st.lists(st.sampled_from(sorted(DEVICES)), unique=True), st.integers(0, 12), st.data())
def test_the_answer_is_always_possible(available: Sequence[str], size: int, data: st.DataObject) -> None:
    """As many as asked for, each once, of those that are available, with those that must be included."""
    must = data.draw(st.lists(st.sampled_from(available), unique=True, max_size=size)) if available else []
    chosen = preferred(DEVICES, available, must, size)
    assert len(chosen) == len(set(chosen)) == min(size, len(available))
    assert set(must) <= set(chosen) <= set(available)
