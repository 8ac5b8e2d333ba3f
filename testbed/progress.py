"""Say what is being done while someone waits: a small protocol, a plain and a rich way to show it.

with progress.step("Build Kubernetes") as step:
    step.detail("compiling kubelet")
    step.percent(40)
"""

from __future__ import annotations

import sys
import time
from collections.abc import Iterator
from contextlib import AbstractContextManager, contextmanager
from typing import Protocol, TextIO

from rich.console import Console
from rich.markup import escape


class Step(Protocol):
    """One piece of work that somebody waits for."""

    def detail(self, text: str) -> None:
        """Say what is going on inside the step just now."""

    def percent(self, value: float) -> None:
        """Say how much of the step is done, from 0 to 100."""


class Progress(Protocol):
    """Where the testbed reports its steps; steps may be nested."""

    def step(self, name: str) -> AbstractContextManager[Step]:
        """Open a step; it ends, with its time, when the context does."""


class _SilentStep:
    def detail(self, text: str) -> None:
        pass

    def percent(self, value: float) -> None:
        pass


class Silent:
    """Report nothing."""

    @contextmanager
    def step(self, name: str) -> Iterator[Step]:  # noqa: ARG002
        """Open a step that nobody sees."""
        yield _SilentStep()


class PlainLines:
    """One line when a step has ended, and a line now and then while a long one runs: for logs and pytest."""

    def __init__(self, stream: TextIO | None = None, *, every: float = 15) -> None:
        self._stream = stream
        self._every = every
        self._depth = 0

    @contextmanager
    def step(self, name: str) -> Iterator[Step]:
        """Open a step."""
        shown = _PlainStep(self, name)
        self._depth += 1
        verdict = "failed"
        try:
            yield shown
            verdict = "done"
        finally:
            self._depth -= 1
            self.line(f"{name}: {verdict} ({time.monotonic() - shown.began:.1f} s)")

    def line(self, text: str) -> None:
        """Write one line, indented by the number of open steps."""
        # Looked up late: pytest replaces sys.stderr for each test.
        print("  " * self._depth + text, file=self._stream or sys.stderr, flush=True)

    @property
    def every(self) -> float:
        """Seconds between two lines of one step."""
        return self._every


class _PlainStep:
    def __init__(self, lines: PlainLines, name: str) -> None:
        self.began = self._said = time.monotonic()
        self._lines = lines
        self._name = name
        self._percent = ""

    def detail(self, text: str) -> None:
        now = time.monotonic()
        if now - self._said >= self._lines.every:
            self._said = now
            self._lines.line(f"{self._name}: {now - self.began:.0f} s{self._percent} {text}")

    def percent(self, value: float) -> None:
        self._percent = f" {value:.0f} %"


class RichSteps:
    """A spinner with the state of the open step, and one line with its time when it has ended: for terminals."""

    def __init__(self, console: Console | None = None) -> None:
        self._console = console or Console(stderr=True, highlight=False)
        self._open: list[_RichStep] = []
        self._status = self._console.status("")

    @contextmanager
    def step(self, name: str) -> Iterator[Step]:
        """Open a step."""
        shown = _RichStep(self, name)
        self._open.append(shown)
        self._status.start()
        self.refresh()
        mark = "[red]✗[/red]"
        try:
            yield shown
            mark = "[green]✓[/green]"
        finally:
            self._open.remove(shown)
            indent = "  " * len(self._open)
            self._console.print(f"{indent}{mark} {name} [dim]{time.monotonic() - shown.began:.1f} s[/dim]")
            if self._open:
                self.refresh()
            else:
                self._status.stop()

    def refresh(self) -> None:
        """Show the innermost open step."""
        if self._open:
            # One line only: a status that wraps leaves its upper lines behind.
            self._status.update(self._open[-1].text(self._console.width - 4))


class _RichStep:
    def __init__(self, steps: RichSteps, name: str) -> None:
        self.began = time.monotonic()
        self._steps = steps
        self._name = name
        self._detail = ""
        self._percent = ""

    def text(self, width: int) -> str:
        state = f"{time.monotonic() - self.began:.0f} s{self._percent} {self._detail}"[
            : max(10, width - len(self._name))
        ]
        return f"{escape(self._name)} [dim]{escape(state)}[/dim]"

    def detail(self, text: str) -> None:
        self._detail = text
        self._steps.refresh()

    def percent(self, value: float) -> None:
        self._percent = f" {value:.0f} %"
        self._steps.refresh()


def warn(text: str) -> None:
    """Say what somebody should know though the work goes on; a spinner makes room for it."""
    print(f"testbed: {text}", file=sys.stderr, flush=True)


def for_terminal() -> Progress:
    """Return rich output on a terminal and plain lines elsewhere."""
    return RichSteps() if sys.stderr.isatty() else PlainLines()
