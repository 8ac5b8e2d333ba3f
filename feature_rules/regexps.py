"""Regular expressions of conditions, with RE2: the syntax of upstream's Go, and time linear in the text.

Python's ``re`` has another syntax, and one pattern with nested repetition would hang the worker on every node. The
package costs the resident process 1.8 MiB, so it is imported with the first pattern that is not plain text, anchored
or not.
"""

from functools import cache, lru_cache
from typing import Any

from feature_rules.errors import MatchError

_METACHARACTERS = frozenset("\\.+*?()|[]{}^$")
_MEMORY_PER_PATTERN = 1 << 20
_SHOWN = 60


def is_found(pattern: str, text: str) -> bool:
    """Return whether ``pattern`` matches anywhere in ``text``.

    Raises:
        MatchError: as :func:`check_pattern`.
    """
    literal = _literal(pattern)
    if not _METACHARACTERS.isdisjoint(literal):
        return _compiled(pattern).search(text.encode(errors="replace")) is not None
    at_start, at_end = pattern.startswith("^"), pattern.endswith("$")
    if at_start and at_end:
        return text == literal
    return text.startswith(literal) if at_start else text.endswith(literal) if at_end else literal in text


def check_pattern(pattern: str) -> None:
    """Make sure that ``pattern`` is a regular expression.

    Raises:
        MatchError: when it is not, or needs more than 1 MiB; and when the package google-re2 is not installed.
    """
    if not _METACHARACTERS.isdisjoint(_literal(pattern)):
        _compiled(pattern)


def _literal(pattern: str) -> str:
    """Give the text between the anchors, which most patterns of rules are: it needs no engine."""
    return pattern.removeprefix("^").removesuffix("$")


@lru_cache(maxsize=128)
def _compiled(pattern: str) -> Any:
    re2, options = engine()
    try:
        return re2.compile(pattern.encode(), options=options)
    except UnicodeEncodeError as error:
        raise MatchError(f"{pattern[:_SHOWN]!r} is not a regular expression: it is not valid Unicode") from error
    except re2.error as error:
        raise MatchError(f"{pattern[:_SHOWN]!r} is not a regular expression: {_reason(error)}") from error


@cache
def engine() -> tuple[Any, Any]:
    """Import RE2; gives its module, and options that bound a pattern's memory and log nothing.

    Raises:
        MatchError: when the package google-re2 is not installed.
    """
    try:
        import re2  # noqa: PLC0415 - 1.8 MiB that most nodes never need
    except ImportError as error:
        raise MatchError("regular expressions need the Python package google-re2, which is not installed") from error
    options = re2.Options()
    options.log_errors = False
    options.max_mem = _MEMORY_PER_PATTERN
    return re2, options


def _reason(error: Exception) -> str:
    reason = error.args[0] if error.args else error
    return reason.decode(errors="replace") if isinstance(reason, bytes) else str(reason)
