r"""Expressions for text that a build printed: matched in linear time, whatever the text.

Python's own ``re`` backtracks, and blocks all threads meanwhile: one line of 8,000 characters took a second. RE2 does
not. It has no lookahead and no backreferences, and its ``\s``, ``\w`` and ``\d`` are ASCII.
"""

from typing import Protocol

import re2


class Match(Protocol):
    """What an expression found."""

    def __getitem__(self, group: str, /) -> str:
        """The text of a named group."""


class Pattern(Protocol):
    """A compiled expression."""

    def search(self, text: str, /) -> Match | None:
        """The first place in ``text`` that it matches."""

    def match(self, text: str, /) -> Match | None:
        """What it matches at the beginning of ``text``."""

    def sub(self, replacement: str, text: str, /) -> str:
        """``text`` with all matches replaced."""


def compiled(regexp: str) -> Pattern:
    """Compile an expression of ours."""
    pattern: Pattern = re2.compile(regexp)
    return pattern
