"""A plugin of pytest: what each test took and why it failed, as it goes.

A run that is ended from outside (continuous integration has a limit) writes neither its JUnit file nor its failures;
what this has written by then stays. ``DRIVERWRIGHT_TIMES`` names the file: a line for each phase of a test that took
a second or did not pass, with the time of day, seconds, outcome, phase and the test.
"""

import os
import time
from pathlib import Path

import pytest

WORTH_A_LINE = 1.0
"""Seconds."""

LONGEST_FAILURE = 4000
"""Characters of a failure that are printed at once; all of it comes at the end."""

LONGEST_MESSAGE = 1000
"""Characters of its message that are printed before that."""


def pytest_runtest_logreport(report: pytest.TestReport) -> None:
    """Write down what took its time, and say at once what failed."""
    path = os.environ.get("DRIVERWRIGHT_TIMES")
    if path and (report.duration >= WORTH_A_LINE or report.outcome != "passed"):
        with Path(path).open("a") as file:
            words = f"{report.duration:7.1f} {report.outcome:7} {report.when:8} {report.nodeid}"
            file.write(f"{time.strftime('%H:%M:%S')} {words}\n")
    if report.failed:
        print(f"\nFAILED {report.nodeid} ({report.when}):\n{_shortened(report)}", flush=True)


def _shortened(report: pytest.TestReport) -> str:
    """Give the end of a failure, after what its message begins with where that is not in it."""
    text = report.longreprtext
    message = getattr(getattr(report.longrepr, "reprcrash", None), "message", "")[:LONGEST_MESSAGE]
    end = text[-LONGEST_FAILURE:]
    shortened = end if message in end else f"{message}\n[...]\n{end}"
    # Tests of hostile names print some that no output takes.
    return shortened.encode(errors="backslashreplace").decode()
