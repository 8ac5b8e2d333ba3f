"""The kinds of values that a spec is made of. Each reads a field, and writes itself as an OpenAPI schema. Pure.

Place in the flow: :func:`row` stands beside a field of a settings class, and :func:`table` joins the rows of a class to
one kind. ``spec_parser`` reads a spec by them; the CRD and the reference page are written from them.
"""

from collections.abc import Callable, Iterable, Mapping
from dataclasses import KW_ONLY, dataclass, field, fields, is_dataclass, replace
from enum import StrEnum
from typing import Any, Generic, Protocol, TypeVar, overload

from device_resources.kinds import Fields
from driver_builder.api.spec_reader import Reader
from driver_builder.api.spec_rules import MAX_ITEMS, OBJECT_NAME, RULES, Rule

Json = dict[str, Any]
Check = Callable[[Reader, Mapping[str, Any]], None]
"""Notes what is wrong with several fields together: those given, and what was read of them."""

T = TypeVar("T")
Read_co = TypeVar("Read_co", covariant=True)
Word = TypeVar("Word", bound=StrEnum)

_ROW = "row"


class Kind(Protocol[Read_co]):
    """What a field may hold."""

    def read(self, parent: Reader, name: str) -> Read_co:
        """Read a field of an object; what is wrong is noted."""

    def schema(self) -> Json:
        """Write the same as an OpenAPI schema."""


@dataclass(frozen=True, slots=True)
class Row:
    """A field: what it may hold, and what people read of it, in ``kubectl explain`` and on the reference page.

    ``default`` stands for a field that is not given; with ``is_filled`` the API server writes it into the object.
    ``more`` follows the description on the page, in Markdown.
    """

    kind: Kind[Any]
    description: str = ""
    _: KW_ONLY
    name: str = ""
    default: Any = None
    is_required: bool = False
    is_filled: bool = False
    more: str = ""

    def schema(self) -> Json:
        """Write the field's schema."""
        described = {"description": self.description} if self.description else {}
        filled = {"default": self.default} if self.is_filled else {}
        return {**described, **self.kind.schema(), **filled}


@overload
def row(
    kind: Kind[T], description: str = ..., *, name: str = ..., is_required: bool = ..., is_filled: bool = ...,
    more: str = ...,
) -> T: ...  # fmt: skip
@overload
def row(
    kind: Kind[T | None], description: str = ..., *, default: T, name: str = ..., is_required: bool = ...,
    is_filled: bool = ..., more: str = ...,
) -> T: ...  # fmt: skip
def row(kind: Any, description: str = "", **others: Any) -> Any:
    """Return a field of a settings class, with its row; without a name it has the field's, in camelCase."""
    made = Row(kind, description, **others)
    metadata = {_ROW: made}
    if made.is_required or isinstance(kind, Needed | Object):
        return field(metadata=metadata)
    empty = getattr(kind, "empty", None) if made.default is None else made.default
    if isinstance(empty, Mapping):
        return field(default_factory=dict, metadata=metadata)
    return field(default=empty, metadata=metadata)


@dataclass(frozen=True, slots=True)
class Cel:
    """A rule about several fields as API servers evaluate it; a check of the parser says the same."""

    rule: str
    message: str

    def as_json(self) -> Json:
        """Write it as a schema has it."""
        return {"rule": self.rule, "message": self.message}


@dataclass(frozen=True, slots=True, kw_only=True)
class Object(Generic[Read_co]):
    """An object; ``rows`` are its fields by the parameters of ``make``, ``ignored`` those that are only checked."""

    make: Callable[..., Read_co]
    rows: Mapping[str, Row]
    ignored: Mapping[str, Row] = field(default_factory=dict)
    checks: tuple[Check, ...] = ()
    rules: tuple[Cel, ...] = ()
    least: int = 0

    def read(self, parent: Reader, name: str) -> Read_co:
        """Read it, as empty where it is missing."""
        return self.of(parent.object(name))

    def of(self, given: Reader) -> Read_co:
        """Read its fields."""
        for name, ignored in self.ignored.items():
            ignored.kind.read(given, name)
        values = {way: one.kind.read(given, one.name) for way, one in self.rows.items()}
        for check in self.checks:
            check(given, values)
        read = {way: self.rows[way].default if value is None else value for way, value in values.items()}
        return self.make(**{way: value for way, value in read.items() if value is not None})

    def fields(self) -> Mapping[str, Row]:
        """Return the rows of all fields by their names."""
        return {**{one.name: one for one in self.rows.values()}, **self.ignored}

    def schema(self) -> Json:
        """Write the same as an OpenAPI schema."""
        every = self.fields()
        required = [name for name, one in every.items() if one.is_required or isinstance(one.kind, Needed)]
        return {
            "type": "object",
            **({"required": required} if required else {}),
            **({"minProperties": self.least} if self.least else {}),
            **({RULES: [rule.as_json() for rule in self.rules]} if self.rules else {}),
            "properties": {name: one.schema() for name, one in every.items()},
        }


def table(
    make: Callable[..., T],
    *,
    of: type | None = None,
    ignored: Mapping[str, Row] | None = None,
    checks: Iterable[Check] = (),
    rules: Iterable[Cel] = (),
    least: int = 0,
    **rows: Row,
) -> Object[T]:
    """Join rows to an object: those beside the fields of ``make``, or of the class ``of``, and those given."""
    settings = of or make
    beside = fields(settings) if is_dataclass(settings) else ()
    every = {one.name: one.metadata[_ROW] for one in beside if _ROW in one.metadata} | rows
    named = {way: replace(one, name=one.name or camel_case(way)) for way, one in every.items()}
    return Object(make=make, rows=named, ignored=ignored or {}, checks=tuple(checks), rules=tuple(rules), least=least)


def camel_case(name: str) -> str:
    """Return how a manifest writes the name of a field."""
    first, *others = name.split("_")
    return "".join((first, *(word.capitalize() for word in others)))


@dataclass(frozen=True, slots=True)
class Maybe(Generic[Read_co]):
    """An object that may be missing."""

    kind: Object[Read_co]

    def read(self, parent: Reader, name: str) -> Read_co | None:
        """Read it; None where it is missing."""
        given = parent.object(name)
        return self.kind.of(given) if parent.has(name) else None

    def schema(self) -> Json:
        """Write the same as an OpenAPI schema."""
        return self.kind.schema()


@dataclass(frozen=True, slots=True)
class Objects(Generic[Read_co]):
    """A list of objects. A ``guard`` looks at it first, and may have it left out."""

    kind: Object[Read_co]
    most: int = MAX_ITEMS
    least: int = 0
    guard: Callable[[Reader, str], bool] = lambda _parent, _name: True
    empty: tuple[Read_co, ...] = ()

    def read(self, parent: Reader, name: str) -> tuple[Read_co, ...]:
        """Read it, as empty where it is missing."""
        items = list(parent.objects(name, most=self.most))
        return tuple(self.kind.of(item) for item in items) if self.guard(parent, name) else ()

    def schema(self) -> Json:
        """Write the same as an OpenAPI schema."""
        return {"type": "array", **_bounds(self.least, self.most), "items": self.kind.schema()}


@dataclass(frozen=True, slots=True)
class Converted(Generic[Read_co]):
    """A value that is made of another one; ``convert`` may note that it cannot be, at the field."""

    kind: Kind[Any]
    convert: Callable[[Any, Reader, str], Read_co]

    @property
    def empty(self) -> Any:
        """What stands for a field that is not given."""
        return getattr(self.kind, "empty", None)

    def read(self, parent: Reader, name: str) -> Read_co:
        """Read it."""
        return self.convert(self.kind.read(parent, name), parent, name)

    def schema(self) -> Json:
        """Write the same as an OpenAPI schema."""
        return self.kind.schema()


@dataclass(frozen=True, slots=True)
class Text:
    """A string that may be missing."""

    rule: Rule

    def read(self, parent: Reader, name: str) -> str | None:
        """Read it."""
        return parent.text(name, self.rule)

    def schema(self) -> Json:
        """Write the same as an OpenAPI schema."""
        return self.rule.schema()


@dataclass(frozen=True, slots=True)
class Needed:
    """A string that has to be there."""

    rule: Rule

    def read(self, parent: Reader, name: str) -> str:
        """Read it."""
        return parent.needed(name, self.rule)

    def schema(self) -> Json:
        """Write the same as an OpenAPI schema."""
        return self.rule.schema()


@dataclass(frozen=True, slots=True)
class Flag:
    """True or false."""

    empty: bool = False

    def read(self, parent: Reader, name: str) -> bool:
        """Read it."""
        value = parent.flag(name)
        return value if parent.has(name) else self.empty

    def schema(self) -> Json:
        """Write the same as an OpenAPI schema."""
        return {"type": "boolean"}


@dataclass(frozen=True, slots=True)
class Choice(Generic[Word]):
    """One of a few words."""

    words: type[Word]

    def read(self, parent: Reader, name: str) -> Word | None:
        """Read it."""
        return parent.choice(name, self.words)

    def schema(self) -> Json:
        """Write the same as an OpenAPI schema."""
        return {"type": "string", "enum": list(map(str, self.words))}


@dataclass(frozen=True, slots=True)
class Duration:
    """A duration within bounds, in seconds."""

    shortest: str = "10s"
    longest: str = "24h"

    def read(self, parent: Reader, name: str) -> float | None:
        """Read it."""
        return parent.duration(name, self.shortest, self.longest)

    def schema(self) -> Json:
        """Write the same as an OpenAPI schema."""
        rule = f"duration(self) >= duration('{self.shortest}') && duration(self) <= duration('{self.longest}')"
        words = Cel(rule, f"must be a duration from {self.shortest} to {self.longest}")
        limits = {"minLength": 2, "maxLength": 24, "pattern": "^([0-9]{1,6}h)?([0-9]{1,6}m)?([0-9]{1,6}s)?$"}
        return {"type": "string", **limits, RULES: [words.as_json()]}


@dataclass(frozen=True, slots=True)
class Number:
    """A whole number."""

    low: int
    high: int

    def read(self, parent: Reader, name: str) -> int | None:
        """Read it."""
        return parent.number(name, low=self.low, high=self.high)

    def schema(self) -> Json:
        """Write the same as an OpenAPI schema."""
        return {"type": "integer", "minimum": self.low, "maximum": self.high}


@dataclass(frozen=True, slots=True)
class Words:
    """A list of strings."""

    rule: Rule
    most: int = MAX_ITEMS
    least: int = 0
    empty: tuple[str, ...] = ()

    def read(self, parent: Reader, name: str) -> tuple[str, ...]:
        """Read it, as empty where it is missing."""
        return parent.words(name, self.rule, most=self.most)

    def schema(self) -> Json:
        """Write the same as an OpenAPI schema."""
        return {"type": "array", **_bounds(self.least, self.most), "items": self.rule.schema()}


@dataclass(frozen=True, slots=True)
class Pairs:
    """A mapping of strings. A schema cannot say what keys look like."""

    keys: Rule
    values: Rule
    empty: Mapping[str, str] = field(default_factory=dict)

    def read(self, parent: Reader, name: str) -> Mapping[str, str]:
        """Read it, as empty where it is missing."""
        return parent.pairs(name, self.keys, self.values)

    def schema(self) -> Json:
        """Write the same as an OpenAPI schema."""
        return {"type": "object", "maxProperties": MAX_ITEMS, "additionalProperties": self.values.schema()}


@dataclass(frozen=True, slots=True)
class Lists:
    """A mapping of lists; ``keys`` is None where a check of the object looks at them."""

    keys: Rule | None
    each: Words
    most: int = MAX_ITEMS
    empty: Mapping[str, tuple[str, ...]] = field(default_factory=dict)

    def read(self, parent: Reader, name: str) -> Mapping[str, tuple[str, ...]]:
        """Read it, as empty where it is missing."""
        inner = parent.object(name)
        inner.bound(len(inner.given), self.most)
        if self.keys is not None:
            for key in inner.given:
                inner.check(key, self.keys, key)
        return {key: self.each.read(inner, key) for key in inner.given}

    def schema(self) -> Json:
        """Write the same as an OpenAPI schema."""
        return {"type": "object", "maxProperties": self.most, "additionalProperties": self.each.schema()}


@dataclass(frozen=True, slots=True)
class Described:
    """An object that the device agent reads by the same table; ``words`` describe its fields, by their paths."""

    fields: Fields
    words: Mapping[str, str]
    rules: tuple[Cel, ...] = ()

    def read(self, parent: Reader, name: str) -> Json | None:
        """Read it as it was given; None where it is missing or wrong."""
        given = parent.raw(name)
        problems = self.fields.check(given, ()) if given is not None else ()
        for problem in problems:
            parent.wrong(problem.message, name, *problem.path)
        return None if problems or not isinstance(given, Mapping) else dict(given)

    def schema(self) -> Json:
        """Write the same as an OpenAPI schema."""
        made = self.fields.schema()
        self._describe(made, "")
        return {**made, **({RULES: [rule.as_json() for rule in self.rules]} if self.rules else {})}

    def _describe(self, part: Json, path: str) -> None:
        for name, inner in part.get("properties", {}).items():
            inner["description"] = self.words[f"{path}{name}"]
            self._describe(inner, f"{path}{name}.")


@dataclass(frozen=True, slots=True)
class Reference:
    """A reference to an object, which is its name."""

    def read(self, parent: Reader, name: str) -> str | None:
        """Read it."""
        return parent.reference(name)

    def schema(self) -> Json:
        """Write the same as an OpenAPI schema."""
        return _NAMED


@dataclass(frozen=True, slots=True)
class References:
    """A list of references."""

    most: int = MAX_ITEMS
    empty: tuple[str, ...] = ()

    def read(self, parent: Reader, name: str) -> tuple[str, ...]:
        """Read it, as empty where it is missing."""
        return tuple(item.needed("name", OBJECT_NAME) for item in parent.objects(name, most=self.most))

    def schema(self) -> Json:
        """Write the same as an OpenAPI schema."""
        return {"type": "array", "maxItems": self.most, "items": _NAMED}


_NAMED: Json = {"type": "object", "required": ["name"], "properties": {"name": OBJECT_NAME.schema()}}


def _bounds(least: int, most: int) -> Json:
    return {**({"minItems": least} if least else {}), "maxItems": most}
