"""Numbers as Go reads and converts them: strconv.ParseInt and ParseFloat, 64-bit arithmetic, sprig's casts."""

import math
import re
from typing import Any

from feature_rules.go_template.data.values import Uint64

MIN_INT = -(1 << 63)
MAX_INT = (1 << 63) - 1
MAX_UINT = (1 << 64) - 1
_WORD = 1 << 64

_INTEGER = re.compile(
    r"(?P<sign>[+-]?)(?:0[xX](?P<hex>(?:_?[0-9a-fA-F])+)|0[bB](?P<binary>(?:_?[01])+)|0[oO](?P<octal>(?:_?[0-7])+)"
    r"|0(?P<old_octal>(?:_?[0-7])+)|(?P<decimal>0|[1-9](?:_?[0-9])*))"
)
_BASES = {"hex": 16, "binary": 2, "octal": 8, "old_octal": 8, "decimal": 10}
_DIGITS = r"[0-9](?:_?[0-9])*"
_DECIMAL_FLOAT = re.compile(rf"[+-]?(?:(?:{_DIGITS})(?:\.(?:{_DIGITS})?)?|\.(?:{_DIGITS}))(?:[eE][+-]?(?:{_DIGITS}))?")
_HEX_FLOAT = re.compile(
    r"[+-]?0[xX]_?(?=[0-9a-fA-F]|\.[0-9a-fA-F])(?:[0-9a-fA-F](?:_?[0-9a-fA-F])*)?(?:\.(?:[0-9a-fA-F](?:_?[0-9a-fA-F])*)?)?"
    r"[pP][+-]?[0-9](?:_?[0-9])*"
)
_SPECIAL_FLOAT = re.compile(r"[+-]?(?:inf|infinity)|nan", re.IGNORECASE)
_LONGEST_NUMBER = 400


def parse_integer(text: str) -> int | None:
    """Read an integer literal of any base and size; None when the text is not one."""
    if len(text) > _LONGEST_NUMBER:
        return None
    found = _INTEGER.fullmatch(text)
    if found is None:
        return None
    name = next(name for name in _BASES if found[name] is not None)
    value = int(found[name].replace("_", ""), _BASES[name])
    return -value if found["sign"] == "-" else value


def parse_int64(text: str) -> int | None:
    """Read a signed 64-bit integer with an optional base prefix; None when the text is not one or does not fit."""
    value = parse_integer(text)
    return value if value is not None and MIN_INT <= value <= MAX_INT else None


def parse_decimal_int(text: str, base: int = 10) -> int | None:
    """Read a signed 64-bit integer of one base, as Atoi does: no prefix, no underscore, no space."""
    digits = text[1:] if text[:1] in ("+", "-") else text
    allowed = "0123456789"[:base]
    if not digits or len(digits) > _LONGEST_NUMBER or digits.strip(allowed):
        return None
    value = int(text, base)
    return value if MIN_INT <= value <= MAX_INT else None


def parse_float(text: str) -> float | None:
    """Read a float; None when the text is not one or too large."""
    if _SPECIAL_FLOAT.fullmatch(text):
        return float(text)
    plain = text.replace("_", "")
    if _DECIMAL_FLOAT.fullmatch(text):
        value = float(plain)
        return None if math.isinf(value) else value
    if _HEX_FLOAT.fullmatch(text):
        try:
            return float.fromhex(plain)
        except OverflowError:
            return None
    return None


def wrap_int64(value: int) -> int:
    """Keep the lowest 64 bits, as Go's arithmetic does when it overflows."""
    if MIN_INT <= value <= MAX_INT:
        return value
    value %= _WORD
    return value - _WORD if value > MAX_INT else value


def float_to_int64(value: float) -> int:
    """Drop the fraction; what does not fit becomes the smallest integer, as on amd64."""
    if math.isnan(value) or not MIN_INT <= value < MAX_INT:
        return MIN_INT
    return int(value)


def cast_int64(value: Any) -> int:
    """Make an integer of anything, as sprig's ``int64`` does: 0 of what is not one."""
    match value:
        case float():
            return float_to_int64(value)
        case bool():
            return int(value)
        case Uint64():
            return wrap_int64(int(value))
        case int():
            return int(value)
        case str():
            return parse_int64(_without_zero_fraction(value)) or 0
        case _:
            return 0


def cast_float64(value: Any) -> float:
    """Make a float of anything, as sprig's ``float64`` does: 0 of what is not one."""
    match value:
        case float():
            return value
        case bool() | int():
            return float(value)
        case str():
            return parse_float(value) or 0.0
        case _:
            return 0.0


def _without_zero_fraction(text: str) -> str:
    stripped = text.rstrip("0")
    return stripped[:-1] if stripped.endswith(".") and stripped != text else text
