"""How the programs log: lines of text or of JSON, and a level that signals change while a program runs.

Standard library only: the resident processes of nodes import this. The keys of a JSON line are public: ``ts``,
``level``, ``logger``, ``msg``, and ``stacktrace`` where an error has one. They are those of other controllers.
"""

import json
import logging
import signal
import sys
import time
from collections.abc import Sequence

from kube_api.text import printable

LEVELS = ("debug", "info", "warning", "error")
FORMATS = ("text", "json")

LONGEST_MESSAGE = 1000
"""Characters of one message, and in the table of a scan; what it quotes is cut where it is quoted."""


def known_word(text: str, known: Sequence[str]) -> str:
    """Return one of :data:`LEVELS` or :data:`FORMATS`, whatever its case.

    Raises:
        ValueError: it is none of them.
    """
    if text.lower() not in known:
        raise ValueError(f"{text!r} is not one of {', '.join(known)}")
    return text.lower()


class PrintableFormatter(logging.Formatter):
    """Makes the message one line of printable characters; a traceback stays as it is."""

    def formatMessage(self, record: logging.LogRecord) -> str:  # noqa: N802 - the name that logging calls
        """Format the line that stands before a traceback."""
        record.message = printable(record.message, LONGEST_MESSAGE)
        return super().formatMessage(record)


class JsonFormatter(logging.Formatter):
    """Writes a record as one line of JSON; ``is_printable`` is what :class:`PrintableFormatter` does to the message."""

    def __init__(self, *, is_printable: bool) -> None:
        super().__init__()
        self._is_printable = is_printable

    def format(self, record: logging.LogRecord) -> str:
        """Write the whole record; JSON escapes what is not ASCII, line breaks and terminal control sequences too."""
        message = record.getMessage()
        seconds = time.strftime("%Y-%m-%dT%H:%M:%S", time.gmtime(record.created))
        entry = {
            "ts": f"{seconds}.{int(record.msecs):03d}Z",
            "level": record.levelname.lower(),
            "logger": record.name,
            "msg": printable(message, LONGEST_MESSAGE) if self._is_printable else message,
        }
        if record.exc_info:
            entry["stacktrace"] = self.formatException(record.exc_info)
        return json.dumps(entry)


def set_up(level: str, form: str, text: logging.Formatter) -> None:
    """Log to standard error from this level on, as JSON or as ``text`` formats it."""
    handler = logging.StreamHandler(sys.stderr)
    is_printable = isinstance(text, PrintableFormatter)
    handler.setFormatter(JsonFormatter(is_printable=is_printable) if form == "json" else text)
    logging.basicConfig(handlers=[handler], level=level.upper())


def follow_signals() -> None:
    """Let SIGUSR1 switch to debug, and SIGUSR2 back to the level of now. In the main thread only.

    The handlers log nothing themselves: they may interrupt a line that is being written.
    """
    root = logging.getLogger()
    levels = {signal.SIGUSR1: logging.DEBUG, signal.SIGUSR2: root.level}
    for number in levels:
        signal.signal(number, lambda number, _frame: root.setLevel(levels[signal.Signals(number)]))
