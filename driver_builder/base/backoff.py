"""How long to wait after the n-th failure in a row: doubling, with jitter so that a fleet does not come back as one."""

import random


class Backoff:
    """Delays in seconds from ``first`` to ``most``."""

    def __init__(self, *, first: float, most: float) -> None:
        self._first = first
        self._most = most
        self._failures = 0

    def next(self) -> float:
        """Give the next delay."""
        delay: float = min(self._most, self._first * 2.0 ** min(self._failures, 30))
        self._failures += 1
        return delay * random.uniform(0.75, 1.25)  # noqa: S311 - spreading load needs no secrecy

    def reset(self) -> None:
        """Forget the failures: something worked."""
        self._failures = 0
