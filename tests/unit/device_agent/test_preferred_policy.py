"""Which shares a container gets, and that one lost card keeps nobody from an answer."""

from collections.abc import Mapping
from random import Random

import pytest
from hypothesis import given
from hypothesis import strategies as st

from device_agent.devices.model import OfferedDevice, Policy, Unit, offered
from device_agent.devices.preferred import preferred

PACKED, DISTRIBUTED = Policy.PACKED, Policy.DISTRIBUTED
ISLANDS = {0: 2, 2: 0, 1: 3, 3: 1}
"""Card -> the one with which it is linked."""


def cards(shares: int = 1, *, lost: str = "", nodes: str = "0000", linked: bool = False) -> Mapping[str, OfferedDevice]:
    """Make four cards ``0`` to ``3``; ``nodes``: the NUMA node of each."""
    return offered(
        [
            Unit(
                id=str(number),
                shares=shares,
                why="it is lost" if str(number) in lost else "",
                numa_nodes=(int(nodes[number]),),
                links={str(ISLANDS[number]): 12} if linked else {},
            )
            for number in range(4)
        ]
    )


def free(devices: Mapping[str, OfferedDevice], text: str) -> list[str]:
    """Leave as many shares of each card as the text says."""
    left = {str(number): int(count) for number, count in enumerate(text)}
    return [name for name, device in devices.items() if int(name.partition("::")[2] or 0) < left[device.unit.id]]


@pytest.mark.parametrize(
    ("policy", "left", "nodes", "size", "expected"),
    [
        pytest.param(DISTRIBUTED, "4243", "0000", 1, "0", id="distributed: one of a whole card"),
        pytest.param(PACKED, "4243", "0000", 1, "1", id="packed: one of the most used card"),
        pytest.param(DISTRIBUTED, "4444", "0000", 4, "0123", id="distributed: of all cards"),
        pytest.param(PACKED, "4444", "0000", 4, "0000", id="packed: all of one card"),
        pytest.param(PACKED, "4243", "0000", 3, "113", id="packed: that card, then the next"),
        pytest.param(PACKED, "1444", "0011", 2, "01", id="packed: one NUMA node is more"),
        pytest.param(PACKED, "1424", "0011", 2, "01", id="packed: the node that has just enough"),
        pytest.param(PACKED, "4443", "linked", 1, "3", id="packed: one of a linked card that is used"),
        pytest.param(DISTRIBUTED, "3444", "linked", 1, "1", id="distributed: one of a linked card that is not"),
        pytest.param(PACKED, "4434", "linked", 2, "02", id="packed: the island that is used"),
        pytest.param(DISTRIBUTED, "4434", "linked", 2, "13", id="distributed: the island that is not"),
        pytest.param(PACKED, "4144", "linked", 2, "13", id="packed: links are more"),
    ],
)
def test_shares(policy: Policy, left: str, nodes: str, size: int, expected: str) -> None:
    """Links first, then one NUMA node, then the policy."""
    devices = cards(4, linked=True) if nodes == "linked" else cards(4, nodes=nodes)
    chosen = preferred(devices, free(devices, left), [], size, policy)
    assert "".join(sorted(devices[name].unit.id for name in chosen)) == expected


def test_packed_fills_the_card_of_what_must_be_included() -> None:
    """Its shares count as used."""
    devices = cards(4)
    chosen = preferred(devices, list(devices), ["2::3"], 3, PACKED)
    assert sorted(chosen) == ["2::0", "2::1", "2::3"]


def test_packed_leaves_whole_cards_free_and_distributed_does_not() -> None:
    """Eight containers, one after the other, with one share each."""

    def used(policy: Policy) -> list[int]:
        devices = cards(4)
        left = list(devices)
        for _ in range(8):
            (name,) = preferred(devices, left, [], 1, policy)
            left.remove(name)
        return sorted(4 - sum(devices[name].unit.id == str(card) for name in left) for card in range(4))

    assert used(PACKED) == [0, 0, 4, 4]
    assert used(DISTRIBUTED) == [2, 2, 2, 2]


@pytest.mark.parametrize("policy", Policy)
@pytest.mark.parametrize("nodes", ["0000", "0011", "0101"])
def test_a_pair_is_of_one_island(policy: Policy, nodes: str) -> None:
    """50 of 50, in whatever order the kubelet lists what is free."""
    devices, random = cards(linked=True, nodes=nodes), Random(nodes)  # noqa: S311 - an order
    for _ in range(50):
        available = random.sample(sorted(devices), 4)
        assert "".join(sorted(preferred(devices, available, [], 2, policy))) in ("02", "13")


@pytest.mark.parametrize("policy", Policy)
@pytest.mark.parametrize("linked", [False, True], ids=["alone", "linked"])
def test_a_lost_card_comes_last(policy: Policy, linked: bool) -> None:
    """One that is not healthy and one that nobody knows any more are chosen only where nothing else is left."""
    devices = cards(lost="2", linked=linked)
    available = ["gone", "2", "0", "1", "3"]
    for size in range(4):
        assert set(preferred(devices, available, [], size, policy)) <= {"0", "1", "3"}
    assert sorted(preferred(devices, available, [], 5, policy)) == ["0", "1", "2", "3", "gone"]
    assert preferred(devices, available, ["gone"], 2, policy)[0] == "gone"
    assert preferred({}, available, ["2"], 2, policy) == ("2", "gone")


@given(st.sampled_from(Policy), st.booleans(), st.text("0123", max_size=4), st.integers(0, 18), st.data())
def test_the_answer_is_always_possible(policy: Policy, linked: bool, lost: str, size: int, data: st.DataObject) -> None:
    """As many as asked for, each once, of those that are available, with those that must be included."""
    devices = cards(4, lost=lost, linked=linked)
    available = data.draw(st.lists(st.sampled_from([*devices, "gone", "0"]), unique=True))
    must = data.draw(st.lists(st.sampled_from(available), unique=True, max_size=size)) if available else []
    chosen = preferred(devices, available, must, size, policy)
    assert len(chosen) == len(set(chosen)) == min(size, len(available))
    assert set(must) <= set(chosen) <= set(available)
    sick = [name for name in chosen if name not in must and (name not in devices or not devices[name].unit.is_healthy)]
    well = [name for name in available if name not in chosen and name in devices and devices[name].unit.is_healthy]
    assert not (sick and well)
