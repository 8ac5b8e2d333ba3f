"""What is remembered of registries for a while: which are paused, and the content of Secrets and ConfigMaps.

Place in the flow: ``registry_access`` asks here before it asks a registry or the API server, from several threads.
"""

import threading
from collections.abc import Callable, Hashable
from dataclasses import replace
from typing import Generic, TypeVar

from driver_builder.base.retry import Retry
from driver_builder.model.image_state import ImageState, Unreachable

SILENCE = Retry(first=5.0, most=60.0)
"""The pause of a registry that does not answer: by attempt, as each question may take 30 seconds."""
MOST_KEPT = 1000

Value = TypeVar("Value")


class Pauses:
    """The accounts at paused registries, and the answer that stands meanwhile."""

    def __init__(self, clock: Callable[[], float]) -> None:
        self._clock = clock
        self._lock = threading.Lock()
        self._paused: dict[Hashable, tuple[float, int, Unreachable]] = {}
        """When it ends, how often in a row there was no answer, and the answer that stands."""

    def of(self, account: Hashable) -> Unreachable | None:
        """The answer that stands, None if the registry is to be asked."""
        with self._lock:
            ends, _, state = self._paused.get(account, (0.0, 0, None))
            return state if self._clock() < ends else None

    def saw(self, account: Hashable, state: ImageState) -> None:
        """Record an answer."""
        with self._lock:
            now = self._clock()
            ends, silences, _ = self._paused.pop(account, (0.0, 0, None))
            if isinstance(state, Unreachable) and state.retry_after is not None:
                self._paused[account] = (now + state.retry_after, 0, state)
            elif isinstance(state, Unreachable) and state.is_silent:
                # Of several questions at the same moment the first one counts.
                silences += now >= ends
                self._paused[account] = (now + SILENCE.by_attempt(silences), silences, replace(state, is_silent=False))
            while len(self._paused) > MOST_KEPT:
                del self._paused[next(iter(self._paused))]


class Memory(Generic[Value]):
    """Values that are read once in ``seconds``; a failed read is not remembered."""

    def __init__(self, seconds: float, clock: Callable[[], float]) -> None:
        self._seconds = seconds
        self._clock = clock
        self._lock = threading.Lock()
        self._known: dict[Hashable, tuple[float, Value]] = {}

    def get(self, key: Hashable, read: Callable[[], Value]) -> Value:
        """The value of a key."""
        with self._lock:
            at, known = self._known.get(key, (0.0, None))
            if known is not None and self._clock() - at < self._seconds:
                return known
        value = read()
        with self._lock:
            now = self._clock()
            self._known = {other: kept for other, kept in self._known.items() if now - kept[0] < self._seconds}
            self._known[key] = (now, value)
        return value

    def forget(self, key: Hashable) -> None:
        """Read the value of a key again the next time."""
        with self._lock:
            self._known.pop(key, None)
