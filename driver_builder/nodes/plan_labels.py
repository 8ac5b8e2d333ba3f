"""The ready labels of a driver's nodes, from the evidence alone. Pure."""

from collections.abc import Iterable, Mapping

from driver_builder.nodes import evidence, validation
from driver_builder.nodes.changes import PatchNode, patch_node
from driver_builder.nodes.evidence import NodeEvidence
from driver_builder.nodes.kept_modules import may_reload
from driver_builder.nodes.plan_view import DriverView, TargetPart
from driver_builder.nodes.validation import Validation
from driver_builder.snapshot.inventory import Node
from driver_builder.snapshot.node_record import NodeRecord
from driver_builder.targets.desired_target import DesiredTarget, SkippedTarget
from driver_builder.tasks.validation_pod import VALIDATION

UNPROVEN = "no driver pod has proven it there"


def evidence_of(view: DriverView, item: DesiredTarget) -> dict[str, NodeEvidence]:
    """Return the evidence of each node of a target that is not ordinary."""
    if isinstance(item, SkippedTarget):
        return {name: NodeEvidence(version=None, why="no driver is wanted for its kernel") for name in item.nodes}
    return {name: of_node(view, view.nodes[name]) for name in view.weighed(item) if name in view.nodes}


def usual_evidence(view: DriverView, item: DesiredTarget) -> NodeEvidence:
    """Return the evidence that the ordinary nodes of a target share, without the boot of the proof."""
    daemon_set = view.daemon_sets.get(item.target.short_hash)
    return NodeEvidence(version=daemon_set.version if daemon_set is not None else None, works=True)


def evidence_of_weighed(view: DriverView, parts: Iterable[TargetPart]) -> dict[str, NodeEvidence]:
    """Return the evidence of all nodes that are not ordinary."""
    evidence = {part.status.target: part.evidence for part in parts}
    weighed = ((evidence[item.target.id], name) for item in view.wanted for name in view.weighed(item))
    return {name: found[name] for found, name in weighed if name in found}


def of_node(view: DriverView, node: Node) -> NodeEvidence:
    """Return the evidence of a node from all pods of the driver there."""
    found = evidence.of_node(view.on(node), view.pods_on(node.name), view.daemon_sets)
    return found if found.version is None else validation.weighed(found, validation_of(view, node))


def validation_of(view: DriverView, node: Node) -> Validation | None:
    """Return what is known of the validation of the driver on a node; None where nothing is to be validated."""
    if not view.validation.is_set:
        return None
    return validation.of_node(
        view.validation,
        view.on(node),
        view.pods_on(node.name),
        view.tasks_of(VALIDATION).get(node.name, ()),
        daemon_sets=view.daemon_sets,
        may_reload=may_reload(view.modules, view.rebuilds),
        now=view.snapshot.now,
    )


def unlabel(view: DriverView) -> list[PatchNode]:
    """Remove the ready labels that are no longer true, whatever their target: this needs no valid spec."""
    actions: list[PatchNode] = []
    for node in view.snapshot.nodes:
        ready = view.on(node).ready
        if ready is None:
            continue
        found = of_node(view, node)
        versions = evidence.versions_of(node, view.pods_on(node.name), view.daemon_sets)
        if found.version is None or (found.works and ready not in versions):
            actions.append(label_ready(view.on(node), None, found.why or UNPROVEN))
    return actions


def relabel(view: DriverView, known: Mapping[str, NodeEvidence], unknown: Iterable[str] = ()) -> list[PatchNode]:
    """Make every node's ready label true.

    ``known`` are the nodes of all targets. Those in ``unknown`` are selected and have lost the labels that name
    their kernel: that is not evidence against their driver.
    """
    nameless = frozenset(unknown)
    actions: list[PatchNode] = []
    for node in view.others:
        on, found = view.on(node), known.get(node.name)
        if found is None and node.name in nameless and on.ready is not None:
            found = of_node(view, node)
        if found is None:
            found = NodeEvidence(version=None, why=UNPROVEN)
        is_same_boot = found.version is None or on.proven_on == found.proven_on
        if on.ready != found.version or not is_same_boot:
            actions.append(label_ready(on, found.version, found.why, proven_on=found.proven_on))
    return actions


def label_ready(on: NodeRecord, version: str | None, why: str, *, proven_on: str = "") -> PatchNode:
    """Set the ready label, with what it was proven on, or remove both (``version`` None)."""
    proof = {on.keys.ready: proven_on if version is not None else None}
    return patch_node(on, why, labels={on.keys.ready: version}, annotations=proof)
