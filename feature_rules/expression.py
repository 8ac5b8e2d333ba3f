"""One condition on one element: every operator of NodeFeatureRule, and what is wrong with a condition by itself.

:mod:`feature_rules.match` asks for each element; :mod:`feature_rules.load` checks conditions before they run.
"""

import operator
from collections.abc import Callable, Mapping

from feature_rules.errors import MatchError
from feature_rules.model import MatchExpression
from feature_rules.regexps import check_pattern, is_found
from feature_rules.version import Ordered, parse_integer, parse_leading_version, parse_version

_MANY = 1 << 31

_COUNTS: Mapping[str, tuple[int, int]] = {
    **dict.fromkeys(("", "Exists", "DoesNotExist", "IsTrue", "IsFalse"), (0, 0)),
    **dict.fromkeys(("In", "NotIn", "InRegexp"), (1, _MANY)),
    **dict.fromkeys(("Gt", "Ge", "Lt", "Le"), (1, 1)),
    **dict.fromkeys(("GtLt", "GeLe"), (2, 2)),
}
"""Operator -> the least and the most values it takes."""

_COUNT_WORDS = {(0, 0): "no value", (1, _MANY): "at least one value", (1, 1): "exactly one value", (2, 2): "two values"}

_BOUNDS: Mapping[str, Callable[[str], Ordered]] = {"": parse_integer, "version": parse_version}
"""Type of a comparison -> what reads the values of the condition."""

_ELEMENTS: Mapping[str, Callable[[str], Ordered]] = {"": parse_integer, "version": parse_leading_version}
"""Type of a comparison -> what reads the value that the node has."""


def match_expression(expression: MatchExpression, *, present: bool, value: str | None) -> bool:
    """Return whether a condition holds for one element.

    ``present``: whether there is an element of this name. ``value``: its value; None for a flag, which has none.
    Only operators that ask for presence can hold without a value, and only they look at their arguments then.

    Raises:
        MatchError: when the operator does not exist, or its arguments or the value make no sense for it.
    """
    op = expression.op
    if op in _ON_PRESENCE:
        _check_count(expression)
        return _ON_PRESENCE[op](present)
    if op not in _ON_VALUE:
        raise MatchError(f"there is no operator {op!r}")
    if not present or value is None:
        return False
    _check_count(expression)
    return _ON_VALUE[op](expression, value)


def check_expression(expression: MatchExpression) -> None:
    """Make sure that a condition makes sense whatever it will meet.

    Raises:
        MatchError: when some value must make :func:`match_expression` fail.
    """
    if expression.op not in _COUNTS:
        raise MatchError(f"there is no operator {expression.op!r}")
    _check_count(expression)
    if expression.op == "InRegexp":
        _check_patterns(expression)
    elif expression.op in _COMPARISONS:
        _bounds(expression)


def _check_count(expression: MatchExpression) -> None:
    least, most = _COUNTS[expression.op]
    if not least <= len(expression.value) <= most:
        name = expression.op or "without a name"
        raise MatchError(f"operator {name} takes {_COUNT_WORDS[least, most]}, not {len(expression.value)}")


def _check_patterns(expression: MatchExpression) -> None:
    for pattern in expression.value:
        check_pattern(pattern)


def _in_regexp(expression: MatchExpression, value: str) -> bool:
    # All patterns first: a bad one is an error wherever it stands, and not only when those before it do not match.
    _check_patterns(expression)
    return any(is_found(pattern, value) for pattern in expression.value)


def _compare(expression: MatchExpression, value: str) -> bool:
    bounds = _bounds(expression)
    return _COMPARISONS[expression.op](_ELEMENTS[expression.type](value), *bounds)


def _bounds(expression: MatchExpression) -> list[Ordered]:
    """Read the values of a comparison. As upstream, only integer ranges must not be empty."""
    parse = _BOUNDS.get(expression.type)
    if parse is None:
        raise MatchError(f"there is no type {expression.type!r}; leave it out for integers, or use version")
    bounds = [parse(text) for text in expression.value]
    if len(bounds) == 2 and not expression.type and bounds[0] >= bounds[1]:
        raise MatchError(f"{expression.value[0]} must be less than {expression.value[1]}")
    return bounds


_ON_PRESENCE: Mapping[str, Callable[[bool], bool]] = {
    "": lambda _present: True,
    "Exists": bool,
    "DoesNotExist": operator.not_,
}

_COMPARISONS: Mapping[str, Callable[..., bool]] = {
    "Gt": operator.gt,
    "Ge": operator.ge,
    "Lt": operator.lt,
    "Le": operator.le,
    "GtLt": lambda number, low, high: low < number < high,
    "GeLe": lambda number, low, high: low <= number <= high,
}

_ON_VALUE: Mapping[str, Callable[[MatchExpression, str], bool]] = {
    "In": lambda expression, value: value in expression.value,
    "NotIn": lambda expression, value: value not in expression.value,
    "InRegexp": _in_regexp,
    "IsTrue": lambda _expression, value: value == "true",
    "IsFalse": lambda _expression, value: value == "false",
    **dict.fromkeys(_COMPARISONS, _compare),
}
