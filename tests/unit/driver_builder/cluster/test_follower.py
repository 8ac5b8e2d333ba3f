"""How a collection is followed: what is news, when a watch goes on, when all is listed again, and what is believed."""

import threading
from collections.abc import Iterator
from dataclasses import dataclass, field
from itertools import pairwise

import pytest

from driver_builder.cluster import follower as module
from driver_builder.cluster.collection import SILENT_SECONDS, Json
from driver_builder.cluster.follower import Follower, Source
from kube_api.client import Listing, Object, WatchEvent
from kube_api.errors import Gone, KubeApiError, NotFound, TooManyRequests, Unreachable
from kube_api.resources import NODES
from tests.support.driver_builder.memory_client import MemoryClient

Watch = list[WatchEvent | KubeApiError]


class Script(MemoryClient):
    """An API server whose lists and watches are written down: each watch is events, then an error or its end."""

    def __init__(self, stop: threading.Event, listing: list[Object], watches: list[Watch]) -> None:
        super().__init__()
        self._stop = stop
        self._listing = listing
        self._watches = watches
        self.asked: list[str] = []

    def pages(
        self,
        path: str,
        *,
        label_selector: str = "",
        field_selector: str = "",
        metadata_only: bool = False,
        limit: int = 500,
    ) -> Iterator[Listing]:
        """Give the list that was written down."""
        self.asked.append(f"list {path} {label_selector}{field_selector}{metadata_only} {limit}")
        self._maybe_fail()
        yield Listing(self._listing, "1")

    def watch(
        self,
        path: str,
        *,
        resource_version: str,
        label_selector: str = "",
        field_selector: str = "",
        metadata_only: bool = False,
        seconds: int = 240,
    ) -> Iterator[WatchEvent]:
        """Play the next watch; after the last one the follower is stopped."""
        assert path
        assert seconds
        assert not field_selector
        assert isinstance(label_selector, str)
        assert isinstance(metadata_only, bool)
        self.asked.append(f"watch from {resource_version}")
        if not self._watches:
            self._stop.set()
            return iter(())
        events = self._watches.pop(0)
        if events and isinstance(events[0], KubeApiError):
            raise events[0]
        return _played(events)


def _played(events: Watch) -> Iterator[WatchEvent]:
    for item in events:
        if isinstance(item, KubeApiError):
            raise item
        yield item


@dataclass
class Outcome:
    """What a follower did: how often it said that something changed, what it asked, how long it waited."""

    news: int = 0
    asked: list[str] = field(default_factory=list)
    waits: list[float] = field(default_factory=list)

    @property
    def verbs(self) -> list[str]:
        """The requests, in a word each."""
        return [words.split()[0] for words in self.asked]


def obj(version: int, *, uid: str = "u", heartbeat: int = 0, **labels: str) -> Object:
    """Make an object of a version; a heartbeat changes its status alone."""
    metadata = {"uid": uid, "name": uid, "resourceVersion": str(version), "labels": labels, "annotations": {}}
    return {"metadata": metadata, "status": {"heartbeat": heartbeat}}


def labels_of(thing: Json) -> object:
    """Read what is looked at: the labels."""
    return thing["metadata"]["labels"]


def follow(
    *watches: Watch, listing: list[Object] | None = None, faults: list[KubeApiError] | None = None
) -> tuple[Outcome, Follower[object]]:
    """Run a follower through a script."""
    outcome = Outcome()

    class Waits(threading.Event):
        def wait(self, timeout: float | None = None) -> bool:
            outcome.waits.append(timeout or 0.0)
            return self.is_set()

    stop = Waits()
    script = Script(stop, listing if listing is not None else [obj(1)], list(watches))
    script.faults = faults or []
    made = Follower(script, Source(resource=NODES, page=7), labels_of)

    def changed() -> None:
        outcome.news += 1

    made.run(stop, changed)
    outcome.news -= 1
    outcome.asked = script.asked
    return outcome, made


def modified(thing: Object) -> WatchEvent:
    """Make an event of a change."""
    return WatchEvent("MODIFIED", thing)


BOOKMARK = WatchEvent("BOOKMARK", {"metadata": {"resourceVersion": "9"}})


@pytest.mark.parametrize(
    ("events", "news"),
    [
        pytest.param([], 0, id="nothing"),
        pytest.param([modified(obj(2, heartbeat=5))], 0, id="a node's heartbeat"),
        pytest.param([modified(obj(2, a="1"))], 1, id="a label"),
        pytest.param([modified(obj(2, a="1")), modified(obj(3, a="1"))], 1, id="a label, then a heartbeat"),
        pytest.param([modified(obj(2, a="1")), modified(obj(3))], 2, id="a label comes and goes"),
        pytest.param([WatchEvent("ADDED", obj(2, uid="v"))], 1, id="a new object"),
        pytest.param([WatchEvent("ADDED", obj(1))], 0, id="an object that was listed"),
        pytest.param([WatchEvent("DELETED", obj(2))], 1, id="an object goes"),
        pytest.param([WatchEvent("DELETED", obj(2)), WatchEvent("ADDED", obj(3, uid="v"))], 2, id="another one comes"),
        pytest.param([BOOKMARK], 0, id="a bookmark"),
    ],
)
def test_only_what_a_reconcile_reads_is_news(events: Watch, news: int) -> None:
    """A fleet's heartbeats do not wake the controller; labels, new and deleted objects do."""
    assert follow(events)[0].news == news


def test_a_watch_goes_on_where_the_last_one_ended() -> None:
    """Bookmarks count: after a watch's end the next begins at the newest version that was seen, without a listing."""
    outcome, _ = follow([modified(obj(5))], [BOOKMARK])
    assert outcome.asked[1:] == ["watch from 1", "watch from 5", "watch from 9"]


@pytest.mark.parametrize(
    "events",
    [
        pytest.param([Gone("410", status=410)], id="when it begins"),
        pytest.param([modified(obj(5)), Gone("410", status=410)], id="later"),
        pytest.param([modified(obj(5)), modified(obj(4, uid="v"))], id="an older version"),
    ],
)
def test_a_watch_that_cannot_go_on_lists_again(events: Watch) -> None:
    """410 means a new list, and so does an event that is older than the one before."""
    outcome, made = follow(events)
    assert outcome.verbs == ["list", "watch", "list", "watch"]
    assert made.collection.values() == ({},)


def test_a_cut_watch_goes_on_and_is_believed_when_it_speaks() -> None:
    """Nothing is listed for it; but until it says how far it is, a reconcile would list."""
    outcome, made = follow([modified(obj(5)), Unreachable("cut")], [])
    assert outcome.verbs == ["list", "watch", "watch", "watch"]
    assert not made.is_trusted
    assert follow([modified(obj(5)), Unreachable("cut")], [BOOKMARK])[1].is_trusted


def test_an_api_server_that_is_away_is_asked_less_and_less() -> None:
    """Each failure in a row doubles the wait, up to a quarter of a minute and jitter."""
    waits = follow(faults=[Unreachable("refused")] * 10)[0].waits
    assert len(waits) == 10
    assert all(0.75 * 0.5 * 2**number <= wait for number, wait in enumerate(waits[:5]))
    assert max(waits) <= 15 * 1.25


@pytest.mark.parametrize(
    ("fault", "seconds"),
    [
        pytest.param(TooManyRequests("429", status=429, retry_after=7.0), 7.0, id="as the server says"),
        pytest.param(NotFound("404", status=404), module.UNKNOWN_KIND_SECONDS, id="a kind that is not defined"),
    ],
)
def test_some_failures_say_how_long_to_wait(fault: KubeApiError, seconds: float) -> None:
    """Before our own back-off."""
    assert follow(faults=[fault])[0].waits == [seconds]


def test_after_a_good_watch_a_failure_counts_as_the_first() -> None:
    """Connections that are cut now and then over months do not add up to a long wait."""
    watches: list[Watch] = [[modified(obj(number)), Unreachable("cut")] for number in range(2, 14)]
    waits = follow(*watches)[0].waits
    assert len(waits) == 12
    assert max(waits) <= 0.5 * 1.25


def test_a_follower_stops_in_the_middle_of_a_watch() -> None:
    """Once told to stop it does not wait for the watch's end."""
    stop = threading.Event()
    script = Script(stop, [obj(1)], [[modified(obj(2, a="1")), modified(obj(3, a="2"))]])
    calls: list[int] = []

    def changed() -> None:
        calls.append(1)
        if len(calls) == 2:
            stop.set()

    Follower(script, Source(resource=NODES), labels_of).run(stop, changed)
    assert len(calls) == 2


class Time:
    """Seconds that a test moves on."""

    def __init__(self) -> None:
        self.now = 0.0

    def __call__(self) -> float:
        """Give the time."""
        return self.now


def followed(*watches: Watch) -> tuple[Follower[object], Time, Script]:
    """Make a follower that nobody runs."""
    clock, script = Time(), Script(threading.Event(), [obj(1)], list(watches))
    return Follower(script, Source(resource=NODES), labels_of, clock=clock), clock, script


def test_what_nobody_follows_is_listed_each_time() -> None:
    """As a command does it: once each."""
    made, _, script = followed()
    for _ in range(3):
        made.repair()
    assert [words.split()[0] for words in script.asked] == ["list"] * 3


def test_what_its_own_thread_has_just_listed_is_not_listed_again() -> None:
    """The first reconcile comes between the first listing and the watch from there."""
    stop = threading.Event()
    script = Script(stop, [obj(1)], [])
    made = Follower(script, Source(resource=NODES), labels_of)
    made.run(stop, made.repair)
    assert [words.split()[0] for words in script.asked] == ["list", "watch"]


def test_a_silent_watch_is_believed_for_a_while() -> None:
    """Beyond two bookmarks that did not come, a reconcile lists."""
    made, clock, script = followed([])
    clock.now = -1.0
    made.repair()
    clock.now = 0.0
    made.watch(lambda: None, lambda: False)
    clock.now = SILENT_SECONDS
    made.repair()
    assert len(script.asked) == 2
    clock.now += 1.0
    made.repair()
    assert script.asked[2:] == [script.asked[0]]


def test_a_listing_after_a_cut_is_believed_while_the_watch_goes_on() -> None:
    """On a quiet cluster no event may come for hours: it is listed once, not for each reconcile."""
    made, _, script = followed([Unreachable("cut")], [])
    made.repair()
    with pytest.raises(Unreachable):
        made.watch(lambda: None, lambda: False)
    made.collection.watch_broke()
    made.watch(lambda: None, lambda: False)
    assert not made.is_trusted
    for _ in range(3):
        made.repair()
    assert [words.split()[0] for words in script.asked] == ["list", "watch", "watch", "list"]


def test_a_watch_that_stays_silent_is_not_believed_because_of_a_listing() -> None:
    """Each reconcile lists until it speaks: what changes after a listing would not be seen for as long again."""
    made, clock, script = followed([], [modified(obj(5))])
    made.repair()
    made.watch(lambda: None, lambda: False)
    clock.now = SILENT_SECONDS + 1.0
    for _ in range(3):
        made.repair()
    assert [words.split()[0] for words in script.asked] == ["list", "watch", "list", "list", "list"]
    made.watch(lambda: None, lambda: False)
    assert made.is_trusted


def test_watches_that_end_at_once_are_not_begun_in_a_loop() -> None:
    """A proxy that answers with 200 and nothing is asked less and less, and not believed."""
    outcome, made = follow(*[[] for _ in range(5)])
    assert len(outcome.waits) == 5
    assert all(0.75 * 0.5 * 2**number <= wait for number, wait in enumerate(outcome.waits))
    assert not made.is_trusted


def test_a_bug_that_ends_the_thread_ends_the_belief() -> None:
    """Until the thread is started again nobody follows."""
    made, _, _ = followed([BOOKMARK, WatchEvent("MODIFIED", {"metadata": {"uid": "u", "resourceVersion": "10"}})])
    with pytest.raises(KeyError):
        made.run(threading.Event(), lambda: None)
    assert not made.is_trusted


def test_everything_is_listed_anew_every_few_hours(monkeypatch: pytest.MonkeyPatch) -> None:
    """What no watch told of is found then, and not by all collections at once."""
    times: list[float] = []
    for _ in range(20):
        stop = threading.Event()
        script = Script(stop, [obj(1)], [[BOOKMARK] for _ in range(400)])
        clock = Time()
        made = Follower(script, Source(resource=NODES), labels_of, clock=clock)
        began = script.watch

        def watch(*args: str, clock: Time = clock, began: object = began, **words: str) -> Iterator[WatchEvent]:
            clock.now += 60.0
            assert callable(began)
            events: Iterator[WatchEvent] = began(*args, **words)
            return events

        monkeypatch.setattr(script, "watch", watch)
        made.run(stop, lambda: None)
        listings = [60.0 * number for number, words in enumerate(script.asked) if words.startswith("list")]
        assert len(listings) == 2
        times += [later - earlier for earlier, later in pairwise(listings)]
    assert all(module.RELIST_SECONDS <= time <= 1.27 * module.RELIST_SECONDS for time in times)
    assert len(set(times)) > 5
