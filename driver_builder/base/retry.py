"""How long to wait before a failed attempt is repeated, in seconds: by attempt, by time elapsed, with jitter."""

import random
from typing import NamedTuple


class Retry(NamedTuple):
    """Delays from ``first`` to ``most``. Pure."""

    first: float
    most: float

    def by_attempt(self, failures: int) -> float:
        """Return the delay after so many failures in a row: each further one doubles it."""
        return min(self.most, self.first * 2.0 ** max(0, min(failures - 1, 30)))

    def by_elapsed(self, elapsed: float) -> float:
        """Return the delay after trying for ``elapsed`` seconds: as long again."""
        return min(self.most, max(self.first, elapsed))

    def with_jitter(self, failures: int, chance: float) -> float:
        """Return the delay by attempt, moved by up to a quarter: -1 is the earliest ``chance``, 1 the latest."""
        return self.by_attempt(failures) * (1.0 + chance / 4)


def chance_of(digest: str) -> float:
    """Return a number from 0 to 1 that is the same for the same digest (hexadecimal): digests spread out."""
    return int(digest[:4], 16) / 0xFFFF


class Backoff:
    """Counts failures in a row: the delay after each has jitter, so that a fleet does not come back as one."""

    def __init__(self, *, first: float, most: float) -> None:
        self._retry = Retry(first, most)
        self._failures = 0

    def next(self) -> float:
        """Count a failure, and return the delay after it."""
        self._failures += 1
        return self._retry.with_jitter(self._failures, random.uniform(-1.0, 1.0))  # noqa: S311 - spreads load

    def reset(self) -> None:
        """Forget the failures: something worked."""
        self._failures = 0
