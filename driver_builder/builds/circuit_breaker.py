"""Suspends builds that all fail for a reason outside of them, and finds out when they work again. Pure.

Place in the flow: the build queue has a :class:`Breaker` for everybody and one for each driver, so that the mistakes of
one suspend no other; it says how each build ended and asks before it starts one. Each function takes a state and gives
the next one. Memory only: a controller that is restarted tries a few builds and knows again; nothing but load depends
on it.

Closed, every build may start. Open, one build at a time may, and one per ``PROBE_SECONDS``: the probe. The first build
that succeeds closes it.
"""

from dataclasses import dataclass, replace

from driver_builder.reasons import Suspends, suspends
from driver_builder.status.status import timestamp

OPENS_AFTER = 5
"""So many different keys in a row must have failed for one reason."""

PROBE_SECONDS = 60.0

EVERYBODY = ""
"""Whose builds a breaker of a shared reason suspends; that of any other reason suspends those of one driver."""


def owner_of(reason: str, driver: str) -> str:
    """Say whose builds are likely to fail for a reason that a driver's build failed for."""
    return EVERYBODY if suspends(reason) is Suspends.ALL else driver


@dataclass(frozen=True, slots=True, kw_only=True)
class Breaker:
    """What is known of the last builds.

    ``keys`` failed in a row for ``reason``, each counted once. ``open_since`` and ``probe_at`` (when the next build may
    start) are seconds since the epoch; None while it is closed.
    """

    reason: str = ""
    keys: frozenset[str] = frozenset()
    open_since: float | None = None
    probe_at: float | None = None

    def __str__(self) -> str:
        """Say why builds are suspended, in words that stay the same from probe to probe; empty while it is closed."""
        if self.open_since is None:
            return ""
        return (
            f"builds are suspended since {timestamp(self.open_since)}: {OPENS_AFTER} in a row failed for one reason,"
            f" the last with {self.reason}"
        )


def after_failure(breaker: Breaker, *, key: str, reason: str, now: float) -> Breaker:
    """Count a failure; the fifth key in a row with the same outside reason opens the breaker.

    A failure that is the driver's own fault ends the row; it does not close an open breaker, because it may have come
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
    """A build was started: while open, the next may be in a while."""
    return replace(breaker, probe_at=now + PROBE_SECONDS) if breaker.open_since is not None else breaker


def may_start(breaker: Breaker, *, running: int, now: float) -> bool:
    """Whether a build may start now, beside ``running`` ones."""
    return breaker.probe_at is None or (running == 0 and now >= breaker.probe_at)
