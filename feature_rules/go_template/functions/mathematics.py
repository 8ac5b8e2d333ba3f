"""Sprig's arithmetic: 64-bit integers that wrap around, and rounding."""

import math
from collections.abc import Callable
from functools import reduce
from typing import Any

from feature_rules.errors import FunctionError
from feature_rules.go_template.data.numbers import cast_float64, cast_int64, wrap_int64
from feature_rules.go_template.data.values import Int64
from feature_rules.go_template.functions.registry import Registry

REGISTRY = Registry()


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
