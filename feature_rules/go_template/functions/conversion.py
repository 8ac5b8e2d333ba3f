"""Sprig's conversions between strings and numbers; what cannot be converted is 0, as in sprig."""

from typing import Any

from feature_rules.go_template.data.formatting import plain
from feature_rules.go_template.data.limits import Meter
from feature_rules.go_template.data.numbers import MAX_INT, MIN_INT, cast_float64, cast_int64, parse_decimal_int
from feature_rules.go_template.data.values import Int64
from feature_rules.go_template.functions.registry import Registry

REGISTRY = Registry()


@REGISTRY.function("toDecimal(any)", metered=True, is_deep=True)
def _from_octal(meter: Meter, value: Any) -> Int64:
    return Int64(parse_decimal_int(plain(meter, value), 8) or 0)


def _to_int(text: str) -> int:
    """Read a decimal number; one that does not fit becomes the nearest that does, as strconv.Atoi has it."""
    digits = text[1:] if text[:1] in ("+", "-") else text
    if not digits.isdecimal() or not digits.isascii():
        return 0
    nearest = MIN_INT if text[0] == "-" else MAX_INT
    value = parse_decimal_int(text)
    return nearest if value is None else value


REGISTRY.add("atoi(string)", _to_int)
REGISTRY.add("int(any)", cast_int64)
REGISTRY.add("int64(any)", lambda value: Int64(cast_int64(value)))
REGISTRY.add("float64(any)", cast_float64)
