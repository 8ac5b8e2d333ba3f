"""What a process has of cards of DRM drivers: ``/proc/PID/fdinfo``, as Documentation/gpu/drm-usage-stats.rst has it."""

import os
from collections.abc import Iterable, Iterator, Mapping
from itertools import islice
from typing import NamedTuple

from device_agent.boot import read_text

_LONGEST = 1 << 13
_MOST_LINES = 256
_MOST_DIGITS = 20
_UNITS = {"": 1, "ns": 1, "KiB": 1 << 10, "MiB": 1 << 20}
_REGION_KINDS = ("resident", "memory", "total")
"""Of a region the first of these counts that a driver writes; ``memory`` is amdgpu's older name of ``resident``."""
_LOCAL = ("vram", "local")
"""How regions of the card's own memory begin: those of amdgpu, nouveau and xe; of i915."""


_Key = tuple[str, int]
_Engines = Mapping[str, tuple[int, int | None]]


class Client(NamedTuple):
    """An opened card. Descriptors that were duplicated or passed on have one client.

    ``card``: the PCI address. ``memory``: bytes of the card's own memory, or of all where it has none; None: not known.
    ``engines``: by name, how long it was busy: nanoseconds, or its cycles of so many that have passed, both of all
    engines of the name together; ``capacities``: how many of them there are, where it is more than one.
    """

    card: str
    number: int
    memory: int | None
    engines: _Engines
    capacities: Mapping[str, int]


def list_descriptors(proc: str, pid: int, most: int) -> list[str]:
    """Return a process's descriptors, at most so many; none when it has ended."""
    try:
        with os.scandir(f"{proc}/{pid}/fd") as entries:
            return [entry.name for entry in islice(entries, most)]
    except OSError:
        return []


def read_client(proc: str, pid: int, descriptor: str) -> Client | None:
    """Read the client that a descriptor is of; None where it is of none."""
    # A link is read without the file system behind it, which may be one that never answers.
    if not _is_file(f"{proc}/{pid}/fd/{descriptor}"):
        return None
    return parse_client(read_text(f"{proc}/{pid}/fdinfo/{descriptor}", _LONGEST))


def _is_file(link: str) -> bool:
    """Return whether a descriptor is of a file, and not of a socket or a pipe; a card may have any path in a pod."""
    try:
        return os.readlink(link).startswith("/")  # noqa: PTH115 - pathlib costs 1 MiB
    except OSError:
        return False


def parse_client(text: str) -> Client | None:
    """Read the client of a descriptor; None for one of anything but a PCI card of a DRM driver."""
    if "drm-" not in text:
        return None
    fields = {name: value.strip() for name, _, value in (line.partition(":") for line in text.split("\n", _MOST_LINES))}
    number = _number(fields.get("drm-client-id", ""))
    if number is None or not fields.get("drm-pdev"):
        return None
    capacities = {name: count for name, count in _named(fields, "drm-engine-capacity-") if count > 1}
    return Client(fields["drm-pdev"].lower(), number, _memory(fields), _engines(fields), capacities)


def _engines(fields: Mapping[str, str]) -> _Engines:
    times = {name: (value, None) for name, value in _named(fields, "drm-engine-") if not name.startswith("capacity-")}
    totals = dict(_named(fields, "drm-total-cycles-"))
    cycles = {name: (value, totals[name]) for name, value in _named(fields, "drm-cycles-") if name in totals}
    return {**cycles, **times}


def _memory(fields: Mapping[str, str]) -> int | None:
    regions: dict[str, int] = {}
    for kind in reversed(_REGION_KINDS):
        regions |= {name: value for name, value in _named(fields, f"drm-{kind}-") if not name.startswith("cycles-")}
    own = [value for name, value in regions.items() if name.startswith(_LOCAL)]
    return sum(own or regions.values()) if regions else None


def _named(fields: Mapping[str, str], start: str) -> Iterator[tuple[str, int]]:
    for name, text in fields.items():
        if name.startswith(start) and (value := _number(text)) is not None:
            yield name[len(start) :], value


def _number(text: str) -> int | None:
    """Read a number with its unit; None for anything else."""
    digits, _, unit = text.partition(" ")
    unit = unit.strip()
    if not (digits.isascii() and digits.isdecimal()) or len(digits) > _MOST_DIGITS or unit not in _UNITS:
        return None
    return int(digits) * _UNITS[unit]


class Engines:
    """How busy the engines of cards were since the sample before."""

    def __init__(self) -> None:
        self._before: dict[_Key, _Reading] = {}
        self._now: dict[_Key, _Reading] = {}

    def busy(self, clients: Iterable[Client], at: float) -> float | None:
        """Return the share of the busiest engine that these clients of a card had together, in percent.

        None without a sample before, and where the driver does not say. ``at``: when they were read, in seconds.
        """
        shares: dict[str, float] = {}
        for client in clients:
            key = (client.card, client.number)
            before = self._before.get(key)
            self._now[key] = _Reading(at, _latest(client.engines, before.engines if before else {}))
            if before is not None and at > before.at:
                for name, share in _shares(before, self._now[key]):
                    shares[name] = shares.get(name, 0.0) + share / client.capacities.get(name, 1)
        return min(100.0, round(100 * max(shares.values()), 2)) if shares else None

    def turn(self) -> None:
        """Note that a sample is done: what was not read in it is forgotten."""
        self._before, self._now = self._now, {}


class _Reading(NamedTuple):
    at: float
    engines: _Engines


def _latest(now: _Engines, before: _Engines) -> _Engines:
    """Leave out what is less than before: drivers may be behind for a while, and the larger value counts until then."""
    return {name: max(value, before.get(name, value), key=lambda one: one[0]) for name, value in now.items()}


def _shares(before: _Reading, now: _Reading) -> Iterator[tuple[str, float]]:
    for name, (value, total) in now.engines.items():
        if name in before.engines:
            old, old_total = before.engines[name]
            passed = 1e9 * (now.at - before.at) if total is None or old_total is None else total - old_total
            yield name, (value - old) / passed if passed > 0 else 0.0
