"""Values by uid, in groups that can be asked for at once. No I/O, no lock: its owner has one.

A group is given as a tuple that stays the same object for as long as nothing of it changed, so that its user
sees that by identity, and a change costs one group.
"""

from collections.abc import Callable, Iterator, Mapping
from dataclasses import dataclass
from typing import Generic, TypeVar

Value = TypeVar("Value")


@dataclass(slots=True)
class Kept(Generic[Value]):
    """A value, None for an object that is not needed, and the version of the object that it was read from."""

    version: int | None
    value: Value | None


class Grouped(Generic[Value]):
    """Values in the groups that ``group_of`` names; there are few groups."""

    def __init__(self, group_of: Callable[[Value], str]) -> None:
        self.group_of = group_of
        self._members: dict[str, dict[str, Kept[Value]]] = {}
        self._tuples: dict[str, tuple[Value, ...]] = {}

    def get(self, uid: str) -> Kept[Value] | None:
        """Return what is kept of an object."""
        return next((members[uid] for members in self._members.values() if uid in members), None)

    def put(self, uid: str, kept: Kept[Value]) -> None:
        """Keep it, in the place of what was kept of the object."""
        group = self.group_of(kept.value) if kept.value is not None else ""
        known = self._members.get(group, {}).get(uid)
        if known is None:
            self.pop(uid)
        if known is None or known.value is not kept.value:
            self._tuples.pop(group, None)
        self._members.setdefault(group, {})[uid] = kept

    def pop(self, uid: str) -> Kept[Value] | None:
        """Drop what is kept of an object, and return it."""
        for group, members in self._members.items():
            if uid in members:
                self._tuples.pop(group, None)
                kept = members.pop(uid)
                if not members:
                    del self._members[group]
                return kept
        return None

    def items(self) -> Iterator[tuple[str, Kept[Value]]]:
        """Iterate over everything, by uid."""
        for members in self._members.values():
            yield from members.items()

    def groups(self) -> Mapping[str, tuple[Value, ...]]:
        """Return the values by their groups, without groups that have none."""
        for group, members in self._members.items():
            if group not in self._tuples:
                self._tuples[group] = tuple([kept.value for kept in members.values() if kept.value is not None])
        return {group: self._tuples[group] for group in self._members if self._tuples[group]}

    def keep_equal(self, before: Mapping[str, tuple[Value, ...]]) -> None:
        """Take the tuples of before for the groups that have the same values in any order."""
        for group, now in self.groups().items():
            known = before.get(group)
            if known is not None and len(known) == len(now) and set(map(id, known)) == set(map(id, now)):
                self._tuples[group] = known
