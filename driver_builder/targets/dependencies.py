"""``spec.dependsOn``: which drivers of a namespace load before others, and are unloaded after them. Pure.

Place in the flow: ``plan`` gives each driver its :class:`Dependencies`. A missing driver or a cycle blocks the drivers
that name it, and no others; ``lint`` finds both earlier.
"""

from collections.abc import Collection, Iterable, Mapping
from dataclasses import dataclass
from graphlib import TopologicalSorter

from driver_builder.api.driver_container import DriverContainer
from driver_builder.api.driver_spec import DriverSpec
from driver_builder.api.status import Trouble
from driver_builder.base.reasons import Reason
from driver_builder.model.driver_key import DriverKey, driver_key

_Wanted = Mapping[DriverKey, tuple[DriverKey, ...]]


@dataclass(frozen=True, slots=True, kw_only=True)
class Dependencies:
    """What one driver needs of others, and others of it.

    ``first`` are the drivers whose modules are loaded before, by ``namespace/name``, each with its modules. They are
    named also where an ``obstacle`` is that a spec is invalid: what they have on nodes stays there.
    ``dependents`` are the drivers that depend on this one: while there is any, a deleted driver stays.
    """

    first: tuple[tuple[DriverKey, tuple[str, ...]], ...] = ()
    obstacle: Trouble | None = None
    dependents: tuple[DriverKey, ...] = ()


NONE = Dependencies()


def dependencies(
    drivers: Iterable[DriverContainer], written: Mapping[DriverKey, Collection[DriverKey]] | None = None
) -> dict[DriverKey, Dependencies]:
    """Return the dependencies of drivers that have some, by ``namespace/name``.

    ``written`` are the drivers that the DaemonSets of one wait for: those of a driver whose spec is invalid at present.
    """
    by_key = {driver.key: driver for driver in drivers}
    specs = {key: driver.spec for key, driver in by_key.items() if isinstance(driver.spec, DriverSpec)}
    wanted = {key: _keys(key, spec) for key, spec in specs.items() if spec.depends_on}
    invalid = by_key.keys() - specs.keys()
    wanted |= {key: tuple(firsts) for key, firsts in (written or {}).items() if key in invalid and firsts}
    dependents: dict[DriverKey, list[DriverKey]] = {}
    for key, needed in sorted(wanted.items()):
        for other in needed:
            # In a cycle none of them could go first.
            if key not in _reachable(other, wanted):
                dependents.setdefault(other, []).append(key)
    return {
        key: Dependencies(
            first=tuple((other, _modules(specs.get(other))) for other in wanted.get(key, ()) if other in by_key),
            obstacle=_obstacle(key, wanted, by_key, specs),
            dependents=tuple(dependents.get(key, ())),
        )
        for key in {*wanted, *dependents} & by_key.keys()
    }


def unload_order(driver: DriverKey, needs: Mapping[DriverKey, Dependencies]) -> tuple[DriverKey, ...]:
    """Return the drivers that depend on one, directly or not: each before those that it depends on itself."""
    left, known = [driver], dict[DriverKey, tuple[DriverKey, ...]]()
    while left:
        key = left.pop()
        if key not in known:
            known[key] = needs.get(key, NONE).dependents
            left += known[key]
    # Of a cycle no driver is a dependent.
    return tuple(key for key in TopologicalSorter(known).static_order() if key != driver)


def obstacles(key: DriverKey, spec: DriverSpec, others: Mapping[DriverKey, DriverSpec]) -> tuple[Trouble, ...]:
    """Return what is wrong with a driver's ``dependsOn`` beside these drivers."""
    specs = {**others, key: spec}
    wanted = {name: _keys(name, other) for name, other in specs.items() if other.depends_on}
    missing = (_missing(other) for other in wanted.get(key, ()) if other not in specs)
    cycle = _cycle(key, wanted)
    return (*((_in_cycle(cycle),) if cycle else ()), *missing)


def _reachable(start: DriverKey, wanted: _Wanted) -> frozenset[DriverKey]:
    """Return the drivers that one depends on, directly or not."""
    seen: set[DriverKey] = set()
    left = [start]
    while left:
        for other in wanted.get(left.pop(), ()):
            if other not in seen:
                seen.add(other)
                left.append(other)
    return frozenset(seen)


def _keys(key: DriverKey, spec: DriverSpec) -> tuple[DriverKey, ...]:
    return tuple(driver_key(key.namespace, name) for name in spec.depends_on)


def _modules(spec: DriverSpec | None) -> tuple[str, ...]:
    """Return the modules that others wait for: none of a driver whose spec is invalid, and which blocks the others."""
    return spec.module.names if spec is not None else ()


def _obstacle(
    key: DriverKey, wanted: _Wanted, drivers: Collection[DriverKey], specs: Collection[DriverKey]
) -> Trouble | None:
    if cycle := _cycle(key, wanted):
        return _in_cycle(cycle)
    for other in wanted.get(key, ()):
        if other not in drivers:
            return _missing(other)
        if other not in specs:
            words = f"the spec of driver {other}, which spec.dependsOn names, is invalid"
            return Trouble(reason=Reason.WAITING_FOR_DEPENDENCY, message=words)
    return None


def _cycle(key: DriverKey, wanted: _Wanted) -> tuple[DriverKey, ...]:
    """Return the shortest way from a driver back to itself; empty if none exists."""
    ways: list[tuple[DriverKey, ...]] = [(key,)]
    seen = {key}
    for way in ways:
        for other in wanted.get(way[-1], ()):
            if other == key:
                return (*way, key)
            if other not in seen:
                seen.add(other)
                ways.append((*way, other))
    return ()


def _missing(other: str) -> Trouble:
    words = f"driver {other}, which spec.dependsOn names, does not exist"
    return Trouble(reason=Reason.DEPENDENCY_NOT_FOUND, message=words)


def _in_cycle(cycle: tuple[str, ...]) -> Trouble:
    words = f"spec.dependsOn has a cycle: {' depends on '.join(cycle)}"
    return Trouble(reason=Reason.DEPENDENCY_CYCLE, message=words)
