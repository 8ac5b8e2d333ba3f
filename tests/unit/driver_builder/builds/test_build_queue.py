"""The build queue with real threads: one build per key, failures by class, an end on request."""

import errno
import threading
from collections.abc import Callable, Iterable, Iterator, Sequence
from concurrent.futures import Executor, Future
from dataclasses import replace
from typing import Any

import pytest
from hypothesis import given
from hypothesis import strategies as st

from driver_builder.base.errors import BuildFailed, RegistryUnauthorized, VerificationFailed
from driver_builder.base.reasons import Reason, remedy_of
from driver_builder.builds import build_queue
from driver_builder.builds.build_queue import MAX_EARLIER, BuildQueue, BuildStates, QueuedBuild, next_build
from driver_builder.builds.circuit_breaker import EVERYBODY, OPENS_AFTER, PROBE_SECONDS
from driver_builder.model.build import LogSink
from driver_builder.model.image_state import Absent
from driver_builder.nodes.changes import StartBuild
from driver_builder.plan.plan import plan
from driver_builder.snapshot.snapshot import FailedBuild
from kube_api.errors import Forbidden
from tests.support.driver_builder.factories import OTHER_KERNEL, SETTINGS, keyed, node, snapshot, with_images

ACTIONS = [
    action
    for action in plan(with_images(snapshot(node(), node("b", OTHER_KERNEL)), Absent()), SETTINGS).actions
    if isinstance(action, StartBuild)
]
ACTION, OTHER = ACTIONS
KEY, OTHER_KEY = ACTION.request.key, OTHER.request.key
PATIENCE = 60.0


class Bench:
    """Builds that wait until the test lets them end."""

    def __init__(self, *, limit: int = 1) -> None:
        self.started: list[str] = []
        self.woken = threading.Semaphore(0)
        self.running = threading.Semaphore(0)
        self.go = threading.Semaphore(0)
        self.error: BaseException | None = None
        self.queue = BuildQueue(self._work, wake=self._wake, limit=limit)

    def _work(self, action: StartBuild, log: LogSink, cancelled: threading.Event) -> str:
        self.started.append(action.request.key)
        log("a line")
        self.running.release()
        while not self.go.acquire(timeout=0.01):
            if cancelled.is_set():
                raise BuildFailed(Reason.CANCELLED, "cancelled")
        if self.error is not None:
            raise self.error
        return "sha256:0"

    def _wake(self) -> None:
        self.woken.release()

    def let_one_end(self) -> None:
        """Let one build end and wait until the controller was woken for it."""
        self.go.release()
        assert self.woken.acquire(timeout=PATIENCE)


@pytest.fixture
def make_bench() -> Iterator[Callable[..., Bench]]:
    """Make benches that are stopped after the test."""
    made: list[Bench] = []

    def make(*, limit: int = 1) -> Bench:
        made.append(Bench(limit=limit))
        return made[-1]

    yield make
    for bench in made:
        bench.queue.stop()


MakeBench = Callable[..., Bench]


def test_a_key_runs_once(make_bench: MakeBench) -> None:
    """Submitting a key that is queued or running does nothing."""
    bench = make_bench(limit=2)
    for _ in range(3):
        bench.queue.submit(ACTION)
    assert bench.running.acquire(timeout=PATIENCE)
    assert bench.queue.states() == BuildStates(running=frozenset([KEY]), namespaces={KEY: ACTION.namespace})
    bench.let_one_end()
    assert bench.started == [KEY]
    assert bench.queue.states() == BuildStates()


def test_a_limit_holds(make_bench: MakeBench) -> None:
    """Beyond the limit builds wait, and count as running for the plan."""
    bench = make_bench(limit=1)
    bench.queue.submit(ACTION)
    bench.queue.submit(OTHER)
    assert bench.running.acquire(timeout=PATIENCE)
    assert bench.queue.states().running == {KEY, OTHER_KEY}
    assert set(bench.queue.states().queued) == {OTHER_KEY}
    assert bench.started == [KEY]
    bench.let_one_end()
    bench.let_one_end()
    assert bench.started == [KEY, OTHER_KEY]


def test_the_same_key_can_be_built_again(make_bench: MakeBench) -> None:
    """Once it has ended a key may be submitted anew."""
    bench = make_bench()
    for _ in range(2):
        bench.queue.submit(ACTION)
        bench.let_one_end()
    assert bench.started == [KEY, KEY]


@pytest.mark.parametrize(
    ("error", "reason", "words"),
    [
        pytest.param(BuildFailed(Reason.HEADERS_MISSING, "no headers"), "HeadersMissing", "no headers", id="build"),
        pytest.param(VerificationFailed(Reason.WRONG_SYMBOL_CRC, "printk"), "WrongSymbolCRC", "printk", id="verify"),
        pytest.param(RegistryUnauthorized("401"), "RegistryUnauthorized", "401", id="registry"),
        pytest.param(Forbidden("GET secret: 403"), "ActionRefused", "GET secret: 403", id="secret unreadable"),
        pytest.param(
            OSError(errno.ENOSPC, "No space left on device", "/tmp/x/layer"),
            "DiskFull",
            "the controller's own disk is full ([Errno 28] No space left on device: '/tmp/x/layer'); increase "
            "the size of its temporary folder",
            id="no room for the image",
        ),
        pytest.param(OSError(errno.EIO, "I/O error"), "InternalError", "OSError(5, 'I/O error')", id="a broken disk"),
        pytest.param(ZeroDivisionError("bug"), "InternalError", "ZeroDivisionError('bug')", id="a bug"),
    ],
)
def test_a_failure_is_remembered_by_its_class(
    make_bench: MakeBench, error: BaseException, reason: str, words: str
) -> None:
    """Whatever ends a build badly has a reason for status, Events and metrics, and the queue lives on."""
    bench = make_bench()
    bench.error = error
    bench.queue.submit(ACTION)
    bench.let_one_end()
    failed = bench.queue.states().failed
    assert (failed[KEY].reason, failed[KEY].message) == (reason, words)
    bench.error = None
    bench.queue.submit(ACTION)
    bench.let_one_end()
    assert bench.queue.states().failed == {}, "a build that ends well forgets the failure before"


def test_reported_failures_are_forgotten(make_bench: MakeBench) -> None:
    """Only the very failures that were reported go; a newer one of the same key stays."""
    bench = make_bench()
    bench.error = BuildFailed(Reason.BUILD_ERROR, "first")
    bench.queue.submit(ACTION)
    bench.let_one_end()
    first = bench.queue.states().failed
    bench.error = BuildFailed(Reason.BUILD_ERROR, "second")
    bench.queue.submit(ACTION)
    bench.let_one_end()
    bench.queue.forget(first)
    second = bench.queue.states().failed
    assert second[KEY].message == "second"
    bench.queue.forget(second)
    assert bench.queue.states() == BuildStates()


def test_failures_that_are_not_reported_are_kept_up_to_a_number(
    make_bench: MakeBench, monkeypatch: pytest.MonkeyPatch
) -> None:
    """The failures of deleted drivers and older sources do not pile up; the oldest go first."""
    monkeypatch.setattr(build_queue, "MAX_FAILURES", 1)
    bench = make_bench()
    bench.error = BuildFailed(Reason.BUILD_ERROR, "no")
    for action in (ACTION, OTHER):
        bench.queue.submit(action)
        bench.let_one_end()
    assert list(bench.queue.states().failed) == [OTHER_KEY]


def test_stopping_cancels_what_runs_and_what_waits() -> None:
    """When the controller stops, running builds are asked to end and waiting ones never start."""
    bench = Bench(limit=1)
    bench.queue.submit(ACTION)
    bench.queue.submit(OTHER)
    assert bench.running.acquire(timeout=PATIENCE)
    bench.queue.stop()
    bench.queue.submit(OTHER)
    assert bench.started == [KEY]
    assert bench.queue.states().failed == {}


# ---------------------------------------------------------------- without threads


class ManualPool(Executor):
    """Runs what it is given when the test says so."""

    def __init__(self) -> None:
        self.given: list[Callable[[], object]] = []

    def submit(self, fn: Callable[..., Any], /, *args: Any, **kwargs: Any) -> Future[Any]:
        """Keep the call for later."""
        self.given.append(lambda: fn(*args, **kwargs))
        return Future()

    def run(self, number: int = 0) -> None:
        """Do one of the calls."""
        self.given.pop(number)()


def build(key: str, waiting: int = 1, *, driver: str = ACTION.request.driver) -> StartBuild:
    """Make an action of any key."""
    return replace(ACTION, request=keyed(ACTION.request, key, driver=driver), waiting=waiting)


class Line:
    """A queue whose builds end as the test says: ``reasons`` are those of keys that fail."""

    def __init__(self, *, limit: int = 1) -> None:
        self.pool = ManualPool()
        self.now = 1_700_000_000.0
        self.reasons: dict[str, Reason] = {}
        self.started: list[str] = []
        self.done: set[str] = set()
        self.kept: list[tuple[str, str, Sequence[str]]] = []
        self.attached: list[tuple[str, str, Sequence[str]]] = []
        self.secrets: tuple[str, ...] = ()
        self.says = "a line"
        self.queue = BuildQueue(
            self._work,
            wake=lambda: None,
            limit=limit,
            secrets=lambda _action: self.secrets,
            keep_log=self._keep,
            attach_log=lambda action, digest, lines: self.attached.append((action.request.key, digest, lines)),
            pool=self.pool,
            clock=lambda: self.now,
        )

    def _work(self, action: StartBuild, log: LogSink, _cancelled: threading.Event) -> str:
        key = action.request.key
        self.started.append(key)
        log(self.says)
        if key in self.reasons:
            raise BuildFailed(self.reasons[key], f"{key}: {self.says}")
        self.done.add(key)
        return "sha256:0"

    def _keep(self, action: StartBuild, failure: FailedBuild, lines: Sequence[str]) -> None:
        self.kept.append((action.request.key, failure.message, lines))

    def run_all(self) -> None:
        """Let builds end until none runs."""
        while self.pool.given:
            self.pool.run()


def failing() -> Line:
    """Make a queue whose build of one key fails, a second later each time."""
    line = Line()
    line.reasons = {"a": Reason.COMPILE_ERROR}
    return line


def fail(line: Line, times: int) -> None:
    """Build the key again and again."""
    for _ in range(times):
        line.queue.submit(build("a"))
        line.run_all()
        line.now += 1


def test_failures_are_counted_until_a_status_reports_them() -> None:
    """Also while the key is built again; up to a number, beyond which the wait grows no more."""
    line, start = failing(), Line().now
    fail(line, 3)
    line.queue.submit(build("a"))
    assert line.queue.states().failed["a"].earlier == (start, start + 1)
    line.run_all()
    fail(line, 2 * MAX_EARLIER)
    noted = line.queue.states().failed
    assert len(noted["a"].earlier) == MAX_EARLIER
    line.queue.forget(noted)
    fail(line, 1)
    assert line.queue.states().failed["a"].earlier == ()


@pytest.mark.parametrize("how", ["built", "cancelled", "its driver is gone"])
def test_failures_that_no_status_will_report_are_forgotten(how: str) -> None:
    """A failure is dropped when no status will report it any more."""
    line = failing()
    fail(line, 2)
    if how == "built":
        line.reasons = {}
        fail(line, 1)
    elif how == "cancelled":
        line.queue.cancel("a")
    else:
        line.queue.forget_drivers(lambda driver: driver != build("a").request.driver)
        assert line.queue.states().failed
        line.queue.forget_drivers(lambda driver: driver == build("a").request.driver)
    assert line.queue.states().failed == {}


def test_the_log_of_a_good_build_goes_to_its_image_and_that_of_a_bad_one_beside_its_driver() -> None:
    """Each once, redacted, with every line; that of a failure ends with its reason."""
    line = Line()
    line.secrets = ("hunter2",)
    line.says = "login hunter2"
    line.reasons["bad"] = Reason.COMPILE_ERROR
    for key in ("good", "bad"):
        line.queue.submit(build(key))
    line.run_all()
    assert line.attached == [("good", "sha256:0", ["login ***"])]
    assert line.kept == [
        ("bad", "bad: login ***", ("login ***", f"CompileError: bad: login ***. {remedy_of('CompileError')}"))
    ]


def fail_in_a_row(line: Line, count: int = OPENS_AFTER) -> None:
    """Let builds of different keys fail for one reason that is not theirs."""
    for number in range(count):
        line.reasons[f"bad-{number}"] = Reason.DISK_FULL
        line.queue.submit(build(f"bad-{number}"))
        line.run_all()


@pytest.mark.parametrize(
    ("queue", "first"),
    [
        pytest.param([], None, id="nothing waits"),
        pytest.param([("a", 1, 0.0), ("b", 5, 9.0)], "b", id="most nodes"),
        pytest.param([("a", 2, 9.0), ("b", 2, 1.0)], "b", id="then longest queued"),
        pytest.param([("b", 2, 1.0), ("a", 2, 1.0)], "a", id="then by key"),
    ],
)
def test_the_most_awaited_build_is_next(queue: list[tuple[str, int, float]], first: str | None) -> None:
    """Waiting nodes, then age, then the key so that there is always one answer."""
    assert next_build([QueuedBuild(action=build(key, nodes), since=since) for key, nodes, since in queue]) == first


def test_a_queued_build_moves_up_when_more_nodes_wait() -> None:
    """Submitting it again changes its number of nodes and nothing else."""
    line = Line()
    for key, waiting in (("running", 1), ("a", 2), ("b", 1)):
        line.queue.submit(build(key, waiting))
        line.now += 1
    line.queue.submit(build("b", 3))
    assert line.queue.states().queued["b"].since == line.now - 1
    line.run_all()
    assert line.started == ["running", "b", "a"]


def test_a_cancelled_build_in_the_queue_never_starts() -> None:
    """It is gone, and nothing is reported of it."""
    line = Line()
    line.queue.submit(build("a"))
    line.queue.submit(build("b"))
    line.queue.cancel("b")
    line.queue.cancel("unknown")
    line.run_all()
    assert line.started == ["a"]
    assert line.queue.states() == BuildStates()


def test_a_running_build_that_is_cancelled_leaves_no_failure(make_bench: MakeBench) -> None:
    """It ends, makes room, and counts as no failure if its key is wanted again."""
    bench = make_bench()
    bench.queue.submit(ACTION)
    bench.queue.submit(OTHER)
    assert bench.running.acquire(timeout=PATIENCE)
    bench.queue.cancel(KEY)
    assert bench.woken.acquire(timeout=PATIENCE)
    assert bench.running.acquire(timeout=PATIENCE)
    assert bench.started == [KEY, OTHER_KEY]
    assert bench.queue.states().failed == {}
    bench.let_one_end()


def test_a_failed_build_leaves_its_log() -> None:
    """The last lines and, after them, why it failed and what to do; a build that worked leaves none."""
    line = Line()
    line.reasons["a"] = Reason.COMPILE_ERROR
    for key in ("a", "b"):
        line.queue.submit(build(key))
    line.run_all()
    assert line.kept == [("a", "a: a line", ("a line", f"CompileError: a: a line. {remedy_of('CompileError')}"))]


def test_no_secret_is_logged_kept_or_reported(caplog: pytest.LogCaptureFixture) -> None:
    """A registry password that a build prints is in neither the controller's log, the kept one, nor the status."""
    line = Line()
    line.secrets = ("hunter2",)
    line.says = "login -p hunter2, then https://bob:s3cret@repo.example.com/"
    line.reasons["a"] = Reason.BUILD_ERROR
    caplog.set_level("DEBUG")
    line.queue.submit(build("a"))
    line.run_all()
    everything = f"{caplog.text}{line.kept}{line.queue.states().failed}"
    assert "login -p ***" in everything
    assert "hunter2" not in everything
    assert "s3cret" not in everything


def test_a_secret_that_cannot_be_read_is_a_failure() -> None:
    """Nothing is built before it is known what must not be said."""

    def refuse(_action: StartBuild) -> Iterable[str]:
        raise RegistryUnauthorized("no Secret")

    pool = ManualPool()
    queue = BuildQueue(lambda *_: "sha256:0", wake=lambda: None, secrets=refuse, pool=pool)
    queue.submit(ACTION)
    pool.run()
    assert queue.states().failed[KEY].reason == "RegistryUnauthorized"


def test_builds_that_fail_alike_are_suspended_and_probed() -> None:
    """After a row of failures one build is tried per interval; the first success lets all others go on."""
    line = Line(limit=2)
    fail_in_a_row(line)
    for key in ("a", "b", "c"):
        line.queue.submit(build(key))
    states = line.queue.states()
    suspension = states.suspended[EVERYBODY]
    assert "DiskFull" in suspension.why
    assert (set(states.queued), suspension.probe_at) == ({"a", "b", "c"}, line.now + PROBE_SECONDS)
    line.queue.dispatch()
    assert line.pool.given == []
    line.reasons["a"] = Reason.DISK_FULL
    line.now += PROBE_SECONDS
    line.queue.dispatch()
    line.queue.dispatch()
    assert len(line.pool.given) == 1, "one probe, though two builds may run"
    line.run_all()
    assert line.queue.states().suspended, "the probe failed"
    line.now += PROBE_SECONDS
    line.queue.dispatch()
    line.pool.run()
    assert not line.queue.states().suspended
    line.run_all()
    assert line.done == {"b", "c"}


def test_one_drivers_mistakes_suspend_its_own_builds() -> None:
    """A base image that is misspelt, on five kernels, keeps no other driver waiting."""
    line = Line()
    for number in range(OPENS_AFTER):
        line.reasons[f"bad-{number}"] = Reason.BASE_IMAGE_MISSING
        line.queue.submit(build(f"bad-{number}", driver="team-b/typo"))
        line.run_all()
    assert set(line.queue.states().suspended) == {"team-b/typo"}
    line.queue.submit(build("more", driver="team-b/typo"))
    line.queue.submit(build("good", driver="team-a/edu"))
    line.run_all()
    assert line.done == {"good"}
    line.now += PROBE_SECONDS
    line.queue.dispatch()
    line.run_all()
    assert line.done == {"good", "more"}
    assert line.queue.states().suspended == {}


def test_drivers_take_turns() -> None:
    """A driver with many kernels and many waiting nodes does not keep the only place."""
    line = Line()
    for number in range(3):
        line.queue.submit(build(f"big-{number}", 100, driver="n/big"))
    line.queue.submit(build("small", 1, driver="n/small"))
    line.pool.run()
    assert line.done == {"big-0"}
    line.pool.run()
    assert line.done == {"big-0", "small"}


def test_the_suspension_is_logged_once(caplog: pytest.LogCaptureFixture) -> None:
    """Not for each further failure."""
    line = Line()
    fail_in_a_row(line)
    line.queue.submit(build("late"))
    line.reasons["late"] = Reason.DISK_FULL
    line.now += PROBE_SECONDS
    line.queue.dispatch()
    line.run_all()
    assert caplog.text.count("builds are suspended") == 1


def test_a_bug_reports_no_secret_and_frees_its_place(caplog: pytest.LogCaptureFixture) -> None:
    """Its traceback is logged without what nobody may read, and a log that cannot be kept stops nothing."""

    def work(*_: object) -> str:
        raise ZeroDivisionError("hunter2")

    def keep(*_: object) -> None:
        raise KeyError("labels")

    pool = ManualPool()
    queue = BuildQueue(work, wake=lambda: None, secrets=lambda _: ("hunter2",), keep_log=keep, pool=pool)
    queue.submit(ACTION)
    pool.run()
    assert queue.states().failed[KEY].message == "ZeroDivisionError('***')"
    assert "in work" in caplog.text
    assert "log not stored" in caplog.text
    assert "hunter2" not in caplog.text
    assert queue.states().running == frozenset()


KEYS = [f"key-{number}" for number in range(8)]
FAILURES = st.sampled_from([None, Reason.DISK_FULL, Reason.REPOSITORY_UNAVAILABLE, Reason.CANCELLED])
STEP = st.one_of(
    st.tuples(st.just("submit"), st.sampled_from(KEYS), st.integers(1, 9)),
    st.tuples(st.just("cancel"), st.sampled_from(KEYS), st.just(0)),
    st.tuples(st.just("end"), st.just(""), st.integers(0, 3)),
    st.tuples(st.just("wait"), st.just(""), st.sampled_from([1, 30, 60])),
)


@given(st.integers(1, 3), st.lists(STEP, max_size=40), st.dictionaries(st.sampled_from(KEYS), FAILURES))
def test_whatever_comes_the_queue_keeps_its_promises(
    limit: int, steps: list[tuple[str, str, int]], failures: dict[str, Reason | None]
) -> None:
    """Never two builds of a key, never more than the limit, the most awaited first, all built when failures stop."""
    line = Line(limit=limit)
    line.reasons = {key: reason for key, reason in failures.items() if reason is not None}
    wanted: set[str] = set()

    def check(before: BuildStates) -> None:
        after = line.queue.states()
        building = after.running - set(after.queued)
        assert len(line.pool.given) == len(building) <= limit
        fresh = [build for key, build in before.queued.items() if key in building]
        left = [build for key, build in after.queued.items() if before.queued.get(key) == build]
        assert all(new.action.waiting >= old.action.waiting for new in fresh for old in left)
        if after.suspended and not before.suspended:
            assert before.queued.keys() == after.queued.keys(), "nothing starts when builds have just been suspended"

    for verb, key, number in steps:
        before = line.queue.states()
        if verb == "submit":
            line.queue.submit(build(key, number))
            wanted.add(key)
        elif verb == "cancel":
            line.queue.cancel(key)
            wanted.discard(key)
        elif verb == "wait":
            line.now += number
            line.queue.dispatch()
        elif line.pool.given:
            line.pool.run(number % len(line.pool.given))
        check(before)

    line.reasons = {}
    for _ in range(len(KEYS) + 1):
        line.run_all()
        for key in sorted(wanted - line.done - line.queue.states().running):
            line.queue.submit(build(key))
        line.now += PROBE_SECONDS
        line.queue.dispatch()
    line.run_all()
    assert wanted <= line.done
    assert line.queue.states().running == frozenset()
