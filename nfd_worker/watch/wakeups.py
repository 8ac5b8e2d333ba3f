"""Signals, and the one place where the daemon waits.

What wakes it besides: :mod:`file_watch.inotify`, :mod:`nfd_worker.watch.uevents`, the pipes of its children, and
requests to :mod:`nfd_worker.telemetry`.
"""

import os
import select
import signal
import time
from collections.abc import Callable, Mapping

Readers = Mapping[int, Callable[[float], None]]
"""File descriptor -> what to call with the time when it is ready."""

_BUFFER = 1 << 14


class Signals:
    """SIGTERM and SIGINT to stop, SIGHUP to reload: taken note of, and acted on in the loop."""

    def __init__(self) -> None:
        self._reader, self._writer = os.pipe2(os.O_NONBLOCK | os.O_CLOEXEC)
        signal.set_wakeup_fd(self._writer, warn_on_full_buffer=False)
        # The interpreter writes the number into the pipe; the handler itself has nothing to do.
        numbers = (signal.SIGTERM, signal.SIGINT, signal.SIGHUP)
        self._before = {number: signal.signal(number, lambda _number, _frame: None) for number in numbers}

    def fileno(self) -> int:
        """Give the descriptor to wait for."""
        return self._reader

    def drain(self) -> frozenset[int]:
        """Name the signals that arrived."""
        return frozenset(os.read(self._reader, _BUFFER))

    def close(self) -> None:
        """Handle signals as before."""
        signal.set_wakeup_fd(-1)
        for number, handler in self._before.items():
            signal.signal(number, handler)
        os.close(self._reader)
        os.close(self._writer)


def wait(readers: Readers, seconds: float) -> None:
    """Wait until something is ready, for at most so long; then serve it."""
    poll = select.poll()
    for descriptor in readers:
        poll.register(descriptor, select.POLLIN)
    milliseconds = None if seconds == float("inf") else max(0, int(seconds * 1000) + 1)
    for descriptor, _ in poll.poll(milliseconds):
        readers[descriptor](time.monotonic())
