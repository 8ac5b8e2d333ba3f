"""The values of a template and their Go types: what ``typeOf``, ``%T``, ``has`` and type checks of arguments see.

================  =====================================================
Go                here
================  =====================================================
untyped nil       None
string            str; bytes that are not UTF-8 as surrogate escapes
bool              bool
int, int64, ...   int, Int64, Uint8, Uint64
float64           float
slice             GoList, with its type
map[string]T      GoMap, with its type
================  =====================================================

The data of a rule has the types that upstream gives it, so that ``index . "missing"`` is the zero value it is there.
"""

from collections.abc import Iterable, Mapping, Sequence
from typing import Any

ANY = "interface {}"
ANY_LIST = "[]interface {}"
ANY_MAP = "map[string]interface {}"
STRING_LIST = "[]string"
STRING_MAP = "map[string]string"

_ELEMENT = "nodefeaturerule.MatchedElement"
_DOMAIN = "nodefeaturerule.domainMatchedFeatures"
_FEATURES = "nodefeaturerule.matchedFeatures"
_UNDERLYING = {_ELEMENT: STRING_MAP, _DOMAIN: f"map[string][]{_ELEMENT}", _FEATURES: f"map[string]{_DOMAIN}"}


class Int64(int):
    """A Go int64: what sprig's arithmetic returns; the same number as an int, but of another type."""

    __slots__ = ()


class Uint8(int):
    """A Go byte: an element of a string."""

    __slots__ = ()


class Uint64(int):
    """A Go uint64: a part of a semantic version."""

    __slots__ = ()


class GoList(list[Any]):
    """A Go slice; ``type`` is the slice's type, such as ``[]string``."""

    __slots__ = ("type",)

    def __init__(self, items: Iterable[Any] = (), type_name: str = ANY_LIST) -> None:
        super().__init__(items)
        self.type = type_name


class GoMap(dict[str, Any]):
    """A Go map with string keys; ``type`` is the map's type, such as ``map[string]string``."""

    __slots__ = ("type",)

    def __init__(self, items: Mapping[str, Any] | Iterable[tuple[str, Any]] = (), type_name: str = ANY_MAP) -> None:
        super().__init__(items)
        self.type = type_name


class Object:
    """A Go pointer to a struct: ``go_type``, its exported members by name, and its text."""

    __slots__ = ("go_type", "members", "text")

    def __init__(self, go_type: str, members: Mapping[str, Any], text: str) -> None:
        self.go_type = go_type
        self.members = members
        self.text = text


_KINDS: dict[type, str] = {
    type(None): "invalid", bool: "bool", str: "string", int: "int", Int64: "int64", Uint8: "uint8", Uint64: "uint64",
    float: "float64", GoList: "slice", GoMap: "map",
}  # fmt: skip


def type_of(value: Any) -> str:
    """Name the Go type of ``value``, as ``%T`` writes it."""
    match value:
        case None:
            return "<nil>"
        case str():
            return "string"
        case GoList() | GoMap():
            return value.type
        case Object():
            return value.go_type
        case _:
            return kind_of(value)


def kind_of(value: Any) -> str:
    """Name the Go kind of ``value``, as reflect does."""
    return _KINDS.get(type(value), "ptr")


def element_type(container: str) -> str:
    """Name the type of the elements of a slice or map type."""
    name = _UNDERLYING.get(container, container)
    return name.removeprefix("[]") if name.startswith("[]") else name.removeprefix("map[string]")


def zero_value(type_name: str) -> Any:
    """Make the zero value of a Go type: what ``index`` finds under a key that is not there."""
    name = _UNDERLYING.get(type_name, type_name)
    if name.startswith("[]"):
        return GoList((), type_name)
    if name.startswith("map["):
        return GoMap((), type_name)
    return "" if name == "string" else None


def is_assignable(value: Any, type_name: str) -> bool:
    """Return whether Go lets ``value`` be an argument of type ``type_name``."""
    own = type_of(value)
    return type_name in (ANY, own, _UNDERLYING.get(own, own))


def is_true(value: Any) -> bool:
    """Return the truth of a value: not zero and not empty."""
    return isinstance(value, Object) or bool(value)


def from_data(data: Mapping[str, Any]) -> GoMap:
    """Copy the data of a rule, domain -> feature -> elements, into values with upstream's types.

    Data of any other shape becomes ``map[string]interface {}``, as JSON would.
    """
    if not _is_matched_features(data):
        return GoMap({str(name): _from_any(value) for name, value in data.items()})
    domains = {
        domain: GoMap({name: _elements(elements) for name, elements in features.items()}, _DOMAIN)
        for domain, features in data.items()
    }
    return GoMap(domains, _FEATURES)


def _elements(elements: Sequence[Mapping[str, str]]) -> GoList:
    return GoList((GoMap(element, _ELEMENT) for element in elements), f"[]{_ELEMENT}")


def _is_matched_features(data: Mapping[str, Any]) -> bool:
    return all(
        isinstance(features, Mapping) and all(_is_elements(elements) for elements in features.values())
        for features in data.values()
    )


def _is_elements(elements: Any) -> bool:
    return isinstance(elements, list | tuple) and all(
        isinstance(element, Mapping) and all(isinstance(value, str) for value in element.values())
        for element in elements
    )


def _from_any(value: Any) -> Any:
    match value:
        case Mapping():
            return GoMap({str(name): _from_any(item) for name, item in value.items()})
        case list() | tuple():
            return GoList(_from_any(item) for item in value)
        case None | str() | bool() | int() | float():
            return value
        case _:
            return str(value)


def to_bytes(text: str) -> bytes:
    """Encode a string as Go holds it; lone surrogates that stand for no byte become U+FFFD."""
    if text.isascii():
        return text.encode("ascii")
    try:
        return text.encode("utf-8", "surrogateescape")
    except UnicodeEncodeError:
        return "".join("\ufffd" if _is_no_byte(character) else character for character in text).encode(
            "utf-8", "surrogateescape"
        )


def _is_no_byte(character: str) -> bool:
    return "\ud800" <= character < "\udc80" or "\udcff" < character <= "\udfff"


def from_bytes(raw: bytes) -> str:
    """Decode bytes into a string; bytes that are not UTF-8 become surrogate escapes."""
    return raw.decode("utf-8", "surrogateescape")


def byte_length(text: str) -> int:
    """Count the bytes of a string, which is its length in Go."""
    return len(text) if text.isascii() else len(to_bytes(text))


def in_byte_order(text: str) -> bytes:
    """Key that sorts strings as Go does: by their bytes."""
    return to_bytes(text)
