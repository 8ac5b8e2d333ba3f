"""The wave labels of Nodes: recorded in the status, put back where a Node lost its own, removed after the wave. Pure.

Place in the flow: ``plan`` asks when the wave of a driver is decided. A Node that is registered anew has neither labels
nor record, and its kernel has the modules as before: without the label, pods of the image of before come to it. So the
status has the label and the boot of each node that a wave has reached, and of each from which pods are kept until it
does.
"""

from collections.abc import Mapping
from collections.abc import Set as AbstractSet
from dataclasses import replace
from itertools import islice

from driver_builder.api.rollout_status import MAX_REACHED, Reached, Wave, previous_wave
from driver_builder.nodes import held_out
from driver_builder.nodes.changes import PatchNode, move_node, patch_node
from driver_builder.nodes.plan_view import DriverPlan, DriverView
from driver_builder.objects import slots
from driver_builder.objects.slots import Place
from driver_builder.objects.yielding import OUTSIDE
from driver_builder.snapshot.inventory import Node
from kube_api.names import YIELDING_ANNOTATION

MAX_TIDIED = 200
"""Labels of waves that ended, which one reconcile removes."""


def with_reached(
    view: DriverView,
    wave: Wave | None,
    before: Wave | None,
    kept_out: AbstractSet[str] = frozenset(),
) -> Wave | None:
    """Record in a wave which nodes have its label, and on which boot; ``before`` is what the status says.

    From those that are ``kept_out`` pods are kept.
    """
    if wave is None:
        return None
    reached = dict(before.reached) if before is not None else {}
    for node in view.snapshot.nodes:
        value = view.on(node).wave
        if node.name in kept_out:
            reached |= {node.name: Reached.of(OUTSIDE, node.boot_id)} if node.boot_id is not None else {}
        elif value is not None and node.boot_id is not None and _is_of_wave(view, value):
            found = reached.get(node.name)
            if found is None or not found.is_on(node.boot_id) or _is_proven(view, node, value):
                reached[node.name] = Reached.of(value, node.boot_id)
        elif node.name in reached and value is None and not _may_be_lost(view, node, reached[node.name]):
            del reached[node.name]
    return replace(wave, reached=_bounded(reached))


def with_moved(part: DriverPlan, nodes: Mapping[str, Node]) -> DriverPlan:
    """Record as well which nodes move now: it is not known what is loaded there until a pod has reported.

    One of them may be registered anew before that: it waits for the wave then.
    """
    moves = {
        action.node
        for action in part.actions
        if isinstance(action, PatchNode) and action.takes and action.node in nodes
    }
    if part.wave is None or not moves:
        return part
    boots = ((name, nodes[name].boot_id) for name in moves)
    reached = {name: Reached.of(OUTSIDE, boot_id) for name, boot_id in boots if boot_id is not None}
    return replace(part, wave=replace(part.wave, reached=_bounded({**part.wave.reached, **reached})))


def moving(view: DriverView) -> frozenset[str]:
    """Return the nodes that have just moved, where no pod has reported since: their locks stay, whatever is wanted."""
    wave = previous_wave(view.driver.status)
    known = wave.reached.items() if wave is not None else ()
    found = ((view.nodes[name], it) for name, it in known if it.label == OUTSIDE and name in view.nodes)
    return frozenset(
        node.name
        for node, it in found
        if node.boot_id is not None and it.is_on(node.boot_id)
        if (value := view.on(node).wave) is not None and not _is_proven(view, node, value)
    )


def restore(view: DriverView) -> tuple[PatchNode, ...]:
    """Put the label back where a Node lost it on the same boot, and no decision has removed it."""
    wave = previous_wave(view.driver.status)
    reached: Mapping[str, Reached] = wave.reached if wave is not None else {}
    known = ((node, reached[node.name]) for node in (view.others if reached else ()) if node.name in reached)
    return tuple(_put_back(view, node, found) for node, found in known if _is_lost(view, node, found))


def tidy(view: DriverView) -> tuple[PatchNode, ...]:
    """Remove the labels of waves that have ended."""
    labelled = ((node, wave) for node in view.others if (wave := view.on(node).wave) is not None)
    stale = (node.name for node, wave in labelled if not (_is_of_wave(view, wave) or _is_missed(view, wave)))
    why = "the wave has ended"
    return tuple(move_node(node=it, driver=view.driver.key, value=None, why=why) for it in islice(stale, MAX_TIDIED))


def _bounded(reached: Mapping[str, Reached]) -> Mapping[str, Reached]:
    return reached if len(reached) <= MAX_REACHED else dict(sorted(reached.items())[:MAX_REACHED])


def _is_clearing(node: Node) -> bool:
    """Return whether drivers yield there: their labels are removed and set together."""
    return YIELDING_ANNOTATION in node.annotations


def _may_be_lost(view: DriverView, node: Node, found: Reached) -> bool:
    """Return whether a Node that has not the label may have lost it: on the same boot, and with nothing else loaded."""
    is_same_boot = node.boot_id is None or found.is_on(node.boot_id)
    return is_same_boot and not _is_clearing(node) and not _has_others(view, node, found.label)


def _is_lost(view: DriverView, node: Node, found: Reached) -> bool:
    """Return whether a Node lost the label that a DaemonSet of now goes by."""
    if view.on(node).wave is not None:
        return False
    if found.label == OUTSIDE:
        # Nothing is known of what a driver selects whose spec is invalid.
        is_selected = not view.wanted or any(node.name in item.nodes for item in view.wanted)
        is_known = not view.on(node).is_kept_away and is_selected
    else:
        is_known = _is_of_wave(view, found.label)
    return is_known and _may_be_lost(view, node, found)


def _is_proven(view: DriverView, node: Node, label: str) -> bool:
    """Return whether a pod of the DaemonSet that a wave label names has reported on a node."""
    place = slots.parse_name(label)
    return any((pod.target, pod.slot) == place and pod.proof is not None for pod in view.own_pods.on(node.name))


def _put_back(view: DriverView, node: Node, found: Reached) -> PatchNode:
    label, value = (view.keys.wave, found.label) if found.label != OUTSIDE else (view.keys.yields, OUTSIDE)
    why = "the wave has reached it, or is to reach it, and its label was lost"
    return patch_node(view.on(node), why, labels={label: value})


def _has_others(view: DriverView, node: Node, label: str) -> bool:
    """Return whether something else than what the wave brings is loaded there by now: the label would replace it.

    A node from which pods are kept has a record, as long as it is not registered anew.
    """
    proven = [pod for pod in view.own_pods.on(node.name) if pod.proof is not None]
    if label == OUTSIDE:
        return bool(proven) or view.on(node).is_recorded
    target, slot = slots.parse_name(label)
    if any((pod.target, pod.slot) != (target, slot) for pod in proven):
        return True
    named = view.daemon_sets.get(target)
    return named is not None and not held_out.has_all_of(view, node, named)


def _is_missed(view: DriverView, label: str) -> bool:
    """Return whether a wave label keeps a node from the DaemonSet that is left of a wave: the other one is missing.

    Where both are, the one for the other nodes may be made anew.
    """
    target = slots.parse_name(label)[0]
    left, wave = view.daemon_sets.get(target), previous_wave(view.driver.status)
    if left is None:
        return wave is not None and target in wave.targets
    return left.slot.place is Place.OTHERS


def _is_of_wave(view: DriverView, value: str) -> bool:
    """Return whether a wave label names a DaemonSet that is for nodes with it."""
    named = view.daemon_sets.get(slots.parse_name(value)[0])
    if named is None or named.target_label != value:
        return False
    return named.slot.place is Place.MOVED or named.target in view.pairs
