"""The wave labels of Nodes: recorded in the status, put back where a Node lost its own, removed after the wave. Pure.

Place in the flow: ``plan`` asks when the wave of a driver is decided. A Node that is registered anew has neither label
nor record, and its kernel has the modules as before: without the label, pods of the image of before come to it. So the
status has the label and the boot of each node that a wave has reached.
"""

from collections.abc import Mapping
from collections.abc import Set as AbstractSet
from dataclasses import replace
from itertools import islice

from driver_builder.objects import slots
from driver_builder.objects.slots import Place
from driver_builder.observed.inventory import Node
from driver_builder.planning import held_out
from driver_builder.planning.actions import LabelNode, MoveNode
from driver_builder.planning.plan_view import DriverView
from driver_builder.status.rollout_status import MAX_REACHED, Reached, Wave, previous_wave
from kube_api.names import YIELDING_ANNOTATION

MAX_TIDIED = 200
"""Labels of waves that ended, which one reconcile removes."""


def with_reached(
    view: DriverView, wave: Wave | None, before: Wave | None, leaving: AbstractSet[str] = frozenset()
) -> Wave | None:
    """Record in a wave which nodes have its label, and on which boot; ``before`` is what the status says.

    Of nodes that are ``leaving`` the label is about to be removed: it is not to come back.
    """
    if wave is None:
        return None
    known = before.reached if before is not None else {}
    returned = leaving | frozenset(wave.returned)
    reached = {name: found for name, found in known.items() if name not in returned}
    for node in view.snapshot.nodes:
        value = node.labels.get(view.wave_label)
        if node.name in returned:
            continue
        if value is not None and node.boot_id is not None and _is_of_wave(view, value):
            reached[node.name] = Reached.of(value, node.boot_id)
        elif value is None and (_is_clearing(node) or not _is_same_boot(node, reached.get(node.name))):
            reached.pop(node.name, None)
    return replace(wave, reached=_bounded(reached))


def restore(view: DriverView) -> tuple[LabelNode, ...]:
    """Put the label back where a Node lost it on the same boot, and no decision has removed it."""
    wave = previous_wave(view.driver.status)
    reached: Mapping[str, Reached] = wave.reached if wave is not None else {}
    lost = (
        (node, reached[node.name])
        for node in (view.others if reached else ())
        if node.name in reached and view.wave_label not in node.labels and not _is_clearing(node)
    )
    why = "the wave has reached it, and its label was lost"
    return tuple(
        LabelNode(node=node.name, driver=view.driver.key, label=view.wave_label, version=found.label, why=why)
        for node, found in lost
        if _is_same_boot(node, found) and _is_of_wave(view, found.label) and not _has_others(view, node, found.label)
    )


def tidy(view: DriverView) -> tuple[MoveNode, ...]:
    """Remove the labels of waves that have ended."""
    stale = (node for node in view.others if _is_stale(view, node) and not _is_missed(view, node))
    return tuple(_unlabel(view, node.name) for node in islice(stale, MAX_TIDIED))


def _bounded(reached: Mapping[str, Reached]) -> Mapping[str, Reached]:
    return reached if len(reached) <= MAX_REACHED else dict(sorted(reached.items())[:MAX_REACHED])


def _is_clearing(node: Node) -> bool:
    """Return whether drivers yield there: their labels are removed and set together."""
    return YIELDING_ANNOTATION in node.annotations


def _is_same_boot(node: Node, found: Reached | None) -> bool:
    """Return whether a node may be on the boot that is recorded: also while its own is not known."""
    return found is not None and (node.boot_id is None or found.is_on(node.boot_id))


def _has_others(view: DriverView, node: Node, label: str) -> bool:
    """Return whether something else than what the wave brings is loaded there by now: the label would replace it."""
    target, slot = slots.parse_name(label)
    if any(pod.proof is not None and (pod.target, pod.slot) != (target, slot) for pod in view.own_pods.on(node.name)):
        return True
    return not held_out.has_all_of(view, node, view.daemon_sets[target])


def _is_stale(view: DriverView, node: Node) -> bool:
    """Return whether a node's wave label names no DaemonSet that is for such nodes."""
    value = node.labels.get(view.wave_label)
    return value is not None and not _is_of_wave(view, value)


def _is_missed(view: DriverView, node: Node) -> bool:
    """Return whether a node's label keeps it from the DaemonSet that is left of a wave: the other one is missing."""
    left = view.daemon_sets.get(slots.parse_name(node.labels[view.wave_label])[0])
    return left is not None and left.slot.place is Place.OTHERS


def _is_of_wave(view: DriverView, value: str) -> bool:
    """Return whether a wave label names a DaemonSet that is for nodes with it."""
    named = view.daemon_sets.get(slots.parse_name(value)[0])
    if named is None or named.target_label != value:
        return False
    return named.slot.place is Place.MOVED or named.target in view.pairs


def _unlabel(view: DriverView, node: str) -> MoveNode:
    return MoveNode(node=node, driver=view.driver.key, label=view.wave_label, value=None, why="the wave has ended")
