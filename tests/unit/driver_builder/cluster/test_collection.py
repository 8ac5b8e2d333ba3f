"""A collection is what the API server has, whatever reaches it in whatever order: listings, watches, own writes."""

from collections.abc import Iterator

import pytest
from hypothesis import settings
from hypothesis import strategies as st
from hypothesis.stateful import RuleBasedStateMachine, invariant, precondition, rule

from driver_builder.cluster.collection import Collection, Json, WentBack
from kube_api.client import Listing, Object, WatchEvent

UIDS = st.sampled_from(["a", "b", "c", "d"])


def make(uid: str, version: int, value: int) -> Object:
    """Make an object."""
    return {"metadata": {"uid": uid, "resourceVersion": str(version)}, "value": value}


def value_of(obj: Json) -> tuple[str, int]:
    """Read an object."""
    return obj["metadata"]["uid"], obj["value"]


class Server(RuleBasedStateMachine):
    """An API server that we and others write to; its watch is late, and listings may be slow."""

    def __init__(self) -> None:
        super().__init__()
        self.collection = Collection(value_of)
        self.version = 10
        self.objects: dict[str, Object] = {}
        self.log: list[tuple[int, WatchEvent]] = []
        self.watched_from: int | None = None
        self.slow: tuple[int, list[Object]] | None = None
        self.used: set[str] = set()

    def write(self, uid: str, value: int) -> Object:
        """Write an object; one that was deleted comes back with another uid."""
        uid = f"{uid}{sum(1 for name in self.used if name.startswith(uid))}" if uid not in self.live else self.live[uid]
        self.used.add(uid)
        self.version += 1
        self.objects[uid] = make(uid, self.version, value)
        self.log.append((self.version, WatchEvent("MODIFIED", self.objects[uid])))
        return self.objects[uid]

    @property
    def live(self) -> dict[str, str]:
        """The uids of what is there, by their letters."""
        return {uid[0]: uid for uid in self.objects}

    def remove(self, letter: str) -> str:
        """Delete an object."""
        uid = self.live[letter]
        self.version += 1
        gone = self.objects.pop(uid)
        self.log.append((self.version, WatchEvent("DELETED", make(uid, self.version, gone["value"]))))
        return uid

    @rule(uid=UIDS, value=st.integers(0, 2))
    def somebody_writes(self, uid: str, value: int) -> None:
        """The watch will say so."""
        self.write(uid, value)

    @rule(uid=UIDS, value=st.integers(0, 2))
    def we_write(self, uid: str, value: int) -> None:
        """It is known at once."""
        obj = self.write(uid, value)
        self.collection.wrote(obj)
        if self.collection.version:
            assert value_of(obj) in self.collection.values()

    @precondition(lambda self: self.objects)
    @rule(uid=UIDS)
    def somebody_deletes(self, uid: str) -> None:
        """The watch will say so."""
        if uid in self.live:
            self.remove(uid)

    @precondition(lambda self: self.objects)
    @rule(uid=UIDS)
    def we_delete(self, uid: str) -> None:
        """It is known at once."""
        if uid in self.live:
            gone = self.remove(uid)
            self.collection.deleted(gone)
            assert gone not in dict(self.collection.values())

    @rule(count=st.integers(0, 5))
    def a_listing_is_slow(self, count: int) -> None:
        """Its first page is of a moment, and much happens before its last one is there."""
        listed, at = [dict(obj) for obj in self.objects.values()], self.version
        rules = (self.we_write, self.we_delete, self.somebody_deletes, self.the_watch_goes_on)

        def pages() -> Iterator[Listing]:
            yield Listing(listed[:1], str(at))
            for number in range(count):
                letter = "abcd"[number % 4]
                match rules[number % len(rules)]:
                    case self.we_write:
                        self.write_ours(letter)
                    case self.the_watch_goes_on:
                        self.play(3)
                    case _:
                        if letter in self.live:
                            uid = self.remove(letter)
                            if number % 2:
                                self.collection.deleted(uid)
            yield Listing(listed[1:], str(at))

        self.collection.replace(pages(), lambda: 0.0)
        if self.watched_from is None:
            self.watched_from = at

    def write_ours(self, letter: str) -> None:
        """Write as we do."""
        self.collection.wrote(self.write(letter, 7))

    @rule(count=st.integers(1, 4))
    def the_watch_goes_on(self, count: int) -> None:
        """Some of what has happened is told."""
        self.play(count)

    def play(self, count: int) -> None:
        """Let the watch tell the next events."""
        if self.watched_from is None:
            return
        for version, event in [item for item in self.log if item[0] > self.watched_from][:count]:
            self.collection.apply(event, 0.0)
            self.watched_from = version

    @precondition(lambda self: self.collection.version)
    @rule()
    def the_watch_begins_anew(self) -> None:
        """From where the collection says."""
        self.watched_from = int(self.collection.version)

    @invariant()
    def nothing_older_than_known(self) -> None:
        """Each object is there once, with a value that it has or had."""
        known = self.collection.values()
        assert len(dict(known)) == len(known)

    def teardown(self) -> None:
        """When the watch has told everything, the collection is what the server has."""
        self.play(len(self.log))
        if self.watched_from is not None:
            assert sorted(self.collection.values()) == sorted(map(value_of, self.objects.values()))


TestServer = Server.TestCase
TestServer.settings = settings(max_examples=60, stateful_step_count=30)


def listed(*objects: Object, version: int = 5) -> Collection[tuple[str, int]]:
    """Make a collection that was listed."""
    collection = Collection(value_of)
    collection.replace([Listing(list(objects), str(version))], lambda: 0.0)
    return collection


def test_an_event_older_than_the_one_before_is_not_believed() -> None:
    """It may be of another cluster behind the same address."""
    collection = listed(make("a", 1, 0))
    collection.apply(WatchEvent("MODIFIED", make("a", 9, 1)), 0.0)
    with pytest.raises(WentBack, match="version 8 after 9"):
        collection.apply(WatchEvent("MODIFIED", make("a", 8, 2)), 0.0)


@pytest.mark.parametrize(
    ("gone_at", "at", "back_at"),
    [
        pytest.param(12, 11, 13, id="after the listing's moment"),
        pytest.param(12, 20, 13, id="before it: the watch is late"),
    ],
)
def test_what_lost_its_label_during_a_listing_may_get_it_back(gone_at: int, at: int, back_at: int) -> None:
    """To a watch with a selector it was deleted; it is the same object, with the same uid."""
    collection = listed(make("a", 5, 1), version=10)

    def pages() -> Iterator[Listing]:
        collection.apply(WatchEvent("DELETED", make("a", gone_at, 1)), 0.0)
        yield Listing([make("a", back_at, 2)] if back_at <= at else [make("a", 5, 1)], str(at))

    collection.replace(pages(), lambda: 0.0)
    assert collection.values() == ((("a", 2),) if back_at <= at else ())
    collection.apply(WatchEvent("ADDED", make("a", back_at, 2)), 0.0)
    assert collection.values() == (("a", 2),)
    assert not collection._deleted


def test_a_listing_of_an_earlier_day_counts_alone() -> None:
    """After a restore of etcd what was known since then has never happened."""
    collection = listed(make("a", 9, 1), version=9)
    collection.wrote(make("b", 10, 1))
    assert collection.replace([Listing([make("a", 3, 0)], "4")], lambda: 0.0)
    assert collection.values() == (("a", 0),)
    assert collection.version == "4"


def test_what_did_not_change_stays_the_same_object() -> None:
    """Whoever holds it sees by that alone that there is nothing to do."""
    collection = listed(make("a", 1, 300), make("b", 2, 400))
    before = collection.values()
    assert collection.values() is before
    assert not collection.replace([Listing([make("a", 7, 300), make("b", 8, 400)], "9")], lambda: 0.0)
    assert all(one is other for one, other in zip(collection.values(), before, strict=True))


@pytest.mark.parametrize("version", ["", "x1", "1" * 30])
def test_a_version_that_is_no_number_is_new(version: str) -> None:
    """No API server gives one; it is taken as it comes."""
    collection = listed(make("a", 1, 0))
    odd = make("a", 0, 5)
    odd["metadata"]["resourceVersion"] = version
    assert collection.apply(WatchEvent("MODIFIED", odd), 0.0)
    assert collection.values() == (("a", 5),)
