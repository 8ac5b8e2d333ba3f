"""The kinds of values that a spec is made of. Each reads a field, and writes itself as an OpenAPI schema. Pure.

Place in the flow: :func:`row` stands beside a field of a settings class, and :func:`table` joins the rows of a class to
an object. ``spec_parser`` reads a spec by them; the CRD and the reference page are written from them.
"""

from collections.abc import Callable, Iterable, Mapping
from dataclasses import KW_ONLY, dataclass, field, fields, is_dataclass, replace
from enum import StrEnum
from typing import Any, Generic, TypeVar, overload

from device_resources.kinds import Fields
from driver_builder.api.spec_reader import Reader
from driver_builder.api.spec_rules import MAX_ITEMS, OBJECT_NAME, RULES, Rule

Json = dict[str, Any]
Check = Callable[[Reader, Mapping[str, Any]], None]
"""Notes what is wrong with several fields together: those given, and what was read of them."""

T = TypeVar("T")
T_co = TypeVar("T_co", covariant=True)
Word = TypeVar("Word", bound=StrEnum)

_ROW = "row"
NOTHING = object()
"""What stands for a field that has to be given to a settings class."""
AS_GIVEN: Json = {"type": "object", "x-kubernetes-preserve-unknown-fields": True}


@dataclass(frozen=True, slots=True)
class Kind(Generic[T_co]):
    """What a field may hold: ``read`` reads a field of an object and notes what is wrong, ``limits`` are its schema.

    ``empty`` stands for a field that is not given, ``rows`` are the fields of an object, or of those in a list.
    ``is_required``: a schema requires it.
    """

    read: Callable[[Reader, str], T_co]
    limits: Json
    _: KW_ONLY
    empty: Any = None
    rows: Mapping[str, "Row"] = field(default_factory=dict)
    is_required: bool = False


@dataclass(frozen=True, slots=True)
class Row:
    """A field: what it may hold, and what people read of it, in ``kubectl explain`` and on the reference page.

    ``default`` stands for a field that is not given; with ``is_filled`` the API server writes it into the object.
    ``more`` follows the description on the page, in Markdown. ``is_ignored``: the field is checked, and has no effect.
    """

    kind: Kind[Any]
    description: str = ""
    _: KW_ONLY
    name: str = ""
    default: Any = None
    is_required: bool = False
    is_filled: bool = False
    is_ignored: bool = False
    more: str = ""

    def schema(self) -> Json:
        """Write the field's schema."""
        described = {"description": self.description} if self.description else {}
        filled = {"default": self.default} if self.is_filled else {}
        return {**described, **self.kind.limits, **filled}


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
    empty = made.default if made.default is not None else made.kind.empty
    metadata = {_ROW: made}
    if made.is_required or empty is NOTHING:
        return field(metadata=metadata)
    return field(default_factory=dict, metadata=metadata) if empty == {} else field(default=empty, metadata=metadata)


@dataclass(frozen=True, slots=True)
class Cel:
    """A rule about several fields as API servers evaluate it; a check of the parser says the same."""

    rule: str
    message: str

    def as_json(self) -> Json:
        """Write it as a schema has it."""
        return {"rule": self.rule, "message": self.message}


@dataclass(frozen=True, slots=True)
class Object(Generic[T_co]):
    """An object; ``rows`` are its fields by the parameters of ``make``. At least ``least`` of them are given."""

    make: Callable[..., T_co]
    rows: Mapping[str, Row]
    checks: tuple[Check, ...] = ()
    rules: tuple[Cel, ...] = ()
    least: int = 0

    def of(self, given: Reader) -> T_co:
        """Read its fields."""
        read = {way: one.kind.read(given, one.name) for way, one in self.rows.items()}
        for check in self.checks:
            check(given, read)
        values = {
            way: one.default if read[way] is None else read[way] for way, one in self.rows.items() if not one.is_ignored
        }
        return self.make(**{way: value for way, value in values.items() if value is not None})

    @property
    def always(self) -> Kind[T_co]:
        """The kind of an object that is read as empty where it is missing."""
        return Kind(lambda parent, name: self.of(parent.object(name)), self.schema(), rows=self.rows, empty=NOTHING)

    def schema(self) -> Json:
        """Write it as an OpenAPI schema."""
        required = [one.name for one in self.rows.values() if one.is_required]
        return {
            "type": "object",
            **({"required": required} if required else {}),
            **({"minProperties": self.least} if self.least else {}),
            **({RULES: [rule.as_json() for rule in self.rules]} if self.rules else {}),
            "properties": {one.name: one.schema() for one in self.rows.values()},
        }


def table(
    make: Callable[..., T],
    *,
    of: type | None = None,
    checks: Iterable[Check] = (),
    rules: Iterable[Cel] = (),
    least: int = 0,
    **rows: Row,
) -> Object[T]:
    """Join rows to an object: those beside the fields of ``make``, or of the class ``of``, and those given."""
    settings = of or make
    beside = fields(settings) if is_dataclass(settings) else ()
    every = {one.name: one.metadata[_ROW] for one in beside if _ROW in one.metadata} | rows
    named = {
        way: replace(one, name=one.name or camel_case(way), is_required=one.is_required or one.kind.is_required)
        for way, one in every.items()
    }
    return Object(make, named, tuple(checks), tuple(rules), least)


def camel_case(name: str) -> str:
    """Return how a manifest writes the name of a field."""
    first, *others = name.split("_")
    return "".join((first, *(word.capitalize() for word in others)))


def maybe(made: Object[T]) -> Kind[T | None]:
    """Return the kind of an object that may be missing."""

    def read(parent: Reader, name: str) -> T | None:
        given = parent.object(name)
        return made.of(given) if parent.has(name) else None

    return Kind(read, made.schema(), rows=made.rows)


def objects(
    made: Object[T], most: int = MAX_ITEMS, least: int = 0, guard: Callable[[Reader, str], bool] | None = None
) -> Kind[tuple[T, ...]]:
    """Return the kind of a list of objects. A ``guard`` looks at it first, and may have it left out."""

    def read(parent: Reader, name: str) -> tuple[T, ...]:
        items = list(parent.objects(name, most=most))
        return tuple(made.of(item) for item in items) if guard is None or guard(parent, name) else ()

    return Kind(read, _list(made.schema(), most, least), empty=(), rows=made.rows)


def converted(kind: Kind[Any], convert: Callable[[Any, Reader, str], T]) -> Kind[T]:
    """Return the kind of what is made of another value; ``convert`` may note that it cannot be, at the field."""
    return replace(kind, read=lambda parent, name: convert(kind.read(parent, name), parent, name))


def text(rule: Rule) -> Kind[str | None]:
    """Return the kind of a string that may be missing."""
    return Kind(lambda parent, name: parent.text(name, rule), rule.schema())


def needed(rule: Rule) -> Kind[str]:
    """Return the kind of a string that has to be there."""
    return Kind(lambda parent, name: parent.needed(name, rule), rule.schema(), empty=NOTHING, is_required=True)


def flag(*, default: bool = False) -> Kind[bool]:
    """Return the kind of true or false."""

    def read(parent: Reader, name: str) -> bool:
        value = parent.flag(name)
        return value if parent.has(name) else default

    return Kind(read, {"type": "boolean"}, empty=default)


def choice(words: type[Word]) -> Kind[Word | None]:
    """Return the kind of one of a few words."""
    return Kind(lambda parent, name: parent.choice(name, words), {"type": "string", "enum": list(map(str, words))})


def duration(shortest: str = "10s", longest: str = "24h") -> Kind[float | None]:
    """Return the kind of a duration within bounds, in seconds."""
    rule = f"duration(self) >= duration('{shortest}') && duration(self) <= duration('{longest}')"
    bounds = Cel(rule, f"must be a duration from {shortest} to {longest}").as_json()
    limits = {"minLength": 2, "maxLength": 24, "pattern": "^([0-9]{1,6}h)?([0-9]{1,6}m)?([0-9]{1,6}s)?$"}
    schema = {"type": "string", **limits, RULES: [bounds]}
    return Kind(lambda parent, name: parent.duration(name, shortest, longest), schema)


def number(low: int, high: int) -> Kind[int | None]:
    """Return the kind of a whole number."""
    schema = {"type": "integer", "minimum": low, "maximum": high}
    return Kind(lambda parent, name: parent.number(name, low=low, high=high), schema)


def texts(rule: Rule, most: int = MAX_ITEMS, least: int = 0) -> Kind[tuple[str, ...]]:
    """Return the kind of a list of strings."""
    schema = _list(rule.schema(), most, least)
    return Kind(lambda parent, name: parent.words(name, rule, most=most), schema, empty=())


def pairs(keys: Rule, values: Rule) -> Kind[Mapping[str, str]]:
    """Return the kind of a mapping of strings. A schema cannot say what keys look like."""
    return Kind(lambda parent, name: parent.pairs(name, keys, values), _mapping(values.schema(), MAX_ITEMS), empty={})


def lists(
    keys: Rule | None, values: Rule, most_keys: int = MAX_ITEMS, most: int = MAX_ITEMS
) -> Kind[Mapping[str, tuple[str, ...]]]:
    """Return the kind of a mapping of lists; ``keys`` is None where a check of the object looks at them."""

    def read(parent: Reader, name: str) -> Mapping[str, tuple[str, ...]]:
        inner = parent.object(name)
        inner.bound(len(inner.given), most_keys)
        if keys is not None:
            for key in inner.given:
                inner.check(key, keys, key)
        return {key: inner.words(key, values, most=most) for key in inner.given}

    return Kind(read, _mapping(_list(values.schema(), most), most_keys), empty={})


def described(fields_of_agent: Fields, words: Mapping[str, str], rules: Iterable[Cel] = ()) -> Kind[Json | None]:
    """Return the kind of an object that the device agent reads by the same table, as it was given.

    ``words`` describe its fields, by their paths. What is wrong is None.
    """

    def read(parent: Reader, name: str) -> Json | None:
        given = parent.raw(name)
        problems = fields_of_agent.check(given, ()) if given is not None else ()
        for problem in problems:
            parent.wrong(problem.message, name, *problem.path)
        return None if problems or not isinstance(given, Mapping) else dict(given)

    def rows(part: Json, path: str) -> Mapping[str, Row]:
        return {
            name: Row(
                Kind(read, _with(child, inner := rows(child, f"{path}{name}.")), rows=inner),
                words[f"{path}{name}"],
                name=name,
                is_required=name in part.get("required", ()),
            )
            for name, child in part.get("properties", {}).items()
        }

    schema = fields_of_agent.schema()
    every = rows(schema, "")
    by_rules = {RULES: [rule.as_json() for rule in rules]} if rules else {}
    return Kind(read, {**_with(schema, every), **by_rules}, rows=every)


def reference() -> Kind[str | None]:
    """Return the kind of a reference to an object, which is its name."""
    return Kind(lambda parent, name: parent.reference(name), _NAMED)


def references(most: int = MAX_ITEMS) -> Kind[tuple[str, ...]]:
    """Return the kind of a list of references."""

    def read(parent: Reader, name: str) -> tuple[str, ...]:
        return tuple(item.needed("name", OBJECT_NAME) for item in parent.objects(name, most=most))

    return Kind(read, _list(_NAMED, most), empty=())


_NAMED: Json = {"type": "object", "required": ["name"], "properties": {"name": OBJECT_NAME.schema()}}


def _with(schema: Json, rows: Mapping[str, Row]) -> Json:
    return {**schema, **({"properties": {name: one.schema() for name, one in rows.items()}} if rows else {})}


def _list(items: Json, most: int, least: int = 0) -> Json:
    return {"type": "array", **({"minItems": least} if least else {}), "maxItems": most, "items": items}


def _mapping(values: Json, most: int) -> Json:
    return {"type": "object", "maxProperties": most, "additionalProperties": values}
