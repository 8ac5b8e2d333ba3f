"""How often is tried what does not work, and what is logged of it."""

import logging
import os

from kube_api.errors import Forbidden, KubeApiError, Unauthorized

log = logging.getLogger(__name__)

READ, WRITE_PROFILE, WRITE_MIG = "read", "write profile", "write MIG"
_WAITS = {
    READ: "label changes wait, because it cannot be read",
    WRITE_PROFILE: "the answer about its profile cannot be written",
    WRITE_MIG: "its MIG layout waits, because the state of that cannot be written",
}
_AGAIN = {
    READ: "it is read again",
    WRITE_PROFILE: "the answer about its profile is written",
    WRITE_MIG: "the state of its MIG layout is written",
}


class Pauses:
    """Seconds until the next attempt: doubling from ``first`` to ``longest``.

    Each is up to a quarter less, so that nodes do not come back as one.
    """

    def __init__(self, first: float = 1.0, longest: float = 300.0) -> None:
        self._first, self._longest = first, longest
        self._next = first

    def reset(self) -> None:
        """Begin with the first again."""
        self._next = self._first

    def next(self) -> float:
        """Give the next pause."""
        pause, self._next = self._next, min(self._longest, 2 * self._next)
        return pause * (1 - os.urandom(1)[0] / 1024)


class Budget:
    """How many writes may follow each other: ``most`` at once, then one every ``seconds``.

    Another program that writes the same keys would otherwise be answered as fast as it writes.
    """

    def __init__(self, most: int = 20, seconds: float = 10.0) -> None:
        self._most, self._seconds = most, seconds
        self._spent, self._at = 0.0, 0.0

    def wait(self, now: float) -> float:
        """Take one, and return how many seconds to wait for it."""
        self._spent = max(0.0, self._spent - (now - self._at) / self._seconds) + 1
        self._at = now
        return max(0.0, self._spent - self._most) * self._seconds


class Troubles:
    """What does not work of one Node, in the log: once for each kind of error until it works again.

    An API server that starts refuses what a role allows for a moment.
    """

    def __init__(self, node: str) -> None:
        self._node = node
        self._kinds: dict[str, set[str]] = {}

    def failed(self, what: str, error: KubeApiError) -> None:
        """Log that something does not work."""
        kinds = self._kinds.setdefault(what, set())
        if type(error).__name__ not in kinds:
            kinds.add(type(error).__name__)
            command = f"device-agent admission-policy --account{' --mig' if what == WRITE_MIG else ''}"
            is_refused = isinstance(error, Forbidden | Unauthorized)
            hint = f"; compare its rights with '{command}'" if is_refused else ""
            log.warning("node %s: %s: %s%s", self._node, _WAITS[what], error, hint)

    def worked(self, what: str) -> bool:
        """Return whether it did not before, and log that it does now."""
        if self._kinds.pop(what, None) is None:
            return False
        log.info("node %s: %s", self._node, _AGAIN[what])
        return True
