"""When to reconcile: on every change that matters, when a job says so, and when a plan asked for it.

The plan's moments are counted by the monotonic clock: after the wall clock was set back by an hour the next reconcile
still comes in time.
"""

import logging
import math
import threading
import time

from driver_builder.base import free_memory, telemetry
from driver_builder.base.boundary import contained
from driver_builder.base.errors import InternalError
from driver_builder.base.retry import Backoff
from driver_builder.base.telemetry import Heartbeat
from driver_builder.controller.reconcile import Reconciler
from kube_api.errors import KubeApiError

SETTLE_SECONDS = 0.2
"""Changes come in bursts; a reconcile waits this long for the rest of one."""

TURN_SECONDS = 0.5
"""Seconds between two checks whether a reconcile is due, and between two heartbeats."""

logger = logging.getLogger(__name__)


class Controller:
    """Reconciles until stopped. All it knows between two reconciles is when the next one is due."""

    def __init__(self, *, reconciler: Reconciler, wake: threading.Event, heartbeat: Heartbeat) -> None:
        self._reconciler = reconciler
        self._wake = wake
        self._heartbeat = heartbeat
        self._is_settled = False

    def run(self, stop: threading.Event) -> None:
        """Reconcile until ``stop`` is set; waits with back-off while the API server is unreachable."""
        backoff = Backoff(first=1.0, most=30.0)
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
            return delay
        backoff.reset()
        if not self._is_settled:
            self._is_settled = True
            free_memory.settle()
        return max(outcome - time.time(), 0.0) if outcome is not None else math.inf

    def _reconciled(self) -> float | KubeApiError | InternalError | None:
        """Reconcile; returns when the next one is due, or why it failed."""
        try:
            return self._reconciler.reconcile()
        except KubeApiError as error:
            return error
