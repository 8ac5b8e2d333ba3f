"""The kinds of values that a description is made of. Each checks a value, and writes itself as an OpenAPI schema. Pure.

:mod:`device_resources.fields` combines them to one table, so that the parser and the schema cannot differ.
"""

import re
from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field
from typing import Any, Protocol

Json = dict[str, Any]

Path = tuple[str | int, ...]
"""The path of a field: names, and positions in lists."""

_SHOWN = 100
"""Characters of a value in a message."""

_LARGE = 10**20


@dataclass(frozen=True, slots=True, kw_only=True)
class Problem:
    """An invalid field; ``message`` has its value and the remedy."""

    path: Path
    message: str

    def __str__(self) -> str:
        words = "".join(f"[{part}]" if isinstance(part, int) else f".{part}" for part in self.path)
        return f"{words.removeprefix('.')}: {self.message}" if words else self.message


class Kind(Protocol):
    """What a field may hold."""

    def check(self, value: object, path: Path) -> list[Problem]:
        """Find what is wrong with a value."""

    def schema(self) -> Json:
        """Write the same as an OpenAPI schema."""


@dataclass(frozen=True, slots=True, kw_only=True)
class Text:
    """A string. ``words``: what it must be, after *it*."""

    pattern: str
    words: str
    longest: int

    def check(self, value: object, path: Path) -> list[Problem]:
        """Find what is wrong with a value."""
        if not isinstance(value, str):
            return [Problem(path=path, message=f"{shown(value)} is not a string: put it in quotes")]
        if len(value) > self.longest:
            return [Problem(path=path, message=f"it has {len(value)} characters: write at most {self.longest}")]
        if any("\ud800" <= letter <= "\udfff" for letter in value):
            return [Problem(path=path, message=f"{shown(value)} is not valid: it has half a character")]
        if re.fullmatch(self.pattern, value) is None:
            return [Problem(path=path, message=f"{shown(value)} is not valid: it {self.words}")]
        return []

    def schema(self) -> Json:
        """Write the same as an OpenAPI schema."""
        return {"type": "string", "maxLength": self.longest, "pattern": f"^(?:{self.pattern})$"}


@dataclass(frozen=True, slots=True, kw_only=True)
class Word:
    """One of a few words."""

    words: tuple[str, ...]

    def check(self, value: object, path: Path) -> list[Problem]:
        """Find what is wrong with a value."""
        if value in self.words:
            return []
        near = nearest(value, self.words) if isinstance(value, str) else ""
        return [Problem(path=path, message=f"{shown(value)} is unknown: use one of {', '.join(self.words)}{near}")]

    def schema(self) -> Json:
        """Write the same as an OpenAPI schema."""
        return {"type": "string", "enum": list(self.words)}


@dataclass(frozen=True, slots=True, kw_only=True)
class Number:
    """A whole number."""

    low: int
    high: int

    def check(self, value: object, path: Path) -> list[Problem]:
        """Find what is wrong with a value."""
        if isinstance(value, int) and not isinstance(value, bool) and self.low <= value <= self.high:
            return []
        asked = f"a whole number from {self.low} to {self.high}"
        return [Problem(path=path, message=f"{shown(value)} is not {asked}: write one, without quotes")]

    def schema(self) -> Json:
        """Write the same as an OpenAPI schema."""
        return {"type": "integer", "minimum": self.low, "maximum": self.high}


@dataclass(frozen=True, slots=True, kw_only=True)
class Flag:
    """True or false."""

    def check(self, value: object, path: Path) -> list[Problem]:
        """Find what is wrong with a value."""
        if isinstance(value, bool):
            return []
        return [Problem(path=path, message=f"{shown(value)} is neither true nor false: write one, without quotes")]

    def schema(self) -> Json:
        """Write the same as an OpenAPI schema."""
        return {"type": "boolean"}


@dataclass(frozen=True, slots=True, kw_only=True)
class Items:
    """A list."""

    kind: Kind
    most: int
    least: int = 1

    def check(self, value: object, path: Path) -> list[Problem]:
        """Find what is wrong with a value."""
        if not isinstance(value, list):
            return [Problem(path=path, message=f"{shown(value)} is not a list")]
        if not self.least <= len(value) <= self.most:
            asked = f"write {self.least} to {self.most}"
            return [Problem(path=path, message=f"it has {len(value)} entries: {asked}")]
        return [problem for index, item in enumerate(value) for problem in self.kind.check(item, (*path, index))]

    def schema(self) -> Json:
        """Write the same as an OpenAPI schema."""
        return {"type": "array", "minItems": self.least, "maxItems": self.most, "items": self.kind.schema()}


@dataclass(frozen=True, slots=True, kw_only=True)
class Pairs:
    """A mapping with keys of an admin's choice. A schema cannot say what keys look like."""

    keys: Text
    values: Kind
    most: int

    def check(self, value: object, path: Path) -> list[Problem]:
        """Find what is wrong with a value."""
        if not isinstance(value, Mapping):
            return [Problem(path=path, message=f"{shown(value)} is not a mapping: write NAME: value below it")]
        if len(value) > self.most:
            return [Problem(path=path, message=f"it has {len(value)} entries: write at most {self.most}")]
        problems: list[Problem] = []
        for key, item in value.items():
            way = (*path, str(key)[:_SHOWN])
            problems += self.keys.check(key, way) or self.values.check(item, way)
        return problems

    def schema(self) -> Json:
        """Write the same as an OpenAPI schema."""
        return {"type": "object", "maxProperties": self.most, "additionalProperties": self.values.schema()}


@dataclass(frozen=True, slots=True, kw_only=True)
class Fields:
    """An object with fields of given names. Null is a field that is not given.

    ``elsewhere``: where fields of other objects belong, for messages.
    """

    kinds: Mapping[str, Kind]
    required: Sequence[str] = field(default=())
    elsewhere: Mapping[str, str] = field(default_factory=dict)

    def check(self, value: object, path: Path) -> list[Problem]:
        """Find what is wrong with a value."""
        if not isinstance(value, Mapping):
            return [Problem(path=path, message=f"{shown(value)} is not an object: write fields below it")]
        problems = [
            Problem(path=(*path, name), message="is missing") for name in self.required if value.get(name) is None
        ]
        for name, item in value.items():
            kind = self.kinds.get(name) if isinstance(name, str) else None
            if kind is None:
                word = str(name)[:_SHOWN]
                problems.append(Problem(path=(*path, word), message=f"there is no such field{self._hint(word)}"))
            elif item is not None:
                problems += kind.check(item, (*path, name))
        return problems

    def schema(self) -> Json:
        """Write the same as an OpenAPI schema."""
        properties = {name: kind.schema() for name, kind in self.kinds.items()}
        required = {"required": list(self.required)} if self.required else {}
        return {"type": "object", **required, "properties": properties}

    def _hint(self, word: str) -> str:
        if place := self.elsewhere.get(word):
            return f" here; it belongs to {place}"
        return nearest(word, self.kinds) or f"; there are {', '.join(self.kinds)}"


def nearest(word: str, known: Mapping[str, object] | Sequence[str]) -> str:
    """Return which of the known words is meant; nothing when none is similar."""
    import difflib  # noqa: PLC0415 - needed for mistakes only

    near = difflib.get_close_matches(word[:_SHOWN], sorted(known), n=1, cutoff=0.5)
    return f"; did you mean {near[0]}?" if near else ""


def shown(value: object) -> str:
    """Quote a value in a message, cut if it is long; of a mapping or a list only what it is."""
    if isinstance(value, Mapping):
        return "an object"
    if isinstance(value, list):
        return "a list"
    if isinstance(value, str):
        return repr(value) if len(value) <= _SHOWN else f"{value[:_SHOWN]!r}..."
    # Python refuses to write numbers of thousands of digits.
    return "a very large number" if isinstance(value, int) and abs(value) >= _LARGE else repr(value)[:_SHOWN]
