"""When a pass is done: on news, when asked for, and again after an error; and what is no news."""

import threading
import time
from collections.abc import Callable, Iterator

import pytest
from prometheus_client import REGISTRY

from driver_builder.base.telemetry import Heartbeat
from driver_builder.controller import controller as module
from driver_builder.controller.controller import Controller
from driver_builder.controller.reconcile import Reconciler
from kube_api.errors import TooManyRequests

PATIENCE = 60.0


# ---------------------------------------------------------------- the loop of passes


class ScriptedReconciler(Reconciler):
    """Passes that do what the test says."""

    def __init__(self, *results: Callable[[], float | None]) -> None:
        self._results = list(results)
        self.passes = threading.Semaphore(0)

    def reconcile(self) -> float | None:
        """Play the next reconcile."""
        result = self._results.pop(0)() if self._results else None
        self.passes.release()
        return result


@pytest.fixture
def run(monkeypatch: pytest.MonkeyPatch) -> Iterator[Callable[..., threading.Event]]:
    """Run controllers in threads until the test ends; returns their wake event."""
    monkeypatch.setattr(module, "SETTLE_SECONDS", 0.0)
    stop = threading.Event()
    threads: list[threading.Thread] = []

    def start(reconciler: Reconciler, *, heartbeat: Heartbeat | None = None) -> threading.Event:
        wake = threading.Event()
        controller = Controller(reconciler=reconciler, wake=wake, heartbeat=heartbeat or Heartbeat())
        threads.append(threading.Thread(target=controller.run, args=(stop,)))
        threads[-1].start()
        return wake

    yield start
    stop.set()
    for thread in threads:
        thread.join(PATIENCE)
        assert not thread.is_alive()


Run = Callable[..., threading.Event]


def fail(error: Exception) -> Callable[[], float | None]:
    """Make a pass that fails."""

    def result() -> float | None:
        raise error

    return result


def test_a_pass_is_done_at_the_start_and_on_news(run: Run) -> None:
    """The first pass needs no news; each wake is one more."""
    reconciler = ScriptedReconciler()
    wake = run(reconciler)
    assert reconciler.passes.acquire(timeout=PATIENCE)
    wake.set()
    assert reconciler.passes.acquire(timeout=PATIENCE)
    assert not reconciler.passes.acquire(timeout=0.05)


def test_a_pass_that_wants_another_gets_it(run: Run) -> None:
    """``requeue_at`` is kept, also when it has passed already."""
    reconciler = ScriptedReconciler(lambda: time.time() - 5.0, lambda: time.time() + 0.05)
    run(reconciler)
    for _ in range(3):
        assert reconciler.passes.acquire(timeout=PATIENCE)


def test_a_pass_that_fails_is_repeated(run: Run) -> None:
    """An error of the API server ends the pass, not the controller; the server says when to come back."""
    reconciler = ScriptedReconciler(fail(TooManyRequests("429", status=429, retry_after=0.01)))
    run(reconciler)
    assert reconciler.passes.acquire(timeout=PATIENCE), "the second pass, which does not fail"


def test_a_bug_in_a_pass_ends_that_pass_alone(run: Run) -> None:
    """Whatever nobody foresaw, and however far away the moment that a plan asks for."""
    reconciler = ScriptedReconciler(fail(ValueError("nobody foresaw it")), lambda: 1e300)
    wake = run(reconciler)
    for _ in range(2):
        assert reconciler.passes.acquire(timeout=PATIENCE)
        wake.set()


def test_passes_are_measured_by_their_result(run: Run) -> None:
    """One that the API server spoilt is not mixed with the good ones."""

    def measured(result: str) -> float:
        return REGISTRY.get_sample_value("driver_builder_reconcile_seconds_count", {"result": result}) or 0.0

    before = measured("Failed"), measured("Succeeded")
    reconciler = ScriptedReconciler(fail(TooManyRequests("429", status=429, retry_after=0.01)))
    wake = run(reconciler)
    assert reconciler.passes.acquire(timeout=PATIENCE)
    wake.set()
    assert reconciler.passes.acquire(timeout=PATIENCE), "the second one began after the first was measured"
    assert measured("Failed") - before[0] == 1.0
    assert measured("Succeeded") - before[1] >= 1.0


class SetBack:
    """The clocks of the loop: after a reconcile's moment was read, the wall clock was set back by an hour."""

    monotonic = staticmethod(time.monotonic)

    def __init__(self) -> None:
        self._read = 0

    def time(self) -> float:
        """Read the wall clock."""
        self._read += 1
        return time.time() - (3600.0 if self._read > 1 else 0.0)


def test_a_clock_that_was_set_back_delays_no_pass(run: Run, monkeypatch: pytest.MonkeyPatch) -> None:
    """When the pass is due that a plan wants is counted by a clock that nobody sets."""
    monkeypatch.setattr(module, "time", SetBack())
    reconciler = ScriptedReconciler(lambda: time.time() + 0.05)
    run(reconciler)
    for _ in range(2):
        assert reconciler.passes.acquire(timeout=PATIENCE)


class Beats(Heartbeat):
    """A heartbeat that counts its beats."""

    def __init__(self) -> None:
        super().__init__()
        self.given = threading.Semaphore(0)

    def beat(self) -> None:
        """Count."""
        super().beat()
        self.given.release()


def test_a_loop_gives_signs_of_life(run: Run) -> None:
    """One at each turn, also while there is nothing to do."""
    beats = Beats()
    run(ScriptedReconciler(), heartbeat=beats)
    for _ in range(4):
        assert beats.given.acquire(timeout=PATIENCE)


def test_a_pass_that_hangs_gives_none(run: Run) -> None:
    """From the beginning of a reconcile to its end the loop is silent."""
    beats, hangs, go = Beats(), threading.Event(), threading.Event()

    def hang() -> None:
        hangs.set()
        go.wait(PATIENCE)

    run(ScriptedReconciler(hang), heartbeat=beats)
    assert hangs.wait(PATIENCE)
    while beats.given.acquire(blocking=False):
        pass
    assert not beats.given.acquire(timeout=0.6), "longer than a turn without a pass takes"
    go.set()
    assert beats.given.acquire(timeout=PATIENCE)
