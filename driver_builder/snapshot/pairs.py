"""A target's two DaemonSets in a wave, and which of them a node belongs to. Pure."""

from collections.abc import Iterable, Mapping
from dataclasses import dataclass, replace

from driver_builder.objects import slots
from driver_builder.objects.load_report import LOADED
from driver_builder.objects.slots import Place, Slot
from driver_builder.snapshot.snapshot import DaemonSet, DriverPod


@dataclass(frozen=True, slots=True)
class Pair:
    """``moved`` is for the nodes with the wave label that names it, ``others`` for all others of the target."""

    moved: DaemonSet
    others: DaemonSet

    def named(self, value: str | None) -> DaemonSet:
        """Return the one that a node with this value of the wave label belongs to; None for a node without it."""
        return self.moved if value == self.moved.target_label else self.others

    def beside(self, slot: Slot) -> DaemonSet:
        """Return the one that is not in a slot."""
        return self.others if self.moved.slot.name == slot.name else self.moved

    def seen_on(self, wave: str | None, pods: tuple[DriverPod, ...]) -> tuple[DriverPod, ...]:
        """Return a node's pods, those that stay first: one of the other DaemonSet leaves, perhaps a moment later.

        What such a pod says of the modules is about those of another pod by now.
        """
        slot = self.named(wave).slot.name
        if all(pod.slot == slot or pod.target != self.moved.target for pod in pods):
            return pods
        staying = [pod for pod in pods if pod.slot == slot or pod.target != self.moved.target]
        leaving = (replace(pod, deleting=True, contrary=None) for pod in pods if pod not in staying)
        if any(pod.proof is not None for pod in staying):
            # Whatever failed before, another pod has loaded since.
            leaving = (pod for pod in leaving if pod.proof is None or pod.proof.result == LOADED)
        return tuple(sorted((*staying, *leaving), key=lambda pod: (pod.deleting, pod.name)))


def pairs(daemon_sets: Iterable[DaemonSet]) -> dict[str, Pair]:
    """Return the pairs among a driver's DaemonSets, by target."""
    by_target: dict[str, list[DaemonSet]] = {}
    for item in daemon_sets:
        by_target.setdefault(item.target, []).append(item)
    return {target: _pair(found) for target, found in by_target.items() if len(found) > 1}


def by_target(daemon_sets: Iterable[DaemonSet], known: Mapping[str, Pair] | None = None) -> dict[str, DaemonSet]:
    """Return a driver's DaemonSets by target: of a pair the one that a wave moves nodes to.

    ``known`` are the pairs among them, if they were found before.
    """
    daemon_sets = tuple(daemon_sets)
    known = pairs(daemon_sets) if known is None else known
    return {item.target: item for item in daemon_sets} | {target: pair.moved for target, pair in known.items()}


def _pair(found: Iterable[DaemonSet]) -> Pair:
    # One that was edited by somebody else is written anew.
    moved, others = sorted(found, key=lambda item: (item.slot.place is not Place.MOVED, item.slot.name == slots.FIRST))[
        :2
    ]
    return Pair(moved, others)
