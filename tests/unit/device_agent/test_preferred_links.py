"""A container should get units that are linked with each other."""

from collections.abc import Mapping

import pytest
from hypothesis import given
from hypothesis import strategies as st

from device_agent.devices.model import OfferedDevice, Unit, offered
from device_agent.devices.preferred import preferred


def devices(links: str, *, shares: int = 1, nodes: str = "") -> Mapping[str, OfferedDevice]:
    """Make units of letters. ``links``: pairs, each as often as they are linked. ``nodes``: those of NUMA node 1."""
    names = sorted(set(links) - {" "})
    pairs = links.split()
    made = []
    for name in names:
        others = {other: pairs.count(name + other) + pairs.count(other + name) for other in names}
        given_links = {other: count for other, count in others.items() if count}
        made.append(Unit(id=name, shares=shares, links=given_links, numa_nodes=(int(name in nodes),)))
    return offered(made)


@pytest.mark.parametrize(
    ("links", "nodes", "must", "size", "expected"),
    [
        pytest.param("ac bd", "cd", "", 2, "ac", id="a pair, though each half is on another NUMA node"),
        pytest.param("ac bd", "cd", "b", 2, "bd", id="with what must be included"),
        pytest.param("ac bd e f", "", "", 4, "abcd", id="two pairs"),
        pytest.param("ac bd e", "", "", 3, "ace", id="a pair, and one that leaves the other pair whole"),
        pytest.param("ab ac bc de", "", "", 2, "de", id="the pair, and not a part of three"),
        pytest.param("ab ac cd cd", "", "", 2, "cd", id="two links are more than one"),
        pytest.param("ab cd", "ad", "", 2, "ab", id="equal ones as without links"),
        pytest.param("ab ac ad cd", "cd", "a", 2, "ab", id="one NUMA node of those that are linked alike"),
        pytest.param("ab cd", "", "", 9, "abcd", id="more than there are"),
        pytest.param("ab cd", "", "abc", 3, "abc", id="nothing but what must be included"),
    ],
)
def test_links(links: str, nodes: str, must: str, size: int, expected: str) -> None:
    """Most links between them, then one NUMA node, then most links left to others."""
    known = devices(links, nodes=nodes)
    assert "".join(sorted(preferred(known, list(known), list(must), size))) == expected


def test_shares_of_linked_units_are_of_different_ones() -> None:
    """As far as there are any; then each unit again."""
    shared = devices("ac bd", shares=2)
    assert sorted(preferred(shared, list(shared), [], 2)) == ["a::0", "c::0"]
    assert len(preferred(shared, list(shared), [], 8)) == 8
    assert {name[0] for name in preferred(shared, list(shared), [], 4)} == set("abcd")


def test_a_link_that_one_side_alone_reports_counts() -> None:
    """A card that cannot be read reports none."""
    units = [Unit(id="a", links={"c": 1}), Unit(id="b"), Unit(id="c")]
    assert sorted(preferred(offered(units), ["a", "b", "c"], [], 2)) == ["a", "c"]


def test_half_of_sixteen_is_chosen_by_links() -> None:
    """Two boards, on each of which all are linked."""
    boards = "abcdefgh", "ijklmnop"
    units = [
        Unit(id=name, links={other: 6 for other in board if other != name})
        for name, board in sorted((name, board) for board in boards for name in board)
    ]
    assert sorted(preferred(offered(units), [unit.id for unit in units], ["k"], 8)) == list("ijklmnop")


@pytest.mark.parametrize("size", [1, 2000, 4000])
def test_of_very_many_units_links_do_not_count(size: int) -> None:
    """The kubelet waits for the answer."""
    units = [Unit(id=f"u{number:04}", links={f"u{number ^ 1:04}": 1}) for number in range(4000)]
    assert len(preferred(offered(units), [unit.id for unit in units], [], size)) == size


@given(
    st.lists(st.sampled_from(["ab", "ac", "ad", "bc", "bd", "cd", "ce", "ef"]), min_size=1),
    st.integers(0, 8),
    st.data(),
)
def test_the_answer_is_always_possible(pairs: list[str], size: int, data: st.DataObject) -> None:
    """As many as asked for, each once, of those that are available, with those that must be included."""
    shared = devices(" ".join(pairs), shares=2)
    available = data.draw(st.lists(st.sampled_from(sorted(shared)), unique=True))
    must = data.draw(st.lists(st.sampled_from(available), unique=True, max_size=size)) if available else []
    chosen = preferred(shared, available, must, size)
    assert len(chosen) == len(set(chosen)) == min(size, len(available))
    assert set(must) <= set(chosen) <= set(available)
