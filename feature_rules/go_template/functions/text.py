"""Sprig's functions on strings: trimming, cutting, searching, joining, splitting and wrapping.

Lengths and positions count bytes, as in Go; a cut through a character leaves bytes that are not UTF-8.
"""

from typing import Any

from feature_rules.errors import FunctionError
from feature_rules.go_template.data.formatting import plain
from feature_rules.go_template.data.limits import Meter
from feature_rules.go_template.data.quoting import quoted
from feature_rules.go_template.data.values import (
    STRING_LIST,
    STRING_MAP,
    GoList,
    GoMap,
    from_bytes,
    in_byte_order,
    to_bytes,
)  # fmt: skip
from feature_rules.go_template.functions.registry import Registry

REGISTRY = Registry()

SPACES = "\t\n\v\f\r \x85\xa0\u1680" + "".join(map(chr, range(0x2000, 0x200B))) + "\u2028\u2029\u202f\u205f\u3000"
"""What Go's unicode.IsSpace calls space; ``str.strip()`` takes more."""

_NO_SPACES = dict.fromkeys(map(ord, SPACES))


def text_of(meter: Meter, value: Any) -> str:
    """Write any value as sprig's ``toString``."""
    return value if isinstance(value, str) else plain(meter, value)


def texts_of(meter: Meter, value: Any) -> list[str]:
    """Write the elements of a list that are not nil, or one value, as strings."""
    if value is None:
        return []
    items = value if isinstance(value, list) else [value]
    return [text_of(meter, item) for item in items if item is not None]


@REGISTRY.function("trunc(int, string)")
def _truncate(length: int, text: str) -> str:
    raw = to_bytes(text)
    if length < 0:
        return from_bytes(raw[length:]) if len(raw) + length > 0 else text
    return from_bytes(raw[:length])


@REGISTRY.function("substr(int, int, string)")
def _substring(start: int, end: int, text: str) -> str:
    raw = to_bytes(text)
    if start < 0:
        start = 0
    elif end < 0 or end > len(raw):
        end = len(raw)
    if not 0 <= start <= end <= len(raw):
        raise FunctionError(f"slice bounds out of range: {start} to {end} of {len(raw)} bytes")
    return from_bytes(raw[start:end])


@REGISTRY.function("repeat(int, string)", metered=True)
def _repeat(meter: Meter, count: int, text: str) -> str:
    if count < 0:
        raise FunctionError(f"negative repeat count {count}")
    meter.allocate(count * len(text))
    return text * count


@REGISTRY.function("replace(string, string, string)", metered=True)
def _replace(meter: Meter, old: str, new: str, text: str) -> str:
    count = text.count(old) if old else len(text) + 1
    meter.allocate(len(text) + count * len(new))
    return text.replace(old, new)


@REGISTRY.function("indent(int, string)", metered=True)
def _indent(meter: Meter, spaces: int, text: str) -> str:
    pad: str = _repeat(meter, spaces, " ")
    meter.allocate(len(text) + len(pad) * (text.count("\n") + 1))
    return pad + text.replace("\n", f"\n{pad}")


@REGISTRY.function("nindent(int, string)", metered=True)
def _newline_and_indent(meter: Meter, spaces: int, text: str) -> str:
    return f"\n{_indent(meter, spaces, text)}"


@REGISTRY.function("quote(...any)", metered=True, is_deep=True)
def _quote(meter: Meter, *values: Any) -> str:
    texts = [text_of(meter, value) for value in values if value is not None]
    meter.spend(sum(map(len, texts)) // 8)
    return " ".join(map(quoted, texts))


@REGISTRY.function("squote(...any)", metered=True, is_deep=True)
def _single_quote(meter: Meter, *values: Any) -> str:
    return " ".join(f"'{text_of(meter, value)}'" for value in values if value is not None)


@REGISTRY.function("cat(...any)", metered=True, is_deep=True)
def _concatenate(meter: Meter, *values: Any) -> str:
    return " ".join(text_of(meter, value) for value in values if value is not None)


@REGISTRY.function("join(string, any)", metered=True, is_deep=True)
def _join(meter: Meter, separator: str, value: Any) -> str:
    parts = texts_of(meter, value)
    meter.allocate(sum(map(len, parts)) + len(separator) * len(parts))
    return separator.join(parts)


@REGISTRY.function("sortAlpha(any)", metered=True, is_deep=True)
def _sort(meter: Meter, value: Any) -> GoList:
    if not isinstance(value, list):
        return GoList([plain(meter, value)], STRING_LIST)
    return GoList(sorted(texts_of(meter, value), key=in_byte_order), STRING_LIST)


@REGISTRY.function("splitList(string, string)", metered=True)
def _split_to_list(meter: Meter, separator: str, text: str) -> GoList:
    return GoList(_parts(meter, separator, text, -1), STRING_LIST)


@REGISTRY.function("split(string, string)", metered=True)
def _split(meter: Meter, separator: str, text: str) -> GoMap:
    return _numbered(_parts(meter, separator, text, -1))


@REGISTRY.function("splitn(string, int, string)", metered=True)
def _split_at_most(meter: Meter, separator: str, count: int, text: str) -> GoMap:
    return _numbered(_parts(meter, separator, text, count))


def _parts(meter: Meter, separator: str, text: str, count: int) -> list[str]:
    if count == 0:
        return []
    meter.spend(text.count(separator) + 1)
    if separator:
        return text.split(separator, count - 1 if count > 0 else -1)
    if count < 0 or count >= len(text):
        return list(text)
    return [*text[: count - 1], text[count - 1 :]]


def _numbered(parts: list[str]) -> GoMap:
    return GoMap({f"_{place}": part for place, part in enumerate(parts)}, STRING_MAP)


@REGISTRY.function("abbrev(int, string)")
def _abbreviate(width: int, text: str) -> str:
    return _abbreviated(0, width, text) if width >= 4 else text


@REGISTRY.function("abbrevboth(int, int, string)")
def _abbreviate_both(left: int, right: int, text: str) -> str:
    return text if right < 4 or (left > 0 and right < 7) else _abbreviated(left, right, text)


def _abbreviated(offset: int, width: int, text: str) -> str:
    """Shorten to ``width`` bytes around ``offset``, with dots where something is missing."""
    raw = to_bytes(text)
    if len(raw) <= width:
        return text
    room = width - 3
    offset = min(offset, len(raw))
    if len(raw) - offset < room:
        offset = len(raw) - room
    if offset <= 4:
        return from_bytes(raw[:room]) + "..."
    if offset + room < len(raw):
        return "..." + (_abbreviated(0, room, from_bytes(raw[offset:])) if room >= 4 else "")
    return "..." + from_bytes(raw[len(raw) - room :])


def _trim(characters: str, text: str) -> str:
    return text.strip(characters) if characters else text


def _plural(one: str, many: str, count: int) -> str:
    return one if count == 1 else many


@REGISTRY.function("wrap(int, string)", metered=True)
def _wrap(meter: Meter, width: int, text: str) -> str:
    """Break at spaces; a longer word keeps its line to itself."""
    return _wrapped(meter, width, "\n", text, breaks_words=False)


@REGISTRY.function("wrapWith(int, string, string)", metered=True)
def _wrap_with(meter: Meter, width: int, newline: str, text: str) -> str:
    """Break at spaces and inside longer words, with ``newline`` between lines."""
    return _wrapped(meter, width, newline or "\n", text, breaks_words=True)


def _wrapped(meter: Meter, width: int, newline: str, text: str, *, breaks_words: bool) -> str:
    meter.spend(len(text) // 8)
    raw = to_bytes(text)
    width = max(width, 1)
    lines: list[str] = []
    begin = 0
    while len(raw) - begin > width:
        if raw[begin : begin + 1] == b" ":
            begin += 1
            continue
        end, next_begin = _line_end(raw, begin, width, breaks_words)
        meter.allocate(len(newline) + 64)
        lines.append(from_bytes(raw[begin:end]))
        begin = next_begin
        if begin > len(raw):
            return newline.join(lines)
    return newline.join((*lines, from_bytes(raw[begin:])))


def _line_end(raw: bytes, begin: int, width: int, breaks_words: bool) -> tuple[int, int]:
    space = raw.rfind(b" ", begin, begin + width + 1)
    if space >= 0:
        return space, space + 1
    if breaks_words:
        return begin + width, begin + width
    space = raw.find(b" ", begin + width)
    return (space, space + 1) if space >= 0 else (len(raw), len(raw) + 1)


REGISTRY.add("trim(string)", lambda text: text.strip(SPACES))
REGISTRY.add("trimall trimAll(string, string)", _trim)
REGISTRY.add("trimSuffix(string, string)", lambda suffix, text: text.removesuffix(suffix))
REGISTRY.add("trimPrefix(string, string)", lambda prefix, text: text.removeprefix(prefix))
REGISTRY.add("nospace(string)", lambda text: text.translate(_NO_SPACES))
REGISTRY.add("contains(string, string)", lambda part, text: part in text)
REGISTRY.add("hasPrefix(string, string)", lambda prefix, text: text.startswith(prefix))
REGISTRY.add("hasSuffix(string, string)", lambda suffix, text: text.endswith(suffix))
REGISTRY.add("plural(string, string, int)", _plural)
REGISTRY.add("toString(any)", text_of, metered=True, is_deep=True)
REGISTRY.add(
    "toStrings(any)", lambda meter, value: GoList(texts_of(meter, value), STRING_LIST), metered=True, is_deep=True
)
REGISTRY.add("hello()", lambda: "Hello!")
