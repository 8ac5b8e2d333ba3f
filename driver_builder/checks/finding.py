"""What ``doctor`` answers: findings, each with a verdict, what was found and what to do. Values only."""

from collections.abc import Iterable, Mapping
from dataclasses import dataclass
from enum import StrEnum

from kube_api.text import first_few

MOST_NAMED = 5
"""Objects that a finding names; it counts the others."""


class Verdict(StrEnum):
    """A result: ``warning`` does not stop drivers, ``FAILED`` does, ``unknown`` could not be checked."""

    OK = "ok"
    WARNING = "warning"
    FAILED = "FAILED"
    UNKNOWN = "unknown"


@dataclass(frozen=True, slots=True, kw_only=True)
class Finding:
    """One check: ``found`` says what is so, ``remedy`` what to do, empty where nothing is to be done."""

    check: str
    verdict: Verdict
    found: str
    remedy: str = ""

    def as_document(self) -> Mapping[str, str]:
        """Return plain data, for programs."""
        return {"check": self.check, "verdict": self.verdict.value, "found": self.found, "remedy": self.remedy}


@dataclass(frozen=True, slots=True, kw_only=True)
class Unread:
    """Something could not be read; ``message`` says why."""

    message: str
    is_forbidden: bool = False


def ok(check: str, found: str) -> Finding:
    """Report that a check holds."""
    return Finding(check=check, verdict=Verdict.OK, found=found)


def warning(check: str, found: str, remedy: str) -> Finding:
    """Report what is worth knowing, and stops no driver."""
    return Finding(check=check, verdict=Verdict.WARNING, found=found, remedy=remedy)


def failed(check: str, found: str, remedy: str) -> Finding:
    """Report what stops drivers."""
    return Finding(check=check, verdict=Verdict.FAILED, found=found, remedy=remedy)


def unknown(check: str, found: str, remedy: str = "") -> Finding:
    """Report that a check could not be made."""
    return Finding(check=check, verdict=Verdict.UNKNOWN, found=found, remedy=remedy)


def not_read(check: str, what: str, why: Unread) -> Finding:
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


def has_failed(findings: Iterable[Finding]) -> bool:
    """Return whether anything stops drivers."""
    return any(finding.verdict is Verdict.FAILED for finding in findings)


def summary(findings: Iterable[Finding]) -> str:
    """Count findings by their verdicts: ``12 ok, 1 warning, 2 FAILED``."""
    every = [finding.verdict for finding in findings]
    return ", ".join(f"{every.count(verdict)} {verdict}" for verdict in Verdict if verdict in every)
