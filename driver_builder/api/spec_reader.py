"""Reads what an admin wrote, field by field, and notes every problem. Pure.

Place in the flow: ``spec_parser`` knows what each field of a spec may hold and reads it here. An invalid field is noted
and read as if it were missing, so that one run finds all problems; the caller looks at the notes at the end.
"""

import re
from collections.abc import Iterator, Mapping
from dataclasses import dataclass, field
from enum import StrEnum
from typing import Any, TypeVar

from driver_builder.api.spec_rules import DURATION, MAX_ITEMS, OBJECT_NAME, Rule, seconds

Path = tuple[str | int, ...]
"""The path of a field from the top of its object: names, and positions in lists."""

Word = TypeVar("Word", bound=StrEnum)

_NAME = re.compile(r"[A-Za-z0-9_./-]{1,128}")
"""Field names, keys of labels, variables."""


@dataclass(frozen=True, slots=True, kw_only=True)
class Problem:
    """An invalid field; ``message`` has its value and the remedy."""

    path: Path
    message: str

    def __str__(self) -> str:
        return f"{dotted(self.path)}: {self.message}"


@dataclass(slots=True)
class Notes:
    """What was noted while reading."""

    problems: list[Problem] = field(default_factory=list)
    readers: list["Reader"] = field(default_factory=list)

    @property
    def unknown(self) -> tuple[Path, ...]:
        """Return the fields that were given and never read."""
        return tuple(
            (*reader.path, name) for reader in self.readers for name in reader.given if name not in reader.asked
        )


def dotted(path: Path) -> str:
    """Return ``spec.kernelMappings[0].regexp``, as people write it; names that no field has are quoted, and cut."""
    words = (f".{part}" if isinstance(part, str) and _NAME.fullmatch(part) else f"[{shown(part)}]" for part in path)
    return "".join(words).removeprefix(".")


def shown(value: object) -> str:
    """Quote a value in a message, cut if it is very long."""
    text = repr(value)
    return text if len(text) <= 200 else f"{text[:200]}..."


class Reader:
    """One object (a JSON mapping) at ``path``."""

    def __init__(self, value: object, path: Path, notes: Notes) -> None:
        self.path = path
        self.asked: set[str] = set()
        self.given: Mapping[str, Any] = {}
        self._notes = notes
        notes.readers.append(self)
        if isinstance(value, Mapping):
            self.given = value
        elif value is not None:
            self.wrong(f"{shown(value)} is not an object: write fields below it")

    def wrong(self, message: str, *way: str | int) -> None:
        """Note that this object, or what is at ``way`` below it, is invalid."""
        self._notes.problems.append(Problem(path=(*self.path, *way), message=message))

    def has(self, name: str) -> bool:
        """Return whether a field is given; null is not."""
        return self.given.get(name) is not None

    def has_items(self, name: str) -> bool:
        """Return whether a field is a list with entries."""
        value = self.given.get(name)
        return isinstance(value, list) and bool(value)

    def raw(self, name: str) -> Any:
        """Return a field's value as it is, None without one."""
        self.asked.add(name)
        return self.given.get(name)

    def text(self, name: str, rule: Rule) -> str | None:
        """Read an optional string."""
        value = self.raw(name)
        return value if value is not None and self.check(value, rule, name) else None

    def needed(self, name: str, rule: Rule) -> str:
        """Read a required string."""
        if not self.has(name):
            self.wrong(f"is missing or empty: it {rule.words}", name)
        return self.text(name, rule) or ""

    def check(self, value: object, rule: Rule, *way: str | int) -> bool:
        """Return whether a value is a string that a rule allows, and note it if not."""
        if not isinstance(value, str):
            self.wrong(f"{shown(value)} is not a string: put it in quotes", *way)
        elif words := rule.wrong_with(value):
            self.wrong(f"{shown(value)} {words}", *way)
        else:
            return True
        return False

    def flag(self, name: str) -> bool:
        """Read true or false; false if missing."""
        value = self.raw(name)
        if value is not None and not isinstance(value, bool):
            self.wrong(f"{shown(value)} is neither true nor false: write one of them, without quotes", name)
        return value is True

    def choice(self, name: str, words: type[Word]) -> Word | None:
        """Read an optional string that is one of a few words."""
        value = self.raw(name)
        if value is not None and value not in list(words):
            self.wrong(f"{shown(value)} is unknown: use one of {', '.join(words)}", name)
            return None
        return None if value is None else words(value)

    def duration(self, name: str, shortest: str = "10s", longest: str = "24h") -> float | None:
        """Read an optional duration within bounds, in seconds."""
        text = self.text(name, DURATION)
        if text is not None and not seconds(shortest) <= seconds(text) <= seconds(longest):
            self.wrong(f"{text!r} is too short or too long: write a duration from {shortest} to {longest}", name)
            return None
        return None if text is None else seconds(text)

    def number(self, name: str, *, low: int, high: int) -> int | None:
        """Read an optional integer."""
        value = self.raw(name)
        if value is None:
            return None
        if isinstance(value, bool) or not isinstance(value, int) or not low <= value <= high:
            self.wrong(f"{shown(value)} is not a whole number from {low} to {high}: write one, without quotes", name)
            return None
        return value

    def items(self, name: str, *, most: int = MAX_ITEMS) -> list[Any]:
        """Read a list, empty if missing."""
        value = self.raw(name)
        if value is not None and not isinstance(value, list):
            self.wrong(f"{shown(value)} is not a list: write [{value}]", name)
            return []
        self.bound(len(value or ()), most, name)
        return (value or [])[:most]

    def bound(self, count: int, most: int, *way: str | int) -> None:
        """Note that a list or a mapping has too many entries."""
        if count > most:
            self.wrong(f"it has {count} entries: write at most {most}", *way)

    def words(self, name: str, rule: Rule, *, most: int = MAX_ITEMS) -> tuple[str, ...]:
        """Read a list of strings."""
        values = enumerate(self.items(name, most=most))
        return tuple(value for index, value in values if self.check(value, rule, name, index))

    def pairs(self, name: str, keys: Rule, values: Rule) -> dict[str, str]:
        """Read a mapping of strings."""
        inner = self.object(name)
        inner.asked.update(inner.given)
        inner.bound(len(inner.given), MAX_ITEMS)
        checked = [(key, value, inner.check(key, keys, key)) for key, value in inner.given.items()]
        return {key: value for key, value, good in checked if good and inner.check(value, values, key)}

    def object(self, name: str) -> "Reader":
        """Read an object, empty if missing."""
        return Reader(self.raw(name), (*self.path, name), self._notes)

    def reference(self, name: str) -> str | None:
        """Read the name in a reference to an object, which is optional."""
        return self.object(name).needed("name", OBJECT_NAME) if self.has(name) else self.text(name, OBJECT_NAME)

    def objects(self, name: str, *, most: int = MAX_ITEMS) -> Iterator["Reader"]:
        """Read a list of objects."""
        for index, value in enumerate(self.items(name, most=most)):
            yield Reader(value, (*self.path, name, index), self._notes)
