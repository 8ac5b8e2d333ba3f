"""Values in groups, whose tuples stay the same objects while nothing of them changes."""

from collections.abc import Mapping
from itertools import count
from unittest.mock import patch

import pytest
from hypothesis import strategies as st
from hypothesis.stateful import RuleBasedStateMachine, invariant, rule, run_state_machine_as_test

from driver_builder.base.persistent import PIECE, Pieces, changes
from driver_builder.cluster import grouped as grouped_module
from driver_builder.cluster.grouped import Grouped, Kept


@pytest.fixture
def words() -> Grouped[str]:
    """Words by their first letter."""
    grouped: Grouped[str] = Grouped(lambda word: word[:1])
    for uid, word in enumerate(["apple", "ant", "bee"]):
        grouped.put(str(uid), Kept(1, word))
    return grouped


def test_a_change_costs_its_group_alone(words: Grouped[str]) -> None:
    """The tuples of the other groups stay as they are."""
    before = words.groups()
    words.put("2", Kept(2, "bear"))
    after = words.groups()
    assert after == {"a": ("apple", "ant"), "b": ("bear",)}
    assert after["a"] is before["a"]


def test_another_version_of_the_same_value_changes_no_tuple(words: Grouped[str]) -> None:
    """Only the version is newer."""
    before = words.groups()
    words.put("2", Kept(2, before["b"][0]))
    assert words.groups()["b"] is before["b"]


def test_a_value_moves_to_another_group(words: Grouped[str]) -> None:
    """It is in one of them at a time."""
    words.put("0", Kept(2, "banana"))
    assert words.groups() == {"a": ("ant",), "b": ("bee", "banana")}


def test_what_nobody_needs_is_in_no_group(words: Grouped[str]) -> None:
    """It is kept for its version alone."""
    words.put("2", Kept(2, None))
    assert words.groups() == {"a": ("apple", "ant")}
    assert words.get("2") == Kept(2, None)
    assert words.pop("2") == Kept(2, None)
    assert words.get("2") is None


def test_the_same_values_in_another_order_are_the_object_of_before(words: Grouped[str]) -> None:
    """A listing may give them in any order."""
    before = words.groups()
    again: Grouped[str] = Grouped(lambda word: word[:1])
    for uid, kept in reversed(list(words.items())):
        again.put(uid, kept)
    again.keep_places(before)
    assert again.groups()["a"] is before["a"]


class Words(RuleBasedStateMachine):
    """Values that come, change and go, beside what they should be."""

    def __init__(self) -> None:
        super().__init__()
        self.grouped: Grouped[str] = Grouped(lambda word: word[:1])
        self.plain: dict[str, str | None] = {}
        self.before: Mapping[str, Pieces[str]] = {}
        self.versions = count()

    @rule(uid=st.integers(0, 12).map(str), word=st.sampled_from(["apple", "ant", "bee", "bear", None]))
    def put(self, uid: str, word: str | None) -> None:
        """Keep a value of an object: of each it is an object of its own."""
        value = None if word is None else f"{word} {next(self.versions)}"
        self.plain[uid] = value
        self.grouped.put(uid, Kept(1, value))

    @rule(uid=st.integers(0, 12).map(str))
    def pop(self, uid: str) -> None:
        """Drop an object."""
        assert (self.grouped.pop(uid) is not None) is (uid in self.plain)
        self.plain.pop(uid, None)

    @rule(data=st.data())
    def list_anew(self, data: st.DataObject) -> None:
        """Put everything into another one, in another order, and let it stand where it stood."""
        before, items = self.grouped.groups(), dict(self.grouped.items())
        self.grouped = Grouped(lambda word: word[:1])
        for uid in data.draw(st.permutations(sorted(items))):
            self.grouped.put(uid, items[uid])
        self.grouped.keep_places(before)
        assert all(self.grouped.groups()[group] is known for group, known in before.items())

    @invariant()
    def groups_are_what_is_kept(self) -> None:
        """Each value once, and what changed is what differs from the groups before."""
        expected: dict[str, set[str]] = {}
        for value in filter(None, self.plain.values()):
            expected.setdefault(value[:1], set()).add(value)
        now = self.grouped.groups()
        assert {group: sorted(found) for group, found in now.items()} == {
            group: sorted(found) for group, found in expected.items()
        }
        for group in now.keys() & self.before.keys():
            gone, came = changes(self.before[group], now[group])
            assert set(gone) == set(self.before[group]) - set(now[group])
            assert set(came) == set(now[group]) - set(self.before[group])
            assert (now[group] is self.before[group]) or gone or came
        self.before = now


@pytest.mark.parametrize("piece", [1, 3, 64])
def test_values_come_change_and_go(piece: int) -> None:
    """In pieces of any size."""
    with patch.object(grouped_module, "PIECE", piece):
        run_state_machine_as_test(Words)


def test_a_change_costs_a_piece() -> None:
    """The other pieces are the very objects of before, also where one value goes and another one takes its place."""
    grouped: Grouped[str] = Grouped(lambda _: "")
    for number in range(3 * PIECE):
        grouped.put(str(number), Kept(1, f"word {number}"))
    before = grouped.groups()[""].pieces
    grouped.put("1", Kept(2, "other"))
    changed = grouped.groups()[""].pieces
    assert [one is two for one, two in zip(before, changed, strict=True)] == [False, True, True]
    grouped.pop("2")
    after = grouped.groups()[""].pieces
    assert [one is two for one, two in zip(changed, after, strict=True)] == [False, True, False]
