"""What the log makes of a message, and how signals change its level."""

import json
import logging
import os
import signal
from collections.abc import Iterator
from datetime import UTC, datetime

import pytest

from kube_api.log_lines import LONGEST_MESSAGE, JsonFormatter, PrintableFormatter, follow_signals

HOSTILE = "a\nb\x1b[31m%s"


def record(message: str = HOSTILE, *arguments: object) -> logging.LogRecord:
    """Make a record with a traceback."""
    try:
        int("x")
    except ValueError as error:
        caught = (ValueError, error, error.__traceback__)
    return logging.LogRecord("some.logger", logging.WARNING, "f", 1, message, arguments, caught)


def test_a_log_message_is_one_line_and_a_traceback_stays() -> None:
    """Nobody forges a second line, and nobody speaks to the terminal."""
    text = PrintableFormatter("%(levelname)s %(message)s").format(record(HOSTILE, "c" * 2000))
    first, *rest = text.split("\n")
    assert first.startswith("WARNING a bccc")
    assert len(first) <= LONGEST_MESSAGE + len("WARNING ")
    assert rest[0].startswith("Traceback")


@pytest.mark.parametrize("is_printable", [True, False])
def test_a_json_line_has_the_keys_that_are_promised(is_printable: bool) -> None:
    """One line of ASCII, whatever the message and the traceback have; the time is UTC, to the millisecond."""
    made = record(HOSTILE, "c" * 2000 + "\u2028")
    made.created, made.msecs = datetime(2026, 11, 25, 14, 3, 9, 7000, UTC).timestamp(), 7.0
    line = JsonFormatter(is_printable=is_printable).format(made)
    assert line.isascii()
    assert line.isprintable()
    entry = json.loads(line)
    assert list(entry) == ["ts", "level", "logger", "msg", "stacktrace"]
    assert (entry["ts"], entry["level"], entry["logger"]) == ("2026-11-25T14:03:09.007Z", "warning", "some.logger")
    assert entry["msg"].startswith("a bc" if is_printable else "a\nb\x1b[31mc")
    assert (len(entry["msg"]) <= LONGEST_MESSAGE) is is_printable
    assert entry["stacktrace"].startswith("Traceback")


def test_a_json_line_without_an_error_has_no_stacktrace() -> None:
    """A key that is there says something."""
    made = logging.LogRecord("n", logging.INFO, "f", 1, "hello", (), None)
    assert "stacktrace" not in json.loads(JsonFormatter(is_printable=True).format(made))


@pytest.fixture
def root() -> Iterator[logging.Logger]:
    """Return the root logger at WARNING; level and signals are as before after the test."""
    logger = logging.getLogger()
    level, numbers = logger.level, (signal.SIGUSR1, signal.SIGUSR2)
    handlers = [signal.getsignal(number) for number in numbers]
    logger.setLevel(logging.WARNING)
    yield logger
    logger.setLevel(level)
    for number, handler in zip(numbers, handlers, strict=True):
        signal.signal(number, handler)


def test_a_signal_switches_to_debug_and_another_one_back(root: logging.Logger) -> None:
    """Each as often as it comes; back is the level that was set at the start."""
    follow_signals()
    levels = []
    for number in (signal.SIGUSR1, signal.SIGUSR1, signal.SIGUSR2, signal.SIGUSR2, signal.SIGUSR1):
        os.kill(os.getpid(), number)
        levels.append(root.level)
    debug, warning = logging.DEBUG, logging.WARNING
    assert levels == [debug, debug, warning, warning, debug]
