"""Kernel discoveries, one at a time and beside reconciles; their results are part of the next snapshot.

In memory only, on purpose: the newest kernel of each pool, and when it was found, is in the drivers' status.
"""

import logging
import threading
import time
from collections.abc import Callable, Mapping
from concurrent.futures import Executor, ThreadPoolExecutor
from dataclasses import dataclass, field, replace

from driver_builder.base import telemetry
from driver_builder.base.errors import DriverBuilderError
from driver_builder.builds.build_logs import Redactor
from driver_builder.model.repositories import Discovery, Repository
from driver_builder.nodes.changes import DiscoverKernels
from kube_api.errors import KubeApiError
from kube_api.text import printable

Work = Callable[[DiscoverKernels, threading.Event], tuple[str, ...]]
"""Runs one kernel discovery: the action, and the event that cancels it; returns the releases of the repository."""

MAX_REPOSITORIES = 200
"""Results that are kept at most: those of repositories that no driver uses any more are dropped."""

logger = logging.getLogger(__name__)


@dataclass(frozen=True, slots=True, kw_only=True)
class DiscoveryStates:
    """``done`` is the result for each repository, ``running`` are those that are being asked or queued."""

    done: Mapping[Repository, Discovery] = field(default_factory=dict)
    running: frozenset[Repository] = frozenset()


class DiscoveryQueue:
    """Asks repositories in the thread of ``pool``; ``wake`` is called when one has answered or failed."""

    def __init__(
        self,
        work: Work,
        *,
        wake: Callable[[], None],
        pool: Executor | None = None,
        clock: Callable[[], float] = time.time,
    ) -> None:
        self._work = work
        self._wake = wake
        self._pool = pool or ThreadPoolExecutor(max_workers=1, thread_name_prefix="kernel-discovery")
        self._clock = clock
        self._lock = threading.Lock()
        self._done: dict[Repository, Discovery] = {}
        self._running: set[Repository] = set()
        self._stopped = threading.Event()

    def states(self) -> DiscoveryStates:
        """Return what is known and what is being asked."""
        with self._lock:
            return DiscoveryStates(done=dict(self._done), running=frozenset(self._running))

    def submit(self, action: DiscoverKernels) -> None:
        """Ask a repository, unless that is already going on."""
        with self._lock:
            if self._stopped.is_set() or action.repository in self._running:
                return
            self._running.add(action.repository)
        self._pool.submit(self._run, action)

    def stop(self) -> None:
        """Cancel every kernel discovery; returns when the threads have ended."""
        self._stopped.set()
        self._pool.shutdown(wait=True, cancel_futures=True)

    def _run(self, action: DiscoverKernels) -> None:
        repository = action.repository
        with self._lock:
            known = self._done.get(repository, Discovery())
        try:
            releases = self._work(action, self._stopped)
            found = Discovery(releases=releases, at=self._clock())
            logger.info("%s: %d kernels", action, len(releases))
        except (DriverBuilderError, KubeApiError) as error:
            # KubeApiError: the registry's Secret could not be read.
            # Programs may print the address of a proxy, with its password.
            words = Redactor()(str(error))
            found = replace(known, error=printable(words), error_at=self._clock())
            logger.warning("%s: failed: %s", action, words)
        except Exception as error:
            # A bug must not keep the repository in the queue forever.
            logger.exception("%s: internal error", action)
            found = replace(known, error=printable(repr(error)), error_at=self._clock())
        telemetry.KERNEL_DISCOVERIES.labels("Failed" if found.error_at is not None else "Succeeded").inc()
        with self._lock:
            self._running.discard(repository)
            self._done.pop(repository, None)
            self._done[repository] = found
            while len(self._done) > MAX_REPOSITORIES:
                # The oldest: its result is in the status of the drivers that needed it.
                del self._done[next(iter(self._done))]
        if not self._stopped.is_set():
            self._wake()
