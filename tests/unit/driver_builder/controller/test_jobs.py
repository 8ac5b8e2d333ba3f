"""The table of jobs: what is done when, also by a wrong clock, and what becomes of failures."""

import logging
import threading
from collections import Counter
from collections.abc import Callable, Iterator
from datetime import UTC, datetime
from functools import partial

import pytest
import time_machine
from prometheus_client import REGISTRY

from driver_builder.controller import jobs
from driver_builder.controller.jobs import FIRST_SECONDS, JOBS, Job, JobScheduler, Parts, Ticks
from kube_api.errors import ServerUnavailable

PATIENCE = 60.0
NOW = datetime(2026, 11, 30, 12, tzinfo=UTC)
HOUR = 3600.0
OFTEN, SELDOM = 60.0, 600.0


def nothing() -> None:
    """Do nothing."""


def parts(**changes: object) -> Parts:
    """Return what the jobs of the table do: nothing, but for what is given."""
    known: dict[str, object] = dict.fromkeys(Parts.__slots__, nothing)
    return Parts(**{**known, "resync_seconds": OFTEN, **changes})  # type: ignore[arg-type]


def value(name: str, job: str) -> float | None:
    """Return what a metric of jobs says of one."""
    return REGISTRY.get_sample_value(f"driver_builder_job_{name}", {"job_name": job})


class World:
    """A clock that is set by hand, and a scheduler whose turns come when it wants them."""

    def __init__(self, clock: time_machine.Traveller) -> None:
        self.clock = clock
        self.stop = threading.Event()
        self.runs: Counter[str] = Counter()
        self.fails: dict[str, Callable[[], None]] = {}
        self.wait = 0.0
        self._scheduler: JobScheduler | None = None

    def start(self, *names: str) -> None:
        """Start jobs of these names, the first of which is due often and the others seldom."""
        rows = [self._row(name, SELDOM if number else OFTEN) for number, name in enumerate(names)]
        self._scheduler = jobs.schedule(parts(), self.stop, rows)
        self._scheduler.start()
        self.turn()

    def _row(self, name: str, seconds: float) -> Job:
        return Job(name=name, seconds=lambda _parts: seconds, work=lambda _parts: partial(self._work, name))

    def _work(self, name: str) -> None:
        self.runs[name] += 1
        self.fails.get(name, nothing)()

    def turn(self) -> dict[str, int]:
        """Let the scheduler look at the clock; returns what it ran, and how often."""
        assert self._scheduler is not None
        before = Counter(self.runs)
        wait = self._scheduler.turn()
        assert wait is not None
        self.wait = wait
        return dict(self.runs - before)

    def sleep(self, seconds: float) -> dict[str, int]:
        """Let so much time pass as the thread sees it; returns what ran meanwhile."""
        before = Counter(self.runs)
        while self.wait <= seconds:
            self.clock.shift(self.wait)
            seconds -= self.wait
            self.turn()
        self.clock.shift(seconds)
        self.wait -= seconds
        return dict(self.runs - before)

    def end(self) -> None:
        """End the scheduler."""
        if self._scheduler is not None:
            self._scheduler.shutdown()


@pytest.fixture
def world() -> Iterator[World]:
    """Return a world at noon, in which time passes only when a test says so."""
    with time_machine.travel(NOW, tick=False) as clock:
        made = World(clock)
        yield made
        made.end()


# ---------------------------------------------------------------- the table


def test_the_table_has_each_job_once() -> None:
    """Its names are values of a label: words in lower case."""
    names = [job.name for job in JOBS]
    assert len(set(names)) == len(names)
    assert all(name.replace("-", "").islower() for name in names)


def test_every_part_belongs_to_one_job() -> None:
    """None is done twice, and none is forgotten."""
    given = {name: partial(nothing) for name in Parts.__slots__ if name != "resync_seconds"}
    made = parts(**given)
    done = [job.work(made) for job in JOBS if job.seconds is not None]
    assert sorted(map(id, done)) == sorted(map(id, given.values()))


def test_the_resync_has_the_pace_of_its_setting() -> None:
    """The wait of the settings, and no other job has it."""
    paces = {job.name: job.seconds(parts(resync_seconds=7.0)) for job in JOBS if job.seconds is not None}
    assert paces["resync"] == 7.0
    assert paces == {**paces, "image-record": 600.0, "feature-rules": 300.0, "node-features": 300.0}


# ---------------------------------------------------------------- when


def test_each_job_has_its_pace(world: World) -> None:
    """The first time comes after a minute at most: a controller may not live for an interval."""
    world.start("resync", "record")
    assert world.sleep(FIRST_SECONDS - 1) == {}
    assert world.sleep(1) == {"resync": 1, "record": 1}
    assert world.sleep(HOUR) == {"resync": HOUR / OFTEN, "record": HOUR / SELDOM}


def test_ticks_that_a_clock_skipped_are_not_made_up_for() -> None:
    """From 1970 to today there is one; where the clock was set back, they go on from now."""
    ticks, long_ago = Ticks(OFTEN), datetime(1970, 1, 1, tzinfo=UTC)
    assert ticks.get_next_fire_time(long_ago, NOW) == NOW + ticks.interval
    assert ticks.get_next_fire_time(NOW, long_ago) == long_ago + ticks.interval


@pytest.mark.parametrize("ahead", [HOUR, 56 * 365 * 24 * HOUR], ids=["an hour", "from 1970"])
def test_a_clock_that_is_set_ahead_makes_each_job_due_once(world: World, ahead: float) -> None:
    """What was skipped is not made up for."""
    world.start("resync", "record")
    world.sleep(HOUR)
    world.clock.shift(ahead)
    assert world.sleep(OFTEN) == {"resync": 1, "record": 1}
    assert world.sleep(HOUR) == {"resync": HOUR / OFTEN, "record": HOUR / SELDOM}


@pytest.mark.parametrize("back", [HOUR, 24 * HOUR], ids=["an hour", "a day"])
def test_a_clock_that_is_set_back_stops_no_job(world: World, back: float) -> None:
    """The thread wakes as if nothing had happened, and each job is due."""
    world.start("resync", "record")
    world.sleep(HOUR)
    world.clock.shift(-back)
    assert world.sleep(OFTEN) == {"resync": 1, "record": 1}
    assert world.sleep(HOUR) == {"resync": HOUR / OFTEN, "record": HOUR / SELDOM}


def test_a_clock_that_is_set_back_a_little_delays_by_that_much(world: World) -> None:
    """Less than an interval is not seen as wrong."""
    world.start("resync")
    world.sleep(HOUR)
    world.clock.shift(-OFTEN / 2)
    assert world.sleep(OFTEN) == {}
    assert world.sleep(OFTEN / 2) == {"resync": 1}


def test_a_clock_that_swings_makes_no_storm(world: World) -> None:
    """Two programs set it, an hour apart: no job is done more often than the thread wakes, which is once a minute."""
    world.start("resync", "record")
    for number in range(60):
        world.clock.shift(HOUR if number % 2 else -HOUR)
        ran = world.sleep(OFTEN)
        assert ran["resync"] == 1
        assert ran.get("record", 0) <= 1


# ---------------------------------------------------------------- failures


@pytest.mark.parametrize(
    "error",
    [
        pytest.param(ServerUnavailable("GET x: 503", status=503), id="API server"),
        pytest.param(ValueError("nobody foresaw it"), id="bug"),
    ],
)
def test_a_job_that_fails_ends_no_other_and_is_done_again(
    world: World, caplog: pytest.LogCaptureFixture, error: Exception
) -> None:
    """It is logged and counted."""

    def fail() -> None:
        raise error

    failures = value("failures_total", "bad") or 0.0
    world.start("bad", "good")
    world.fails["bad"] = fail
    with caplog.at_level(logging.WARNING):
        assert world.sleep(2 * FIRST_SECONDS) == {"bad": 2, "good": 1}
    assert value("failures_total", "bad") == failures + 2
    assert value("failures_total", "good") in (None, 0.0)
    assert "bad" in caplog.text
    world.fails.clear()
    world.sleep(OFTEN)
    assert value("failures_total", "bad") == failures + 2


def test_what_the_api_server_refuses_is_no_bug(world: World, caplog: pytest.LogCaptureFixture) -> None:
    """One line, without a traceback."""

    def fail() -> None:
        raise ServerUnavailable("GET x: 503", status=503)

    world.start("bad")
    world.fails["bad"] = fail
    with caplog.at_level(logging.WARNING):
        world.sleep(OFTEN)
    assert [record.getMessage() for record in caplog.records] == [
        "job bad failed, and is tried again when it is due: GET x: 503"
    ]


# ---------------------------------------------------------------- metrics and pauses


def test_a_run_is_measured_when_it_ends(world: World) -> None:
    """Seconds since 1970, well or not."""
    world.start("measured")
    assert value("last_run_timestamp_seconds", "measured") is None
    world.sleep(OFTEN)
    assert value("last_run_timestamp_seconds", "measured") == NOW.timestamp() + OFTEN
    assert value("last_duration_seconds", "measured") is not None


def test_without_the_lease_all_jobs_are_paused() -> None:
    """And none has failed: an increase begins at 0."""
    jobs.pause_all()
    assert {value("paused", job.name) for job in JOBS} == {1.0}
    assert None not in {value("failures_total", job.name) for job in JOBS}


@pytest.mark.parametrize(
    ("compare_rules", "paused"),
    [pytest.param(nothing, set(), id="on"), pytest.param(None, {"feature-rules"}, id="off")],
)
def test_a_job_without_anything_to_do_stays_paused(compare_rules: Callable[[], None] | None, paused: set[str]) -> None:
    """``--no-feature-rules``; what the plan starts is not paused."""
    jobs.schedule(parts(compare_rules=compare_rules), threading.Event())
    assert {job.name for job in JOBS if value("paused", job.name)} == paused


def test_no_job_begins_once_the_controller_stops(world: World) -> None:
    """Also where several are due at the same moment."""
    world.start("first", "second")
    world.fails["first"] = world.stop.set
    assert world.sleep(FIRST_SECONDS) == {"first": 1}


def test_the_thread_does_the_jobs_until_it_is_stopped() -> None:
    """Then all are paused; a restart of the thread begins anew."""
    stop, done = threading.Event(), threading.Semaphore(0)
    made = parts(resync_seconds=0.01, wake=done.release)
    for _ in range(2):
        stop.clear()
        thread = threading.Thread(target=jobs.run_jobs, args=(made, stop))
        thread.start()
        assert done.acquire(timeout=PATIENCE)
        assert done.acquire(timeout=PATIENCE)
        assert value("paused", "resync") == 0.0
        stop.set()
        thread.join(PATIENCE)
        assert not thread.is_alive()
        assert value("paused", "resync") == 1.0


def test_what_the_plan_starts_is_measured_like_the_others() -> None:
    """A kernel discovery that fails is for its queue to handle: it is counted here."""
    before = value("failures_total", jobs.KERNEL_DISCOVERY) or 0.0

    @jobs.measured(jobs.KERNEL_DISCOVERY)
    def discover(releases: tuple[str, ...]) -> tuple[str, ...]:
        if not releases:
            raise ServerUnavailable("GET x: 503", status=503)
        return releases

    assert discover(("6.1",)) == ("6.1",)
    assert value("failures_total", jobs.KERNEL_DISCOVERY) in (None, before)
    with pytest.raises(ServerUnavailable):
        discover(())
    assert value("failures_total", jobs.KERNEL_DISCOVERY) == before + 1
