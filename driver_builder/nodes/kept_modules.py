"""Whether the modules that are loaded on a node stay loaded when its driver is replaced. Pure.

Place in the flow: where they stay nothing has to leave the node before: no user of the driver
(:mod:`driver_builder.rollout.hold_node`), no driver that depends on it (:mod:`driver_builder.rollout.clearance`), no
stage (:mod:`driver_builder.plan.leave`). The loader leaves modules of the same build as they are, unless their
parameters differ or a rebuild was requested since (``find_doomed`` of ``loader.sh``).
"""

from collections.abc import Iterable, Mapping
from dataclasses import dataclass

from driver_builder.api.driver_spec import DriverSpec
from driver_builder.api.rebuild_status import Rebuilds
from driver_builder.model.build import ModuleSpec
from driver_builder.nodes.changes import PatchNode, Taking
from driver_builder.nodes.evidence import Finding, judge
from driver_builder.nodes.plan_view import DriverPlan
from driver_builder.objects.slots import Place
from driver_builder.snapshot import inventory, pairs
from driver_builder.snapshot.by_driver import PodsOfDriver, of_driver, pods_of
from driver_builder.snapshot.inventory import Node
from driver_builder.snapshot.pairs import Pair
from driver_builder.snapshot.snapshot import DaemonSet, DriverPod, Snapshot


def may_reload(modules: Iterable[ModuleSpec], rebuilds: Rebuilds) -> bool:
    """Return whether a pod with another fingerprint may load the same modules anew."""
    return any(module.parameters for module in modules) or bool(rebuilds.tokens)


def is_tidying(action: Taking, daemon_sets: Iterable[DaemonSet]) -> bool:
    """Return whether only the label of a wave that has ended is removed: no pod goes or comes.

    One of the driver's DaemonSets may have gone in a wave: the label still says which nodes the other one is for.
    """
    if not isinstance(action, PatchNode) or action.lets_in:
        return False
    return all(item.slot.place is Place.ALL for item in daemon_sets)


@dataclass(frozen=True, slots=True, kw_only=True)
class KeptModules:
    """What a driver has on its nodes, and what its next pods have."""

    pods: PodsOfDriver
    daemon_sets: Mapping[str, DaemonSet]
    pairs: Mapping[str, Pair]
    nodes: Mapping[str, Node]
    rebuilds: Rebuilds
    may_reload: bool

    @classmethod
    def of(cls, part: DriverPlan, snapshot: Snapshot) -> "KeptModules":
        """Take what is known of a driver."""
        every, spec = of_driver(snapshot.daemon_sets, part.driver.key), part.driver.spec
        known = pairs.pairs(every)
        return cls(
            pods=pods_of(snapshot.pods, part.driver.key),
            daemon_sets=pairs.by_target(every, known),
            pairs=known,
            nodes=inventory.by_name(snapshot.nodes),
            rebuilds=part.rebuilds,
            may_reload=not isinstance(spec, DriverSpec) or may_reload(spec.module.load_order, part.rebuilds),
        )

    def stay(self, action: Taking) -> bool:
        """Return whether all modules of the driver on a node stay loaded when it is replaced there."""
        if is_tidying(action, self.daemon_sets.values()):
            return True
        node = self.nodes.get(action.node)
        pods = [pod for pod in self.pods.on(action.node) if not pod.deleting]
        if node is None or not pods or action.node in self.rebuilds.pending:
            return False
        return all(self._stays(node, pod, self._next(pod, action)) for pod in pods)

    def _next(self, pod: DriverPod, action: Taking) -> DaemonSet | None:
        """Return the DaemonSet that a node gets the next pod from."""
        pair = self.pairs.get(pod.target)
        if pair is None or not isinstance(action, PatchNode):
            return self.daemon_sets.get(pod.target)
        return pair.named(action.moved_to)

    def _stays(self, node: Node, pod: DriverPod, item: DaemonSet | None) -> bool:
        is_live = judge(node, pod)[0] in (Finding.WORKS, Finding.SILENT)
        # The image's own program may unload what it has loaded, and earlier versions of ours do.
        if item is None or not is_live or pod.program is not None or not pod.leaves_modules:
            return False
        is_same_build = bool(pod.expected) and pod.builds == item.builds
        return pod.fingerprint == item.fingerprint or (is_same_build and not self.may_reload)
