"""Log lines as those of the other programs (:mod:`kube_api.log_lines`), without :mod:`logging`: that costs 1.1 MiB."""

import json
import os
import signal
import time
from contextlib import suppress

from kube_api.text import printable

LEVELS = ("debug", "info", "warning", "error")
FORMATS = ("text", "json")

_LONGEST_MESSAGE = 1000
_STANDARD_ERROR = 2


class Log:
    """Writes lines of at least a level to a file descriptor, as text or JSON."""

    def __init__(self, level: str = "info", form: str = "text", descriptor: int = _STANDARD_ERROR) -> None:
        self.level = level
        self._form = form
        self._descriptor = descriptor

    def debug(self, message: str) -> None:
        """Log what only matters in a search."""
        self._write("debug", message)

    def info(self, message: str) -> None:
        """Log what happens."""
        self._write("info", message)

    def warning(self, message: str) -> None:
        """Log what an operator may have to look at."""
        self._write("warning", message)

    def follow_signals(self) -> None:
        """Let SIGUSR1 switch to debug, and SIGUSR2 back to the level of now. In the main thread only."""
        levels = {signal.SIGUSR1: "debug", signal.SIGUSR2: self.level}
        for number in levels:
            signal.signal(number, lambda number, _frame: setattr(self, "level", levels[signal.Signals(number)]))

    def _write(self, level: str, message: str) -> None:
        if LEVELS.index(level) < LEVELS.index(self.level):
            return
        line = f"{self._line(level, printable(message, _LONGEST_MESSAGE), time.time())}\n"
        with suppress(OSError):  # nobody reads the log: no reason to end
            os.write(self._descriptor, line.encode())

    def _line(self, level: str, message: str, now: float) -> str:
        milliseconds = int(now * 1000) % 1000
        if self._form == "json":
            at = f"{time.strftime('%Y-%m-%dT%H:%M:%S', time.gmtime(now))}.{milliseconds:03d}Z"
            return json.dumps({"ts": at, "level": level, "logger": "nvml", "msg": message})
        at = f"{time.strftime('%Y-%m-%d %H:%M:%S', time.localtime(now))},{milliseconds:03d}"
        return f"{at} {level.upper()} {message}"
