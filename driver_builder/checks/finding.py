"""What the checks of ``doctor`` share: what could not be read, and how objects are named and counted. Pure."""

from collections.abc import Iterable
from dataclasses import dataclass

from driver_builder.base.check_result import CheckResult, unknown
from kube_api.text import first_few

MOST_NAMED = 5
"""Objects that a finding names; it counts the others."""


@dataclass(frozen=True, slots=True, kw_only=True)
class Unread:
    """Something could not be read; ``message`` says why."""

    message: str
    is_forbidden: bool = False


def not_read(check: str, what: str, why: Unread) -> CheckResult:
    """Report that a check could not be made because something cannot be read."""
    if why.is_forbidden:
        return unknown(check, f"{what} cannot be read: no permission", "Run doctor as an administrator of the cluster")
    return unknown(check, f"{what} cannot be read: {why.message}", "Run doctor again")


def named(names: Iterable[str]) -> str:
    """List the first few names, and count the others."""
    return first_few(names, MOST_NAMED)


def counted(number: int, noun: str) -> str:
    """Write a number with its noun: ``1 node``, ``2 nodes``."""
    return f"{number} {noun}" if number == 1 else f"{number} {noun}s"
