"""Sprig's functions on regular expressions, with RE2, whose syntax is Go's. Positions are bytes, as in Go."""

import re
from collections.abc import Iterator
from typing import Any

from feature_rules.errors import FunctionError, MatchError
from feature_rules.go_template.data.limits import Meter
from feature_rules.go_template.data.values import STRING_LIST, GoList, from_bytes, to_bytes
from feature_rules.go_template.functions.registry import Registry
from feature_rules.regexps import engine

REGISTRY = Registry()

_COMPILING = 500
"""Units of work of compiling a pattern, and of each of its bytes: some compile to a thousand instructions."""

_REFERENCE = re.compile(rb"\$(?:(?P<dollar>\$)|(?P<name>\w+)|\{(?P<braced>\w+)\})", re.ASCII)
_SPECIAL = re.compile(r"[\\.+*?()|\[\]{}^$]")


class _BadPattern(FunctionError):
    """A pattern is not a regular expression."""


def _pattern(meter: Meter, pattern: str, text: str) -> Any:
    meter.spend(_COMPILING + len(pattern) + len(text) // 4)
    try:
        re2, options = engine()
    except MatchError as error:
        raise FunctionError(str(error)) from error
    try:
        return re2.compile(to_bytes(pattern), options=options)
    except re2.error as error:
        raise _BadPattern(f"{pattern[:60]!r} is not a regular expression: {error}") from error


def _matches(pattern: Any, raw: bytes, count: int) -> Iterator[Any]:
    """Find up to ``count`` matches, all when negative; an empty one right behind another is none, as in Go."""
    place, last_end = 0, -1
    while place <= len(raw) and count != 0:
        found = pattern.search(raw, place)
        if found is None:
            return
        start, end = found.span()
        if end > start or start != last_end:
            yield found
            count -= 1
            last_end = end
        place = end if end > start else _after_character(raw, end)


def _after_character(raw: bytes, place: int) -> int:
    place += 1
    while place < len(raw) and raw[place] & 0xC0 == 0x80:
        place += 1
    return place


@REGISTRY.function("mustRegexMatch(string, string)", metered=True)
def _must_match(meter: Meter, pattern: str, text: str) -> bool:
    return _pattern(meter, pattern, text).search(to_bytes(text)) is not None


@REGISTRY.function("regexMatch(string, string)", metered=True)
def _match(meter: Meter, pattern: str, text: str) -> bool:
    """Return whether the pattern is in the text; a wrong pattern is in none."""
    try:
        return bool(_must_match(meter, pattern, text))
    except _BadPattern:
        return False


@REGISTRY.function("regexFind mustRegexFind(string, string)", metered=True)
def _find(meter: Meter, pattern: str, text: str) -> str:
    found = _pattern(meter, pattern, text).search(to_bytes(text))
    return from_bytes(found.group()) if found else ""


@REGISTRY.function("regexFindAll mustRegexFindAll(string, string, int)", metered=True)
def _find_all(meter: Meter, pattern: str, text: str, count: int) -> GoList:
    found = GoList((), STRING_LIST)
    for match in _matches(_pattern(meter, pattern, text), to_bytes(text), count):
        meter.spend(1)
        found.append(from_bytes(match.group()))
    return found


@REGISTRY.function("regexReplaceAll mustRegexReplaceAll(string, string, string)", metered=True)
def _replace(meter: Meter, pattern: str, text: str, replacement: str) -> str:
    return _replaced(meter, pattern, text, replacement, is_literal=False)


@REGISTRY.function("regexReplaceAllLiteral mustRegexReplaceAllLiteral(string, string, string)", metered=True)
def _replace_literally(meter: Meter, pattern: str, text: str, replacement: str) -> str:
    return _replaced(meter, pattern, text, replacement, is_literal=True)


def _replaced(meter: Meter, pattern: str, text: str, replacement: str, *, is_literal: bool) -> str:
    raw, new = to_bytes(text), to_bytes(replacement)
    parts: list[bytes] = []
    place = 0
    for match in _matches(_pattern(meter, pattern, text), raw, -1):
        meter.spend(1)
        parts.append(raw[place : match.start()])
        parts.append(new if is_literal else _expanded(meter, new, match))
        meter.allocate(len(parts[-1]))
        place = match.end()
    parts.append(raw[place:])
    return from_bytes(b"".join(parts))


def _expanded(meter: Meter, replacement: bytes, match: Any) -> bytes:
    """Fill in ``$1`` and ``${name}``; a group that is not there is empty."""

    def group(reference: re.Match[bytes]) -> bytes:
        meter.spend(1)
        if reference["dollar"]:
            return b"$"
        value = _group(match, (reference["name"] or reference["braced"]).decode("ascii"))
        meter.allocate(len(value))
        return value

    return _REFERENCE.sub(group, replacement)


def _group(match: Any, name: str) -> bytes:
    if name.isdecimal():
        number = int(name) if len(name) < 6 else -1
        return (match.group(number) or b"") if 0 <= number <= match.re.groups else b""
    named = match.re.groupindex
    number = named.get(name) or named.get(name.encode())
    return b"" if number is None else match.group(number) or b""


@REGISTRY.function("regexSplit mustRegexSplit(string, string, int)", metered=True)
def _split(meter: Meter, pattern: str, text: str, count: int) -> GoList:
    raw = to_bytes(text)
    compiled = _pattern(meter, pattern, text)
    if count == 0:
        return GoList((), STRING_LIST)
    if not raw and pattern:
        return GoList([""], STRING_LIST)
    parts: list[bytes] = []
    begin = end = 0
    for match in _matches(compiled, raw, count):
        meter.spend(1)
        if len(parts) == count - 1:
            break
        end = match.start()
        if match.end():
            parts.append(raw[begin:end])
        begin = match.end()
    if end != len(raw):
        parts.append(raw[begin:])
    return GoList(map(from_bytes, parts), STRING_LIST)


REGISTRY.add("regexQuoteMeta(string)", lambda text: _SPECIAL.sub(r"\\\g<0>", text))
