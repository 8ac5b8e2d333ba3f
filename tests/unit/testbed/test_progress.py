"""What a person sees while waiting."""

import io

import pytest
from rich.console import Console

from testbed.progress import PlainLines, RichSteps, Silent


def test_a_step_ends_with_its_time() -> None:
    """One line per step, nested ones indented."""
    stream = io.StringIO()
    progress = PlainLines(stream)
    with progress.step("outer"), progress.step("inner"):
        pass
    inner, outer = stream.getvalue().splitlines()
    assert inner.startswith("  inner: done (")
    assert outer.startswith("outer: done (")


def test_a_long_step_says_what_it_does() -> None:
    """Details appear between, with percentage."""
    stream = io.StringIO()
    with PlainLines(stream, every=0).step("work") as step:
        step.percent(40)
        step.detail("half way")
    assert "work: 0 s 40 % half way" in stream.getvalue()


def test_a_failed_step_is_called_failed() -> None:
    """The error itself goes on."""
    stream = io.StringIO()
    with pytest.raises(ValueError, match="x"), PlainLines(stream).step("work"):
        raise ValueError("x")
    assert "work: failed" in stream.getvalue()


def test_rich_output_takes_brackets_for_text() -> None:
    """A log line is no markup."""
    console = Console(file=io.StringIO(), force_terminal=False)
    with RichSteps(console).step("work") as step:
        step.detail("[/nonsense] 1")
        step.percent(50)
    assert isinstance(console.file, io.StringIO)
    assert "✓ work" in console.file.getvalue()


def test_silence_is_possible() -> None:
    """Nothing is shown and nothing fails."""
    with Silent().step("work") as step:
        step.detail("x")
        step.percent(1)
