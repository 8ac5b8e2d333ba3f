"""Sprig's functions on numbers: conversion (what is not a number is 0), 64-bit integers that wrap around, rounding.

``addf`` and its like calculate with decimal fractions, exact where binary floats are not.
"""

import math
from collections.abc import Callable
from functools import reduce
from typing import Any

from feature_rules.errors import FunctionError
from feature_rules.go_template.data.formatting import plain
from feature_rules.go_template.data.limits import Meter
from feature_rules.go_template.data.numbers import (
    MAX_INT,
    MIN_INT,
    cast_float64,
    cast_int64,
    parse_decimal_int,
    wrap_int64,
)  # fmt: skip
from feature_rules.go_template.data.values import Int64
from feature_rules.go_template.functions.registry import Registry

REGISTRY = Registry()

_DIVISION_PLACES = 16
"""Decimals of a quotient, as in github.com/shopspring/decimal."""


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


def _folded(operation: Callable[[int, int], int]) -> Callable[..., Int64]:
    def fold(*values: Any) -> Int64:
        return Int64(reduce(lambda total, value: wrap_int64(operation(total, value)), map(cast_int64, values)))

    return fold


def _add(*values: Any) -> Int64:
    return Int64(wrap_int64(sum(map(cast_int64, values))))


@REGISTRY.function("div(any, any)")
def _divide(dividend: Any, divisor: Any) -> Int64:
    """Divide; the quotient loses its fraction."""
    first, second = cast_int64(dividend), _divisor(divisor)
    quotient = abs(first) // abs(second)
    return Int64(wrap_int64(quotient if (first < 0) == (second < 0) else -quotient))


@REGISTRY.function("mod(any, any)")
def _remainder(dividend: Any, divisor: Any) -> Int64:
    """Give the rest of :func:`_divide`, with the sign of the dividend."""
    first, second = cast_int64(dividend), _divisor(divisor)
    rest = abs(first) % abs(second)
    return Int64(-rest if first < 0 else rest)


def _divisor(value: Any) -> int:
    number = cast_int64(value)
    if not number:
        raise FunctionError("integer divide by zero")
    return number


def _whole(towards: Callable[[float], int]) -> Callable[[Any], float]:
    def convert(value: Any) -> float:
        number = cast_float64(value)
        return math.copysign(towards(number), number) if math.isfinite(number) else number

    return convert


@REGISTRY.function("round(any, int, ...float64)")
def _round(value: Any, places: int, *round_on: float) -> float:
    """Round at ``places`` decimals, up from ``round_on`` (0.5); negative halves go away from zero."""
    number = cast_float64(value)
    try:
        power = 10.0**places
    except OverflowError:
        power = math.inf
    digit = power * number
    if not math.isfinite(digit) or power == 0.0:
        return math.nan if math.isnan(digit) or digit == 0 or math.isinf(power) else digit
    up = math.modf(digit)[0] >= (round_on[0] if round_on else 0.5)
    return math.copysign(math.ceil(digit) if up else math.floor(digit), digit) / power


REGISTRY.add("add(...any)", _add)
REGISTRY.add("add1(any)", lambda value: _add(value, 1))
REGISTRY.add("sub(any, any)", _folded(lambda first, second: first - second))
REGISTRY.add("mul(any, ...any)", _folded(lambda first, second: first * second))
REGISTRY.add("max biggest(any, ...any)", _folded(max))
REGISTRY.add("min(any, ...any)", _folded(min))
REGISTRY.add("floor(any)", _whole(math.floor))
REGISTRY.add("ceil(any)", _whole(math.ceil))


def _folded_decimals(operation: str) -> Callable[..., float]:
    def fold(*values: Any) -> float:
        import decimal  # noqa: PLC0415 - half a MiB that few templates need

        numbers = [cast_float64(value) for value in values]
        if not all(map(math.isfinite, numbers)):
            raise FunctionError("infinity and NaN are not decimal numbers")
        with decimal.localcontext(prec=1400, Emax=999_999, Emin=-999_999):
            total = decimal.Decimal(repr(numbers[0]))
            for number in numbers[1:]:
                total = _apply(operation, total, decimal.Decimal(repr(number)))
            return float(total) + 0.0

    return fold


def _apply(operation: str, total: Any, number: Any) -> Any:
    match operation:
        case "add":
            return total + number
        case "sub":
            return total - number
        case "mul":
            return total * number
        case _:
            if not number:
                raise FunctionError("decimal division by 0")
            return _divided(total, number)


def _divided(total: Any, number: Any) -> Any:
    import decimal  # noqa: PLC0415 - as above

    return (total / number).quantize(decimal.Decimal(1).scaleb(-_DIVISION_PLACES), decimal.ROUND_HALF_UP)


def _chosen(choose: Callable[[float, float], float]) -> Callable[..., float]:
    def fold(first: Any, *others: Any) -> float:
        chosen = cast_float64(first)
        for other in map(cast_float64, others):
            chosen = math.nan if math.isnan(chosen) or math.isnan(other) else choose(chosen, other)
        return chosen

    return fold


REGISTRY.add("add1f(any)", lambda value: _folded_decimals("add")(value, 1))
REGISTRY.add("addf(...any)", lambda *values: _folded_decimals("add")(0, *values))
REGISTRY.add("subf(any, ...any)", _folded_decimals("sub"))
REGISTRY.add("mulf(any, ...any)", _folded_decimals("mul"))
REGISTRY.add("divf(any, ...any)", _folded_decimals("div"))
REGISTRY.add("maxf(any, ...any)", _chosen(max))
REGISTRY.add("minf(any, ...any)", _chosen(min))
