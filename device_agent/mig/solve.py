"""Where the instances of a card go: an exact search, because first fit fails for layouts that fit. Pure.

On an A100 with 40 GB, one ``3g.20gb``, one ``2g.10gb`` and two ``1g.5gb`` fit only with the ``3g.20gb`` at slice 4.
"""

from collections import Counter
from collections.abc import Iterable, Iterator, Mapping, Sequence
from dataclasses import dataclass, field
from functools import reduce
from itertools import combinations
from operator import or_

from device_agent.errors import MigRefused
from device_agent.mig.model import DeviceName, Model, Profile

_MOST_SHARED = 8
"""Instances that a card can have: each has at least one of its slices."""

Devices = Mapping[DeviceName, int]
"""The devices that a card is to have, and how many of each."""


@dataclass(frozen=True, slots=True, kw_only=True)
class Instance:
    """A GPU instance and the compute slices of its compute instances, largest first. ``3g.20gb`` alone has (3,)."""

    profile: str
    compute: tuple[int, ...]
    of: int

    @property
    def devices(self) -> tuple[DeviceName, ...]:
        """Return its MIG devices: one of each compute instance."""
        return tuple(DeviceName(profile=self.profile, compute=one, of=self.of) for one in self.compute)

    def __str__(self) -> str:
        return "+".join(map(str, self.devices)) or f"{self.profile} without compute instances"


@dataclass(frozen=True, slots=True, kw_only=True)
class Existing:
    """An instance that a card has. ``start``: None where it is not known. ``users``: how many pods use it.

    ``gi``: the id of its GPU instance; None where that does not matter.
    """

    instance: Instance
    start: int | None
    users: int = 0
    gi: int | None = None


@dataclass(frozen=True, slots=True, kw_only=True)
class Placed:
    """An instance at its place, the slices from ``start`` on. ``kept``: it is there already."""

    instance: Instance
    start: int
    size: int
    kept: bool


def place(model: Model, devices: Devices, existing: Sequence[Existing] = ()) -> tuple[Placed, ...]:
    """Place the devices on a card of a model, by their start.

    Of all ways, the one by which the fewest users lose an instance that is there, then the one that keeps most
    instances; of equal ones that with the largest profiles first and at the lowest slices.

    Raises:
        MigRefused: the model has no such profile, or they do not fit; the message names the profile.
    """
    there = {(one.instance, one.start): one.users for one in existing}
    ways = [_packed(model, rest, kept) for kept, rest in _shared_that_stay(devices, existing)]
    if why := _too_many(model, ways[0]):
        raise MigRefused(why)
    possible = [wanted for wanted in ways if not _too_many(model, wanted)]
    found = [way for wanted in possible if (way := _Search(kinds=_kinds(model, wanted), there=there).best(0, 0))]
    if not found:
        raise MigRefused(_what_fails(model, ways[0]))
    # max takes the first of equal ones: that with the fewest GPU instances.
    return tuple(sorted(max(found, key=lambda way: way.worth).placed, key=lambda one: one.start))


def _shared_that_stay(devices: Devices, existing: Sequence[Existing]) -> Iterator[tuple[list[Instance], Devices]]:
    """Yield which instances may stay whose devices have parts of them, at first none, and the devices beside these.

    Devices can share GPU instances in several ways, and one that needs more of them may lose fewer users.
    """
    placed = [one.instance for one in existing if one.start is not None and one.instance.compute]
    parts = sorted((one for one in placed if not one.devices[0].is_whole), key=lambda one: (one.profile, one.compute))
    for count in range(len(parts[:_MOST_SHARED]) + 1):
        for kept in combinations(parts[:_MOST_SHARED], count):
            rest = Counter(devices)
            rest.subtract(device for one in kept for device in one.devices)
            if all(number >= 0 for number in rest.values()):
                yield list(kept), rest


def _packed(model: Model, devices: Devices, kept: Sequence[Instance]) -> list[Instance]:
    """Make the GPU instances for devices, beside those that stay; largest first."""
    named: dict[str, list[DeviceName]] = {}
    for device, count in devices.items():
        named.setdefault(device.profile, []).extend([device] * count)
    made = [*kept, *(instance for found in named.values() for instance in _shared(found))]
    return sorted(made, key=lambda one: _order(_known(model, one.profile)))


def _order(profile: Profile) -> tuple[int, int, str]:
    return -profile.size, -profile.compute, profile.name


def _shared(devices: Iterable[DeviceName]) -> Iterator[Instance]:
    """Put compute instances of one profile into GPU instances, largest first: with such sizes that takes the fewest."""
    ordered = sorted(devices, key=lambda one: -one.compute)
    bins: list[tuple[int, ...]] = []
    for device in ordered:
        index = next((n for n, one in enumerate(bins) if sum(one) + device.compute <= device.of), None)
        if index is None:
            bins.append((device.compute,))
        else:
            bins[index] = (*bins[index], device.compute)
    yield from (Instance(profile=ordered[0].profile, compute=parts, of=ordered[0].of) for parts in bins)


def _known(model: Model, name: str) -> Profile:
    profile = model.profile(name)
    if profile is None:
        raise MigRefused(f"there is no profile {name}: it has {', '.join(one.name for one in model.profiles)}")
    return profile


def _too_many(model: Model, wanted: Sequence[Instance]) -> str:
    """Say which instances are more than a card has at most, wherever they are; empty if none are."""
    for name, count in Counter(one.profile for one in wanted).items():
        most = _known(model, name).most
        if count > most:
            return f"{count} instances of {name} do not fit: it has room for {most}"
    media = [one.profile for one in wanted if _known(model, one.profile).has_media]
    return f"{media[1]} does not fit beside {media[0]}: only one instance has media extensions" if media[1:] else ""


def _what_fails(model: Model, wanted: Sequence[Instance]) -> str:
    """Name the first instance, largest first, that has no place beside those before it."""
    count = next(n for n in range(1, len(wanted) + 1) if _Search(kinds=_kinds(model, wanted[:n])).best(0, 0) is None)
    before = Counter(str(one) for one in wanted[: count - 1])
    beside = ", ".join(f"{number}x {name}" for name, number in before.items())
    return f"{wanted[count - 1]} does not fit beside {beside}, wherever these are"


def _kinds(model: Model, wanted: Iterable[Instance]) -> tuple[tuple[Profile, Instance, int], ...]:
    return tuple((_known(model, one.profile), one, count) for one, count in Counter(wanted).items())


@dataclass(frozen=True, slots=True)
class _Found:
    """A way to place what is left. ``worth``: users of instances that stay, and how many stay."""

    worth: tuple[int, int] = (0, 0)
    placed: tuple[Placed, ...] = ()


@dataclass(frozen=True, slots=True, kw_only=True)
class _Search:
    """Places one kind after the other.

    What is left depends on the kind and the taken slices alone: at most 256 sets of slices are looked at for each kind.
    """

    kinds: tuple[tuple[Profile, Instance, int], ...]
    there: Mapping[tuple[Instance, int | None], int] = field(default_factory=dict)
    known: dict[tuple[int, int], _Found | None] = field(default_factory=dict)

    def best(self, index: int, taken: int) -> _Found | None:
        """Return the best way for the kinds from ``index`` on, beside slices that are taken (bits); None: no way."""
        if index == len(self.kinds):
            return _Found()
        key = index, taken
        if key not in self.known:
            # max takes the first of equal ones, and ways come with the lowest starts first.
            self.known[key] = max(self._ways(index, taken), key=lambda way: way.worth, default=None)
        return self.known[key]

    def _ways(self, index: int, taken: int) -> Iterator[_Found]:
        profile, instance, count = self.kinds[index]
        free = [start for start in profile.starts if not taken & _bits(start, profile.size)]
        for starts in combinations(sorted(free), count):
            together = reduce(or_, (_bits(start, profile.size) for start in starts), 0)
            if together.bit_count() < profile.size * count:
                continue  # two of them overlap
            if (rest := self.best(index + 1, taken | together)) is not None:
                yield self._with(rest, profile, instance, starts)

    def _with(self, rest: _Found, profile: Profile, instance: Instance, starts: tuple[int, ...]) -> _Found:
        users = [self.there.get((instance, start)) for start in starts]
        placed = (
            Placed(instance=instance, start=start, size=profile.size, kept=number is not None)
            for start, number in zip(starts, users, strict=True)
        )
        kept = [number for number in users if number is not None]
        return _Found((rest.worth[0] + sum(kept), rest.worth[1] + len(kept)), (*placed, *rest.placed))


def _bits(start: int, size: int) -> int:
    return ((1 << size) - 1) << start
