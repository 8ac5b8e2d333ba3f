"""Numbers of conditions: integers as Go reads them and versions as Masterminds/semver reads them, as ordered tuples.

Only the bounds of a condition have to be versions to the letter: what a node reports has its distribution's suffixes.
:mod:`feature_rules.expression` compares them.
"""

import re
from functools import lru_cache

from feature_rules.errors import MatchError

Ordered = tuple[int, ...]
"""A number with one part, or a version with three: major, minor, patch."""

_INTEGER = re.compile(r"[+-]?[0-9]{1,100}")
_VERSION = re.compile(
    r"v?([0-9]{1,100})(?:\.([0-9]{1,100}))?(?:\.([0-9]{1,100}))?"
    r"(?:-(?P<pre>[0-9A-Za-z-]+(?:\.[0-9A-Za-z-]+)*))?(?:\+[0-9A-Za-z-]+(?:\.[0-9A-Za-z-]+)*)?"
)
_LEADING = re.compile(r"[vV]?([0-9]{1,100})(?:\.([0-9]{1,100}))?(?:\.([0-9]{1,100}))?(?![0-9])")
_ZERO_LED = re.compile(r"0[0-9]+")
_SHOWN = 60


@lru_cache(maxsize=256)
def parse_integer(text: str) -> Ordered:
    """Read a decimal integer of 64 bits with an optional sign, as Go's strconv.Atoi does.

    Raises:
        MatchError: for anything else, such as ``2.0`` or `` 2``.
    """
    if _INTEGER.fullmatch(text) and -(1 << 63) <= (number := int(text)) < 1 << 63:
        return (number,)
    raise MatchError(f"{text[:_SHOWN]!r} is not an integer of 64 bits")


@lru_cache(maxsize=256)
def parse_version(text: str) -> Ordered:
    """Read a version: ``v?N[.N[.N]][-pre-release][+build]``; missing parts are 0.

    Pre-release and build must be well-formed and are then dropped: 5.4.0-rc1 equals 5.4.0, so that a condition on a
    kernel release holds for its distribution builds, too.

    Raises:
        MatchError: for anything else, such as ``6.5.0-100_1.x86_64``, whose underscore no semantic version may have.
    """
    found = _VERSION.fullmatch(text)
    if found is None or any(map(_ZERO_LED.fullmatch, (found["pre"] or "").split("."))):
        raise MatchError(f"{text[:_SHOWN]!r} is not a version such as 1, 1.2, v1.2.3 or 1.2.3-rc1")
    return _parts(found, text)


@lru_cache(maxsize=256)
def parse_leading_version(text: str) -> Ordered:
    """Read the version that a text begins with; whatever follows its numbers does not count.

    Distributions and firmware append what they like: ``5.14.0-427.el9_4.x86_64``, ``6.12.41_deb13-amd64``,
    ``5.15.153.1-microsoft-standard-WSL2``, ``2.19.1a``.

    Raises:
        MatchError: for a text that does not begin with a number.
    """
    found = _LEADING.match(text)
    if found is None:
        raise MatchError(f"{text[:_SHOWN]!r} is not a version: it does not begin with a number")
    return _parts(found, text)


def _parts(found: re.Match[str], text: str) -> Ordered:
    parts = tuple(int(part or 0) for part in found.groups()[:3])
    if max(parts) >= 1 << 64:
        raise MatchError(f"{text[:_SHOWN]!r} is not a version: a part of it has more than 64 bits")
    return parts
