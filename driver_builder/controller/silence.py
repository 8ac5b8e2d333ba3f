"""Drivers whose writes get no answer: they come last, and at the second one the API server is taken to be away.

Place in the flow: ``execute`` and ``report`` write for one driver after the other. One write without an answer costs
its driver alone, because a webhook may time out in one namespace.
"""

from collections.abc import Callable, Iterable
from typing import TypeVar

from kube_api.errors import Unreachable

STRIKES = 2
"""So many drivers without an answer, and the API server is away: each further write would wait as long."""

_Item = TypeVar("_Item")


class Silence:
    """The drivers that got no answer the last time. This is only an order: a restart forgets it."""

    def __init__(self) -> None:
        self._last: set[str] = set()

    def last(self, items: Iterable[_Item], driver_of: Callable[[_Item], str]) -> list[_Item]:
        """Put what is to be written for such drivers last: they delay no other driver."""
        return sorted(items, key=lambda item: driver_of(item) in self._last)

    def is_silent(self, driver: str) -> bool:
        """Return whether a driver got no answer the last time."""
        return driver in self._last

    def begin(self) -> "Strikes":
        """Begin to write."""
        return Strikes(self._last)


class Strikes:
    """The drivers without an answer in one series of writes."""

    def __init__(self, last: set[str]) -> None:
        self._last = last
        self.unanswered: dict[str, Unreachable] = {}
        self._strikes = 0

    @property
    def is_out(self) -> bool:
        """Return whether the API server is taken to be away."""
        return self._strikes >= STRIKES

    def saw(self, error: Exception | None, *drivers: str) -> None:
        """Take note of how a write for some drivers ended."""
        self._last.difference_update(drivers)
        if isinstance(error, Unreachable):
            self._strikes += 1
            self._last.update(drivers)
            self.unanswered |= dict.fromkeys(drivers, error)
