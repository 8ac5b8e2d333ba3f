"""What of a snapshot is whose driver's: a fleet has tens of thousands of pods, and a plan reads one driver's. Pure."""

from collections.abc import Iterator, Mapping, Sequence
from itertools import chain
from typing import Any, Protocol, TypeVar, overload

from driver_builder.memo import remembers_last
from driver_builder.observed.snapshot import DriverPod


class PodsByDriver(Sequence[DriverPod]):
    """The pods of ``groups``, which are by driver key: a group that does not change stays the same object.

    They are not put together: that would cost a fleet's pods whenever one of them changes.
    """

    def __init__(self, groups: Mapping[str, tuple[DriverPod, ...]]) -> None:
        self.groups = groups

    @overload
    def __getitem__(self, index: int) -> DriverPod: ...

    @overload
    def __getitem__(self, index: slice) -> tuple[DriverPod, ...]: ...

    def __getitem__(self, index: int | slice) -> DriverPod | tuple[DriverPod, ...]:
        """Return a pod by its place among all."""
        return tuple(self)[index]

    def __iter__(self) -> Iterator[DriverPod]:
        """Iterate over the pods of all groups."""
        return chain.from_iterable(self.groups.values())

    def __len__(self) -> int:
        """Count the pods of all groups."""
        return sum(map(len, self.groups.values()))

    def __eq__(self, other: object) -> bool:
        """Compare with any other sequence of pods; groups that are the same objects are not looked through."""
        if isinstance(other, PodsByDriver) and self.groups == other.groups:
            return True
        return isinstance(other, Sequence) and tuple(self) == tuple(other)

    def __hash__(self) -> int:
        """Hash by the number of pods: they themselves have no hash."""
        return hash(len(self))


class OfDriver(Protocol):
    """Something that belongs to a driver, named by its key."""

    @property
    def driver(self) -> str:
        """``namespace/name``."""


Item = TypeVar("Item", bound=OfDriver)


def of_driver(items: Sequence[Item], driver: str) -> tuple[Item, ...]:
    """Return what belongs to one driver, given by its key."""
    groups: Mapping[str, tuple[Any, ...]] = items.groups if isinstance(items, PodsByDriver) else _grouped(items)
    return groups.get(driver, ())


@remembers_last(16)
def _grouped(items: Sequence[OfDriver]) -> Mapping[str, tuple[OfDriver, ...]]:
    groups: dict[str, list[OfDriver]] = {}
    for item in items:
        groups.setdefault(item.driver, []).append(item)
    return {driver: tuple(found) for driver, found in groups.items()}
