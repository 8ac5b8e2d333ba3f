"""What is computed over all drivers, and for which of them that failed. Pure.

Place in the flow: ``plan`` asks this before it plans each driver alone. An error is no answer such as "no conflict":
nothing is decided for the drivers whose answer it costs. Those are the ones that are related to each other where the
error is, and all of them only where it cannot be narrowed down.
"""

from collections.abc import Callable, Iterator, Mapping
from dataclasses import replace
from functools import partial
from typing import TypeVar

from device_resources.resource import NVIDIA_DOMAIN
from driver_builder.api.driver_container import DriverContainer
from driver_builder.api.driver_spec import DriverSpec
from driver_builder.base.boundary import contained
from driver_builder.base.errors import InternalError
from driver_builder.model.driver_key import DriverKey
from driver_builder.model.resource_claim import overlap
from driver_builder.objects.loaded import plain
from driver_builder.snapshot.by_driver import of_driver
from driver_builder.snapshot.snapshot import Snapshot

Key = TypeVar("Key", bound=str)
Value = TypeVar("Value")
Drivers = tuple[DriverContainer, ...]


class SharedWork:
    """Computes over all drivers of a snapshot; ``failed`` are those without an answer, by their keys."""

    def __init__(self, snapshot: Snapshot) -> None:
        self._snapshot = snapshot
        self.failed: dict[str, InternalError] = {}

    def of_all(self, work: Callable[[Snapshot], Mapping[Key, Value]]) -> Mapping[Key, Value]:
        """Compute what concerns all drivers at once; an error leaves none of them decided."""
        return self._of(self._snapshot.drivers, work)

    def of_related(self, work: Callable[[Snapshot], Mapping[Key, Value]]) -> Mapping[Key, Value]:
        """Compute what related drivers mean to each other; an error leaves those undecided among whom it is."""
        nothing: Mapping[Key, Value] | None = None
        found = contained("driver", "all", lambda: work(self._snapshot), lambda _error: nothing)
        if found is not None:
            return found
        groups = contained("driver", "all", lambda: related(self._snapshot), lambda _error: (self._snapshot.drivers,))
        answers = (self._of(drivers, work) for drivers in groups)
        return {key: value for answer in answers for key, value in answer.items()}

    def _of(self, drivers: Drivers, work: Callable[[Snapshot], Mapping[Key, Value]]) -> Mapping[Key, Value]:
        def fail(error: InternalError) -> Mapping[Key, Value]:
            self.failed |= {driver.key: error for driver in drivers}
            return {}

        share = replace(self._snapshot, drivers=drivers)
        return contained("driver", ", ".join(driver.key for driver in drivers), partial(work, share), fail)


def related(snapshot: Snapshot) -> tuple[Drivers, ...]:
    """Put the drivers together that depend on each other, or name a module or a resource in common."""
    ties: set[str]
    drivers: Drivers
    groups: list[tuple[set[str], Drivers]] = []
    for driver in sorted(snapshot.drivers, key=lambda driver: driver.key):
        ties, drivers = set(_ties(snapshot, driver)), (driver,)
        apart = []
        for others, theirs in groups:
            if ties.isdisjoint(others):
                apart.append((others, theirs))
            else:
                ties, drivers = ties | others, (*theirs, *drivers)
        groups = [*apart, (ties, drivers)]
    return tuple(drivers for _, drivers in groups)


def _ties(snapshot: Snapshot, driver: DriverContainer) -> Iterator[str]:
    yield f"driver {driver.key}"
    yield from (f"driver {key}" for key in written_needs(snapshot, driver.key))
    known = (item.resource for item in of_driver(snapshot.plugin_sets, driver.key))
    yield from (f"resource {_tie(resource)}" for resource in known if resource)
    spec = driver.spec
    if isinstance(spec, DriverSpec):
        yield from (f"driver {driver.namespace}/{name}" for name in spec.depends_on)
        modules = (*spec.module.names, *spec.module.in_tree_modules_to_remove)
        yield from (f"module {plain(name)}" for name in modules)
        if spec.device_plugin is not None:
            yield f"resource {_tie(spec.device_plugin.claim)}"


def _tie(claim: str) -> str:
    """Return what is the same for all drivers whose plugins may offer one resource."""
    return NVIDIA_DOMAIN if overlap(NVIDIA_DOMAIN, claim) else claim


def written_needs(snapshot: Snapshot, driver: DriverKey) -> tuple[DriverKey, ...]:
    """Return the drivers that a driver's pods wait for, whatever its spec says."""
    every = (first for item in of_driver(snapshot.daemon_sets, driver) for first in item.first)
    return tuple(dict.fromkeys(every))
