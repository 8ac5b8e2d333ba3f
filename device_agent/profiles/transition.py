"""From one profile to the next: what is listed while containers still have what an earlier profile offered. Pure.

A unit is offered in one way at a time: under one resource, as so many shares. What containers have of it stays listed
and healthy in the way in which they got it, and nothing else of it may be given until the last of them has ended.

A way ends before the next one begins: what is free of the old one is no longer listed first, and the new one follows in
the next step. So nothing is given in two ways, whatever was given between a decision and the moment at which it counts.
"""

from collections import Counter
from collections.abc import Collection, Iterable, Mapping
from dataclasses import dataclass

from device_agent.devices.model import MAX_DEVICES, share_ids, unit_of
from device_agent.profiles.offered import Offered

_Key = tuple[str, str]
"""Resource and id."""
_Rows = Mapping[_Key, "Listed"]
"""Of one unit."""


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


def transition(
    wanted: Collection[Offered], before: Listing, in_use: Collection[Held] | None, known: Collection[str] = ()
) -> Listing:
    """Say what to list next when a profile asks for ``wanted``, each unit once; nothing else to do: ``before``.

    ``before``: what is listed now; after a start :func:`held_before`.
    ``in_use``: what containers have; None while that is not known: what changes a unit waits.
    ``known``: units of this source that may be neither wanted nor listed, and still be in use.
    """
    plan = {one.unit: one for one in wanted}
    listed = _by_unit(before)
    if in_use is None:
        rows = {unit: _unless_changed(plan.get(unit), listed.get(unit, {})) for unit in {**plan, **listed}}
        return _listing(rows, held=frozenset())
    domains = {_domain(resource) for resource in (*before, *(one.resource for one in wanted))}
    ours = [one for one in in_use if one.shares or _domain(one.resource) in domains]
    held = _held_by_unit(ours, {*plan, *listed, *known}, before)
    units = (*plan, *sorted(held.keys() - plan))
    rows = {unit: _of_unit(unit, plan.get(unit), held.get(unit, ()), listed.get(unit, {})) for unit in units}
    return _listing(rows, held={(one.resource, one.id) for each in held.values() for one in each})


def with_late(decided: Listing, before: Listing, given: Collection[_Key]) -> Listing:
    """Keep of ``before`` what was given until now, though it was not when it was ``decided`` what to list next.

    The other way in which its unit was to be offered has not begun: :func:`transition` waited for this one to end.
    """
    late = {
        (resource, one.id): one
        for resource, devices in before.items()
        for one in devices
        if (resource, one.id) in given and not one.why
    }
    resources = {**decided, **{resource: decided.get(resource, ()) for resource, _ in late}}
    return {
        resource: (
            *(one for one in devices if (resource, one.id) not in late),
            *(one for (name, _), one in late.items() if name == resource),
        )
        for resource, devices in resources.items()
    }


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


def _of_unit(unit: str, offered: Offered | None, held: Collection[Held], listed: _Rows) -> _Rows:
    """List what is held as it was given, and what is offered, which waits for what is or may be given otherwise."""
    kept = {(one.resource, one.id): Listed(id=one.id, unit=unit, shares=one.shares) for one in held}
    if offered is None:
        return kept
    way = (offered.resource, offered.shares)
    others = Counter(one.resource for one in held if (one.resource, one.shares) != way)
    ending = {key[0] for key, row in listed.items() if not row.why and (key[0], row.shares) != way}
    return _offered(offered, _why(unit, others, ending)) | kept


def _offered(offered: Offered, why: str = "") -> dict[_Key, Listed]:
    return {
        (offered.resource, name): Listed(id=name, unit=offered.unit, shares=offered.shares, why=why)
        for name in share_ids(offered.unit, offered.shares)
    }


def _why(unit: str, others: Mapping[str, int], ending: Collection[str]) -> str:
    holders = [f"{name} by {count} container{'s' if count > 1 else ''}" for name, count in sorted(others.items())]
    if holders:
        return f"{unit} is still held as {', '.join(holders)}"
    return f"{unit} was still offered as {', '.join(sorted(ending))}" if ending else ""


def _by_unit(listing: Listing) -> Mapping[str, dict[_Key, Listed]]:
    units: dict[str, dict[_Key, Listed]] = {}
    for resource, devices in listing.items():
        for one in devices:
            units.setdefault(one.unit, {})[resource, one.id] = one
    return units


def _unless_changed(offered: Offered | None, listed: _Rows) -> _Rows:
    """Keep a unit as it is listed, unless it is given in the way that is asked for, or is not listed at all."""
    if offered is None:
        return listed
    ways = {(resource, one.shares, one.why) for (resource, _), one in listed.items()}
    return _offered(offered) if ways <= {(offered.resource, offered.shares, "")} else listed


def _held_by_unit(in_use: Iterable[Held], units: Collection[str], before: Listing) -> Mapping[str, Collection[Held]]:
    """Sort what is held by unit; what is no unit of these is another plugin's."""
    listed = {(resource, one.id): one for resource, devices in before.items() for one in devices}
    held: dict[str, list[Held]] = {}
    for one in sorted(in_use, key=lambda one: (one.resource, one.id)):
        unit = one.id if one.id in units else unit_of(one.id)
        if unit in units:
            shares = 1 if one.id == unit else one.shares or _listed_shares(listed.get((one.resource, one.id)))
            held.setdefault(unit, []).append(Held(resource=one.resource, id=one.id, shares=shares))
    return held


def _listed_shares(listed: Listed | None) -> int:
    return listed.shares if listed else 0


def _domain(resource: str) -> str:
    return resource.partition("/")[0]


def _listing(units: Mapping[str, _Rows], held: Collection[_Key]) -> Listing:
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
