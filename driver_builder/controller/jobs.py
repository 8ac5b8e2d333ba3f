"""What the controller does by the clock: one table of jobs, which APScheduler carries in one thread.

Place in the flow: ``run`` starts the thread beside the reconciles, once the Lease is held; it ends with the controller.
A job decides nothing about a driver: when one is due is an answer of the plan (``requeue_at``).

The library goes by the wall clock, which may be wrong. After it is set ahead each job is due once, and then at its pace
again. After it is set back none is due for as long; the thread sleeps by the monotonic clock, and sees that it is so.
"""

import logging
import threading
import time
from collections.abc import Callable, Iterator, Sequence
from contextlib import contextmanager
from dataclasses import dataclass
from datetime import UTC, datetime, timedelta
from functools import partial

from apscheduler.executors.debug import DebugExecutor
from apscheduler.schedulers.base import BaseScheduler
from apscheduler.triggers.base import BaseTrigger

from driver_builder.base import telemetry
from driver_builder.base.boundary import contained
from kube_api.errors import KubeApiError

FIRST_SECONDS = 60.0
"""A job runs so long after the start, if it is not due sooner: some controllers do not live for its interval."""
KERNEL_DISCOVERY = "kernel-discovery"
NAME = "jobs"
"""The name of the thread."""

logger = logging.getLogger(__name__)

Work = Callable[[], None]


@dataclass(frozen=True, slots=True, kw_only=True)
class Parts:
    """What the jobs do, in the words of those who do it; ``compare_rules`` is None without rules for the workers."""

    resync_seconds: float
    wake: Work
    record_images: Work
    forget_answers: Work
    compare_labels: Work
    compare_rules: Work | None


@dataclass(frozen=True, slots=True, kw_only=True)
class Job:
    """A row: what is done, and every how many seconds. Without ``seconds`` it is the plan that starts it.

    All pause without the Lease and when the controller stops; one that has no work here stays paused.
    """

    name: str
    seconds: Callable[[Parts], float] | None = None
    work: Callable[[Parts], Work | None] = lambda _parts: None


def _every(seconds: float) -> Callable[[Parts], float]:
    return lambda _parts: seconds


JOBS = (
    # A reconcile, though nothing has changed.
    Job(name="resync", seconds=lambda parts: parts.resync_seconds, work=lambda parts: parts.wake),
    # Which images are needed: `gc` removes none that was, for so many days.
    Job(name="image-record", seconds=_every(600.0), work=lambda parts: parts.record_images),
    # What registries said of images that nobody wants any more.
    Job(name="image-answers", seconds=_every(60.0), work=lambda parts: parts.forget_answers),
    # The workers' ConfigMap, and the labels of NodeFeature objects: somebody may have changed them by hand.
    Job(name="feature-rules", seconds=_every(300.0), work=lambda parts: parts.compare_rules),
    Job(name="node-features", seconds=_every(300.0), work=lambda parts: parts.compare_labels),
    # Prebuilds (`spec.preflight`): a repository is due by the times in the drivers' status.
    Job(name=KERNEL_DISCOVERY),
)


def pause_all() -> None:
    """Show that no job runs: without the Lease, and when the controller stops."""
    for job in JOBS:
        telemetry.JOB_PAUSED.labels(job.name).set(1)
        # From the start, so that the first failure is an increase.
        telemetry.JOB_FAILURES.labels(job.name)


@contextmanager
def measured(name: str) -> Iterator[None]:
    """Measure a run of a job, and count it if it fails."""
    began = time.monotonic()
    try:
        yield
    except Exception:
        telemetry.JOB_FAILURES.labels(name).inc()
        raise
    finally:
        telemetry.JOB_LAST_DURATION.labels(name).set(time.monotonic() - began)
        telemetry.JOB_LAST_RUN.labels(name).set(time.time())


def run_jobs(parts: Parts, stop: threading.Event) -> None:
    """Run the jobs until ``stop`` is set."""
    scheduler = schedule(parts, stop)
    scheduler.start()
    try:
        while not stop.is_set():
            stop.wait(scheduler.turn())
    finally:
        scheduler.shutdown()
        pause_all()


def schedule(parts: Parts, stop: threading.Event, jobs: Sequence[Job] = JOBS) -> "JobScheduler":
    """Make the scheduler of a table; a job without anything to do stays paused."""
    scheduler = JobScheduler(
        timezone=UTC,
        executors={"default": DebugExecutor()},
        job_defaults={"misfire_grace_time": None, "coalesce": True, "max_instances": 1},
    )
    now = datetime.now(UTC)
    for job in jobs:
        work = job.work(parts)
        telemetry.JOB_PAUSED.labels(job.name).set(int(work is None and job.seconds is not None))
        if work is not None and job.seconds is not None:
            ticks = Ticks(job.seconds(parts))
            first = now + min(ticks.interval, timedelta(seconds=FIRST_SECONDS))
            run = partial(_run, job.name, work, stop)
            scheduler.add_job(run, ticks, id=job.name, name=job.name, next_run_time=first)
    return scheduler


def _run(name: str, work: Work, stop: threading.Event) -> None:
    """Do a job's work; its failure is its own."""
    if stop.is_set():
        return
    try:
        contained("job", name, measured(name)(work), lambda _error: None)
    except KubeApiError as error:
        logger.warning("job %s failed, and is tried again when it is due: %s", name, error)


class Ticks(BaseTrigger):  # type: ignore[misc]  # the library has no types
    """Due every so many seconds from now on: what a clock that is set ahead has skipped is not made up for."""

    def __init__(self, seconds: float) -> None:
        self.interval = timedelta(seconds=seconds)

    def get_next_fire_time(self, _previous_fire_time: datetime | None, now: datetime) -> datetime:
        """Return when a job is due that is done now."""
        return now + self.interval


class JobScheduler(BaseScheduler):  # type: ignore[misc]  # as above
    """The library's scheduler in a thread of ours, which also does the jobs, one after the other."""

    def turn(self) -> float | None:
        """Do what is due; returns in how many seconds something is due again."""
        now = datetime.now(UTC)
        for job in self.get_jobs():
            if job.next_run_time - now > job.trigger.interval:
                # The clock was set back.
                job.modify(next_run_time=now)
        seconds: float | None = self._process_jobs()
        return seconds

    def wakeup(self) -> None:
        """Do nothing: jobs are added before the first turn."""

    def shutdown(self, wait: bool = True) -> None:
        """End; nothing runs between two turns."""
        super().shutdown(wait)
