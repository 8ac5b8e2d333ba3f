"""Suspends builds that all fail for a reason outside of the drivers, and detects when they work again. Pure.

Place in the flow: the build queue has a :class:`Breaker` for all drivers and one for each driver, so that the mistakes
of one suspend no other. It reports how each build ended and asks before it starts one. Each function takes a state and
returns the next one. In memory only: a controller that restarts tries a few builds and knows again; only load depends
on it.

Closed, every build may start. Open, one build at a time may, one per ``PROBE_SECONDS``: the half-open trial. The first
build that succeeds closes it.
"""

from dataclasses import dataclass, replace

from driver_builder.base.reasons import Suspends, suspends
from kube_api.timestamps import timestamp

OPENS_AFTER = 5
"""Different keys in a row that must have failed for one reason."""

PROBE_SECONDS = 60.0

EVERYBODY = ""
"""What a breaker for a shared reason suspends: all builds; that for any other reason suspends those of one driver."""


def owner_of(reason: str, driver: str) -> str:
    """Return whose builds are likely to fail for the reason that a driver's build failed for."""
    return EVERYBODY if suspends(reason) is Suspends.ALL else driver


@dataclass(frozen=True, slots=True, kw_only=True)
class Breaker:
    """What is known of the latest builds.

    ``keys`` failed in a row for ``reason``, each counted once. ``open_since`` and ``probe_at`` (when the next trial may
    start) are seconds since the epoch; None while it is closed.
    """

    reason: str = ""
    keys: frozenset[str] = frozenset()
    open_since: float | None = None
    probe_at: float | None = None

    def __str__(self) -> str:
        """Return why builds are suspended, in words that do not change with each trial; empty while it is closed."""
        if self.open_since is None:
            return ""
        return (
            f"builds are suspended since {timestamp(self.open_since)}: {OPENS_AFTER} in a row failed for one reason,"
            f" the last with {self.reason}"
        )


def after_failure(breaker: Breaker, *, key: str, reason: str, now: float) -> Breaker:
    """Count a failure; the fifth key in a row with the same outside reason opens the breaker.

    A fault of the driver itself ends the row. It does not close an open breaker, because the build may have failed
    before the step that is broken.
    """
    if not suspends(reason):
        return breaker if breaker.open_since is not None else Breaker()
    if breaker.open_since is not None:
        return replace(breaker, reason=reason)
    keys = breaker.keys | {key} if reason == breaker.reason else frozenset({key})
    if len(keys) < OPENS_AFTER:
        return Breaker(reason=reason, keys=keys)
    return Breaker(reason=reason, keys=keys, open_since=now, probe_at=now + PROBE_SECONDS)


def after_start(breaker: Breaker, *, now: float) -> Breaker:
    """Record the start of a build: while open, the next may start after a pause."""
    return replace(breaker, probe_at=now + PROBE_SECONDS) if breaker.open_since is not None else breaker


def may_start(breaker: Breaker, *, running: int, now: float) -> bool:
    """Whether a build may start now, beside ``running`` ones."""
    return breaker.probe_at is None or (running == 0 and now >= breaker.probe_at)
