"""Large values of which the next one shares nearly all with the one before: a fleet of which a few things changed.

To make one from the other, and to find what is different, costs the changes: what stayed is not looked at, because it
is in parts that are the same objects. Nothing of them is changed afterwards, as no value of this program ever is.
"""

from collections.abc import Iterator, Mapping, Sequence
from itertools import chain, compress, zip_longest
from operator import is_not
from typing import TypeVar, overload

Item = TypeVar("Item")

PIECE = 64
"""Items of a piece."""
MOST_CHANGES = 128
"""Changed values above a mapping; with more of them there is a new one."""


class Pieces(Sequence[Item]):
    """A sequence in pieces: of two that differ in a few items most pieces are the same objects."""

    def __init__(self, pieces: tuple[tuple[Item, ...], ...] = ()) -> None:
        self.pieces = pieces

    @overload
    def __getitem__(self, index: int) -> Item: ...

    @overload
    def __getitem__(self, index: slice) -> tuple[Item, ...]: ...

    def __getitem__(self, index: int | slice) -> Item | tuple[Item, ...]:
        """Return an item by its place."""
        return tuple(self)[index]

    def __iter__(self) -> Iterator[Item]:
        """Iterate over the items of all pieces."""
        return chain.from_iterable(self.pieces)

    def __len__(self) -> int:
        """Count the items."""
        return sum(map(len, self.pieces))

    def __eq__(self, other: object) -> bool:
        """Compare with any other sequence; pieces that are the same objects are not looked through."""
        if isinstance(other, Pieces) and list(map(len, self.pieces)) == list(map(len, other.pieces)):
            return self.pieces == other.pieces
        return isinstance(other, Sequence) and len(self) == len(other) and tuple(self) == tuple(other)

    def __hash__(self) -> int:
        """Hash by the number of items: they themselves may have no hash."""
        return hash(len(self))

    def __repr__(self) -> str:
        return repr(tuple(self))


def cut(items: Sequence[Item]) -> Pieces[Item]:
    """Cut a sequence into pieces."""
    if isinstance(items, Pieces):
        return items
    whole = tuple(items)
    return Pieces(tuple(whole[start : start + PIECE] for start in range(0, len(whole), PIECE)))


def changes(before: Pieces[Item], now: Pieces[Item]) -> tuple[list[Item], list[Item]]:
    """Return the items that are gone and those that came: by the objects, whatever they are equal to."""
    differing = [pair for pair in zip_longest(before.pieces, now.pieces, fillvalue=()) if pair[0] is not pair[1]]
    gone = {id(item): item for old, _ in differing for item in old}
    came = {id(item): item for _, new in differing for item in new}
    return (
        [item for key, item in gone.items() if key not in came],
        [item for key, item in came.items() if key not in gone],
    )


class Layered(Mapping[str, Item]):
    """A mapping that is never changed, and the few values that are ``changed`` above it, None for one that is gone."""

    def __init__(self, below: dict[str, Item] | None = None, changed: Mapping[str, Item | None] | None = None) -> None:
        self._below: dict[str, Item] = {} if below is None else below
        self._changed: Mapping[str, Item | None] = changed or {}

    def with_changes(self, changed: Mapping[str, Item | None]) -> "Layered[Item]":
        """Return this mapping with other values for some keys: None for one that goes."""
        together = {**self._changed, **changed}
        return (
            Layered(self._below, together) if len(together) <= MOST_CHANGES else Layered(_flat(self._below, together))
        )

    def differing(self, other: "Layered[Item]") -> frozenset[str]:
        """Return the keys that have another object in the other mapping, or none in one of them."""
        if self._below is other._below:
            keys = self._changed.keys() | other._changed.keys()
            return frozenset(key for key in keys if self._found(key) is not other._found(key))
        one, two = _flat(self._below, self._changed), _flat(other._below, other._changed)
        every = {**one, **two}
        return frozenset(compress(every, map(is_not, map(one.get, every), map(two.get, every))))

    def _found(self, key: str) -> Item | None:
        return self._changed[key] if key in self._changed else self._below.get(key)

    def __getitem__(self, key: str) -> Item:
        """Return the value of a key."""
        found = self._found(key)
        if found is None:
            raise KeyError(key)
        return found

    def __iter__(self) -> Iterator[str]:
        """Iterate over the keys: those of the mapping below in their order, then others."""
        return iter(_flat(self._below, self._changed))

    def __len__(self) -> int:
        """Count the keys."""
        changed = self._changed.items()
        return len(self._below) + sum((value is not None) - (key in self._below) for key, value in changed)

    def __repr__(self) -> str:
        return repr(_flat(self._below, self._changed))


def _flat(below: Mapping[str, Item], changed: Mapping[str, Item | None]) -> dict[str, Item]:
    there = {key: value for key, value in changed.items() if value is not None}
    flat = {**below, **there}
    for key in changed.keys() - there.keys():
        flat.pop(key, None)
    return flat
