"""The builds that run in this controller now: at most one for each key, at most ``limit`` at a time.

Memory only, on purpose: a finished build is an image in the registry, a failed one a line in the driver's status. A
controller that is killed forgets its running builds and plans them again.
"""

import logging
import threading
import time
from collections import deque
from collections.abc import Callable, Mapping
from concurrent.futures import ThreadPoolExecutor
from dataclasses import dataclass, field

from driver_builder import telemetry
from driver_builder.actions import StartBuild
from driver_builder.build import LogSink
from driver_builder.errors import (
    BuildFailed,
    BuildFailure,
    DriverBuilderError,
    RegistryRefused,
    RegistryUnavailable,
    VerificationFailed,
)
from driver_builder.snapshot import FailedBuild
from driver_builder.status import Reason
from kube_api.errors import KubeApiError

LOG_TAIL = 200

MAX_FAILURES = 1000
"""Failures that no driver's status ever tells, because the driver was deleted or changed, are kept up to so many."""

Work = Callable[[StartBuild, LogSink, threading.Event], str]
"""Does one build: the action, where log lines go, and the event that asks it to stop; gives the digest."""

logger = logging.getLogger(__name__)


@dataclass(slots=True)
class _Running:
    started: float
    cancelled: threading.Event = field(default_factory=threading.Event)
    tail: deque[str] = field(default_factory=lambda: deque(maxlen=LOG_TAIL))


class BuildQueue:
    """Runs builds in threads and remembers how they ended until that was reported."""

    def __init__(self, work: Work, *, wake: Callable[[], None], limit: int = 1) -> None:
        self._work = work
        self._wake = wake
        self._pool = ThreadPoolExecutor(max_workers=limit, thread_name_prefix="build")
        self._lock = threading.Lock()
        self._running: dict[str, _Running] = {}
        self._failed: dict[str, FailedBuild] = {}

    def states(self) -> tuple[frozenset[str], Mapping[str, FailedBuild]]:
        """Give the keys that are queued or running, and the failures not yet reported."""
        with self._lock:
            return frozenset(self._running), dict(self._failed)

    def submit(self, action: StartBuild) -> None:
        """Start a build unless one of the same key is queued or running."""
        key = action.request.key
        with self._lock:
            if key in self._running:
                return
            self._running[key] = running = _Running(started=time.time())
            self._failed.pop(key, None)
        self._pool.submit(self._run, action, running)

    def forget(self, reported: Mapping[str, FailedBuild]) -> None:
        """Drop failures that are in a status now."""
        with self._lock:
            for key, failure in reported.items():
                if self._failed.get(key) == failure:
                    del self._failed[key]

    def stop(self) -> None:
        """Ask every build to stop; returns when the threads have ended."""
        with self._lock:
            for running in self._running.values():
                running.cancelled.set()
        self._pool.shutdown(wait=True, cancel_futures=True)

    def _run(self, action: StartBuild, running: _Running) -> None:
        request = action.request

        def log(line: str) -> None:
            running.tail.append(line)
            logger.info("build %s: %s", request.key, line)

        logger.info("build %s: starting %s for %s as %s", request.key, request.driver, request.target, action.image)
        try:
            digest = self._work(action, log, running.cancelled)
        except (DriverBuilderError, KubeApiError) as error:
            # KubeApiError: the registry's Secret could not be read.
            self._end(action, running, FailedBuild(reason=_reason(error), message=str(error), at=time.time()))
            logger.warning("build %s: failed: %s", request.key, error)
        except Exception as error:
            # A bug must not kill the pool's thread silently: it is logged whole and shown as what it is.
            logger.exception("build %s: internal error", request.key)
            self._end(action, running, FailedBuild(reason="InternalError", message=repr(error), at=time.time()))
        else:
            logger.info("build %s: done in %.1f s: %s", request.key, time.time() - running.started, digest)
            self._end(action, running, None)

    def _end(self, action: StartBuild, running: _Running, failure: FailedBuild | None) -> None:
        result = failure.reason if failure is not None else "Succeeded"
        telemetry.BUILDS.labels(result).inc()
        telemetry.BUILD_SECONDS.labels(result).observe(time.time() - running.started)
        with self._lock:
            self._running.pop(action.request.key, None)
            if failure is not None:
                self._failed[action.request.key] = failure
                while len(self._failed) > MAX_FAILURES:
                    del self._failed[next(iter(self._failed))]
        self._wake()


def _reason(error: DriverBuilderError | KubeApiError) -> str:
    match error:
        case BuildFailed(reason=reason) | VerificationFailed(reason=reason):
            return reason.value
        case RegistryRefused():
            return Reason.REGISTRY_UNAUTHORIZED.value
        case RegistryUnavailable():
            return Reason.REGISTRY_UNREACHABLE.value
        case _:
            return BuildFailure.BUILDER_UNAVAILABLE.value
