"""What is known of drivers that depend on each other, on the nodes where they are. Pure.

Place in the flow: :mod:`driver_builder.rollout.order` decides by it who waits for whom, and
:mod:`driver_builder.rollout.clearance` who yields and when that is over.
"""

from collections.abc import Mapping
from dataclasses import dataclass

from driver_builder.model.driver_key import DriverKey
from driver_builder.model.kernels import KernelTarget
from driver_builder.nodes.changes import PatchNode, Taking, move_node
from driver_builder.nodes.evidence import Finding, judge
from driver_builder.nodes.kept_modules import KeptModules
from driver_builder.nodes.plan_view import DriverPlan
from driver_builder.nodes.standing import Placed
from driver_builder.objects.yielding import Yielding, yielding_of
from driver_builder.snapshot import inventory, pairs
from driver_builder.snapshot.by_driver import of_driver, pods_of, tasks_of
from driver_builder.snapshot.inventory import Node
from driver_builder.snapshot.node_record import record_of
from driver_builder.snapshot.pairs import Pair
from driver_builder.snapshot.snapshot import DaemonSet, DriverPod, Snapshot
from driver_builder.targets.dependencies import NONE, Dependencies, unload_order
from driver_builder.tasks.unload_pod import UNLOAD


@dataclass(frozen=True, slots=True)
class DriversOnNodes:
    """The ``parts`` of all drivers by their keys, and what each needs of others."""

    parts: Mapping[DriverKey, DriverPlan]
    needs: Mapping[DriverKey, Dependencies]
    snapshot: Snapshot

    def has_dependents(self, driver: DriverKey) -> bool:
        """Return whether other drivers depend on one."""
        return bool(self.needs.get(driver, NONE).dependents)

    def record(self, node: Node, driver: DriverKey) -> Yielding | None:
        """Return who yields to a driver on a node; None if nobody does."""
        record = yielding_of(node.annotations)
        return record if record is not None and record.first == driver else None

    def placed(self, node: Node, driver: DriverKey) -> Placed | None:
        """Return where a node gets a driver from; None if its image is not there, or not known to be."""
        part, target = self.parts.get(driver), inventory.target_of(node)
        return part.placed.get(target.group) if part is not None and isinstance(target, KernelTarget) else None

    def pairs_of_kernel(self, node: Node, driver: DriverKey) -> list[Pair]:
        """Return the pairs of DaemonSets of a driver in a wave that are for the kernel of a node."""
        every = pairs.pairs(of_driver(self.snapshot.daemon_sets, driver))
        return [pair for pair in every.values() if pair.moved.kernel == node.kernel_version]

    def daemon_set(self, node: Node, driver: DriverKey) -> DaemonSet | None:
        """Return the DaemonSet that a node gets a driver from."""
        for pair in self.pairs_of_kernel(node, driver):
            return pair.named(record_of(node, driver).wave)
        own = of_driver(self.snapshot.daemon_sets, driver)
        return next((item for item in own if item.kernel == node.kernel_version), None)

    def pods(self, node: Node, driver: DriverKey) -> list[DriverPod]:
        """Return the pods of a driver that stay on a node."""
        found = pods_of(self.snapshot.pods, driver).on(node.name)
        return [pod for pod in found if not pod.deleting]

    def kept(self, driver: DriverKey) -> KeptModules:
        """Return which modules of a driver stay loaded when it is replaced."""
        return KeptModules.of(self.parts[driver], self.snapshot)

    def is_way_back(self, node: Node, driver: DriverKey, action: Taking) -> bool:
        """Return whether a node gets the image of before again."""
        placed = self.placed(node, driver)
        if not isinstance(action, PatchNode) or action.lets_in:
            return False
        return placed is None or placed.lanes is None or action.moved_to == placed.lanes.spare_value

    def is_behind(self, node: Node, driver: DriverKey) -> bool:
        """Return whether a driver still has the image of before on a node, although another one is wanted."""
        if driver not in self.parts:
            return False
        wave, placed = record_of(node, driver).wave, self.placed(node, driver)
        if placed is not None:
            return not placed.is_written or not (placed.lanes is None or placed.lanes.has_in_front(wave))
        return any(pair.named(wave) is not pair.moved for pair in self.pairs_of_kernel(node, driver))

    def has_before(self, node: Node, driver: DriverKey) -> bool:
        """Return whether a node has the image of before of a driver: not where it has moved, whatever is wanted now."""
        placed = self.placed(node, driver)
        if placed is None or placed.lanes is None:
            return self.is_behind(node, driver)
        return not placed.lanes.has_in_front(record_of(node, driver).wave)

    def fits(self, node: Node, driver: DriverKey, first: DriverKey) -> bool:
        """Return whether the wanted image of a driver is built for the modules that another one has on a node."""
        placed = self.placed(node, driver)
        image = placed.built_for.get(first) if placed is not None else None
        if image is None:
            return True
        wanted = [item.builds for item in of_driver(self.snapshot.daemon_sets, first) if item.image == image]
        return all(pod.image == image or (pod.expected and pod.builds in wanted) for pod in self.pods(node, first))

    def has_wanted(self, node: Node, driver: DriverKey) -> bool:
        """Return whether the modules that a node would get of a driver are loaded there, and nothing else of it."""
        item, loads = self.daemon_set(node, driver), record_of(node, driver).loads_now
        if item is None or not item.expected:
            return False
        return bool(loads) and all(dict(load.modules) == item.expected for load in loads)

    def would_reload(self, node: Node, driver: DriverKey) -> bool:
        """Return whether modules of a driver are loaded on a node in place of which its pods would load others."""
        is_live = any(load.modules for load in record_of(node, driver).loads_now)
        return is_live and self.daemon_set(node, driver) is not None and not self.has_wanted(node, driver)

    def way_back(self, node: Node, driver: DriverKey) -> PatchNode | None:
        """Return how a node gets the image of before that a wave has reached; None where it has that."""
        wave, placed = record_of(node, driver).wave, self.placed(node, driver)
        if placed is None:
            is_there = any(pair.named(wave) is pair.moved for pair in self.pairs_of_kernel(node, driver))
            return move_node(node=node.name, driver=driver, value=None) if is_there else None
        if placed.lanes is None or not placed.lanes.has_in_front(wave):
            return None
        return move_node(node=node.name, driver=driver, value=placed.lanes.spare_value)

    def has_next(self, node: Node, driver: DriverKey) -> bool:
        """Return whether a wave has brought a driver other modules than the image of before has, where it is loaded."""
        if self.way_back(node, driver) is None or not self.is_loaded(node, driver):
            return False
        pairs_here = self.pairs_of_kernel(node, driver)
        return not pairs_here or any(pair.moved.builds != pair.others.builds for pair in pairs_here)

    def is_overtaken(self, node: Node, driver: DriverKey) -> bool:
        """Return whether a node has other modules of a driver than its DaemonSet has by now."""
        item, pods = self.daemon_set(node, driver), self.pods(node, driver)
        return item is not None and bool(pods) and all(pod.builds != item.builds for pod in pods)

    def goes_back(self, node: Node, driver: DriverKey) -> bool:
        """Return whether a driver gets the image of before when it is loaded again: one that it depends on has that."""
        for first, _ in self.needs.get(driver, NONE).first:
            placed = self.placed(node, first)
            # Where only single nodes request a rebuild, the others keep what they have.
            is_kept = placed is not None and placed.lanes is None and not self.fits(node, driver, first)
            if is_kept or self.has_before(node, first):
                return True
        return False

    def in_the_way(self, node: Node, driver: DriverKey, action: Taking) -> tuple[DriverKey, ...]:
        """Return the drivers that have to yield before a driver is replaced, the last of the order first."""
        every = [key for key in unload_order(driver, self.needs) if key in self.parts]
        # Where this one works, a pod of theirs may load at any moment.
        works = any(judge(node, pod)[0] in (Finding.WORKS, Finding.SILENT) for pod in self.pods(node, driver))
        found = tuple(key for key in every if self.is_loaded(node, key) or (works and self.pods(node, key)))
        return () if not found or self.kept(driver).stay(action) else found

    def is_loaded(self, node: Node, driver: DriverKey) -> bool:
        """Return whether a driver may have modules on a node."""
        found = record_of(node, driver)
        return found.ready is not None or any(load.modules for load in found.loads_now)

    def is_gone(self, node: Node, driver: DriverKey) -> bool:
        """Return whether nothing of a driver is on a node, nor anything that could load it again."""
        found = record_of(node, driver)
        if found.is_recorded or (driver in self.parts and found.ready is not None):
            return False
        if pods_of(self.snapshot.pods, driver).on(node.name):
            return False
        orphaned = (pod.node for pod in of_driver(self.snapshot.orphaned_pods, driver))
        unloading = (task.node for task in tasks_of(self.snapshot.tasks, driver, UNLOAD))
        return node.name not in {*orphaned, *unloading}
