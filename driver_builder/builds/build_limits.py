"""When a running build must end.

Place in the flow: a builder checks :class:`BuildLimits` between its steps, and lets it watch each stream it reads,
because a step that prints nothing gives no other chance to stop.
"""

import threading
from collections.abc import Callable, Iterator, Sequence
from contextlib import contextmanager, suppress
from threading import Event
from typing import Protocol

from driver_builder.base.errors import BuildFailed
from driver_builder.base.reasons import Reason

_LOOK_SECONDS = 0.2


class Closable(Protocol):
    """A stream that another thread may close; its reader then sees the end."""

    def close(self) -> None:
        """Close it."""


class BuildLimits:
    """A build ends when ``seconds`` of ``clock`` have passed since now, or when ``cancelled`` is set."""

    def __init__(self, seconds: float, cancelled: Event, clock: Callable[[], float]) -> None:
        self._seconds = seconds
        self._deadline = clock() + seconds
        self._cancelled = cancelled
        self._clock = clock

    def left(self) -> float:
        """Seconds to the deadline, never 0: a timeout of 0 would mean none."""
        return max(0.1, self._deadline - self._clock())

    def are_reached(self) -> bool:
        """Whether the build must end now."""
        return self._cancelled.is_set() or self._clock() >= self._deadline

    def check(self, log: Sequence[str] = ()) -> None:
        """Raise BuildFailed when a limit is reached: CANCELLED or DEADLINE_EXCEEDED. ``log`` are the last lines."""
        if not self.are_reached():
            return
        if self.is_cancelled():
            raise BuildFailed(Reason.CANCELLED, "the build was cancelled", log_tail=tuple(log))
        raise self.exceeded(log)

    def is_cancelled(self) -> bool:
        """Whether the build was cancelled."""
        return self._cancelled.is_set()

    def exceeded(self, log: Sequence[str] = ()) -> BuildFailed:
        """What to raise when the time is over; ``log`` are the last lines."""
        return BuildFailed(
            Reason.DEADLINE_EXCEEDED,
            f"the build did not end within {self._seconds:g} s (last line: {log[-1] if log else 'none'})",
            log_tail=tuple(log),
        )

    @contextmanager
    def closing(self, stream: Closable) -> Iterator[None]:
        """Close ``stream`` as soon as a limit is reached: an engine stops a build whose client has gone."""
        done = Event()

        def watch() -> None:
            while not done.wait(_LOOK_SECONDS):
                if self.are_reached():
                    # The build may end at this moment, and its connection with it.
                    with suppress(OSError, AttributeError):
                        stream.close()
                    return

        watcher = threading.Thread(target=watch, name="build-limits", daemon=True)
        watcher.start()
        try:
            yield
        finally:
            done.set()
            watcher.join()
