"""What can go wrong while the testbed is brought up.

TestbedError            anything that a caller may report; carries a hint for the person who started it
├── CommandError              a command of the machine failed; carries the end of its output
│   └── OverdueError          it did not end in time: on another day it may
├── ArchiveError              a Debian archive does not give what was asked of it
├── NotReadyError             something did not become ready in its time
└── UnsupportedMachineError   not root, not Debian, a package missing: the testbed cannot be had here
"""

from __future__ import annotations

from collections.abc import Sequence


class TestbedError(Exception):
    """The testbed could not do what was asked; `hint` says what to try next."""

    __test__ = False
    """Not for pytest, which looks for classes named Test."""

    def __init__(self, message: str, *, hint: str = "") -> None:
        super().__init__(f"{message}\n  hint: {hint}" if hint else message)
        self.hint = hint


class CommandError(TestbedError):
    """A command ended with a status other than 0, or not at all within its time."""

    def __init__(self, argv: Sequence[str], status: str, output: str, *, hint: str = "") -> None:
        self.argv = tuple(argv)
        self.output = output
        tail = "\n".join(output.strip().splitlines()[-15:])
        super().__init__(f"`{' '.join(argv)[:300]}` {status}:\n{tail}", hint=hint)


class OverdueError(CommandError):
    """A command did not end within its time, which says something of the machine and not of the command."""

    def __init__(self, argv: Sequence[str], timeout: float, output: str, *, hint: str = "") -> None:
        super().__init__(argv, f"did not end within {timeout:.0f} s", output, hint=hint)


class ArchiveError(TestbedError):
    """A Debian archive does not give what was asked of it; the hint says what helps."""

    def __init__(self, message: str, *, hint: str, unreachable: bool = False) -> None:
        self.unreachable = unreachable
        """Whether nothing at all can be had of the archive now."""
        super().__init__(message, hint=hint)


class NotReadyError(TestbedError):
    """A component was started but did not become ready in its time."""


class UnsupportedMachineError(TestbedError):
    """This machine cannot carry the testbed as it is; the hint says what to change."""
