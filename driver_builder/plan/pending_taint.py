"""The taint of nodes on whose boot a driver was never proven, which keeps other pods away until it is. Pure.

Place in the flow: ``plan`` adds these actions once every target is decided, so that a taint goes in the patch that sets
the ready label. The Node records for which boot it was tainted: a taint that an admin removes stays away until the next
one. Nothing is added where the driver works, or has worked since the node booted. Where it yields to a driver that it
depends on (:mod:`driver_builder.rollout.order`) all stays as it is.
"""

from collections.abc import Collection, Iterable

from driver_builder.base.reasons import WITHOUT_DRIVER
from driver_builder.nodes import evidence
from driver_builder.nodes.changes import PatchNode
from driver_builder.nodes.evidence import Finding, NodeEvidence
from driver_builder.nodes.plan_labels import evidence_of_weighed
from driver_builder.nodes.plan_view import DriverView, TargetPart
from driver_builder.snapshot.inventory import Node
from kube_api import names


def taint(
    view: DriverView, parts: Iterable[TargetPart], leaving: frozenset[str], nameless: Collection[str]
) -> tuple[PatchNode, ...]:
    """Return what becomes of the taint on each node that is not ordinary.

    ``leaving`` are nodes that the driver leaves. Of those in ``nameless`` it is unknown what they should run.
    """
    if not view.validation.taint:
        return untaint(view, view.others)
    parts = tuple(parts)
    known = evidence_of_weighed(view, parts)
    without = leaving.union(*(part.evidence for part in parts if part.status.state in WITHOUT_DRIVER))
    wanted = {name: found for name, found in known.items() if name not in without}
    others = (node for node in view.others if node.name not in wanted and node.name not in nameless)
    gone = [node for node in others if not view.on(node).is_to_yield]
    steps = (_step(view, view.nodes[name], found) for name, found in wanted.items())
    return (*untaint(view, gone), *(step for step in steps if step is not None))


def untaint(view: DriverView, nodes: Iterable[Node]) -> tuple[PatchNode, ...]:
    """Remove the taint and its record from nodes that get no driver, or where no taint is wanted any more."""
    left = (node for node in nodes if view.on(node).tainted_on is not None or view.on(node).is_tainted)
    why = "no driver has to be proven there"
    return tuple(_action(view, node, is_wanted=False, boot_id=None, why=why) for node in left)


def _step(view: DriverView, node: Node, found: NodeEvidence) -> PatchNode | None:
    is_there, recorded = view.on(node).is_tainted, view.on(node).tainted_on
    if found.version is not None:
        if not is_there:
            return None
        return _action(view, node, is_wanted=False, boot_id=recorded or node.boot_id, why="the driver is proven there")
    if node.boot_id is None or recorded == node.boot_id:
        # Once per boot: it is there, or an admin has removed it.
        return None
    if not is_there and _has_worked(view, node):
        return None
    return _action(view, node, is_wanted=True, boot_id=node.boot_id, why="the driver is not proven on this boot yet")


def _has_worked(view: DriverView, node: Node) -> bool:
    """Return whether the driver works on a node, or was proven there since it booted."""
    if any(evidence.judge(node, pod)[0] is Finding.WORKS for pod in view.pods_on(node.name)):
        return True
    record = view.on(node)
    if (record.proven_on or "").partition(" ")[0] == node.boot_id:
        return True
    if record.tainted_on is None and record.is_to_yield:
        # What it had loaded is unloaded, and forgotten.
        return True
    return any(load.boot_id == node.boot_id for load in record.loads)


def _action(view: DriverView, node: Node, *, is_wanted: bool, boot_id: str | None, why: str) -> PatchNode:
    key = view.keys.taint
    taint = {"key": key, "value": names.PENDING, "effect": "NoSchedule"} if is_wanted else None
    return PatchNode(
        node=node.name,
        driver=view.driver.key,
        taints={key: taint},
        annotations={view.keys.tainted: boot_id},
        why=why,
    )
