"""From one profile to the next: what is listed while containers still have what an earlier profile offered. Pure.

A unit is offered in one way at a time: under one resource, as so many shares. What containers have of it stays listed
and healthy in the way in which they got it, and nothing else of it may be given until the last of them has ended.
"""

from collections import Counter
from collections.abc import Collection, Iterable, Mapping
from dataclasses import dataclass

from device_agent.devices.model import MAX_DEVICES, share_ids, unit_of
from device_agent.profiles.offered import Offered

_Key = tuple[str, str]
"""Resource and id."""


@dataclass(frozen=True, slots=True, kw_only=True)
class Held:
    """A device that a container has, or may have. ``shares``: how many its unit had when it was given; 0: not known."""

    resource: str
    id: str
    shares: int = 0


@dataclass(frozen=True, slots=True, kw_only=True)
class Listed:
    """A device of the list. ``shares``: as ``Held`` has it. ``why``: why it may not be given now; empty if it may."""

    id: str
    unit: str
    shares: int
    why: str = ""


Listing = Mapping[str, tuple[Listed, ...]]
"""Resource -> its devices: what the kubelet is shown."""


def transition(wanted: Collection[Offered], before: Listing, in_use: Collection[Held] | None) -> Listing:
    """Say what to list when a profile asks for ``wanted``, each unit once.

    ``before``: what is listed now; after a start :func:`held_before`.
    ``in_use``: what containers have; None while that is not known: what changes a unit waits.
    """
    plan = {one.unit: one for one in wanted}
    if in_use is None:
        return _listing(_as_before(plan, before), held=frozenset())
    held = _by_unit(in_use, plan, before)
    rows = {unit: _of_unit(unit, plan.get(unit), held.get(unit, ())) for unit in (*plan, *sorted(held))}
    return _listing(rows, held={(one.resource, one.id) for each in held.values() for one in each})


def held_before(given: Iterable[Held]) -> Listing:
    """Say what an agent that starts takes as listed. ``given``: all that was ever given, the newest last.

    What containers have of a unit was all given in one way, in that of the newest: before that, the unit was free.
    """
    newest: dict[str, dict[_Key, Listed]] = {}
    for one in given:
        unit = unit_of(one.id)
        shares = 1 if one.id == unit else one.shares
        rows = {key: row for key, row in newest.pop(unit, {}).items() if (key[0], row.shares) == (one.resource, shares)}
        newest[unit] = rows | {(one.resource, one.id): Listed(id=one.id, unit=unit, shares=shares)}
    return _listing(newest, held=frozenset())


def _of_unit(unit: str, offered: Offered | None, held: Collection[Held]) -> Mapping[_Key, Listed]:
    """List what is held as it was given, and what is offered, which waits for what was given in another way."""
    kept = {(one.resource, one.id): Listed(id=one.id, unit=unit, shares=one.shares) for one in held}
    if offered is None:
        return kept
    others = Counter(one.resource for one in held if (one.resource, one.shares) != (offered.resource, offered.shares))
    return _offered(offered, _why(unit, others)) | kept


def _offered(offered: Offered, why: str = "") -> dict[_Key, Listed]:
    return {
        (offered.resource, name): Listed(id=name, unit=offered.unit, shares=offered.shares, why=why)
        for name in share_ids(offered.unit, offered.shares)
    }


def _why(unit: str, others: Mapping[str, int]) -> str:
    holders = [f"{name} by {count} container{'s' if count > 1 else ''}" for name, count in sorted(others.items())]
    return f"{unit} is still held as {', '.join(holders)}" if holders else ""


def _as_before(plan: Mapping[str, Offered], before: Listing) -> Mapping[str, Mapping[_Key, Listed]]:
    """Keep each unit as it is listed, unless that is the way that is asked for, or it is not listed at all."""
    listed: dict[str, dict[_Key, Listed]] = {}
    for resource, devices in before.items():
        for one in devices:
            listed.setdefault(one.unit, {})[resource, one.id] = one
    return {unit: _unless_changed(plan.get(unit), listed.get(unit, {})) for unit in {**plan, **listed}}


def _unless_changed(offered: Offered | None, listed: Mapping[_Key, Listed]) -> Mapping[_Key, Listed]:
    if offered is None:
        return listed
    ways = {(resource, one.shares) for (resource, _), one in listed.items()}
    return _offered(offered) if ways <= {(offered.resource, offered.shares)} else listed


def _by_unit(in_use: Iterable[Held], plan: Mapping[str, Offered], before: Listing) -> Mapping[str, Collection[Held]]:
    """Sort what is held by unit. What is no unit of these, or is of another domain, is another plugin's."""
    listed = {(resource, one.id): one for resource, devices in before.items() for one in devices}
    units = {*plan, *(one.unit for one in listed.values())}
    domains = {_domain(resource) for resource in (*before, *(one.resource for one in plan.values()))}
    held: dict[str, list[Held]] = {}
    for one in sorted(in_use, key=lambda one: (one.resource, one.id)):
        unit = one.id if one.id in units else unit_of(one.id)
        if unit in units and _domain(one.resource) in domains:
            shares = 1 if one.id == unit else one.shares or _listed_shares(listed.get((one.resource, one.id)))
            held.setdefault(unit, []).append(Held(resource=one.resource, id=one.id, shares=shares))
    return held


def _listed_shares(listed: Listed | None) -> int:
    return listed.shares if listed else 0


def _domain(resource: str) -> str:
    return resource.partition("/")[0]


def _listing(units: Mapping[str, Mapping[_Key, Listed]], held: Collection[_Key]) -> Listing:
    """Sort devices into resources: what is held in any case, of the rest each unit for which there is room."""
    taken = Counter(resource for resource, _ in held)
    made: dict[str, list[Listed]] = {}
    for rows in units.values():
        free = Counter(resource for resource, name in rows if (resource, name) not in held)
        full = {resource for resource, count in free.items() if taken[resource] + count > MAX_DEVICES}
        taken += Counter({resource: count for resource, count in free.items() if resource not in full})
        for (resource, name), row in rows.items():
            if resource not in full or (resource, name) in held:
                made.setdefault(resource, []).append(row)
    return {resource: tuple(devices) for resource, devices in made.items()}
