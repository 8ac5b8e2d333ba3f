"""One collection of the API server as it is known here: of each object what a reconcile reads of it, and no more.

Place in the flow: a :class:`~driver_builder.cluster.follower.Follower` lists and watches into it, what we write
ourselves is put into it at once, and ``observe`` reads it. Several threads use it. No I/O.

Versions of objects (``resourceVersion``) are compared as numbers, which they are in every API server there is
(guaranteed since Kubernetes 1.35); a version that is not a number counts as new.
"""

import threading
from collections.abc import Callable, Iterable, Iterator, Mapping, Sequence
from contextlib import contextmanager
from typing import Any, Generic, TypeVar

from driver_builder.base.persistent import Pieces
from driver_builder.cluster.grouped import Grouped, Kept
from kube_api.client import Listing, WatchEvent

Json = dict[str, Any]
Value = TypeVar("Value")

SILENT_SECONDS = 150.0
"""Seconds. A watch says how far it is by events and bookmarks, and a new one begins before this: a longer silence is
not believed."""


ANSWER_SECONDS = 5.0
"""So long the watch of an object waits for the answer to a write of ours."""

MOMENT_SECONDS = 5.0
"""So long after its end a listing is as good as another one, though no watch goes on from it yet."""


class WentBack(Exception):
    """A watch reported an older version after a newer one: what is known may be of another cluster, or of a backup."""


class Collection(Generic[Value]):
    """The objects of one collection, by uid.

    ``read`` makes a value of an object; None for one that is not needed. Values are compared: a change that leaves the
    value as it was is not news, nor is one of a value without ``concerns``. ``group_of`` names the group of a value.
    """

    def __init__(
        self,
        read: Callable[[Json], Value | None],
        group_of: Callable[[Value], str] = lambda _value: "",
        concerns: Callable[[Value], bool] = lambda _value: True,
    ) -> None:
        self._read = read
        self._concerns = concerns
        self._lock = threading.Lock()
        self._is_answered = threading.Condition(self._lock)
        self._in_writing: set[str] = set()
        """The names of the objects of which a write has no answer yet."""
        self._kept: Grouped[Value] = Grouped(group_of)
        self._listings = 0
        self._deleted: dict[str, int | None] = {}
        """What is gone though a listing, or the watch, may not know it yet, by its uid: since which version, if known.

        To a watch with a selector it is also gone when it loses its label, and may come back."""
        self._version = ""
        self._listed_at: int | None = None
        self._told: int | None = None
        """The newest version that a listing or the watch reported."""
        self._heard: float | None = None
        self._is_watched = False
        self._is_cut = False
        self._listed_until: float | None = None
        """When the last listing ended, unless something happened since that puts it in doubt."""

    @property
    def version(self) -> str:
        """Where a watch goes on from; empty before the first listing and where one is needed."""
        with self._lock:
            return self._version

    def values(self) -> Sequence[Value]:
        """Give all values; of a collection without groups the same object for as long as nothing changed."""
        with self._lock:
            groups = tuple(self._kept.groups().values())
            if len(groups) != 1:
                return tuple(value for group in groups for value in group)
            return groups[0]

    def groups(self) -> Mapping[str, Pieces[Value]]:
        """Give the values by their groups; the same object for a group for as long as nothing of it changed."""
        with self._lock:
            return self._kept.groups()

    def age(self, now: float) -> float | None:
        """Return how many seconds ago something was last heard; None where nothing ever was."""
        with self._lock:
            return None if self._heard is None else now - self._heard

    def is_trusted(self, now: float) -> bool:
        """Return whether this is what the API server has: listed, and since then watched by a watch that speaks."""
        with self._lock:
            is_heard = self._heard is not None and now - self._heard <= SILENT_SECONDS
            return bool(self._version) and self._is_watched and not self._is_cut and is_heard

    def is_just_listed(self, now: float) -> bool:
        """Return whether a listing ended a moment ago: the watch that goes on from it begins next."""
        with self._lock:
            return self._listed_until is not None and now - self._listed_until <= MOMENT_SECONDS

    def replace(self, pages: Iterable[Listing], clock: Callable[[], float]) -> bool:
        """Put a listing in the place of what was known; returns whether that is news.

        What was heard or written while it was on its way is newer. Where the listing is older than what was known
        before, the API server's data is of an earlier day, and the listing alone counts.
        """
        with self._lock:
            self._listings += 1
            deleted_before, told_before = self._deleted.copy(), self._told
        try:
            listed: dict[str, Kept[Value]] = {}
            version, began = "", clock()
            for page in pages:
                version = page.resource_version
                read = [(obj["metadata"]["uid"], Kept(_number_of(obj), self._read(obj))) for obj in page.items]
                with self._lock:
                    # What is known already is not held twice while the rest of the listing comes.
                    listed |= {uid: _alike(kept, self._kept.get(uid)) for uid, kept in read}
            with self._lock:
                if self._heard is not None and began - self._heard > SILENT_SECONDS:
                    # The listing is news of itself alone: the watch after it may be as deaf as before.
                    self._is_watched = False
                self._heard, self._is_cut, self._listed_until = began, False, clock()
                self._deleted = dict(self._deleted.items() - deleted_before.items())
                return self._put(listed, version, is_older=(_number(version) or 0) < (told_before or 0))
        finally:
            with self._lock:
                self._listings -= 1

    def _put(self, listed: dict[str, Kept[Value]], version: str, *, is_older: bool) -> bool:
        at = _number(version)
        known, before = self._kept, dict(self._kept.groups())
        self._kept = Grouped(known.group_of)
        if is_older:
            self._deleted.clear()
            known = Grouped(known.group_of)
        is_first = not self._version
        for uid, kept in listed.items():
            if self._is_there(uid, at):
                self._kept.put(uid, _newest(kept, known.get(uid)))
        for uid, kept in known.items():
            if uid not in listed and at is not None and kept.version is not None and kept.version > at:
                self._kept.put(uid, kept)
        is_ahead = (
            not is_older and at is not None and self._told is not None and self._told > at and bool(self._version)
        )
        if not is_ahead:
            self._version, self._told = version, at
        self._listed_at = at
        self._kept.keep_places(before)
        return is_first or is_older or before != self._kept.groups()

    def watch_began(self, now: float) -> None:
        """Note that the API server accepted a watch from :attr:`version`; after a cut, its first event counts."""
        with self._lock:
            self._is_watched = True
            if not self._is_cut:
                self._heard = now

    def watch_broke(self) -> None:
        """Note that a watch was cut: nothing is believed until another one says how far it is."""
        with self._lock:
            self._is_watched, self._is_cut, self._listed_until = False, True, None

    def doubt(self) -> None:
        """Note that no watch can go on from here: a listing is needed."""
        with self._lock:
            self._version, self._is_watched, self._listed_until = "", False, None

    def apply(self, event: WatchEvent, now: float) -> bool:
        """Apply an event of the watch; returns whether that is news.

        Raises:
            WentBack: when its version is older than that of an event before.
        """
        metadata = event.object["metadata"]
        version, uid, name = _number_of(event.object), metadata.get("uid", ""), metadata.get("name", "")
        value = self._read(event.object) if event.kind in ("ADDED", "MODIFIED") else None
        with self._lock:
            self._is_answered.wait_for(lambda: name not in self._in_writing, ANSWER_SECONDS)
            if version is not None and self._told is not None and version < self._told:
                if self._listed_at is not None and version <= self._listed_at:
                    # Another thread listed since: the listing has it already.
                    return False
                raise WentBack(f"version {version} after {self._told}")
            self._told, self._heard, self._is_watched, self._is_cut = version, now, True, False
            self._version = metadata.get("resourceVersion", "")
            if event.kind == "BOOKMARK":
                return False
            if event.kind == "DELETED":
                # A listing that is on its way may have it still.
                self._deleted.pop(uid, None)
                if self._listings:
                    self._deleted[uid] = version
                return self._drop(uid)
            if not self._is_there(uid, version):
                return False
            return self._is_overtaken(uid, version) or self._keep(uid, Kept(version, value))

    def _is_overtaken(self, uid: str, version: int | None) -> bool:
        """Return whether the answer to a write of ours is newer: it has this change of somebody else, too."""
        known = self._kept.get(uid)
        if known is None or version is None or known.version is None or version >= known.version:
            return False
        return self._is_news(known.value)

    @contextmanager
    def writing(self, name: str) -> Iterator[None]:
        """Hold back what the watch says of an object until our write of it is answered.

        Mostly it says what was written. The answer is kept first, so the event is no news.
        """
        with self._lock:
            self._in_writing.add(name)
        try:
            yield
        finally:
            with self._lock:
                self._in_writing.discard(name)
                self._is_answered.notify_all()

    def wrote(self, obj: Json, *, is_new: bool = True) -> bool:
        """Keep an object as the API server returned it for a write; returns whether that is news.

        ``is_new`` says whether the write may have made it. One that is not known then is left to the watch: it has
        taken the place of another one of its name, which is known still.
        """
        uid, kept = obj["metadata"]["uid"], Kept(_number_of(obj), self._read(obj))
        with self._lock:
            is_ahead = kept.version is None or kept.version > (self._told or 0)
            if self._kept.get(uid) is None and not (is_new and is_ahead):
                return False
            return self._is_there(uid, kept.version) and self._keep(uid, kept)

    def deleted(self, uid: str) -> bool:
        """Forget an object that is gone because we deleted it; returns whether that is news."""
        with self._lock:
            if self._kept.get(uid) is not None:
                self._deleted[uid] = None
            return self._drop(uid)

    def _is_there(self, uid: str, version: int | None) -> bool:
        """Return whether what was there at this version is not gone since; what came back is not gone any more."""
        if uid not in self._deleted:
            return True
        gone_at = self._deleted[uid]
        if gone_at is None or version is None or version <= gone_at:
            return False
        del self._deleted[uid]
        return True

    def _keep(self, uid: str, kept: Kept[Value]) -> bool:
        known = self._kept.get(uid)
        newest = _newest(kept, known)
        self._kept.put(uid, newest)
        before = known.value if known is not None else None
        return newest.value != before and (self._is_news(newest.value) or self._is_news(before))

    def _drop(self, uid: str) -> bool:
        known = self._kept.pop(uid)
        return known is not None and self._is_news(known.value)

    def _is_news(self, value: Value | None) -> bool:
        return value is not None and self._concerns(value)


def _newest(one: Kept[Value], known: Kept[Value] | None) -> Kept[Value]:
    """Give the newer of two; an equal value stays the very object that it was, so that who has it sees no change."""
    if known is None:
        return one
    if one.version is not None and known.version is not None and one.version <= known.version:
        return known
    return _alike(one, known)


def _alike(one: Kept[Value], known: Kept[Value] | None) -> Kept[Value]:
    """Give the one with the other's value, where that is equal."""
    return Kept(one.version, known.value) if known is not None and known.value == one.value else one


def _number_of(obj: Json) -> int | None:
    return _number(obj["metadata"].get("resourceVersion"))


def _number(version: object) -> int | None:
    return int(version) if isinstance(version, str) and version.isdecimal() and len(version) <= 20 else None
