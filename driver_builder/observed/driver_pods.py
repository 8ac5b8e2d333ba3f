"""The driver pods of a snapshot, each driver's at hand: a fleet has tens of thousands, a plan reads one driver's."""

from collections.abc import Mapping
from itertools import chain

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


def pods_of(pods: tuple[DriverPod, ...], driver: str) -> tuple[DriverPod, ...]:
    """Return the pods of one driver, given by its key."""
    groups = pods.groups if isinstance(pods, PodsByDriver) else _grouped(pods)
    return groups.get(driver, ())


@remembers_last(2)
def _grouped(pods: tuple[DriverPod, ...]) -> Mapping[str, tuple[DriverPod, ...]]:
    groups: dict[str, list[DriverPod]] = {}
    for pod in pods:
        groups.setdefault(pod.driver, []).append(pod)
    return {driver: tuple(found) for driver, found in groups.items()}
