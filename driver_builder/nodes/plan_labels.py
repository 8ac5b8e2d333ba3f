"""The ready labels of a driver's nodes, from the evidence alone. Pure."""

from collections.abc import Iterable, Mapping

from driver_builder.nodes import evidence, validation
from driver_builder.nodes.changes import PatchNode, label_node
from driver_builder.nodes.evidence import NodeEvidence
from driver_builder.nodes.kept_modules import may_reload
from driver_builder.nodes.plan_view import DriverView, TargetPart
from driver_builder.nodes.validation import Validation
from driver_builder.snapshot.inventory import Node
from driver_builder.targets.desired_target import DesiredTarget, SkippedTarget
from driver_builder.tasks.validation_pod import VALIDATION


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
    pods, label = view.pods_on(node.name), view.driver.ready_label
    found = evidence.of_node(node, pods, label=label, daemon_sets=view.daemon_sets)
    return found if found.version is None else validation.weighed(found, validation_of(view, node))


def validation_of(view: DriverView, node: Node) -> Validation | None:
    """Return what is known of the validation of the driver on a node; None where nothing is to be validated."""
    if not view.validation.is_set:
        return None
    return validation.of_node(
        view.validation,
        node,
        view.pods_on(node.name),
        view.on(node).validated,
        view.tasks_of(VALIDATION).get(node.name, ()),
        label=view.driver.ready_label,
        daemon_sets=view.daemon_sets,
        may_reload=may_reload(view.modules, view.rebuilds),
        now=view.snapshot.now,
    )


def unlabel(view: DriverView) -> list[PatchNode]:
    """Remove the ready labels that are no longer true, whatever their target: this needs no valid spec."""
    label = view.driver.ready_label
    actions: list[PatchNode] = []
    for node in view.snapshot.nodes:
        if label not in node.labels:
            continue
        found = of_node(view, node)
        versions = evidence.versions_of(node, view.pods_on(node.name), label=label, daemon_sets=view.daemon_sets)
        if found.version is None or (found.works and node.labels[label] not in versions):
            actions.append(
                _label(view, node, NodeEvidence(version=None, why=found.why or "no driver pod has proven it there"))
            )
    return actions


def relabel(view: DriverView, known: Mapping[str, NodeEvidence], unknown: Iterable[str] = ()) -> list[PatchNode]:
    """Make every node's ready label true.

    ``known`` are the nodes of all targets. Those in ``unknown`` are selected and have lost the labels that name
    their kernel: that is not evidence against their driver.
    """
    label = view.driver.ready_label
    nameless = frozenset(unknown)
    actions: list[PatchNode] = []
    for node in view.others:
        found = known.get(node.name)
        if found is None and node.name in nameless and label in node.labels:
            found = of_node(view, node)
        if found is None:
            found = NodeEvidence(version=None, why="no driver pod has proven it there")
        is_same_boot = found.version is None or view.on(node).proven_on == found.proven_on
        if node.labels.get(label) != found.version or not is_same_boot:
            actions.append(_label(view, node, found))
    return actions


def _label(view: DriverView, node: Node, found: NodeEvidence) -> PatchNode:
    return label_node(
        node=node.name,
        driver=view.driver.key,
        label=view.driver.ready_label,
        value=found.version,
        why=found.why,
        annotations={view.driver.ready_label: found.proven_on if found.version is not None else None},
    )
