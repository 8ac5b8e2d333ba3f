"""From one profile to the next: what is listed while containers still have what an earlier profile offered. Pure.

A unit is offered in one way at a time: under one resource, as so many shares. What containers have of it stays listed
and healthy in the way in which they got it, and nothing else of it may be given until the last of them has ended.

A way ends before the next one begins: what is free of the old one is no longer listed first, and the new one follows in
the next step. So nothing is given in two ways, whatever was given between a decision and the moment at which it counts.
"""

from collections import Counter
from collections.abc import Collection, Iterable, Mapping
from dataclasses import dataclass, replace

from device_agent.devices.model import MAX_DEVICES, Unit, share_ids, unit_of
from device_agent.profiles.offered import Offered

_Key = tuple[str, str]
"""Resource and id."""
_Rows = Mapping[_Key, "Listed"]
"""Of one unit."""
_NO_PARENTS: Mapping[str, str] = {}


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
    wanted: Collection[Offered],
    before: Listing,
    in_use: Collection[Held] | None,
    known: Collection[str] = (),
    parent: Mapping[str, str] = _NO_PARENTS,
) -> Listing:
    """Say what to list next when a profile asks for ``wanted``, each unit once; nothing else to do: ``before``.

    ``before``: what is listed now; after a start :func:`held_before`.
    ``in_use``: what containers have; None while that is not known: what changes a unit waits, and what is not listed
    yet is listed and may not be given.
    ``known``: units of this source that may be neither wanted nor listed, and still be in use.
    ``parent``: UUID of a MIG instance -> that of its card: of the two one at a time is given.
    """
    plan = {one.unit: one for one in wanted}
    listed = _by_unit(before)
    kin = _kin(parent)
    if in_use is None:
        sure = {unit: _unless_both(unit, listed, kin.get(unit, ())) for unit in listed}
        rows = {unit: _unless_changed(plan.get(unit), sure.get(unit, {})) for unit in {**plan, **listed}}
        return _listing(rows, held=frozenset())
    domains = {_domain(resource) for resource in (*before, *(one.resource for one in wanted))}
    ours = [one for one in in_use if one.shares or _domain(one.resource) in domains]
    held = _held_by_unit(ours, {*plan, *listed, *known, *kin}, before)
    units = (*plan, *sorted(held.keys() - plan))
    others = {unit: [one for other in kin.get(unit, ()) for one in held.get(other, ())] for unit in plan}
    ending = {unit: [row for other in kin.get(unit, ()) for row in listed.get(other, {}).items()] for unit in plan}
    rows = {
        unit: _of_unit(plan[unit], held.get(unit, ()), others[unit], (*listed.get(unit, {}).items(), *ending[unit]))
        if unit in plan
        else _kept(unit, held.get(unit, ()))
        for unit in units
    }
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


def listed_units(listing: Listing, units: Mapping[str, Unit]) -> Mapping[str, tuple[Unit, ...]]:
    """Make the units of each resource: id -> what is known of a card -> one for each way in which it is listed.

    A card of which nothing is known is not healthy.
    """
    made: dict[str, tuple[Unit, ...]] = {}
    for resource, devices in listing.items():
        ways: dict[tuple[str, int, str], list[str]] = {}
        for one in devices:
            ways.setdefault((one.unit, one.shares, one.why), []).append(one.id)
        made[resource] = tuple(
            _unit(units.get(unit) or Unit(id=unit, why="nothing is known of it"), shares, why, tuple(ids))
            for (unit, shares, why), ids in ways.items()
        )
    return made


def _unit(unit: Unit, shares: int, why: str, ids: tuple[str, ...]) -> Unit:
    is_all = ids == share_ids(unit.id, shares)
    waits = unit.is_waiting or (bool(why) and not unit.why)
    return replace(unit, shares=shares, why=unit.why or why, is_waiting=waits, ids=() if is_all else ids)


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


def unknown(listing: Listing) -> Listing:
    """List the same, and nothing of it may be given: another plugin may have given it."""
    return {
        resource: tuple(replace(one, why=one.why or _why_unknown(one.unit)) for one in devices)
        for resource, devices in listing.items()
    }


def _of_unit(
    offered: Offered, held: Collection[Held], related: Collection[Held], listed: Iterable[tuple[_Key, Listed]]
) -> _Rows:
    """List what is held as it was given, and what is offered, which waits for what is or may be given otherwise.

    ``related``: what is held of the instances of the card, or of the card of the instance. ``listed``: of both.
    """
    unit, way = offered.unit, (offered.resource, offered.shares)
    others = Counter(one.resource for one in (*held, *related) if one in related or (one.resource, one.shares) != way)
    ending = {key[0] for key, row in listed if not row.why and (row.unit, key[0], row.shares) != (unit, *way)}
    return _offered(offered, _why(unit, others, ending)) | _kept(unit, held)


def _kept(unit: str, held: Collection[Held]) -> dict[_Key, Listed]:
    return {(one.resource, one.id): Listed(id=one.id, unit=unit, shares=one.shares) for one in held}


def _kin(parent: Mapping[str, str]) -> Mapping[str, Collection[str]]:
    """Sort out which units are not to be given beside each: instances beside their card, and it beside them."""
    kin: dict[str, list[str]] = {instance: [card] for instance, card in parent.items()}
    for instance, card in parent.items():
        kin.setdefault(card, []).append(instance)
    return kin


def _offered(offered: Offered, why: str = "") -> dict[_Key, Listed]:
    return {
        (offered.resource, name): Listed(id=name, unit=offered.unit, shares=offered.shares, why=why)
        for name in share_ids(offered.unit, offered.shares)
    }


def _why(unit: str, others: Mapping[str, int], ending: Collection[str]) -> str:
    holders = [f"{name} ({count} device{'s' if count > 1 else ''})" for name, count in sorted(others.items())]
    if holders:
        return f"{unit} is still held as {', '.join(holders)}"
    return f"{unit} was still offered as {', '.join(sorted(ending))}" if ending else ""


def _by_unit(listing: Listing) -> Mapping[str, dict[_Key, Listed]]:
    units: dict[str, dict[_Key, Listed]] = {}
    for resource, devices in listing.items():
        for one in devices:
            units.setdefault(one.unit, {})[resource, one.id] = one
    return units


def _unless_both(unit: str, listed: Mapping[str, _Rows], kin: Iterable[str]) -> _Rows:
    """Have neither a card nor its instance given while both may be in use: after a start, if each was given once."""
    rows = listed[unit]
    if not any(not row.why for other in kin for row in listed.get(other, {}).values()):
        return rows
    return {key: replace(row, why=row.why or _why_unknown(unit)) for key, row in rows.items()}


def _unless_changed(offered: Offered | None, listed: _Rows) -> _Rows:
    """Keep a unit as it is listed; in the way that is asked for also with what is not listed, and may not be given."""
    if offered is None:
        return listed
    ways = {(resource, one.shares) for (resource, _), one in listed.items()}
    if not ways <= {(offered.resource, offered.shares)}:
        return listed
    return {**_offered(offered, _why_unknown(offered.unit)), **listed}


def _why_unknown(unit: str) -> str:
    return f"it is not known yet whether {unit} is in use"


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
