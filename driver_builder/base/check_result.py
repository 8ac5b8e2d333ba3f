"""What a check answers, in ``explain``, ``doctor``, ``lint`` and ``gate``: status, message and remedy. Pure."""

import textwrap
from collections.abc import Iterable, Mapping
from dataclasses import dataclass
from enum import StrEnum
from typing import NamedTuple

_LEAST_ROOM = 30


class Status(StrEnum):
    """A result. What waits resolves itself, a warning stops nothing, ``FAILED`` needs a person."""

    OK = "ok"
    WAITING = "waiting"
    WARNING = "warning"
    FAILED = "FAILED"
    UNKNOWN = "unknown"

    def word(self, failed: str) -> str:
        """Return how a command names it that has its own word for what failed."""
        return failed if self is Status.FAILED else self.value


@dataclass(frozen=True, slots=True, kw_only=True)
class CheckResult:
    """One check, by the name of what was checked; ``remedy`` is empty where nothing is to be done."""

    check: str
    status: Status
    message: str
    remedy: str = ""

    @property
    def is_ok(self) -> bool:
        """Return whether the check holds."""
        return self.status is Status.OK

    def as_document(self, names: Mapping[str, str], failed: str = Status.FAILED.value) -> dict[str, str]:
        """Return plain data, for programs: each field by the name that a command has for it."""
        values = {
            "check": self.check,
            "status": self.status.word(failed),
            "message": self.message,
            "remedy": self.remedy,
        }
        return {name: values[field] for field, name in names.items()}


class Remark(NamedTuple):
    """What a person should know of one field of an object."""

    path: tuple[str | int, ...]
    message: str
    status: Status = Status.WARNING


def ok(check: str, message: str, remedy: str = "") -> CheckResult:
    """Report that a check holds."""
    return CheckResult(check=check, status=Status.OK, message=message, remedy=remedy)


def waiting(check: str, message: str, remedy: str) -> CheckResult:
    """Report a check that does not hold yet, and will without help."""
    return CheckResult(check=check, status=Status.WAITING, message=message, remedy=remedy)


def warning(check: str, message: str, remedy: str) -> CheckResult:
    """Report what is worth knowing, and stops nothing."""
    return CheckResult(check=check, status=Status.WARNING, message=message, remedy=remedy)


def failed(check: str, message: str, remedy: str = "") -> CheckResult:
    """Report what a person has to fix."""
    return CheckResult(check=check, status=Status.FAILED, message=message, remedy=remedy)


def unknown(check: str, message: str, remedy: str = "") -> CheckResult:
    """Report that a check could not be made."""
    return CheckResult(check=check, status=Status.UNKNOWN, message=message, remedy=remedy)


def has_failed(results: Iterable[CheckResult]) -> bool:
    """Return whether anything needs a person."""
    return any(result.status is Status.FAILED for result in results)


def summary(results: Iterable[CheckResult]) -> str:
    """Count results by their status: ``12 ok, 1 warning, 2 FAILED``."""
    every = [result.status for result in results]
    return ", ".join(f"{every.count(status)} {status}" for status in Status if status in every)


def lines(head: str, result: CheckResult, *, width: int = 0, advises: bool = True) -> list[str]:
    """Write a result for people, with its remedy below; with a ``width`` folded to it.

    ``head`` has the status and the check, with the blanks that follow.
    """
    blank = " " * len(head)
    texts = [result.message, *([f"next: {result.remedy}"] if result.remedy and advises else [])]
    room = width - len(head)
    first, *rest = [line for text in texts for line in (_folded(text, room) if room >= _LEAST_ROOM else [text])] or [""]
    return [f"{head}{first}", *(f"{blank}{line}" for line in rest)]


def _folded(text: str, room: int) -> list[str]:
    return textwrap.wrap(text, room, break_long_words=False, break_on_hyphens=False)
