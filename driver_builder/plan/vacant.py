"""Targets without nodes, only because nodes have lost the labels that name their kernel. Pure.

Place in the flow: ``plan`` keeps their DaemonSets and status entries, and so the recorded version of the operating
system and the rolled-out digest, until every node of the driver has its labels again.
"""

from collections.abc import Iterable, Iterator, Set
from dataclasses import replace

from driver_builder.api.status import TargetStatus
from driver_builder.model.kernels import KernelTarget, parse_target
from driver_builder.nodes.plan_view import DriverView
from driver_builder.snapshot import inventory
from driver_builder.snapshot.inventory import Node
from driver_builder.snapshot.snapshot import DaemonSet
from driver_builder.targets.desired_target import DesiredTarget


def vacant(view: DriverView, wanted: Iterable[DesiredTarget], selected: Set[str]) -> frozenset[str]:
    """Return the targets, by their short hash, whose DaemonSets are kept although no node is known to need them.

    ``selected`` are the nodes without a target that the driver selects.
    """
    if not any(_may_be_of_it(view, node, selected) for node in view.others):
        return frozenset()
    with_nodes = {item.target.short_hash for item in wanted}
    found = (item for item in view.daemon_sets.values() if item.target not in with_nodes)
    return frozenset(item.target for item in found if not _serves_others(view, item))


def statuses(view: DriverView, kept: Set[str]) -> Iterator[TargetStatus]:
    """Return the status of kept targets: the previous one, for no node."""
    words = "no node is known to run it, but nodes have lost the labels of their kernel: its DaemonSet is kept"
    for status in view.before.values():
        target = parse_target(status.kernel, status.os, status.architecture)
        if target is not None and target.short_hash in kept:
            yield replace(status, nodes=0, ready_nodes=0, message=words)


def _may_be_of_it(view: DriverView, node: Node, selected: Set[str]) -> bool:
    """Return whether it is unknown what a node of the driver runs."""
    if isinstance(inventory.target_of(node), KernelTarget):
        return False
    has_traces = view.on(node).may_be_loaded
    return node.name in selected or has_traces or bool(view.pods_on(node.name))


def _serves_others(view: DriverView, daemon_set: DaemonSet) -> bool:
    """Return whether a DaemonSet has pods on nodes known to run its kernel: these are no longer to have it."""
    pods = (
        pod for pod in view.own_pods if pod.target == daemon_set.target and not pod.deleting and pod.node in view.nodes
    )
    known = (inventory.target_of(view.nodes[pod.node]) for pod in pods)
    return any(isinstance(item, KernelTarget) and item.kernel_version == daemon_set.kernel for item in known)
