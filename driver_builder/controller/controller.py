"""When to reconcile: on every change that matters, on ticks, and when a plan asked for it.

APScheduler ticks by the wall clock, so the loop also checks the monotonic clock: after the
wall clock was set back by an hour the next reconcile still comes in time.
"""

import logging
import threading
import time
from datetime import datetime

from apscheduler.schedulers.background import BackgroundScheduler
from apscheduler.triggers.interval import IntervalTrigger

from driver_builder.base import free_memory, telemetry
from driver_builder.base.backoff import Backoff
from driver_builder.base.boundary import contained
from driver_builder.base.errors import InternalError
from driver_builder.base.telemetry import Heartbeat
from driver_builder.controller.reconcile import Reconciler
from kube_api.errors import KubeApiError

SETTLE_SECONDS = 0.2
"""Changes come in bursts; a reconcile waits this long for the rest of one."""

TURN_SECONDS = 0.5
"""Seconds between two checks whether a reconcile is due, and between two heartbeats."""

logger = logging.getLogger(__name__)


class Ticks(IntervalTrigger):  # type: ignore[misc]  # the library has no types
    """Ticks every so many seconds, from now on where some were missed.

    The library would list all that a clock which is set ahead has skipped: from 1970 on that is gigabytes.
    """

    def get_next_fire_time(self, previous_fire_time: datetime | None, now: datetime) -> datetime | None:
        """Return the tick after a previous one, or the first one."""
        previous = max(previous_fire_time, now) if previous_fire_time is not None else None
        following: datetime | None = super().get_next_fire_time(previous, now)
        return following


class Controller:
    """Reconciles until stopped. All it knows between two reconciles is when the next one is due."""

    def __init__(
        self, *, reconciler: Reconciler, wake: threading.Event, resync_seconds: float, heartbeat: Heartbeat
    ) -> None:
        self._reconciler = reconciler
        self._wake = wake
        self._resync_seconds = resync_seconds
        self._heartbeat = heartbeat
        self._is_settled = False

    def run(self, stop: threading.Event) -> None:
        """Reconcile until ``stop`` is set; waits with back-off while the API server is unreachable."""
        scheduler = BackgroundScheduler(
            timezone="UTC", job_defaults={"misfire_grace_time": None, "coalesce": True, "max_instances": 1}
        )
        ticks = Ticks(seconds=self._resync_seconds, jitter=1, timezone="UTC")
        scheduler.add_job(self._wake.set, ticks, id="resync")
        scheduler.start()
        backoff = Backoff(first=1.0, most=30.0)
        try:
            due = time.monotonic()
            while not stop.is_set():
                self._heartbeat.beat()
                is_woken = self._wake.wait(min(TURN_SECONDS, max(0.0, due - time.monotonic())))
                if not is_woken and time.monotonic() < due:
                    continue
                stop.wait(SETTLE_SECONDS)
                self._wake.clear()
                self._heartbeat.beat()
                delay = self._pass(backoff)
                due = time.monotonic() + delay
        finally:
            scheduler.shutdown(wait=False)

    def _pass(self, backoff: Backoff) -> float:
        """Reconcile; returns in how many seconds the next one is due although nothing changes."""
        began = time.monotonic()
        outcome = contained("pass", "over all drivers", self._reconciled, lambda error: error)
        telemetry.RECONCILE_SECONDS.labels("Failed" if isinstance(outcome, Exception) else "Succeeded").observe(
            time.monotonic() - began
        )
        if isinstance(outcome, Exception):
            asked = outcome.retry_after if isinstance(outcome, KubeApiError) else None
            delay = asked or backoff.next()
            logger.warning("reconcile failed, retrying in %.0f s: %s", delay, outcome)
            return min(delay, self._resync_seconds)
        backoff.reset()
        if not self._is_settled:
            self._is_settled = True
            free_memory.settle()
        if outcome is None:
            return self._resync_seconds
        # A moment that was computed from a wrong clock may be further away than any calendar goes.
        return min(max(outcome - time.time(), 0.0), self._resync_seconds)

    def _reconciled(self) -> float | KubeApiError | InternalError | None:
        """Reconcile; returns when the next one is due, or why it failed."""
        try:
            return self._reconciler.reconcile()
        except KubeApiError as error:
            return error
