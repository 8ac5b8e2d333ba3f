"""Arguments against the types that a function wants: literals take them, values must have them.

As in Go, an ``int64`` is no ``int``: ``until (add 1 2)`` is refused here because upstream refuses it.
"""

from typing import Any

from feature_rules.errors import FunctionError
from feature_rules.go_template.data.numbers import MAX_INT
from feature_rules.go_template.data.values import ANY, is_assignable, type_of, zero_value
from feature_rules.go_template.nodes import Bool, Nil, Number, String

_CONVERTERS = {"int": "int", "int64": "int64", "float64": "float64", "string": "toString"}


def literal_argument(literal: Nil | Bool | String | Number, type_name: str) -> Any:
    """Give a literal the type that its place wants."""
    match literal:
        case Nil():
            return _nil(type_name)
        case Number():
            return _number(literal, type_name)
        case Bool() | String():
            own = "bool" if isinstance(literal, Bool) else "string"
            if type_name in (own, ANY):
                return literal.value
            raise FunctionError(f"expected {type_name}; found {source_of(literal)}")


def value_argument(value: Any, type_name: str) -> Any:
    """Let a value through that has the type its place wants."""
    if value is None:
        return _nil(type_name)
    if not is_assignable(value, type_name):
        raise FunctionError(f"wrong type for value; expected {type_name}; got {type_of(value)}{_hint(type_name)}")
    return value


def _nil(type_name: str) -> Any:
    if type_name == ANY or type_name.startswith(("map[", "[]")):
        return zero_value(type_name)
    raise FunctionError(f"nil where a {type_name} is expected")


def _number(literal: Number, type_name: str) -> Any:
    wants_float = type_name == "float64" or (type_name == ANY and literal.is_float)
    if wants_float and literal.floating is not None:
        return literal.floating
    if type_name not in ("int", ANY) or literal.integer is None:
        raise FunctionError(f"expected {type_name}; found {literal.source}")
    if literal.integer > MAX_INT:
        raise FunctionError(f"{literal.source} overflows int")
    return literal.integer


def source_of(literal: Nil | Bool | String | Number) -> str:
    """Write a literal as it stands in the template."""
    match literal:
        case Bool():
            return str(literal.value).lower()
        case Nil():
            return "nil"
        case _:
            return literal.source


def _hint(type_name: str) -> str:
    converter = _CONVERTERS.get(type_name)
    return f" ({converter} converts it)" if converter else ""
