"""The ready labels of a driver's nodes: what its pods prove, and nothing else. Pure."""

from collections.abc import Iterable, Mapping

from driver_builder.planning import proof
from driver_builder.planning.actions import Action, LabelNode
from driver_builder.planning.desired import Unwanted, Wanted
from driver_builder.planning.inventory import Node
from driver_builder.planning.plan_view import DriverView, TargetPart
from driver_builder.planning.snapshot import DriverPod


def ready_nodes(view: DriverView, item: Wanted | Unwanted) -> tuple[dict[str, str], dict[str, str]]:
    """Sort a target's nodes into proven (with the version that is) and doubtful (with what is missing)."""
    nodes = frozenset(item.nodes)
    ready: dict[str, str] = {}
    doubts: dict[str, str] = {}
    for pod in view.pods.get(item.target.short_hash, ()):
        if pod.node not in nodes or pod.deleting:
            continue
        why = _doubt(view.nodes[pod.node], pod)
        if why is None:
            ready[pod.node] = pod.version
        else:
            doubts[pod.node] = pod.message or why if pod.proof is None else why
    return ready, doubts


def _doubt(node: Node, pod: DriverPod) -> str | None:
    """Say why a pod does not prove that its driver works on its node; None when it does."""
    why = proof.doubt(pod.proof, kernel=node.kernel_version, boot_id=node.boot_id, expected=pod.expected)
    if why is None and not pod.ready:
        return pod.message or "its readiness probe does not pass"
    return why


def unlabel(view: DriverView) -> list[Action]:
    """Take away the ready labels that no pod proves any more, whatever its target: a fact needs no good spec."""
    label = view.driver.ready_label
    pods = [pod for of_target in view.pods.values() for pod in of_target if pod.node in view.nodes and not pod.deleting]
    proven = {(pod.node, pod.version) for pod in pods if _doubt(view.nodes[pod.node], pod) is None}
    why = "no driver pod is proven there"
    return [
        LabelNode(node=node.name, driver=view.driver.key, label=label, version=None, why=why)
        for node in view.snapshot.nodes
        if label in node.labels and (node.name, node.labels[label]) not in proven
    ]


def relabel(view: DriverView, ready: Mapping[str, str], parts: Iterable[TargetPart]) -> list[Action]:
    """Make every node's ready label tell the truth."""
    label = view.driver.ready_label
    doubts = {node: why for part in parts for node, why in part.doubts.items()}
    actions: list[Action] = []
    for node in view.snapshot.nodes:
        version = ready.get(node.name)
        if node.labels.get(label) != version:
            why = doubts.get(node.name, "no driver pod is proven there")
            actions.append(LabelNode(node=node.name, driver=view.driver.key, label=label, version=version, why=why))
    return actions
