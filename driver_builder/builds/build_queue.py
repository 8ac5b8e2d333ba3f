"""The builds of this controller: at most one per key, at most ``limit`` at a time, the most awaited first.

In memory only, on purpose: a finished build is an image in the registry, a failed one is in the driver's status. A
controller that is killed forgets its builds and plans them again. :func:`next_build` decides and is pure;
:class:`BuildQueue` holds the threads.
"""

import logging
import threading
import time
import traceback
from collections.abc import Callable, Iterable, Iterator, Mapping, Sequence
from concurrent.futures import Executor, ThreadPoolExecutor
from dataclasses import dataclass, field, replace
from functools import partial
from types import MappingProxyType
from typing import Any

from driver_builder.base import telemetry
from driver_builder.base.boundary import contained
from driver_builder.base.errors import DriverBuilderError
from driver_builder.base.reasons import Reason, suspends, with_remedy
from driver_builder.builds import circuit_breaker
from driver_builder.builds.bounded_log import BoundedLog
from driver_builder.builds.build_logs import Redactor
from driver_builder.builds.circuit_breaker import EVERYBODY, Breaker
from driver_builder.builds.failures import reason_of
from driver_builder.builds.own_disk import own_disk
from driver_builder.model.build import LogSink
from driver_builder.model.driver_key import DriverKey
from driver_builder.nodes.changes import StartBuild
from driver_builder.snapshot.snapshot import FailedBuild, Suspension
from kube_api.errors import KubeApiError

MAX_FAILURES = 1000
"""Failures that no status reports, because the driver was deleted or changed, are kept up to this number.

So are breakers and turns of drivers.
"""
MAX_EARLIER = 32
"""Failures of one key that are counted while no status can be written: the back-off is then at its maximum."""

Work = Callable[[StartBuild, LogSink, threading.Event], str]
"""Runs one build: the action, where log lines go, and the event that cancels it; returns the digest."""

Secrets = Callable[[StartBuild], Iterable[str]]
"""Secrets that a build uses and that must not appear in its log."""

KeepLog = Callable[[StartBuild, FailedBuild, Sequence[str]], None]
"""Keeps the log of a failed build where an admin finds it; raises nothing."""

AttachLog = Callable[[StartBuild, str, Sequence[str]], None]
"""Attaches the log of a successful build to its image, by its digest; raises nothing."""

logger = logging.getLogger(__name__)


@dataclass(frozen=True, slots=True, kw_only=True)
class QueuedBuild:
    """A build that has been queued since ``since`` (seconds since the epoch)."""

    action: StartBuild
    since: float

    @property
    def key(self) -> str:
        """The build key."""
        return self.action.request.key

    @property
    def driver(self) -> DriverKey:
        """Key of the driver that is built."""
        return self.action.request.driver


def next_build(queue: Iterable[QueuedBuild], turns: Mapping[str, int] = MappingProxyType({})) -> str | None:
    """Return the key of the build that is next; None when the queue is empty.

    Drivers take turns: ``turns`` says when each had its last one. Of one driver, the build that most nodes wait for
    comes first, then the one that has waited longest.
    """
    order = sorted(
        queue,
        key=lambda build: (turns.get(build.driver, 0), -build.action.waiting, build.since, build.key),
    )
    return order[0].key if order else None


@dataclass(frozen=True, slots=True, kw_only=True)
class BuildStates:
    """The queue at one moment.

    ``running`` are the keys that are queued or being built, ``namespaces`` those of their drivers, ``queued`` the keys
    that wait, ``failed`` the failures not yet reported. ``suspended`` says by driver, or for all under ``""``, why and
    since when only the half-open trial is started.
    """

    running: frozenset[str] = frozenset()
    namespaces: Mapping[str, str] = field(default_factory=dict)
    queued: Mapping[str, QueuedBuild] = field(default_factory=dict)
    failed: Mapping[str, FailedBuild] = field(default_factory=dict)
    suspended: Mapping[str, Suspension] = field(default_factory=dict)


@dataclass(slots=True)
class _Running:
    action: StartBuild
    started: float
    cancelled: threading.Event = field(default_factory=threading.Event)
    log: BoundedLog = field(default_factory=BoundedLog)


class BuildQueue:
    """Runs builds in the threads of ``pool`` and remembers their results until they are reported."""

    def __init__(
        self,
        work: Work,
        *,
        wake: Callable[[], None],
        limit: int = 1,
        secrets: Secrets = lambda _action: (),
        keep_log: KeepLog = lambda _action, _failure, _lines: None,
        attach_log: AttachLog = lambda _action, _digest, _lines: None,
        pool: Executor | None = None,
        clock: Callable[[], float] = time.time,
    ) -> None:
        self._work = work
        self._wake = wake
        self._limit = limit
        self._secrets = secrets
        self._keep_log = keep_log
        self._attach_log = attach_log
        self._pool = pool or ThreadPoolExecutor(max_workers=limit, thread_name_prefix="build")
        self._clock = clock
        self._lock = threading.Lock()
        self._queued: dict[str, QueuedBuild] = {}
        self._running: dict[str, _Running] = {}
        self._failed: dict[str, FailedBuild] = {}
        self._breakers: dict[str, Breaker] = {}
        self._turns: dict[str, int] = {}
        self._started = 0
        self._stopped = False

    def states(self) -> BuildStates:
        """Return what is queued, what runs, and what failed since the last report."""
        with self._lock:
            return BuildStates(
                running=frozenset(self._queued) | frozenset(self._running),
                namespaces={key: action.namespace for key, action in self._actions()},
                queued=dict(self._queued),
                failed=dict(self._failed),
                suspended={
                    owner: Suspension(why=str(breaker), probe_at=breaker.probe_at)
                    for owner, breaker in self._breakers.items()
                    if breaker.probe_at is not None
                },
            )

    def _actions(self) -> Iterator[tuple[str, StartBuild]]:
        yield from ((key, queued.action) for key, queued in self._queued.items())
        yield from ((key, running.action) for key, running in self._running.items())

    def submit(self, action: StartBuild) -> None:
        """Queue a build unless it runs; a queued one takes the new action, with its number of waiting nodes."""
        key = action.request.key
        with self._lock:
            if key in self._running:
                return
            known = self._queued.get(key)
            self._queued[key] = QueuedBuild(action=action, since=known.since if known else self._clock())
        self.dispatch()

    def cancel(self, key: str) -> None:
        """Drop a queued build, or ask a running one to stop: it leaves no failure behind."""
        with self._lock:
            self._queued.pop(key, None)
            self._failed.pop(key, None)
            running = self._running.get(key)
        if running is not None:
            running.cancelled.set()

    def dispatch(self) -> None:
        """Start what may start now; called when a build comes or ends, and by each reconcile for half-open trials."""
        with self._lock:
            while not self._stopped and len(self._running) < self._limit:
                now = self._clock()
                startable = [build for build in self._queued.values() if self._may_start(build.driver, now)]
                key = next_build(startable, self._turns)
                if key is None:
                    return
                action = self._queued.pop(key).action
                self._take_turn(action.request.driver, now)
                self._running[key] = running = _Running(action=action, started=now)
                self._pool.submit(self._run, action, running)

    def _may_start(self, driver: DriverKey, now: float) -> bool:
        """Ask the breaker for all drivers and that of the driver."""
        of_driver = sum(running.action.request.driver == driver for running in self._running.values())
        return all(
            circuit_breaker.may_start(self._breakers.get(owner, Breaker()), running=running, now=now)
            for owner, running in ((EVERYBODY, len(self._running)), (driver, of_driver))
        )

    def _take_turn(self, driver: DriverKey, now: float) -> None:
        self._started += 1
        self._turns.pop(driver, None)
        self._turns[driver] = self._started
        _prune(self._turns)
        for owner in (EVERYBODY, driver):
            if owner in self._breakers:
                self._breakers[owner] = circuit_breaker.after_start(self._breakers[owner], now=now)

    def forget(self, reported: Mapping[str, FailedBuild]) -> None:
        """Drop failures that a status has now. Until then they are counted, also while their key is built again."""
        with self._lock:
            for key, failure in reported.items():
                if self._failed.get(key) == failure:
                    del self._failed[key]

    def forget_drivers(self, is_gone: Callable[[DriverKey], bool]) -> None:
        """Drop the failures of drivers that no longer exist: no status will report them."""
        with self._lock:
            self._failed = {key: failure for key, failure in self._failed.items() if not is_gone(failure.driver)}

    def stop(self) -> None:
        """Ask every build to stop; returns when the threads have ended."""
        with self._lock:
            self._stopped = True
            self._queued.clear()
            for running in self._running.values():
                running.cancelled.set()
        self._pool.shutdown(wait=True, cancel_futures=True)

    def _run(self, action: StartBuild, running: _Running) -> None:
        failure = contained(
            "thread",
            f"build {action.request.key}",
            partial(self._build, action, running),
            lambda error: FailedBuild(reason=Reason.INTERNAL_ERROR.value, message=str(error), at=self._clock()),
            passing=(),
        )
        self._end(action, running, failure)

    def _build(self, action: StartBuild, running: _Running) -> FailedBuild | None:
        """Run a build; returns why it failed."""
        request = action.request
        redact = Redactor()

        def log(line: str) -> None:
            line = redact(line)
            running.log.add(line)
            logger.info("build %s: %s", request.key, line)

        logger.info("build %s: starting %s for %s as %s", request.key, request.driver, request.target, action.image)
        failure: FailedBuild | None = None
        try:
            redact.add(self._secrets(action))
            with own_disk():
                digest = self._work(action, log, running.cancelled)
            logger.info("build %s: done in %.1f s: %s", request.key, self._clock() - running.started, digest)
            self._attach_log(action, digest, running.log.lines())
        except (DriverBuilderError, KubeApiError) as error:
            # KubeApiError: the registry's Secret could not be read.
            failure = FailedBuild(reason=reason_of(error), message=redact(str(error)), at=self._clock())
            logger.warning("build %s: failed: %s", request.key, failure.message)
        except Exception as error:  # noqa: BLE001 - a bug must not kill the pool's thread: it is logged and shown
            words = "\n".join(redact(line) for line in traceback.format_exc().splitlines())
            logger.error("build %s: internal error\n%s", request.key, words)  # noqa: TRY400 - it may hold a secret
            failure = FailedBuild(reason=Reason.INTERNAL_ERROR.value, message=redact(repr(error)), at=self._clock())
        return failure

    def _end(self, action: StartBuild, running: _Running, failure: FailedBuild | None) -> None:
        key = action.request.key
        was_cancelled = failure is not None and running.cancelled.is_set()
        telemetry.count_build(
            seconds=self._clock() - running.started, reason=failure.reason if failure else "", cancelled=was_cancelled
        )
        if failure is not None and not was_cancelled:
            try:
                self._keep_log(
                    action,
                    failure,
                    (*running.log.lines(), f"{failure.reason}: {with_remedy(failure.reason, failure.message)}"),
                )
            except Exception:
                # A bug there must not keep the key in the queue forever.
                logger.exception("build %s: log not stored", key)
        with self._lock:
            self._running.pop(key, None)
            if failure is None:
                self._failed.pop(key, None)
                for owner in (EVERYBODY, action.request.driver):
                    self._breakers.pop(owner, None)
            elif not was_cancelled:
                self._remember(action.request.driver, key, failure)
        self.dispatch()
        self._wake()

    def _remember(self, driver: DriverKey, key: str, failure: FailedBuild) -> None:
        is_outside = bool(suspends(failure.reason))
        # A fault of the driver itself ends both rows of failures.
        owners = [circuit_breaker.owner_of(failure.reason, driver)] if is_outside else [EVERYBODY, driver]
        for owner in owners:
            before = self._breakers.get(owner, Breaker())
            after = circuit_breaker.after_failure(before, key=key, reason=failure.reason, now=self._clock())
            if after.open_since is not None and before.open_since is None:
                logger.warning("%s%s", f"{owner}: " if owner else "", after)
            self._breakers.pop(owner, None)
            if after != Breaker():
                self._breakers[owner] = after
        _prune(self._breakers)
        unreported = self._failed.pop(key, None)
        earlier = (*unreported.earlier, unreported.at) if unreported is not None else ()
        self._failed[key] = replace(failure, driver=driver, earlier=earlier[-MAX_EARLIER:])
        _prune(self._failed)


def _prune(known: dict[str, Any]) -> None:
    """Drop the oldest entry: its driver was deleted or changed."""
    while len(known) > MAX_FAILURES:
        del known[next(iter(known))]
