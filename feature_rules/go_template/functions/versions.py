"""Sprig's ``semver`` and ``semverCompare``: versions and constraints, as github.com/Masterminds/semver has them.

A version may lack its minor and patch numbers, and may begin with ``v``. A constraint is ``||`` between alternatives of
comparisons that all must hold: ``>=1.2, <3``, ``~1.4``, ``^2.1``, ``1.2 - 1.6``, ``1.x``.
"""

import re
from itertools import zip_longest
from typing import NamedTuple

from feature_rules.errors import FunctionError
from feature_rules.go_template.data.numbers import MAX_UINT
from feature_rules.go_template.data.values import Object, Uint64
from feature_rules.go_template.functions.registry import Registry

REGISTRY = Registry()

_IDENTIFIERS = r"[0-9A-Za-z-]+(?:\.[0-9A-Za-z-]+)*"
_TAIL = rf"(?:-(?P<pre>{_IDENTIFIERS}))?(?:\+(?P<metadata>{_IDENTIFIERS}))?"
_VERSION = re.compile(rf"v?(?P<major>[0-9]+)(?:\.(?P<minor>[0-9]+))?(?:\.(?P<patch>[0-9]+))?{_TAIL}")
_PART = r"[0-9|xX*]+"
_LOOSE = rf"v?{_PART}(?:\.{_PART})?(?:\.{_PART})?(?:-{_IDENTIFIERS})?(?:\+{_IDENTIFIERS})?"
_OPERATOR = r"(?:!=|>=|=>|<=|=<|~>|=|>|<|~|\^)?"
_CONSTRAINT = re.compile(
    rf"(?P<operator>{_OPERATOR})\s*v?(?P<major>{_PART})(?:\.(?P<minor>{_PART}))?(?:\.(?P<patch>{_PART}))?{_TAIL}"
)
_ALL = re.compile(rf"\s*+{_OPERATOR}\s*+{_LOOSE}\s*+(?:(?:(?<=\s)|,)\s*+{_OPERATOR}\s*+{_LOOSE}\s*+)*")
_RANGE = re.compile(rf"\s*({_LOOSE})\s+-\s+({_LOOSE})\s*")
_LONGEST = 256


class Version(NamedTuple):
    """Numbers, pre-release and build metadata of a semantic version."""

    numbers: tuple[int, int, int]
    pre: str
    metadata: str

    def __str__(self) -> str:
        pre = f"-{self.pre}" if self.pre else ""
        metadata = f"+{self.metadata}" if self.metadata else ""
        return ".".join(map(str, self.numbers)) + pre + metadata


class _Constraint(NamedTuple):
    """``given``: how many of the three numbers are written as numbers."""

    operator: str
    version: Version
    given: int


def parse_version(text: str) -> Version:
    """Parse a version.

    Raises:
        FunctionError: when the text is not a version.
    """
    found = _VERSION.fullmatch(text) if len(text) <= _LONGEST else None
    if found is None:
        raise FunctionError(f"{text[:60]!r} is not a semantic version")
    numbers = (int(found["major"]), int(found["minor"] or 0), int(found["patch"] or 0))
    if max(numbers) > MAX_UINT:
        raise FunctionError(f"a number of version {text[:60]!r} is too large")
    pre = found["pre"] or ""
    if any(part.isdecimal() and part[0] == "0" and part != "0" for part in pre.split(".")):
        raise FunctionError(f"a number in the pre-release of {text[:60]!r} begins with 0")
    return Version(numbers, pre, found["metadata"] or "")


def compare_versions(first: Version, second: Version) -> int:
    """Order two versions: negative, zero or positive; metadata does not count."""
    if first.numbers != second.numbers:
        return -1 if first.numbers < second.numbers else 1
    return _compare_pre_releases(first.pre, second.pre)


def _compare_pre_releases(first: str, second: str) -> int:
    if not first or not second:
        return bool(second) - bool(first) if first != second else 0
    for left, right in zip_longest(first.split("."), second.split(".")):
        if left != right:
            return -1 if _rank(left) < _rank(right) else 1
    return 0


def _rank(identifier: str | None) -> tuple[int, int, str]:
    """Order identifiers of a pre-release: none, then numbers, then words."""
    if identifier is None:
        return 0, 0, ""
    return (1, int(identifier), "") if identifier.isdecimal() else (2, 0, identifier)


@REGISTRY.function("semver(string)")
def _semver(text: str) -> Object:
    version = parse_version(text)
    major, minor, patch = map(Uint64, version.numbers)
    members = {"Major": major, "Minor": minor, "Patch": patch, "Prerelease": version.pre, "Metadata": version.metadata}
    return Object("*semver.Version", {**members, "Original": text, "String": str(version)}, str(version))


@REGISTRY.function("semverCompare(string, string)")
def _semver_compare(constraint: str, text: str) -> bool:
    """Return whether the version fulfils the constraint; a pre-release only where the constraint names one, too."""
    alternatives = [_parse_all(part) for part in _without_ranges(constraint).split("||")]
    version = parse_version(text)
    return any(_fulfils_all(version, constraints) for constraints in alternatives)


def _without_ranges(text: str) -> str:
    if len(text) > _LONGEST:
        raise FunctionError(f"a constraint has {_LONGEST} characters at most")
    return _RANGE.sub(r" >= \1, <= \2 ", text)


def _parse_all(text: str) -> list[_Constraint]:
    if not _ALL.fullmatch(text):
        raise FunctionError(f"improper constraint: {text[:60]}")
    return [_parse_constraint(found) for found in _CONSTRAINT.finditer(text)]


def _parse_constraint(found: re.Match[str]) -> _Constraint:
    written = (found["major"], found["minor"], found["patch"])
    given = next((count for count, part in enumerate(written) if part is None or part in ("x", "X", "*")), 3)
    if not all(part.isdecimal() for part in written[:given]):
        raise FunctionError(f"improper constraint: {found[0][:60]}")
    numbers = (*(int(part) for part in written[:given]), 0, 0, 0)[:3]
    pre = f"-{found['pre']}" if found["pre"] else ""
    return _Constraint(found["operator"], parse_version(".".join(map(str, numbers)) + pre), given)


def _fulfils_all(version: Version, constraints: list[_Constraint]) -> bool:
    if version.pre and not any(constraint.version.pre for constraint in constraints):
        return False
    return all(_fulfils(version, constraint) for constraint in constraints)


def _fulfils(version: Version, constraint: _Constraint) -> bool:
    order = compare_versions(version, constraint.version)
    is_partial = constraint.given < 3
    match constraint.operator:
        case ">":
            holds = _is_above(version, constraint) if is_partial and constraint.given else order > 0
        case "<":
            holds = order < 0
        case ">=" | "=>":
            holds = order >= 0
        case "<=" | "=<":
            holds = order <= 0 or (is_partial and not _is_above(version, constraint))
        case "!=":
            holds = not _is_same(version, constraint)
        case "^":
            holds = order >= 0 and _is_compatible(version, constraint)
        case "~" | "~>":
            holds = order >= 0 and _is_close(version, constraint)
        case _:
            holds = order >= 0 and _is_close(version, constraint) if is_partial else order == 0
    return holds


def _is_above(version: Version, constraint: _Constraint) -> bool:
    count = max(constraint.given, 1)
    return version.numbers[:count] > constraint.version.numbers[:count]


def _is_same(version: Version, constraint: _Constraint) -> bool:
    if constraint.given == 3:
        return compare_versions(version, constraint.version) == 0
    count = constraint.given
    return version.numbers[:count] == constraint.version.numbers[:count]


def _is_close(version: Version, constraint: _Constraint) -> bool:
    """Return whether the numbers before the last one given are the same: ``~1.2.3`` stays below 1.3."""
    count = min(constraint.given, 2)
    return version.numbers[:count] == constraint.version.numbers[:count]


def _is_compatible(version: Version, constraint: _Constraint) -> bool:
    """Return whether the first number that is not zero is the same: ``^0.2.3`` stays below 0.3."""
    numbers = constraint.version.numbers[: constraint.given]
    count = next((place + 1 for place, number in enumerate(numbers) if number), constraint.given)
    return version.numbers[:count] == constraint.version.numbers[:count]
