"""Values in groups, whose tuples stay the same objects while nothing of them changes."""

import pytest

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


def test_the_same_values_in_another_order_are_the_tuple_of_before(words: Grouped[str]) -> None:
    """A listing may give them in any order."""
    before = words.groups()
    again: Grouped[str] = Grouped(lambda word: word[:1])
    for uid, kept in reversed(list(words.items())):
        again.put(uid, kept)
    again.keep_equal(before)
    assert again.groups()["a"] is before["a"]
