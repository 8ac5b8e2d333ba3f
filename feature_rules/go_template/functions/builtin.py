"""Go's own template functions, and sprig's on any value: its type, whether it is empty, what stands in for it.

``and`` and ``or`` are the evaluator's, because they may leave arguments unevaluated.
"""

from typing import Any

from feature_rules.errors import FunctionError
from feature_rules.go_template.data.comparison import equals_any, is_less
from feature_rules.go_template.data.formatting import sprint, sprintf, sprintln
from feature_rules.go_template.data.values import (
    Object,
    Uint8,
    byte_length,
    element_type,
    is_true,
    kind_of,
    to_bytes,
    type_of,
    zero_value,
)  # fmt: skip
from feature_rules.go_template.functions.registry import Registry

REGISTRY = Registry()


@REGISTRY.function("index(any, ...any)")
def index(item: Any, *keys: Any) -> Any:
    """Find ``item[key][key]...``; a key that a map does not have gives the zero value of its elements."""
    if item is None:
        raise FunctionError("index of untyped nil")
    for key in keys:
        item = _index(item, key)
    return item


def _index(item: Any, key: Any) -> Any:
    match item:
        case dict():
            if not isinstance(key, str):
                raise FunctionError(f"the key of a map is a string; got {_described(key)}")
            return item[key] if key in item else zero_value(element_type(type_of(item)))
        case list():
            return item[_position(key, len(item))]
        case str():
            return Uint8(to_bytes(item)[_position(key, byte_length(item))])
        case None:
            raise FunctionError("index of nil")
        case _:
            raise FunctionError(f"can't index item of type {type_of(item)}")


def _position(key: Any, length: int) -> int:
    if isinstance(key, bool) or not isinstance(key, int):
        raise FunctionError(f"the index of a list is an integer; got {_described(key)}")
    if not 0 <= key < length:
        raise FunctionError(f"index out of range: {key} of {length} elements")
    return int(key)


def _described(value: Any) -> str:
    return "nil" if value is None else type_of(value)


@REGISTRY.function("len(any)")
def length(item: Any) -> int:
    """Count the elements of a list or map, or the bytes of a string."""
    if isinstance(item, str):
        return byte_length(item)
    if isinstance(item, list | dict):
        return len(item)
    raise FunctionError(f"len of type {_described(item)}")


@REGISTRY.function("ne(any, any)")
def _is_different(first: Any, second: Any) -> bool:
    return not equals_any(first, (second,))


@REGISTRY.function("le(any, any)")
def _is_less_or_equal(first: Any, second: Any) -> bool:
    return is_less(first, second) or equals_any(first, (second,))


@REGISTRY.function("gt(any, any)")
def _is_greater(first: Any, second: Any) -> bool:
    return not _is_less_or_equal(first, second)


@REGISTRY.function("eq(any, ...any)")
def _is_equal(first: Any, *others: Any) -> bool:
    return equals_any(first, others)


def _pass(first: Any, *_others: Any) -> Any:
    return first


def is_empty(value: Any) -> bool:
    """Return whether a value is nil, zero, false, or has no elements."""
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


REGISTRY.add("and or(any, ...any)", _pass)
REGISTRY.add("not(any)", lambda value: not is_true(value))
REGISTRY.add("lt(any, any)", is_less)
REGISTRY.add("ge(any, any)", lambda first, second: not is_less(first, second))
REGISTRY.add("print(...any)", sprint, is_deep=True, metered=True)
REGISTRY.add("println(...any)", sprintln, is_deep=True, metered=True)
REGISTRY.add("printf(string, ...any)", sprintf, is_deep=True, metered=True)
REGISTRY.add("kindOf(any)", kind_of)
REGISTRY.add("kindIs(string, any)", lambda name, value: name == kind_of(value))
REGISTRY.add("typeOf(any)", type_of)
REGISTRY.add("typeIs(string, any)", lambda name, value: name == type_of(value))
REGISTRY.add("typeIsLike(string, any)", lambda name, value: type_of(value) in (name, f"*{name}"))
REGISTRY.add("empty(any)", is_empty)
REGISTRY.add("all(...any)", lambda *values: not any(map(is_empty, values)))
REGISTRY.add("any(...any)", lambda *values: not all(map(is_empty, values)))
