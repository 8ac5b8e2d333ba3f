"""Large values that share their parts with the ones before: they say what is in them, and what changed."""

from unittest.mock import patch

import pytest
from hypothesis import given
from hypothesis import strategies as st

from driver_builder.base import persistent
from driver_builder.base.persistent import PIECE, Layered, Pieces, changes, cut

ITEMS = [f"item {number}" for number in range(3 * PIECE + 5)]
CHANGES = st.dictionaries(st.sampled_from("abcdef"), st.sampled_from(["one", "two", None]))


def test_pieces_are_a_sequence() -> None:
    """It equals any sequence of the same items in the same order."""
    pieces = cut(ITEMS)
    assert cut(pieces) is pieces
    assert (list(pieces), len(pieces), pieces[-1], pieces[1:3]) == (ITEMS, len(ITEMS), ITEMS[-1], tuple(ITEMS[1:3]))
    assert pieces == ITEMS
    assert pieces == Pieces((tuple(ITEMS),))
    assert tuple(ITEMS) == pieces
    assert hash(pieces) == hash(cut(ITEMS))
    assert pieces not in ([*ITEMS[1:], ITEMS[0]], ITEMS[1:], "item", 3)


@given(before=st.lists(st.sampled_from(ITEMS), unique=True), now=st.lists(st.sampled_from(ITEMS), unique=True))
def test_what_is_gone_and_what_came(before: list[str], now: list[str]) -> None:
    """In whatever order the items are: one that only moved is neither."""
    gone, came = changes(cut(before), cut(now))
    assert (set(gone), set(came)) == (set(before) - set(now), set(now) - set(before))
    assert (len(gone), len(came)) == (len(set(gone)), len(set(came)))


def test_another_object_is_a_change_though_it_is_equal() -> None:
    """Objects are compared, not what they are."""
    one, two = tuple("ab"), tuple("ab")
    assert changes(cut([one]), cut([two])) == ([one], [two])
    assert changes(cut([one]), cut([one])) == ([], [])


def test_pieces_that_are_the_same_are_not_looked_through() -> None:
    """A change costs its piece: items that could not be compared are not."""
    first, second = (object(),) * PIECE, tuple(ITEMS[:2])
    gone, came = changes(Pieces((first, second)), Pieces((first, (*second, "new"))))
    assert (gone, came) == ([], ["new"])


@pytest.mark.parametrize("most", [0, 3, 100])
@given(below=st.dictionaries(st.sampled_from("abcd"), st.just("zero")), steps=st.lists(CHANGES, max_size=6))
def test_a_layered_mapping_is_as_a_plain_one(
    most: int, below: dict[str, str], steps: list[dict[str, str | None]]
) -> None:
    """After each change, and it knows what is another object than in any one before."""
    with patch.object(persistent, "MOST_CHANGES", most):
        plain, layered = [dict(below)], [Layered(dict(below))]
        for step in steps:
            plain.append({key: value for key, value in {**plain[-1], **step}.items() if value is not None})
            layered.append(layered[-1].with_changes(step))
        for expected, found in zip(plain, layered, strict=True):
            assert (dict(found), len(found), list(found)) == (expected, len(expected), list(found.keys()))
            assert [found.get(key) for key in "abcdef"] == [expected.get(key) for key in "abcdef"]
            for other, known in zip(plain, layered, strict=True):
                differing = {key for key in "abcdef" if expected.get(key) is not other.get(key)}
                assert found.differing(known) == differing
                assert (found == known) is (expected == other)


def test_the_keys_of_a_layered_mapping_keep_their_order() -> None:
    """Those of the mapping below, whatever values they have by now."""
    assert list(Layered({"b": 1, "a": 2}).with_changes({"b": 3})) == ["b", "a"]


def test_a_value_that_is_gone_is_missing() -> None:
    """As in any mapping."""
    layered = Layered({"a": 1}).with_changes({"a": None})
    assert "a" not in layered
    with pytest.raises(KeyError, match="a"):
        layered["a"]
    assert repr(layered) == "{}"
    assert repr(cut([1])) == "(1,)"
