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

    ``places`` are the nodes that a driver is rolled out to, by target, and ``special`` those of which more is known.
    ``proving`` are, by target, the ids of the pods that prove it, which live in ``pods``.
    """

    names: frozenset[str] = frozenset()
    places: Mapping[str, tuple[str, ...]] = field(default_factory=dict)
    special: frozenset[str] = frozenset()
    proving: Mapping[str, frozenset[int]] = field(default_factory=dict)
    pods: tuple[DriverPod, ...] = ()
    nodes: Mapping[str, Node] = field(default_factory=dict)
    daemon_sets: Mapping[str, DaemonSet] = field(default_factory=dict)


def ordinary_nodes(view: DriverView, wanted: Iterable[DesiredTarget], before: Ordinary) -> Ordinary:
    """Find the nodes of a driver where nothing is to be done; ``before`` are those of the last time."""
    places = {
        item.target.short_hash: item.nodes for item in wanted if not isinstance(item, SkippedTarget | BlockedTarget)
    }
    special = _special(view)
    if before.nodes is view.nodes and before.pods is view.own_pods and before.special == special:
        is_same = before.places == places and before.daemon_sets.keys() == view.daemon_sets.keys()
        if is_same and all(before.daemon_sets[target] is item for target, item in view.daemon_sets.items()):
            return before
    names: list[str] = []
    proving: dict[str, frozenset[int]] = {}
    for target, candidates in places.items():
        daemon_set = view.daemon_sets.get(target)
        if daemon_set is not None and daemon_set.version:
            found = _of_target(view, daemon_set, candidates, special, before)
            names += found
            proving[target] = frozenset(found.values())
    return Ordinary(
        names=frozenset(names),
        places=places,
        special=special,
        proving=proving,
        pods=view.own_pods,
        nodes=view.nodes,
        daemon_sets=view.daemon_sets,
    )


def _of_target(
    view: DriverView,
    daemon_set: DaemonSet,
    candidates: Iterable[str],
    special: frozenset[str],
    before: Ordinary,
) -> dict[str, int]:
    """Return the ordinary nodes of a target, each with the id of the pod that proves it."""
    found: dict[str, int] = {}
    nodes, pods_on, is_ordinary = view.nodes, view.pods_by_node.get, _Proven(view, daemon_set).is_ordinary
    is_same_set = before.daemon_sets.get(daemon_set.target) is daemon_set
    known = before.proving.get(daemon_set.target, frozenset()) if is_same_set else frozenset()
    is_same_fleet = before.nodes is nodes
    for name in candidates:
        pods = pods_on(name, ())
        if len(pods) != 1 or name in special:
            continue
        one = id(pods[0])
        is_known = one in known and (is_same_fleet or before.nodes.get(name) is nodes[name])
        if is_known or is_ordinary(nodes[name], pods[0]):
            found[name] = one
    return found


def _special(view: DriverView) -> frozenset[str]:
    """Return the nodes of which something else is known."""
    conflicts = (name for conflict in view.conflicts for name in conflict.nodes)
    return view.orphans.union(view.unload_pods, view.notes, view.rebuilds.pending, conflicts)


class _Proven:
    """What pods of one DaemonSet prove: mostly the same, on other boots."""

    def __init__(self, view: DriverView, daemon_set: DaemonSet) -> None:
        self._view = view
        self._daemon_set = daemon_set
        self._label = view.driver.ready_label
        self._records: dict[tuple[object, ...], loaded.Around | None] = {}

    def is_ordinary(self, node: Node, pod: DriverPod) -> bool:
        """Return whether a pod proves on this boot what is wanted, and the Node says just that."""
        proof, annotations = pod.proof, node.annotations
        if proof is None or pod.contrary is not None or pod.deleting or not pod.ready or node.boot_id != proof.boot_id:
            return False
        if (
            node.labels.get(self._label) != self._daemon_set.version
            or annotations.get(self._label) != evidence.place(proof)
            or node.kernel_version != proof.kernel
        ):
            return False
        # By the objects: reading a pod makes equal ones the same.
        face = (id(proof.modules), id(pod.expected), proof.result, proof.kernel, pod.fingerprint, pod.target,
                pod.leaves_modules, pod.firmware, pod.blacklist)  # fmt: skip
        if face not in self._records:
            self._records[face] = self._record(node, pod)
        record = self._records[face]
        return record is not None and record.is_of(annotations.get(self._view.record), proof.boot_id)

    def _record(self, node: Node, pod: DriverPod) -> loaded.Around | None:
        """Return what the Node has to record of such a pod, None if the pod does not prove what is wanted."""
        proves = evidence.judge(node, pod)[0] is Finding.WORKS and evidence.is_current(pod, self._daemon_set)
        if not proves or pod.target != self._daemon_set.target:
            return None
        return loaded.around(load_of(self._view, node, pod))
