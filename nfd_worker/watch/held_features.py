"""Features that are missing for a moment: they are held before the rules run. Pure; the caller brings the time.

Between the sources and the rules in :mod:`nfd_worker.cycle`. Who writes a feature file may restart, a driver may be
reloaded, a device be reset. A rule that asks for something *not* to exist would taint the Node at once. So a feature
that was there and is gone is held for the grace; a value changes at once, and what expires goes when it does.
"""

from collections.abc import Iterable, Iterator, Mapping
from typing import NamedTuple, TypeVar

from feature_rules.features import Attributes, Features, FileFeatures, Instances
from nfd_worker.sources.local import of_files
from nfd_worker.watch.schedule import NEVER

Place = tuple[str, ...]
"""Kind, feature and name; of a file its own name, the kind, and the name."""

_IDENTITY = ("uuid", "serial", "name")
"""Attributes by which an instance is another one when they differ."""

_KINDS = ("features", "labels")
"""Of what a file says."""

_NOTHING_SINCE: Mapping[Place, float] = {}

_Value = TypeVar("_Value")


class _Gone(NamedTuple):
    """An instance that is missing: of which feature, and since when."""

    feature: str
    instance: Attributes
    since: float


class _Memory(NamedTuple):
    """Of one source: what was found last, that with what is held, and since when what is missing."""

    found: Features
    known: Features
    since: Mapping[Place, float] = _NOTHING_SINCE
    gone: tuple[_Gone, ...] = ()


class HeldFeatures:
    """Remembers what each source found last, and since when some of it is missing."""

    def __init__(self) -> None:
        self._memories: dict[str, _Memory] = {}
        self._grace = self._now = self._clock = 0.0
        self.has_let_go = False

    def begin(self, now: float, grace: float, clock: float) -> None:
        """Say what time it is, in the loop's seconds and in those since 1970, before the sources of a cycle."""
        self._now, self._grace, self._clock = now, grace, clock
        self.has_let_go = False

    @property
    def due(self) -> float:
        """When something has been missing for so long that it goes."""
        times = (since + self._grace for memory in self._memories.values() for since in _times(memory))
        # What is over belongs to a source that could not be read: it goes when that can be.
        return min((time for time in times if time > self._now), default=NEVER)

    def hold(self, source: str, found: Features) -> Features:
        """Add what was there and is missing since less than the grace.

        ``has_let_go`` says of a cycle that something was not added any more, or has expired.
        """
        before = self._memories.get(source)
        if before is None or (found == before.found == before.known):
            self._memories[source] = _Memory(found, found)
            return found
        memory = self._held_files(before, found) if found.files or before.known.files else self._held(before, found)
        self._memories[source] = memory
        return memory.known

    def _held(self, before: _Memory, found: Features) -> _Memory:
        since: dict[Place, float] = {}
        flags, attributes = dict(found.flags), dict(found.attributes)
        for feature, names in before.known.flags.items():
            present = found.flags.get(feature, frozenset())
            if names is not present and names != present:
                held = self._still(before, (("flags", feature, name) for name in names - present), since)
                flags[feature] = present | {name for _, _, name in held}
        for feature, values in before.known.attributes.items():
            current = found.attributes.get(feature, {})
            if values is not current and values != current:
                missing = (("attributes", feature, name) for name in values.keys() - current.keys())
                held = self._still(before, missing, since)
                attributes[feature] = {**current, **{name: values[name] for _, _, name in held}}
        gone = tuple(self._gone(before, found))
        instances = dict(found.instances)
        for one in gone:
            instances[one.feature] = (*instances.get(one.feature, ()), one.instance)
        # What was held of a feature that the source does not name at all must not leave an empty one behind.
        flags = {name: some for name, some in flags.items() if some or name in found.flags}
        attributes = {name: some for name, some in attributes.items() if some or name in found.attributes}
        return _Memory(found, Features(flags, attributes, instances), since, gone)

    def _held_files(self, before: _Memory, found: Features) -> _Memory:
        since: dict[Place, float] = {}
        missing = set(_missing_of_files(before.known, found))
        expired = {place for place in missing if self._is_expired(place, before.known, found)}
        self.has_let_go |= bool(expired)
        held = self._still(before, missing - expired, since)
        files = dict(found.files)
        for file in {file for file, _, _ in held}:
            old, new = before.known.files[file], found.files.get(file) or FileFeatures()
            assert old is not None  # noqa: S101 - else nothing of it is missing
            files[file] = _with_held(old, new, {(kind, name) for one, kind, name in held if one == file})
        return _Memory(found, of_files(dict(sorted(files.items()))), since)

    def _is_expired(self, place: Place, known: Features, found: Features) -> bool:
        file, _, name = place
        old, new = known.files[file] or FileFeatures(), found.files.get(file) or FileFeatures()
        return name in new.expired or old.expiry.get(name, NEVER) < self._clock

    def _still(self, before: _Memory, missing: Iterable[Place], since: dict[Place, float]) -> list[Place]:
        """Say which of the missing are held; ``since`` takes their times."""
        held: list[Place] = []
        for place in missing:
            start = before.since.get(place, self._now)
            if self._is_held(start):
                since[place] = start
                held.append(place)
        return sorted(held)

    def _gone(self, before: _Memory, found: Features) -> Iterator[_Gone]:
        """Say which instances are held: those that vanished, but for those that only look different now."""
        for feature in sorted({*before.found.instances, *(one.feature for one in before.gone)}):
            old, new = before.found.instances.get(feature, ()), found.instances.get(feature, ())
            gone = [one for one in before.gone if one.feature == feature]
            if old is not new and old != new:
                gone += [_Gone(feature, instance, self._now) for instance in _without(old, new)]
                for instance in _without(new, old):
                    if (same := _same(gone, instance)) is not None:
                        gone.remove(same)
            yield from (one for one in gone if self._is_held(one.since))

    def _is_held(self, since: float) -> bool:
        is_held = self._now < since + self._grace
        self.has_let_go |= not is_held
        return is_held


def _missing_of_files(known: Features, found: Features) -> Iterator[Place]:
    """Say what files said and none says now: of one that was renamed nothing is missing, and what is there counts."""
    present = [content for content in found.files.values() if content is not None]
    for kind in _KINDS:
        said = {name for content in present for name in getattr(content, kind)}
        for file, content in known.files.items():
            yield from ((file, kind, name) for name in getattr(content, kind, ()) if name not in said)


def _with_held(old: FileFeatures, new: FileFeatures, held: set[tuple[str, str]]) -> FileFeatures:
    kinds = {
        kind: {**{name: getattr(old, kind)[name] for one, name in sorted(held) if one == kind}, **getattr(new, kind)}
        for kind in _KINDS
    }
    expiry = {name: old.expiry[name] for _, name in held if name in old.expiry}
    return FileFeatures(kinds["features"], kinds["labels"], {**expiry, **new.expiry}, new.expired)


def _times(memory: _Memory) -> Iterator[float]:
    yield from memory.since.values()
    yield from (one.since for one in memory.gone)


def _without(some: Instances, others: Instances) -> list[Attributes]:
    """Take others out of some: equal ones as often as they are there."""
    left = list(others)
    return [one for one in some if one not in left or left.remove(one)]  # type: ignore[func-returns-value]


def _same(gone: Iterable[_Gone], instance: Attributes) -> _Gone | None:
    """Find what an instance was before its values changed: what identifies it, and more than half, is equal."""
    alike = [one for one in gone if _likeness(one.instance, instance) > 1 / 2]
    return max(alike, key=lambda one: _likeness(one.instance, instance), default=None)


def _likeness(one: Attributes, other: Attributes) -> float:
    if one == other:
        return 1.0
    if any(one.get(name) != other.get(name) for name in _IDENTITY):
        return 0.0
    names = one.keys() | other.keys()
    return sum(one.get(name) == other.get(name) for name in names) / len(names)
