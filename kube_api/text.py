"""Makes foreign text fit to be logged, stored and shown: the one place where both programs do that.

A label, an annotation, a termination message, a response of a registry or of the API server can hold control sequences
of a terminal, lone surrogates that no encoder accepts, and megabytes. Standard library only: the worker imports this.
"""

import re
from collections.abc import Iterable
from itertools import accumulate

MAX_MESSAGE = 500
"""Characters of a message, and bytes of one in a status; a build log has the rest."""

MAX_TOKEN = 63
"""Characters of a value that is only compared, such as that of a rebuild annotation."""

_CUT = "..."
_ESCAPED = {'"': 2, "\\": 2, "<": 6, ">": 6, "&": 6}
"""Bytes in which the API server stores a character: Go's JSON escapes what has a meaning in HTML."""
_BREAK = re.compile(r"[\r\n\t\v\f\x85\u2028\u2029]+")
_UNPRINTABLE = re.compile(
    # Control sequences of terminals, other control characters, and marks that change the direction of the text.
    r"\x1b\[[0-9;?]*[ -/]*[@-~]|\x1b\][^\x07\x1b]*(?:\x07|\x1b\\)?"
    r"|[\x00-\x1f\x7f-\x9f\u200e\u200f\u202a-\u202e\u2066-\u2069\ufeff]"
)
_SURROGATE = re.compile(r"[\ud800-\udfff]")


def printable(text: str, limit: int = MAX_MESSAGE) -> str:
    """Make one line of any text: without control sequences, encodable, at most ``limit`` characters."""
    # A text of only control sequences would keep the expressions busy: more than this is never shown.
    text = _BREAK.sub(" ", text[: 8 * limit])
    text = _SURROGATE.sub("\ufffd", _UNPRINTABLE.sub("", text)).strip()
    return text if len(text) <= limit else text[: limit - len(_CUT)] + _CUT


def quoted(text: str, limit: int) -> str:
    """Show a foreign text inside a message: as it is, or with quotes and escapes where a blank or the like is in it.

    Such a character is often just what is wrong with a key or a value, and :func:`printable` would hide it.
    """
    shown = text if len(text) <= limit else text[: limit - len(_CUT)] + _CUT
    return shown if shown.isprintable() and " " not in shown else repr(shown)


def first_few(items: Iterable[object], most: int, *, separator: str = ", ") -> str:
    """Write the first few items and count the others: ``a, b and 3 more``; between semicolons ``a; b; and 3 more``."""
    every = [str(item) for item in items]
    conjunction = " and" if separator == ", " else f"{separator.rstrip()} and"
    more = f"{conjunction} {len(every) - most} more" if len(every) > most else ""
    return separator.join(every[:most]) + more


def bounded_message(text: str, limit: int = MAX_MESSAGE) -> str:
    """Make a message of a status of any text: printable, and at most ``limit`` bytes as etcd stores it."""
    text = printable(text, limit)
    if _stored_size(text) <= limit:
        return text
    ends = accumulate(_ESCAPED.get(character) or len(character.encode()) for character in text)
    return text[: sum(end <= limit - len(_CUT) for end in ends)] + _CUT


def _stored_size(text: str) -> int:
    return len(text.encode()) + sum((size - 1) * text.count(character) for character, size in _ESCAPED.items())


def bounded_token(value: str) -> str:
    """Return a value that is only compared with others: itself if it is short and printable, else a digest of it."""
    if len(value) <= MAX_TOKEN and printable(value, MAX_TOKEN) == value:
        return value
    import hashlib  # noqa: PLC0415 - the worker's resident process does not need it

    digest = hashlib.sha256(value.encode("utf-8", "backslashreplace")).hexdigest()
    return f"sha256:{digest[:32]}"
