"""Values by uid, in groups that can be asked for at once. No I/O, no lock: its owner has one.

A group is given as pieces: they stay the same objects for as long as nothing of them changed, so that its user sees
that by identity, and a change costs a piece.
"""

from collections.abc import Callable, Iterator, Mapping
from dataclasses import dataclass, field
from operator import is_not
from typing import Generic, TypeVar

from driver_builder.base.persistent import PIECE, Pieces

Value = TypeVar("Value")


@dataclass(slots=True)
class Kept(Generic[Value]):
    """A value, None for an object that is not needed, and the version of the object that it was read from."""

    version: int | None
    value: Value | None
    place: int = field(default=-1, compare=False, repr=False)
    """In the row of its group."""


class _Row(Generic[Value]):
    """The values of a group: another one of the same object takes its place, the last one that of one that goes."""

    def __init__(self) -> None:
        self.row: list[Kept[Value]] = []
        self._pieces: dict[int, tuple[Value, ...]] = {}
        """Those that are still as they were given."""
        self._given: Pieces[Value] | None = None

    def add(self, kept: Kept[Value]) -> None:
        kept.place = len(self.row)
        self.row.append(kept)
        self._changed(kept.place)

    def replace(self, known: Kept[Value], kept: Kept[Value]) -> None:
        self.row[known.place], kept.place = kept, known.place
        if kept.value is not known.value:
            self._changed(kept.place)

    def remove(self, kept: Kept[Value]) -> None:
        last = self.row.pop()
        self._changed(len(self.row))
        if last is not kept:
            self.row[kept.place], last.place = last, kept.place
            self._changed(kept.place)

    def _changed(self, place: int) -> None:
        self._pieces.pop(place // PIECE, None)
        self._given = None

    def values(self) -> Pieces[Value]:
        if self._given is None:
            numbers = range((len(self.row) + PIECE - 1) // PIECE)
            self._pieces = {number: self._pieces.get(number) or self._piece(number) for number in numbers}
            self._given = Pieces(tuple(self._pieces.values()))
        return self._given

    def _piece(self, number: int) -> tuple[Value, ...]:
        found = self.row[number * PIECE : (number + 1) * PIECE]
        return tuple([kept.value for kept in found if kept.value is not None])

    def keep_places(self, before: Pieces[Value]) -> None:
        """Let values that are in ``before`` stand where they stood, and pieces that are as they were be the same."""
        left = {id(kept.value): kept for kept in self.row}
        ordered = [left.pop(id(value)) for value in before if id(value) in left]
        self.row, self._pieces = [], {}
        for kept in (*ordered, *left.values()):
            self.add(kept)
        for number, piece in enumerate(before.pieces):
            now = self._piece(number)
            if len(now) == len(piece) and not any(map(is_not, now, piece)):
                self._pieces[number] = piece
        if self.values().pieces == before.pieces:
            self._given = before


class Grouped(Generic[Value]):
    """Values in the groups that ``group_of`` names; there are few groups."""

    def __init__(self, group_of: Callable[[Value], str]) -> None:
        self.group_of = group_of
        self._members: dict[str, dict[str, Kept[Value]]] = {}
        self._rows: dict[str, _Row[Value]] = {}
        """The values of those that have one."""

    def get(self, uid: str) -> Kept[Value] | None:
        """Return what is kept of an object."""
        return next((members[uid] for members in self._members.values() if uid in members), None)

    def put(self, uid: str, kept: Kept[Value]) -> None:
        """Keep it, in the place of what was kept of the object."""
        group = self.group_of(kept.value) if kept.value is not None else ""
        known = self._members.get(group, {}).get(uid)
        if known is not None and known.value is not None and kept.value is not None:
            self._rows[group].replace(known, kept)
        else:
            self.pop(uid)
            if kept.value is not None:
                self._rows.setdefault(group, _Row()).add(kept)
        self._members.setdefault(group, {})[uid] = kept

    def pop(self, uid: str) -> Kept[Value] | None:
        """Drop what is kept of an object, and return it."""
        for group, members in self._members.items():
            if uid in members:
                kept = members.pop(uid)
                if kept.value is not None:
                    self._rows[group].remove(kept)
                    if not self._rows[group].row:
                        del self._rows[group]
                if not members:
                    del self._members[group]
                return kept
        return None

    def items(self) -> Iterator[tuple[str, Kept[Value]]]:
        """Iterate over everything, by uid."""
        for members in self._members.values():
            yield from members.items()

    def groups(self) -> Mapping[str, Pieces[Value]]:
        """Return the values by their groups, without groups that have none."""
        return {group: row.values() for group, row in self._rows.items()}

    def keep_places(self, before: Mapping[str, Pieces[Value]]) -> None:
        """Let values that are in ``before`` stand where they stood: so little is another object than before."""
        for group, row in self._rows.items():
            if group in before:
                row.keep_places(before[group])
