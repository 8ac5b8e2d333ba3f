"""Sprig's arithmetic on decimal fractions: ``addf`` and its like, exact where binary floats are not."""

import math
from collections.abc import Callable
from typing import Any

from feature_rules.errors import FunctionError
from feature_rules.go_template.data.numbers import cast_float64
from feature_rules.go_template.functions.registry import Registry

REGISTRY = Registry()

_DIVISION_PLACES = 16
"""Decimals of a quotient, as in github.com/shopspring/decimal."""


def _folded(operation: str) -> Callable[..., float]:
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


REGISTRY.add("add1f(any)", lambda value: _folded("add")(value, 1))
REGISTRY.add("addf(...any)", lambda *values: _folded("add")(0, *values))
REGISTRY.add("subf(any, ...any)", _folded("sub"))
REGISTRY.add("mulf(any, ...any)", _folded("mul"))
REGISTRY.add("divf(any, ...any)", _folded("div"))
REGISTRY.add("maxf(any, ...any)", _chosen(max))
REGISTRY.add("minf(any, ...any)", _chosen(min))
