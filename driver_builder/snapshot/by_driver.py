"""What of a snapshot is whose driver's: a fleet has tens of thousands of pods, and a plan reads one driver's. Pure."""

from collections.abc import Iterator, Mapping, Sequence
from itertools import chain
from typing import Any, Protocol, TypeVar, overload

from driver_builder.base.memo import remembers_last
from driver_builder.base.persistent import Layered, Pieces, changes, cut
from driver_builder.model.driver_key import DriverKey
from driver_builder.snapshot.snapshot import DriverPod
from driver_builder.tasks.node_task import NodeTask
from driver_builder.tasks.task_kind import TaskKind

_OnNode = DriverPod | tuple[DriverPod, ...]
"""Mostly there is one pod on a node: thousands of tuples of one pod each are not made."""


class PodsOfDriver(Pieces[DriverPod]):
    """The pods of one driver, which can be asked for by their node; made from those of before they cost the changes."""

    def __init__(self, pieces: tuple[tuple[DriverPod, ...], ...], by_node: Layered[_OnNode]) -> None:
        super().__init__(pieces)
        self.by_node = by_node

    @classmethod
    def of(cls, pods: Pieces[DriverPod], before: "PodsOfDriver") -> "PodsOfDriver":
        """Find the nodes of pods, most of which were there ``before``."""
        gone, came = changes(before, pods)
        left = frozenset(map(id, gone))
        found = {pod.node: [item for item in before.on(pod.node) if id(item) not in left] for pod in (*gone, *came)}
        for pod in came:
            found[pod.node].append(pod)
        return cls(pods.pieces, before.by_node.with_changes({node: _on_node(pods) for node, pods in found.items()}))

    def on(self, node: str) -> tuple[DriverPod, ...]:
        """Return the pods of a node, those that stay first."""
        found = self.by_node.get(node, ())
        return found if isinstance(found, tuple) else (found,)


def _on_node(pods: Sequence[DriverPod]) -> _OnNode | None:
    if len(pods) < 2:
        return pods[0] if pods else None
    return tuple(sorted(pods, key=lambda pod: (pod.deleting, pod.name)))


NO_PODS = PodsOfDriver((), Layered())


class PodsByDriver(Sequence[DriverPod]):
    """The pods of ``groups``, which are by driver key: a group that does not change stays the same object.

    They are not put together: that would cost a fleet's pods whenever one of them changes.
    """

    def __init__(self, groups: Mapping[DriverKey, PodsOfDriver]) -> None:
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
        if isinstance(other, PodsByDriver) and self.groups.keys() == other.groups.keys():
            return self.groups == other.groups
        return isinstance(other, Sequence) and tuple(self) == tuple(other)

    def __hash__(self) -> int:
        """Hash by the number of pods: they themselves have no hash."""
        return hash(len(self))


class OfDriver(Protocol):
    """Something that belongs to a driver, named by its key."""

    @property
    def driver(self) -> DriverKey:
        """``namespace/name``."""


Item = TypeVar("Item", bound=OfDriver)


def pods_of(pods: Sequence[DriverPod], driver: DriverKey) -> PodsOfDriver:
    """Return the pods of one driver, given by its key."""
    if isinstance(pods, PodsByDriver):
        return pods.groups.get(driver) or NO_PODS
    return _by_node(of_driver(pods, driver))


@remembers_last(4)
def _by_node(pods: tuple[DriverPod, ...]) -> PodsOfDriver:
    return PodsOfDriver.of(cut(pods), NO_PODS)


def of_driver(items: Sequence[Item], driver: DriverKey) -> tuple[Item, ...]:
    """Return what belongs to one driver, given by its key."""
    groups: Mapping[DriverKey, tuple[Any, ...]] = _grouped(items)
    return groups.get(driver, ())


@remembers_last(16)
def _grouped(items: Sequence[OfDriver]) -> Mapping[DriverKey, tuple[OfDriver, ...]]:
    groups: dict[DriverKey, list[OfDriver]] = {}
    for item in items:
        groups.setdefault(item.driver, []).append(item)
    return {driver: tuple(found) for driver, found in groups.items()}


def tasks_of(tasks: Sequence[NodeTask], driver: DriverKey, kind: TaskKind) -> tuple[NodeTask, ...]:
    """Return the tasks of a kind that are one driver's, given by its key."""
    return _by_kind(of_driver(tasks, driver)).get(kind.name, ())


@remembers_last(16)
def _by_kind(tasks: tuple[NodeTask, ...]) -> Mapping[str, tuple[NodeTask, ...]]:
    kinds = {task.kind for task in tasks}
    return {kind: tuple(task for task in tasks if task.kind == kind) for kind in kinds}
