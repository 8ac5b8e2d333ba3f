"""Nodes where all is as it should be, which are most nodes most of the time: nothing is to be done there. Pure.

Place in the flow: ``plan`` finds them first, and weighs in detail only what is said of the others. A node is one of
them when its only driver pod proves the driver that is rolled out, and label and record on the Node say just that. In
a wave the nodes that wait for it are of the same kind: there the driver works from the image of before.
"""

from bisect import bisect_left
from collections.abc import Collection, Iterable, Mapping, Sequence
from dataclasses import dataclass, field, replace

from driver_builder.api.driver_spec import ValidationSettings
from driver_builder.base.persistent import Layered
from driver_builder.model.kernels import KernelTarget
from driver_builder.nodes import evidence, validation
from driver_builder.nodes.evidence import Finding, ValidationState
from driver_builder.nodes.plan_view import DriverView
from driver_builder.nodes.pod_loads import load_of
from driver_builder.objects import loaded
from driver_builder.objects.slots import Place
from driver_builder.snapshot import inventory
from driver_builder.snapshot.by_driver import NO_PODS, PodsOfDriver
from driver_builder.snapshot.inventory import Node
from driver_builder.snapshot.node_record import NodeRecord
from driver_builder.snapshot.pairs import Pair
from driver_builder.snapshot.snapshot import DaemonSet, DriverPod
from driver_builder.targets.desired_target import BlockedTarget, DesiredTarget, SkippedTarget
from driver_builder.tasks.kinds import KINDS
from kube_api.names import SKIP_ROLLOUT_ANNOTATION, YIELDING_ANNOTATION


@dataclass(frozen=True, slots=True, kw_only=True)
class Ordinary:
    """Which nodes of a driver are ordinary, and the objects that say so: while they are the same, it stays true.

    ``places`` are the nodes that a driver is rolled out to, by target, ``others`` those of them that are not ordinary:
    in a large fleet a few. Of ``special`` nodes more is known.
    """

    waiting: Mapping[KernelTarget, tuple[str, ...]] = field(default_factory=dict)
    """Ordinary nodes that a wave has not reached, by target and sorted: they would go as they are."""
    places: Mapping[KernelTarget, tuple[str, ...]] = field(default_factory=dict)
    others: Mapping[KernelTarget, tuple[str, ...]] = field(default_factory=dict)
    names: frozenset[str] = frozenset()
    """All nodes of the cluster; ``elsewhere`` are those that the driver is not rolled out to."""
    elsewhere: frozenset[str] = frozenset()
    special: frozenset[str] = frozenset()
    pods: PodsOfDriver = NO_PODS
    nodes: Layered[Node] = field(default_factory=Layered)
    daemon_sets: Mapping[str, DaemonSet] = field(default_factory=dict)
    pairs: Mapping[str, Pair] = field(default_factory=dict)
    validation: ValidationSettings = field(default_factory=ValidationSettings)
    has_stages: bool = False


_FEW = 32
"""So many names are searched one by one."""


def _never(_name: str) -> bool:
    return False


def ordinary_nodes(view: DriverView, wanted: Iterable[DesiredTarget], before: Ordinary) -> Ordinary:
    """Find the nodes of a driver where nothing is to be done; ``before`` are those of the last time."""
    places = {item.target: item.nodes for item in wanted if not isinstance(item, SkippedTarget | BlockedTarget)}
    special = _special(view)
    changed = before.nodes.differing(view.nodes) | before.pods.by_node.differing(view.own_pods.by_node)
    changed |= special ^ before.special
    if (before.validation, before.has_stages) != (view.validation, view.has_stages):
        before = Ordinary(validation=view.validation, has_stages=view.has_stages)
    if not changed and (before.places, before.daemon_sets, before.pairs) == (places, view.daemon_sets, view.pairs):
        return before
    others: dict[KernelTarget, tuple[str, ...]] = {}
    waiting: dict[KernelTarget, tuple[str, ...]] = {}
    for target, candidates in places.items():
        daemon_set, pair = view.daemon_sets.get(target.short_hash), view.pairs.get(target.short_hash)
        if daemon_set is None or not daemon_set.version:
            others[target] = candidates
            continue
        is_ordinary = _Proven(view, daemon_set, special).is_ordinary
        is_waiting = _Proven(view, pair.others, special).is_waiting if pair is not None else _never
        is_known = (
            before.daemon_sets.get(target.short_hash) is daemon_set
            and before.pairs.get(target.short_hash) == pair
            and before.places.get(target) == candidates
        )
        # Of those that are known as they are, a large fleet has thousands.
        touched = _among(changed, candidates) if is_known else frozenset(candidates)
        if is_known and not touched:
            others[target], waiting[target] = before.others[target], before.waiting.get(target, ())
            continue
        waits = set(filter(is_waiting, touched))
        weighed = {name for name in touched - waits if not is_ordinary(name)}
        others[target] = _updated(before.others[target] if is_known else (), touched, weighed)
        waiting[target] = _updated(before.waiting.get(target, ()) if is_known else (), touched, waits)
    known_names = inventory.every_name(view.snapshot.nodes)
    is_placed_as_before = before.places == places and before.names is known_names
    return Ordinary(
        waiting={target: found for target, found in waiting.items() if found},
        pairs=view.pairs,
        places=places,
        others=others,
        names=known_names,
        elsewhere=before.elsewhere if is_placed_as_before else known_names.difference(*places.values()),
        special=special,
        pods=view.own_pods,
        nodes=view.nodes,
        daemon_sets=view.daemon_sets,
        validation=view.validation,
        has_stages=view.has_stages,
    )


def _among(names: frozenset[str], candidates: tuple[str, ...]) -> frozenset[str]:
    """Return the names that are among sorted ones: a few of them are searched there."""
    if len(names) > _FEW:
        return names.intersection(candidates)
    return frozenset(name for name in names if _place_of(name, candidates) is not None)


def _place_of(name: str, candidates: Sequence[str]) -> int | None:
    place = bisect_left(candidates, name)
    return place if place < len(candidates) and candidates[place] == name else None


def _updated(before: tuple[str, ...], touched: Iterable[str], now: Collection[str]) -> tuple[str, ...]:
    """Return sorted names of which the ``touched`` were looked at again: of those ``now`` are left."""
    names = list(before)
    for name in touched:
        if (place := _place_of(name, names)) is not None:
            del names[place]
    return tuple(sorted([*names, *now]) if now else names)


def _special(view: DriverView) -> frozenset[str]:
    """Return the nodes of which something else is known."""
    conflicts = (name for conflict in view.conflicts for name in conflict.nodes)
    held = inventory.held(view.snapshot.nodes)
    yielding = (node.name for node in held if YIELDING_ANNOTATION in node.annotations)
    of_pods = view.orphans.union(*(tasks for kind, tasks in view.tasks.items() if not KINDS[kind].stays))
    return of_pods.union(view.notes, view.rebuilds.pending, conflicts, yielding)


class _Proven:
    """What pods of one DaemonSet prove: mostly the same, on other boots."""

    def __init__(self, view: DriverView, daemon_set: DaemonSet, special: frozenset[str]) -> None:
        self._view = view
        self._daemon_set = daemon_set
        self._special = special
        is_for_moved = daemon_set.slot.place is Place.MOVED
        self._moved = daemon_set.target_label if is_for_moved else None
        self._records: dict[tuple[object, ...], tuple[loaded.Around, ...]] = {}

    def is_ordinary(self, name: str) -> bool:
        """Return whether the only pod of a node proves on this boot what is wanted, and the Node says just that."""
        pods = self._view.pods_on(name)
        return len(pods) == 1 and name not in self._special and self._is_proven(self._view.nodes[name], pods[0])

    def is_waiting(self, name: str) -> bool:
        """Return whether that holds, and nothing leaves the node out of a wave."""
        node = self._view.nodes[name]
        is_free = node.ready and not node.unschedulable and SKIP_ROLLOUT_ANNOTATION not in node.annotations
        return is_free and self.is_ordinary(name)

    def _is_proven(self, node: Node, pod: DriverPod) -> bool:
        proof, on = pod.proof, self._view.on(node)
        if proof is None or pod.contrary is not None or pod.deleting or not pod.ready or node.boot_id != proof.boot_id:
            return False
        if (
            on.ready != self._daemon_set.version
            or on.proven_on != evidence.place(proof)
            or node.kernel_version != proof.kernel
            or on.wave != self._moved
            or on.is_kept_away
        ):
            return False
        if self._has_traces(on) or not self._is_validated(on, pod):
            return False
        # By the objects: reading a pod makes equal ones the same.
        face = (id(proof.modules), id(pod.expected), proof.result, proof.kernel, pod.fingerprint, pod.target, pod.slot,
                pod.leaves_modules, pod.firmware, pod.var_firmware, pod.blacklist, pod.nvidia, pod.asked)  # fmt: skip
        if face not in self._records:
            self._records[face] = self._record(node, pod)
        text = on.loaded_text
        return any(record.is_of(text, proof.boot_id) for record in self._records[face])

    def _has_traces(self, on: NodeRecord) -> bool:
        """Return whether a node has what goes where the driver is proven, or what the spec has no more."""
        if on.is_tainted or (on.tainted_on is not None and not self._view.validation.taint):
            return True
        # Of stages that the spec has more is known elsewhere.
        return not self._view.has_stages and on.has_stages

    def _is_validated(self, on: NodeRecord, pod: DriverPod) -> bool:
        """Return whether a Node records that the command has succeeded; nothing, where there is none."""
        if not on.has_validation:
            return not self._view.validation.has_command
        found = validation.progress(self._view.validation, pod, on.validated, (), self._view.snapshot.now)
        return found is not None and found.state is ValidationState.VALIDATED

    def _record(self, node: Node, pod: DriverPod) -> tuple[loaded.Around, ...]:
        """Return what the Node may record of such a pod; nothing if the pod does not prove what is wanted."""
        proves = evidence.judge(node, pod)[0] is Finding.WORKS and evidence.is_current(pod, self._daemon_set)
        if not proves or (pod.target, pod.slot) != (self._daemon_set.target, self._daemon_set.slot.name):
            return ()
        load = load_of(self._view, node, pod)
        if load is None or self._view.validation.has_command:
            return (loaded.around(load),)
        # Earlier releases recorded no fingerprint.
        return (loaded.around(load), loaded.around(replace(load, fingerprint="")))
