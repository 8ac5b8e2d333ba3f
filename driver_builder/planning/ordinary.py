"""Nodes where all is as it should be, which are most nodes most of the time: nothing is to be done there. Pure.

Place in the flow: ``plan`` finds them first, and weighs in detail only what is said of the others. A node is one of
them when its only driver pod proves the driver that is rolled out, and label and record on the Node say just that.
"""

from collections.abc import Iterable, Mapping
from dataclasses import dataclass, field

from driver_builder.desired.desired_target import BlockedTarget, DesiredTarget, SkippedTarget
from driver_builder.objects import loaded
from driver_builder.observed import evidence
from driver_builder.observed.evidence import Finding
from driver_builder.observed.inventory import Node
from driver_builder.observed.snapshot import DaemonSet, DriverPod
from driver_builder.planning.plan_view import DriverView
from driver_builder.planning.pod_loads import load_of


@dataclass(frozen=True, slots=True, kw_only=True)
class Ordinary:
    """The ordinary nodes of a driver by name, and the objects that say so: while they are the same, it stays true.

    ``pods`` are the ids of the pods that prove it, which live in ``seen``.
    """

    names: frozenset[str] = frozenset()
    pods: frozenset[int] = frozenset()
    seen: tuple[DriverPod, ...] = ()
    nodes: Mapping[str, Node] = field(default_factory=dict)
    daemon_sets: Mapping[str, DaemonSet] = field(default_factory=dict)


def ordinary_nodes(view: DriverView, wanted: Iterable[DesiredTarget], before: Ordinary) -> Ordinary:
    """Find the nodes of a driver where nothing is to be done; ``before`` are those of the last time."""
    names: list[str] = []
    proving: list[int] = []
    special = _special(view)
    for item in wanted:
        target = item.target.short_hash
        daemon_set = view.daemon_sets.get(target)
        if daemon_set is None or isinstance(item, SkippedTarget | BlockedTarget):
            continue
        known = before.pods if before.daemon_sets.get(target) is daemon_set else frozenset()
        for name in item.nodes:
            pods, node = view.pods_by_node.get(name, ()), view.nodes[name]
            if len(pods) != 1 or name in special:
                continue
            is_known = id(pods[0]) in known and before.nodes.get(name) is node
            if is_known or _is_ordinary(view, node, pods[0], daemon_set):
                names.append(name)
                proving.append(id(pods[0]))
    return Ordinary(
        names=frozenset(names),
        pods=frozenset(proving),
        seen=view.own_pods,
        nodes=view.nodes,
        daemon_sets=view.daemon_sets,
    )


def _special(view: DriverView) -> frozenset[str]:
    """Return the nodes of which something else is known."""
    conflicts = (name for conflict in view.conflicts for name in conflict.nodes)
    return view.orphans.union(view.unload_pods, view.notes, view.rebuilds.pending, conflicts)


def _is_ordinary(view: DriverView, node: Node, pod: DriverPod, daemon_set: DaemonSet) -> bool:
    label = view.driver.ready_label
    return (
        pod.target == daemon_set.target
        and bool(daemon_set.version)
        and node.labels.get(label) == daemon_set.version
        and pod.proof is not None
        and node.annotations.get(label) == evidence.place(pod.proof)
        and evidence.judge(node, pod)[0] is Finding.WORKS
        and evidence.is_current(pod, daemon_set)
        and loaded.records(node.annotations.get(view.record), load_of(view, node, pod))
    )
