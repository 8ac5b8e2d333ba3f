"""Sprig's JSON: written as Go's encoding/json does, with sorted keys and ``<``, ``>``, ``&`` escaped; read strictly."""

import json
import math
import re
from typing import Any

from feature_rules.errors import FunctionError
from feature_rules.go_template.data.float_text import format_float
from feature_rules.go_template.data.limits import Meter
from feature_rules.go_template.data.values import GoList, GoMap, Object, in_byte_order, to_bytes
from feature_rules.go_template.functions.registry import Registry

REGISTRY = Registry()

_NAMED = {'"': '\\"', "\\": "\\\\", "\b": "\\b", "\f": "\\f", "\n": "\\n", "\r": "\\r", "\t": "\\t"}
_ALWAYS_ESCAPED = re.compile('["\\\\\x00-\x1f\u2028\u2029\ud800-\udfff]')
_ESCAPED_FOR_HTML = re.compile('["\\\\\x00-\x1f\u2028\u2029\ud800-\udfff<>&]')
_INDENT = "  "


def _string(text: str, escapes_html: bool) -> str:
    pattern = _ESCAPED_FOR_HTML if escapes_html else _ALWAYS_ESCAPED
    return f'"{pattern.sub(_escape, text)}"'


def _escape(found: re.Match[str]) -> str:
    character = found[0]
    if "\ud800" <= character <= "\udfff":
        return "\\ufffd"
    return _NAMED.get(character) or f"\\u{ord(character):04x}"


def _number(value: float) -> str:
    if not math.isfinite(value):
        raise FunctionError(f"unsupported value: {format_float(value, 'g')}")
    size = abs(value)
    if size != 0 and not 1e-6 <= size < 1e21:
        mantissa, _, exponent = format_float(value, "e").partition("e")
        return f"{mantissa}e{exponent[0]}{exponent[1:].lstrip('0')}" if size < 1 else f"{mantissa}e{exponent}"
    return format_float(value, "f")


class _Writer:
    """Collects JSON text; ``indent`` is empty for one line."""

    def __init__(self, meter: Meter, indent: str, *, escapes_html: bool) -> None:
        self._meter = meter
        self._indent = indent
        self._escapes_html = escapes_html
        self._parts: list[str] = []

    def text(self) -> str:
        return "".join(self._parts)

    def value(self, value: Any, depth: int = 0) -> None:
        match value:
            case list():
                self._container("[]", [("", item) for item in value], depth)
            case dict():
                colon = ": " if self._indent else ":"
                keys = sorted(value, key=in_byte_order)
                items = [(_string(key, self._escapes_html) + colon, value[key]) for key in keys]
                self._container("{}", items, depth)
            case _:
                self._write(self._scalar(value))

    def _scalar(self, value: Any) -> str:
        match value:
            case None:
                return "null"
            case bool():
                return str(value).lower()
            case str():
                self._meter.spend(len(value) // 16)
                return _string(value, self._escapes_html)
            case int():
                return str(int(value))
            case float():
                return _number(value)
            case Object():
                return _string(value.text, self._escapes_html)
            case _:
                raise FunctionError(f"unsupported type: {type(value).__name__}")

    def _container(self, brackets: str, items: list[tuple[str, Any]], depth: int) -> None:
        self._write(brackets[0])
        for place, (key, item) in enumerate(items):
            self._write("," if place else "")
            self._newline(depth + 1)
            self._write(key)
            self.value(item, depth + 1)
        if items:
            self._newline(depth)
        self._write(brackets[1])

    def _newline(self, depth: int) -> None:
        if self._indent:
            self._write("\n" + self._indent * depth)

    def _write(self, text: str) -> None:
        self._meter.allocate(len(text))
        self._parts.append(text)


def _written(meter: Meter, value: Any, indent: str = "", *, escapes_html: bool = True) -> str:
    writer = _Writer(meter, indent, escapes_html=escapes_html)
    writer.value(value)
    return writer.text()


def _json(meter: Meter, value: Any) -> str:
    return _written(meter, value)


def _pretty_json(meter: Meter, value: Any) -> str:
    return _written(meter, value, _INDENT)


def _raw_json(meter: Meter, value: Any) -> str:
    return _written(meter, value, escapes_html=False)


@REGISTRY.function("mustFromJson(string)", metered=True)
def _must_read(meter: Meter, text: str) -> Any:
    meter.allocate(len(text) * 32)
    try:
        return _typed(json.loads(_clean(text), parse_int=_float, parse_float=_float, parse_constant=_refused))
    except ValueError as error:
        raise FunctionError(f"invalid JSON: {error}") from error


@REGISTRY.function("fromJson(string)", metered=True)
def _read(meter: Meter, text: str) -> Any:
    meter.allocate(len(text) * 32)
    try:
        return _typed(json.loads(_clean(text), parse_int=_float, parse_float=_float, parse_constant=_refused))
    except ValueError:
        return None


def _clean(text: str) -> str:
    return to_bytes(text).decode("utf-8", "replace")


def _float(text: str) -> float:
    value = float(text)
    if math.isinf(value):
        raise ValueError(f"{text[:40]} is too large")
    return value


def _refused(text: str) -> Any:
    raise ValueError(f"{text} is not JSON")


def _typed(value: Any) -> Any:
    match value:
        case list():
            return GoList(map(_typed, value))
        case dict():
            return GoMap({_whole(key): _typed(item) for key, item in value.items()})
        case str():
            return _whole(value)
        case _:
            return value


def _whole(text: str) -> str:
    """Join escaped surrogate pairs; a half becomes U+FFFD."""
    return text if text.isascii() else text.encode("utf-16-le", "surrogatepass").decode("utf-16-le", "replace")


REGISTRY.add("mustToJson(any)", _json, metered=True, is_deep=True)
REGISTRY.add("mustToPrettyJson(any)", _pretty_json, metered=True, is_deep=True)
REGISTRY.add("mustToRawJson(any)", _raw_json, metered=True, is_deep=True)
REGISTRY.add("toJson(any)", _json, metered=True, is_deep=True)
REGISTRY.add("toPrettyJson(any)", _pretty_json, metered=True, is_deep=True)
REGISTRY.add("toRawJson(any)", _raw_json, metered=True, is_deep=True)
