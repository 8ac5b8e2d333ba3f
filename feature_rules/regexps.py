"""Regular expressions of conditions, with RE2: the syntax of upstream's Go, and time linear in the text.

Python's ``re`` has another syntax, and one pattern with nested repetition would hang the worker on every node. But RE2
costs the resident process 4 MiB. So it is imported with the first pattern that is neither plain text nor simple:
simple ones are few kinds of characters, each repeated or not, which mean the same to both engines. They are matched by
``re``, as long as that takes a bounded number of steps.
"""

import re
from functools import cache, lru_cache
from typing import Any, NamedTuple

from feature_rules.errors import MatchError

_METACHARACTERS = frozenset("\\.+*?()|[]{}^$")
_MEMORY_PER_PATTERN = 1 << 20
_SHOWN = 60

_RANGES = "0-9]-[0-9", "a-z]-[a-z", "A-Z]-[A-Z"
_CHARACTER = (
    r"[A-Za-z0-9 !\"#%&',/:;<=>@_`~-]|\.|\\[.+*?()|{}^$\[\]\\/-]"
    r"|\[\^?(?:" + "|".join(f"[{pair}]" for pair in _RANGES) + r"|[A-Za-z0-9_ .,:/])+\]"
)
_SIMPLE = re.compile(rf"(?P<start>\^?)(?P<middle>(?:(?:{_CHARACTER})[*+?]?)*)(?P<end>\$?)")
_REPETITION = re.compile(rf"(?:{_CHARACTER})(?P<sign>[*+?]?)")
_LONGEST_SIMPLE = 200
_MOST_STEPS = 100_000
"""Of backtracking, in one comparison: a few milliseconds."""


def is_found(pattern: str, text: str) -> bool:
    """Return whether ``pattern`` matches anywhere in ``text``.

    Raises:
        MatchError: as :func:`check_pattern`.
    """
    literal = _literal(pattern)
    if not _METACHARACTERS.isdisjoint(literal):
        simple = _simple(pattern)
        if simple is not None and simple.steps(len(text)) <= _MOST_STEPS:
            return simple.compiled.search(text.encode(errors="replace").decode()) is not None
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
    if not _METACHARACTERS.isdisjoint(_literal(pattern)) and _simple(pattern) is None:
        _compiled(pattern)


def _literal(pattern: str) -> str:
    """Give the text between the anchors, which most patterns of rules are: it needs no engine."""
    return pattern.removeprefix("^").removesuffix("$")


class _Simple(NamedTuple):
    """A pattern that means the same to ``re``; ``factor`` and ``power`` of a text's length bound its backtracking."""

    compiled: re.Pattern[str]
    power: int
    factor: int

    def steps(self, length: int) -> int:
        """Return the most steps that a text of this length takes."""
        steps: int = self.factor * (length + 1) ** self.power
        return steps


@lru_cache(maxsize=128)
def _simple(pattern: str) -> _Simple | None:
    """Read a simple pattern: characters and classes, each followed by at most one sign of repetition, and anchors."""
    found = _SIMPLE.fullmatch(pattern) if len(pattern) <= _LONGEST_SIMPLE else None
    if found is None:
        return None
    signs = [item["sign"] for item in _REPETITION.finditer(found["middle"])]
    # At its end, a $ of Python also matches before a last line end.
    end = r"\Z" if found["end"] else ""
    try:
        compiled = re.compile(found["start"] + found["middle"] + end)
    except re.error:
        # A range from a later to an earlier character: RE2 has the words.
        return None
    starts = 0 if found["start"] else 1
    power = starts + signs.count("*") + signs.count("+")
    return _Simple(compiled=compiled, power=power, factor=len(pattern) * 2 ** signs.count("?"))


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
        import re2  # noqa: PLC0415 - 4 MiB that most nodes never need
    except ImportError as error:
        raise MatchError("regular expressions need the Python package google-re2, which is not installed") from error
    options = re2.Options()
    options.log_errors = False
    options.max_mem = _MEMORY_PER_PATTERN
    return re2, options


def _reason(error: Exception) -> str:
    reason = error.args[0] if error.args else error
    return reason.decode(errors="replace") if isinstance(reason, bytes) else str(reason)
