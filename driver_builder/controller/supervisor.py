"""Keeps the controller's threads alive: one that ends is started again, and one that cannot live ends the process.

Place in the flow: ``run`` starts here what works beside the reconciles: the Lease, the watches, the rules of the
workers. /healthz asks whether they live.
"""

import logging
import threading
import time
from collections import deque
from collections.abc import Callable
from functools import partial

from driver_builder.base import telemetry
from driver_builder.base.boundary import contained
from driver_builder.base.errors import InternalError
from driver_builder.base.retry import Backoff

MAX_ENDS, WITHIN_SECONDS = 3, 60.0
"""A thread that ends so often within so long cannot live: the process ends, its container is started anew."""

logger = logging.getLogger(__name__)


class Supervisor:
    """Runs threads until ``stop`` is set; sets it when one of them cannot be kept alive."""

    def __init__(self, stop: threading.Event, *, clock: Callable[[], float] = time.monotonic) -> None:
        self._stopping = stop
        self._clock = clock
        self._threads: list[threading.Thread] = []
        self.broken = ""
        """Name of the thread that could not be kept alive."""

    def start(self, name: str, run: Callable[[], None]) -> threading.Thread:
        """Start a thread that does ``run``, which is to return only when the process stops."""
        thread = threading.Thread(target=self._keep, args=(name, run), name=name, daemon=True)
        self._threads.append(thread)
        thread.start()
        return thread

    def is_alive(self) -> bool:
        """Return whether every thread that was started lives."""
        return all(thread.is_alive() for thread in self._threads)

    def _keep(self, name: str, run: Callable[[], None]) -> None:
        ends: deque[float] = deque(maxlen=MAX_ENDS)
        backoff = Backoff(first=1.0, most=30.0)
        while not self._stopping.is_set():
            error = contained("thread", name, partial(_ended, run), lambda error: error, passing=())
            if self._stopping.is_set():
                return
            ends.append(self._clock())
            if len(ends) == MAX_ENDS and ends[-1] - ends[0] < WITHIN_SECONDS:
                self.broken = name
                logger.critical("thread %s ended %d times within a minute: the controller ends", name, MAX_ENDS)
                self._stopping.set()
                return
            telemetry.THREAD_RESTARTS.labels(name).inc()
            delay = backoff.next()
            logger.error("thread %s: %s: again in %.0f s", name, error or "it ended", delay)
            self._stopping.wait(delay)


def _ended(run: Callable[[], None]) -> InternalError | None:
    run()
    return None
