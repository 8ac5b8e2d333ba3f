"""The build queue with real threads: one build per key, failures by class, an end on request."""

import threading
from collections.abc import Callable, Iterator

import pytest

from driver_builder import builds
from driver_builder.actions import StartBuild
from driver_builder.build import LogSink
from driver_builder.builds import BuildQueue, BuildStates
from driver_builder.errors import (
    BuildFailed,
    BuildFailure,
    RegistryRefused,
    RegistryUnavailable,
    TemporaryError,
    VerificationFailed,
    VerificationFailure,
)
from driver_builder.image_state import Absent
from driver_builder.plan import plan
from driver_builder.registry_transport import RegistryUnauthorised
from kube_api.errors import Forbidden
from tests.unit.driver_builder.factories import OTHER_KERNEL, SETTINGS, node, snapshot, with_images

ACTIONS = [
    action
    for action in plan(with_images(snapshot(node(), node("b", OTHER_KERNEL)), Absent()), SETTINGS).actions
    if isinstance(action, StartBuild)
]
ACTION, OTHER = ACTIONS
KEY, OTHER_KEY = ACTION.request.key, OTHER.request.key
PATIENCE = 10.0


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
                raise BuildFailed(BuildFailure.CANCELLED, "cancelled")
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
    assert bench.queue.states() == BuildStates(running=frozenset([KEY]))
    bench.let_one_end()
    assert bench.started == [KEY]
    assert bench.queue.states() == BuildStates()


def test_a_limit_holds(make_bench: MakeBench) -> None:
    """Beyond the limit builds wait, and count as running for whoever plans."""
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
        pytest.param(
            BuildFailed(BuildFailure.HEADERS_MISSING, "no headers"), "HeadersMissing", "no headers", id="build"
        ),
        pytest.param(
            VerificationFailed(VerificationFailure.WRONG_SYMBOL_CRC, "printk"), "WrongSymbolCRC", "printk", id="verify"
        ),
        pytest.param(RegistryRefused("denied"), "RegistryUnauthorized", "denied", id="registry says no"),
        pytest.param(RegistryUnauthorised("401"), "RegistryUnauthorized", "401", id="registry wants other credentials"),
        pytest.param(RegistryUnavailable("503"), "RegistryUnreachable", "503", id="registry away"),
        pytest.param(TemporaryError("no engine"), "BuilderUnavailable", "no engine", id="engine away"),
        pytest.param(Forbidden("GET secret: 403"), "BuilderUnavailable", "GET secret: 403", id="secret unreadable"),
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
    assert bench.queue.states().failed == {}, "a new try forgets the failure before"
    bench.let_one_end()


def test_reported_failures_are_forgotten(make_bench: MakeBench) -> None:
    """Only the very failures that were reported go; a newer one of the same key stays."""
    bench = make_bench()
    bench.error = BuildFailed(BuildFailure.UNKNOWN, "first")
    bench.queue.submit(ACTION)
    bench.let_one_end()
    first = bench.queue.states().failed
    bench.error = BuildFailed(BuildFailure.UNKNOWN, "second")
    bench.queue.submit(ACTION)
    bench.let_one_end()
    bench.queue.forget(first)
    second = bench.queue.states().failed
    assert second[KEY].message == "second"
    bench.queue.forget(second)
    assert bench.queue.states() == BuildStates()


def test_failures_that_nobody_tells_are_kept_up_to_a_number(
    make_bench: MakeBench, monkeypatch: pytest.MonkeyPatch
) -> None:
    """The failures of deleted drivers and older sources do not pile up; the oldest go first."""
    monkeypatch.setattr(builds, "MAX_FAILURES", 1)
    bench = make_bench()
    bench.error = BuildFailed(BuildFailure.UNKNOWN, "no")
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
