"""What of a snapshot is whose driver's: a fleet has tens of thousands of pods, and a plan reads one driver's. Pure."""

from collections.abc import Mapping
from itertools import chain
from typing import Any, Protocol, TypeVar

from driver_builder.memo import remembers_last
from driver_builder.observed.snapshot import DriverPod


class PodsByDriver(tuple[DriverPod, ...]):
    """The pods of ``groups``, which are by driver key: a group that does not change stays the same object."""

    groups: Mapping[str, tuple[DriverPod, ...]]

    def __new__(cls, groups: Mapping[str, tuple[DriverPod, ...]]) -> "PodsByDriver":
        """Put all groups together."""
        pods = super().__new__(cls, chain.from_iterable(groups.values()))
        pods.groups = groups
        return pods


class OfDriver(Protocol):
    """Something that belongs to a driver, named by its key."""

    @property
    def driver(self) -> str:
        """``namespace/name``."""


Item = TypeVar("Item", bound=OfDriver)


def of_driver(items: tuple[Item, ...], driver: str) -> tuple[Item, ...]:
    """Return what belongs to one driver, given by its key."""
    groups: Mapping[str, tuple[Any, ...]] = items.groups if isinstance(items, PodsByDriver) else _grouped(items)
    return groups.get(driver, ())


@remembers_last(16)
def _grouped(items: tuple[OfDriver, ...]) -> Mapping[str, tuple[OfDriver, ...]]:
    groups: dict[str, list[OfDriver]] = {}
    for item in items:
        groups.setdefault(item.driver, []).append(item)
    return {driver: tuple(found) for driver, found in groups.items()}
