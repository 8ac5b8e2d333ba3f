"""Nodes that a driver's pods have left, not its modules: who keeps the pods away, and when they come again. Pure.

Place in the flow: a removal (:mod:`driver_builder.removal`) writes the label that keeps the pods away: in the patch
that records since when the node is outside the selector, or once the pods are gone from a node that has lost the labels
of its kernel. If the node returns in time, its pods come at once where nothing of the driver is loaded any more, or
just what they would load. Where they would load something else, a wave lets them in, as it replaces a driver that
works (:mod:`driver_builder.rollout`).
"""

from collections.abc import Iterable

from driver_builder.objects import loaded
from driver_builder.objects.loaded import Load
from driver_builder.objects.yielding import OUTSIDE, is_held_out
from driver_builder.observed.inventory import Node
from driver_builder.observed.snapshot import DaemonSet
from driver_builder.planning.actions import ApplyDaemonSet, LabelNode
from driver_builder.planning.kept_modules import may_reload
from driver_builder.planning.plan_view import DriverView, TargetPart


def is_kept_out(view: DriverView, node: Node) -> bool:
    """Return whether the driver's pods are kept from a node because that was outside the selector."""
    return view.yield_label in node.labels and is_held_out(node.labels, node.annotations, view.driver.key)


def keep_out(view: DriverView, node: Node, why: str) -> tuple[LabelNode, ...]:
    """Keep the driver's pods from a node that none of its DaemonSets selects, also if one does so again."""
    if view.yield_label in node.labels:
        return ()
    return (_label(view, node, OUTSIDE, why),)


def let_in(view: DriverView, node: Node, why: str) -> tuple[LabelNode, ...]:
    """Let the driver's pods come to a node from which they were kept."""
    return (_label(view, node, None, why),) if is_kept_out(view, node) else ()


def _label(view: DriverView, node: Node, value: str | None, why: str) -> LabelNode:
    return LabelNode(node=node.name, driver=view.driver.key, label=view.yield_label, version=value, why=why)


def waiting(
    view: DriverView, nodes: Iterable[str], target: str, written: frozenset[str] = frozenset()
) -> frozenset[str]:
    """Return which nodes of a target pods are kept from because they would load something else than there is.

    ``written`` are DaemonSets of which that is not known now.
    """
    found = (view.nodes[name] for name in nodes if name in view.nodes)
    kept_out = (node for node in found if is_kept_out(view, node))
    return frozenset(node.name for node in kept_out if not _may_come(view, node, target, written))


def returned(view: DriverView, parts: Iterable[TargetPart]) -> frozenset[str]:
    """Return all nodes that the driver selects again and that have to wait: for a wave, an image, or a DaemonSet.

    What a DaemonSet that is being written brings is looked at the next time.
    """
    parts = tuple(parts)
    written = {action.name for part in parts for action in part.actions if isinstance(action, ApplyDaemonSet)}
    return frozenset(
        name
        for item in view.wanted
        for name in waiting(view, view.weighed(item), item.target.short_hash, frozenset(written))
    )


def _may_come(view: DriverView, node: Node, target: str, written: frozenset[str]) -> bool:
    """Return whether the next pod on a node takes no loaded modules away."""
    record = loaded.parse(node.annotations.get(view.record))
    live = [load for load in record.loads if load.is_live(node.boot_id)] if record is not None else []
    if not live:
        return True
    pair = view.pairs.get(target)
    item = pair.of_node(node, view.wave_label) if pair is not None else view.daemon_sets.get(target)
    return item is not None and item.name not in written and all(_is_of(view, load, item) for load in live)


def _is_of(view: DriverView, load: Load, item: DaemonSet) -> bool:
    """Return whether a DaemonSet's pods have what is loaded, and load nothing anew."""
    if load.target != item.target:
        return False
    if load.fingerprint == item.fingerprint:
        return True
    is_same_build = bool(item.expected) and item.expected.items() <= dict(load.modules).items()
    return is_same_build and not may_reload(view.modules, view.rebuilds)
