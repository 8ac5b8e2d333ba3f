"""Sprig's functions on what is empty: ``default``, ``coalesce``, ``ternary`` and their like."""

from typing import Any

from feature_rules.errors import FunctionError
from feature_rules.go_template.data.values import Object
from feature_rules.go_template.functions.registry import Registry

REGISTRY = Registry()


def is_empty(value: Any) -> bool:
    """Tell whether a value is nil, zero, false, or has no elements."""
    return not isinstance(value, Object) and not value


@REGISTRY.function("default(any, ...any)")
def _default(fallback: Any, *given: Any) -> Any:
    return fallback if not given or is_empty(given[0]) else given[0]


@REGISTRY.function("coalesce(...any)")
def _coalesce(*values: Any) -> Any:
    return next((value for value in values if not is_empty(value)), None)


@REGISTRY.function("ternary(any, any, bool)")
def _ternary(if_true: Any, if_false: Any, condition: bool) -> Any:
    return if_true if condition else if_false


@REGISTRY.function("fail(string)")
def _fail(message: str) -> Any:
    raise FunctionError(message)


REGISTRY.add("empty(any)", is_empty)
REGISTRY.add("all(...any)", lambda *values: not any(map(is_empty, values)))
REGISTRY.add("any(...any)", lambda *values: not all(map(is_empty, values)))
