"""When a pass is done: on news, on ticks, when asked for, and again after an error; and what is no news."""

import threading
import time
from collections.abc import Callable, Iterator

import pytest
from apscheduler.schedulers.background import BackgroundScheduler
from prometheus_client import REGISTRY

from driver_builder.controller.controller import Controller, Watcher, watchers
from driver_builder.controller.reconcile import Reconciler
from driver_builder.telemetry import Heartbeat
from kube_api.client import Listing, Object, WatchEvent
from kube_api.errors import Gone, KubeApiError, TooManyRequests, Unreachable
from kube_api.resources import NODES, PODS
from tests.support.driver_builder.memory_client import MemoryClient

PATIENCE = 60.0

Watch = list[WatchEvent | KubeApiError]


class Script(MemoryClient):
    """An API server whose lists and watches are written down: each watch is events, then an error or its end."""

    def __init__(self, stop: threading.Event, listing: list[Object], watches: list[Watch]) -> None:
        super().__init__()
        self._stop = stop
        self._listing = listing
        self._watches = watches
        self.asked: list[str] = []

    def list(
        self, path: str, *, label_selector: str = "", field_selector: str = "", metadata_only: bool = False
    ) -> Listing:
        """Give the list that was written down."""
        self.asked.append(f"list {path} {label_selector}{field_selector}{metadata_only}")
        self._maybe_fail()
        return Listing(self._listing, "1")

    def watch(
        self,
        path: str,
        *,
        resource_version: str,
        label_selector: str = "",
        metadata_only: bool = False,
        seconds: int = 240,
    ) -> Iterator[WatchEvent]:
        """Play the next watch; after the last one the watcher is stopped."""
        self.asked.append(f"watch from {resource_version}")
        assert path
        assert seconds
        assert isinstance(label_selector, str)
        assert isinstance(metadata_only, bool)
        if not self._watches:
            self._stop.set()
            return
        for item in self._watches.pop(0):
            if isinstance(item, KubeApiError):
                raise item
            yield item


def obj(version: int, *, uid: str = "u", heartbeat: int = 0, **labels: str) -> Object:
    """Make an object of a version; a heartbeat changes its status alone."""
    metadata = {"uid": uid, "name": uid, "resourceVersion": str(version), "labels": labels, "annotations": {}}
    return {"metadata": metadata, "status": {"heartbeat": heartbeat}}


def follow(
    *watches: Watch,
    listing: list[Object] | None = None,
    metadata_only: bool = True,
    faults: list[KubeApiError] | None = None,
) -> tuple[int, Script, list[float]]:
    """Run a watcher through a script; gives how often it said that something changed, and how long it waited."""
    stop, calls = threading.Event(), 0
    waits: list[float] = []

    class Waits(threading.Event):
        def wait(self, timeout: float | None = None) -> bool:
            waits.append(timeout or 0.0)
            return self.is_set()

    stop = Waits()
    script = Script(stop, listing if listing is not None else [obj(1)], list(watches))
    script.faults = faults or []

    def changed() -> None:
        nonlocal calls
        calls += 1

    watcher = Watcher(script, resource=NODES, namespace=None, changed=changed, stop=stop, metadata_only=metadata_only)
    watcher.run()
    return calls - 1, script, waits


def modified(thing: Object) -> WatchEvent:
    """Make an event of a change."""
    return WatchEvent("MODIFIED", thing)


@pytest.mark.parametrize(
    ("events", "metadata_only", "news"),
    [
        pytest.param([], True, 0, id="nothing"),
        pytest.param([modified(obj(2, heartbeat=5))], True, 0, id="a node's heartbeat"),
        pytest.param([modified(obj(2, a="1"))], True, 1, id="a label"),
        pytest.param([modified(obj(2, a="1")), modified(obj(3, a="1"))], True, 1, id="a label, then a heartbeat"),
        pytest.param([modified(obj(2, a="1")), modified(obj(3))], True, 2, id="a label comes and goes"),
        pytest.param([WatchEvent("ADDED", obj(2, uid="v"))], True, 1, id="a new object"),
        pytest.param([WatchEvent("ADDED", obj(1))], True, 0, id="an object that was listed"),
        pytest.param([WatchEvent("DELETED", obj(2))], True, 1, id="an object goes"),
        pytest.param(
            [WatchEvent("DELETED", obj(2)), WatchEvent("ADDED", obj(3))], True, 2, id="an object goes and comes back"
        ),
        pytest.param([WatchEvent("BOOKMARK", {"metadata": {"resourceVersion": "9"}})], True, 0, id="a bookmark"),
        pytest.param([modified(obj(2, heartbeat=5))], False, 1, id="any change where the whole object matters"),
        pytest.param([modified(obj(1))], False, 0, id="the version that was listed"),
    ],
)
def test_only_what_a_pass_looks_at_is_news(events: Watch, metadata_only: bool, news: int) -> None:
    """A fleet's heartbeats do not wake the controller; labels, new and deleted objects do."""
    assert follow(events, metadata_only=metadata_only)[0] == news


def test_our_own_status_is_no_news() -> None:
    """A DriverContainer whose status changed has a new version and nothing else that a pass looks at."""
    made = watchers(MemoryClient(), namespaces=("a",), changed=lambda: None, stop=threading.Event())
    (drivers,) = [watcher for watcher in made if watcher.name == "watch-drivercontainers-a"]
    assert drivers._metadata_only


@pytest.mark.parametrize("field", ["deletionTimestamp", "finalizers"])
def test_a_deletion_is_news(field: str) -> None:
    """So is the loss of our finalizer."""
    edited = obj(2)
    edited["metadata"][field] = "2026-11-22T13:00:00Z" if field == "deletionTimestamp" else ["x"]
    assert follow([modified(edited)])[0] == 1


def test_a_new_generation_is_news() -> None:
    """A DaemonSet whose spec somebody edited is looked at."""
    edited = obj(2)
    edited["metadata"]["generation"] = 2
    assert follow([modified(edited)])[0] == 1


def test_a_watch_goes_on_where_the_last_one_ended() -> None:
    """Bookmarks count: after a watch's end the next begins at the newest version that was seen."""
    _, script, _ = follow([modified(obj(5))], [WatchEvent("BOOKMARK", {"metadata": {"resourceVersion": "9"}})])
    assert script.asked[1:] == ["watch from 1", "watch from 5", "watch from 9"]


def test_a_watch_that_is_too_old_lists_again() -> None:
    """Gone means a new list, and that is news by itself."""
    calls, script, _ = follow([Gone("410", status=410)])
    assert [words.split()[0] for words in script.asked] == ["list", "watch", "list", "watch"]
    assert calls == 1


def test_an_api_server_that_is_away_is_asked_less_and_less() -> None:
    """Each failure in a row doubles the wait, up to a quarter of a minute and jitter."""
    _, _, waits = follow(faults=[Unreachable("refused")] * 10)
    assert len(waits) == 10
    assert all(0.75 * 0.5 * 2**number <= wait for number, wait in enumerate(waits[:5]))
    assert max(waits) <= 15 * 1.25


def test_the_server_may_say_when_to_come_back() -> None:
    """Retry-After goes before our own back-off."""
    _, _, waits = follow(faults=[TooManyRequests("429", status=429, retry_after=7.0)])
    assert waits == [7.0]


def test_after_a_good_watch_a_failure_counts_as_the_first() -> None:
    """Connections that are cut now and then over months do not add up to a long wait."""
    cut: Watch = [modified(obj(2)), Unreachable("cut")]
    _, _, waits = follow(*([cut] * 12))
    assert len(waits) == 12
    assert max(waits) <= 0.5 * 1.25


def test_a_watcher_stops_in_the_middle_of_a_watch() -> None:
    """Once told to stop it does not wait for the watch's end."""
    stop = threading.Event()
    script = Script(stop, [obj(1)], [[modified(obj(2, a="1")), modified(obj(3, a="2"))]])
    calls: list[int] = []

    def changed() -> None:
        calls.append(1)
        if len(calls) == 2:
            stop.set()

    Watcher(script, resource=NODES, namespace=None, changed=changed, stop=stop, metadata_only=True).run()
    assert len(calls) == 2


def test_everything_a_snapshot_is_made_of_is_watched() -> None:
    """Nodes once, and in each namespace the drivers, their DaemonSets, pods and sources."""
    made = watchers(MemoryClient(), namespaces=("a", "b"), changed=lambda: None, stop=threading.Event())
    kinds = ("drivercontainers", "daemonsets", "pods", "configmaps")
    expected = ["watch-nodes", *(f"watch-{kind}-{namespace}" for namespace in ("a", "b") for kind in kinds)]
    assert sorted(watcher.name for watcher in made) == sorted(expected)
    assert PODS.path(namespace="b") in {watcher._path for watcher in made}


# ---------------------------------------------------------------- the loop of passes


class ScriptedReconciler(Reconciler):
    """Passes that do what the test says."""

    def __init__(self, *results: Callable[[], float | None]) -> None:
        self._results = list(results)
        self.passes = threading.Semaphore(0)

    def reconcile(self) -> float | None:
        """Play the next pass."""
        result = self._results.pop(0)() if self._results else None
        self.passes.release()
        return result


@pytest.fixture
def run(monkeypatch: pytest.MonkeyPatch) -> Iterator[Callable[..., threading.Event]]:
    """Run controllers in threads until the test ends; gives their wake event."""
    monkeypatch.setattr("driver_builder.controller.controller.SETTLE_SECONDS", 0.0)
    stop = threading.Event()
    threads: list[threading.Thread] = []

    def start(
        reconciler: Reconciler, *, resync_seconds: float = 3600.0, heartbeat: Heartbeat | None = None
    ) -> threading.Event:
        wake = threading.Event()
        controller = Controller(
            reconciler=reconciler, wake=wake, resync_seconds=resync_seconds, heartbeat=heartbeat or Heartbeat()
        )
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
    """Whatever nobody foresaw, and however long the API server asks to be left alone."""
    reconciler = ScriptedReconciler(fail(ValueError("nobody foresaw it")), lambda: 1e300)
    run(reconciler, resync_seconds=0.05)
    for _ in range(2):
        assert reconciler.passes.acquire(timeout=PATIENCE)


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


def test_without_news_it_looks_again_now_and_then(run: Run) -> None:
    """The resync tick wakes it."""
    reconciler = ScriptedReconciler()
    run(reconciler, resync_seconds=0.05)
    for _ in range(2):
        assert reconciler.passes.acquire(timeout=PATIENCE)


class SetBack(BackgroundScheduler):  # type: ignore[misc]
    """A scheduler for which no job is due, as after the wall clock was set back by an hour."""

    def _process_jobs(self) -> float:
        return PATIENCE


@pytest.mark.parametrize(
    ("resync_seconds", "requeue"),
    [pytest.param(0.05, None, id="resync"), pytest.param(3600.0, 0.05, id="requeue")],
)
def test_a_clock_that_was_set_back_delays_no_pass(
    run: Run, monkeypatch: pytest.MonkeyPatch, resync_seconds: float, requeue: float | None
) -> None:
    """When a pass is due is counted by a clock that nobody sets."""
    monkeypatch.setattr("driver_builder.controller.controller.BackgroundScheduler", SetBack)
    reconciler = ScriptedReconciler(lambda: None if requeue is None else time.time() + requeue)
    run(reconciler, resync_seconds=resync_seconds)
    for _ in range(2):
        assert reconciler.passes.acquire(timeout=5.0)


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
    """From the beginning of a pass to its end the loop is silent."""
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
