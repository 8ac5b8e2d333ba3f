"""Equality and order of values as Go's templates (``eq``, ``lt``) and reflection (``deepEqual``) see them."""

from collections.abc import Sequence
from typing import Any

from feature_rules.errors import FunctionError
from feature_rules.go_template.data.values import in_byte_order, kind_of, type_of

_FAMILIES = {
    "bool": "bool", "string": "string", "float64": "float",
    "int": "integer", "int64": "integer", "uint8": "integer", "uint64": "integer",
}  # fmt: skip


def equals_any(value: Any, others: Sequence[Any]) -> bool:
    """Return whether ``value`` equals one of ``others``; the comparison stops at the first that does.

    Raises:
        FunctionError: when two of them cannot be compared.
    """
    if not others:
        raise FunctionError("missing argument for comparison")
    return any(_equals(value, other) for other in others)


def is_less(first: Any, second: Any) -> bool:
    """Return whether ``first`` comes before ``second``: numbers of one kind, or strings by their bytes.

    Raises:
        FunctionError: when they have no order.
    """
    families = (_FAMILIES.get(kind_of(first)), _FAMILIES.get(kind_of(second)))
    if None in families:
        raise FunctionError(f"invalid type for comparison: {type_of(first)} and {type_of(second)}")
    if families[0] != families[1]:
        raise FunctionError(f"incompatible types for comparison: {type_of(first)} and {type_of(second)}")
    match families[0]:
        case "string":
            return in_byte_order(first) < in_byte_order(second)
        case "bool":
            raise FunctionError("invalid type for comparison: bool")
        case _:
            return bool(first < second)


def deep_equal(first: Any, second: Any) -> bool:
    """Return whether two values have the same type and the same contents, as reflect.DeepEqual does."""
    if type_of(first) != type_of(second):
        return False
    match first:
        case list():
            return len(first) == len(second) and all(map(deep_equal, first, second))
        case dict():
            return first.keys() == second.keys() and all(deep_equal(first[key], second[key]) for key in first)
        case None | str() | bool() | int() | float():
            return bool(first == second)
        case _:
            return bool(first.members == second.members and first.text == second.text)


def _equals(first: Any, second: Any) -> bool:
    families = (_FAMILIES.get(kind_of(first)), _FAMILIES.get(kind_of(second)))
    if families[0] != families[1]:
        if first is None or second is None:
            return False
        raise FunctionError(f"incompatible types for comparison: {type_of(first)} and {type_of(second)}")
    if families[0] is not None:
        return bool(first == second)
    if first is None or second is None:
        return first is second
    if kind_of(first) != kind_of(second) or kind_of(first) in ("slice", "map"):
        raise FunctionError(f"{type_of(first)} and {type_of(second)} cannot be compared; try deepEqual")
    return first is second
