"""Nodes that a driver's pods have left, not its modules: who keeps the pods away, and when they come again. Pure.

Place in the flow: :mod:`driver_builder.plan.removal` writes the label that keeps the pods away: in the patch
that records since when the node is outside the selector, or once the pods are gone from a node that has lost the labels
of its kernel. If the node returns in time, its pods come at once where nothing of the driver is loaded any more, or
just what they would load. Where they would load something else, a wave lets them in, as it replaces a driver that
works (:mod:`driver_builder.rollout`).

The same holds where a DaemonSet is gone that no plan deleted: before another one is for its nodes, pods are kept from
those that record other live modules, and from those without a record: that proves nothing.
"""

from collections.abc import Iterable
from itertools import islice

from driver_builder.api.driver_spec import DriverSpec
from driver_builder.api.rollout_settings import Strategy
from driver_builder.api.rollout_status import MAX_REACHED, previous_wave
from driver_builder.nodes.changes import ApplyObject, PatchNode, patch_node
from driver_builder.nodes.kept_modules import may_reload
from driver_builder.nodes.plan_view import DriverView, TargetPart
from driver_builder.nodes.pod_loads import load_of
from driver_builder.objects import slots
from driver_builder.objects.load_report import LOADED
from driver_builder.objects.loaded import Load, Loaded
from driver_builder.objects.slots import Place
from driver_builder.objects.yielding import OUTSIDE
from driver_builder.snapshot.inventory import Node
from driver_builder.snapshot.snapshot import DaemonSet

MAX_KEPT_OUT = 200
"""Nodes that one reconcile keeps the pods of a DaemonSet from before it is for them."""


def keep_out(view: DriverView, node: Node, why: str) -> tuple[PatchNode, ...]:
    """Keep the driver's pods from a node that none of its DaemonSets selects, also if one does so again."""
    on = view.on(node)
    return () if on.is_kept_away else (patch_node(on, why, labels={on.keys.yields: OUTSIDE}),)


def let_in(view: DriverView, node: Node, why: str) -> tuple[PatchNode, ...]:
    """Let the driver's pods come to a node from which they were kept."""
    on = view.on(node)
    return (patch_node(on, why, labels={on.keys.yields: None}),) if on.is_held_out else ()


def waiting(
    view: DriverView, nodes: Iterable[str], target: str, written: frozenset[str] = frozenset()
) -> frozenset[str]:
    """Return which nodes of a target pods are kept from because they would load something else than there is.

    ``written`` are DaemonSets of which that is not known now.
    """
    found = (view.nodes[name] for name in nodes if name in view.nodes)
    kept_out = (node for node in found if view.on(node).is_held_out)
    return frozenset(
        node.name for node in kept_out if _has_waited(view, node) or not _may_come(view, node, target, written)
    )


def _has_waited(view: DriverView, node: Node) -> bool:
    """Return whether a Node waits of which the status says so on this boot, and its record nothing."""
    if _is_recorded(view, node) or node.boot_id is None:
        return False
    wave = previous_wave(view.driver.status)
    found = wave.reached.get(node.name) if wave is not None else None
    return found is not None and found.label == OUTSIDE and found.is_on(node.boot_id)


def waits_unrecorded(view: DriverView, nodes: Iterable[str], target: str) -> bool:
    """Return whether a node of a target without a record waits, and the status does not say so yet."""
    wave = previous_wave(view.driver.status)
    if not _was_deleted(view, target) or (wave is not None and len(wave.reached) >= MAX_REACHED):
        return False
    kept_out = (view.nodes[name] for name in nodes if name in view.nodes and view.on(view.nodes[name]).is_held_out)
    return any(_is_unrecorded(view, node, target) and not _has_waited(view, node) for node in kept_out)


def returned(view: DriverView, parts: Iterable[TargetPart]) -> frozenset[str]:
    """Return all nodes that the driver selects again and that have to wait: for a wave, an image, or a DaemonSet.

    What a DaemonSet that is being written brings is looked at the next time.
    """
    parts = tuple(parts)
    written = {action.name for part in parts for action in part.actions if isinstance(action, ApplyObject)}
    return frozenset(
        name
        for item in view.wanted
        for name in waiting(view, view.weighed(item), item.target.short_hash, frozenset(written))
    )


def keep_out_exposed(
    view: DriverView, nodes: Iterable[str], item: DaemonSet, left: DaemonSet | None
) -> tuple[PatchNode, ...]:
    """Keep pods from the nodes that would lose loaded modules at once if a DaemonSet were for all nodes of its target.

    The one that these nodes had is missing: somebody has deleted it, or it cannot be recognized any more. ``left`` is
    the other one of a wave, whose own nodes have it already. With strategy ``immediate`` only a refused image waits.
    """
    spec, wave = view.driver.spec, previous_wave(view.driver.status)
    is_refused = wave is not None and item.target in wave.refused
    if isinstance(spec, DriverSpec) and spec.rollout.strategy is Strategy.IMMEDIATE and not is_refused:
        return ()
    found = (view.nodes[name] for name in nodes if name in view.nodes)
    losing = (node for node in found if not _is_of_left(view, node, left) and _is_exposed(view, node, item))
    why = "the DaemonSet that it had is missing, and another one would replace what is loaded there"
    return tuple(action for node in islice(losing, MAX_KEPT_OUT) for action in keep_out(view, node, why))


def _is_of_left(view: DriverView, node: Node, left: DaemonSet | None) -> bool:
    if left is None:
        return False
    is_for_moved = left.slot.place is Place.MOVED
    moved = left.target_label if is_for_moved else slots.name_in(left.target, slots.other(left.slot.name))
    return (view.on(node).wave == moved) is is_for_moved


def _is_exposed(view: DriverView, node: Node, item: DaemonSet) -> bool:
    if view.on(node).is_kept_away:
        return False
    return _is_unrecorded(view, node, item.target) or not has_all_of(view, node, item)


def _is_recorded(view: DriverView, node: Node) -> bool:
    """Return whether a Node's record says what is loaded on this boot."""
    known = view.on(node).loaded
    return known is not None and (not known.loads or any(load.is_live(node.boot_id) for load in known.loads))


def _is_unrecorded(view: DriverView, node: Node, target: str) -> bool:
    """Return whether nothing says what a node has whose DaemonSet is missing: it may have been registered anew."""
    if node.boot_id is None or _is_recorded(view, node):
        return False
    if any(pod.target == target for pod in view.pods_on(node.name)):
        return False
    return _was_deleted(view, target)


def _was_deleted(view: DriverView, target: str) -> bool:
    """Return whether a DaemonSet of a target is missing that its nodes had, as the status says."""
    known = view.daemon_sets.get(target)
    if known is not None and (known.slot.place is Place.ALL or target in view.pairs):
        return False
    before = (view.before.get(item.target.id) for item in view.wanted if item.target.short_hash == target)
    return any(status is not None and status.rolled_out is not None for status in before)


def has_all_of(view: DriverView, node: Node, item: DaemonSet) -> bool:
    """Return whether a DaemonSet's pods would replace nothing of what a node records as loaded."""
    return all(_is_of(view, load, item) for load in _live(view, node))


def _live(view: DriverView, node: Node) -> list[Load]:
    """Return what is loaded on a node, as it records, and as pods have reported since."""
    record = view.on(node).loaded or Loaded()
    for pod in view.pods_on(node.name):
        load = load_of(view, node, pod) if pod.proof is not None and not pod.deleting else None
        if load is not None and pod.proof is not None and pod.proof.result == LOADED:
            record = record.with_load(load)
    return [load for load in record.loads if load.is_live(node.boot_id)]


def _may_come(view: DriverView, node: Node, target: str, written: frozenset[str]) -> bool:
    """Return whether the next pod on a node takes no loaded modules away."""
    if not _live(view, node):
        return not _is_unrecorded(view, node, target)
    pair = view.pairs.get(target)
    item = pair.named(view.on(node).wave) if pair is not None else view.daemon_sets.get(target)
    if item is None or item.name in written:
        return False
    # Of a pair one may be missing: the other one's pods come to its own nodes alone.
    is_for_node = item.slot.place is Place.ALL or _is_of_left(view, node, item)
    return is_for_node and has_all_of(view, node, item)


def _is_of(view: DriverView, load: Load, item: DaemonSet) -> bool:
    """Return whether a DaemonSet's pods have what is loaded, and load nothing anew."""
    if load.target != item.target:
        return False
    if load.fingerprint == item.fingerprint:
        return True
    # A record does not have those that an image has because others need them.
    is_named = bool(item.expected) and not item.needed
    is_same_build = is_named and item.expected.items() <= dict(load.modules).items()
    return is_same_build and not may_reload(view.modules, view.rebuilds)
