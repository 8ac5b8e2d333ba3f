"""Drivers that depend on each other, on a node where one of them is replaced: who waits for whom. Pure.

A module that another one uses cannot be replaced. So before the first driver goes on a node, those that depend on it
are unloaded there, the last of the order first; once it is proven, they are loaded again
(:mod:`driver_builder.rollout.clearance`). In a wave a dependent driver moves together with the first one: its image is
built with the symbols of that one.
"""

from collections.abc import Iterable, Mapping
from dataclasses import dataclass, replace

from driver_builder.api.driver_spec import DriverSpec
from driver_builder.model.driver_key import DriverKey
from driver_builder.nodes.changes import Taking, takes_driver
from driver_builder.nodes.evidence import Finding, judge
from driver_builder.nodes.kept_modules import is_tidying
from driver_builder.nodes.plan_view import DriverPlan
from driver_builder.objects.yielding import yielding_of
from driver_builder.rollout.clearance import Clearance
from driver_builder.rollout.drivers_on_nodes import DriversOnNodes
from driver_builder.snapshot import inventory
from driver_builder.snapshot.by_driver import of_driver
from driver_builder.snapshot.inventory import Node
from driver_builder.snapshot.node_record import record_of
from driver_builder.snapshot.snapshot import DaemonSet, DriverPod, Snapshot
from driver_builder.targets.dependencies import Dependencies, unload_order


@dataclass(frozen=True, slots=True)
class Order:
    """The order in which drivers are replaced, by what is ``known`` of them."""

    known: DriversOnNodes

    @classmethod
    def of(cls, parts: Iterable[DriverPlan], needs: Mapping[DriverKey, Dependencies], snapshot: Snapshot) -> "Order":
        """Take all drivers."""
        return cls(DriversOnNodes({part.driver.key: part for part in parts}, needs, snapshot))

    @property
    def clearance(self) -> Clearance:
        """Return who yields on nodes."""
        return Clearance(self.known)

    # ------------------------------------------------------------ who waits

    def without_waiting(self, part: DriverPlan) -> DriverPlan:
        """Leave out what is replaced at once and has to wait for other drivers.

        What costs a budget is held back by :func:`driver_builder.rollout.fleet.admit`.
        """
        if part.driver.key not in self.known.needs:
            return part
        held = {
            id(action): why
            for action in part.actions
            if takes_driver(action) and action.node not in part.budgeted
            if (why := self.obstacle(action, part.driver.key))
        }
        if not held:
            return part
        words = "; ".join(dict.fromkeys(held.values()))
        wave = replace(part.wave, message=f"{words}; {part.wave.message}") if part.wave is not None else None
        staying = (action for action in part.actions if id(action) not in held)
        return replace(part, actions=tuple(staying), wave=wave)

    def obstacle(self, action: Taking, driver: DriverKey) -> str:
        """Return why a driver may not be replaced on a node before others; empty if it may."""
        needs, node = self.known.needs.get(driver), inventory.by_name(self.known.snapshot.nodes).get(action.node)
        daemon_sets = of_driver(self.known.snapshot.daemon_sets, driver)
        if needs is None or node is None or is_tidying(action, daemon_sets):
            return ""
        record = yielding_of(node.annotations)
        if record_of(node, driver).is_kept_away and record is not None and driver in record.drivers:
            return f"driver {record.first}, on which {driver} depends, is replaced on node {node.name}"
        if self.known.is_way_back(node, driver, action):
            for first, _ in needs.first:
                if self.known.has_next(node, first):
                    return f"the image of before of {driver} is built for other symbols than {first} has on {node.name}"
        else:
            for first, _ in needs.first:
                if self.known.is_behind(node, first) or self._has_other(node, first, driver):
                    return f"driver {first}, on which {driver} depends, is not replaced on node {node.name} yet"
        for key in self._coming_back(node, driver, action):
            if why := self._not_ready(node, key):
                return f"node {node.name} waits for driver {key}, which depends on {driver}: {why}"
        return ""

    def _coming_back(self, node: Node, driver: DriverKey, action: Taking) -> tuple[DriverKey, ...]:
        """Return the drivers that have to be loaded again afterwards.

        Where others yield already to a driver that does not work, they wait for nothing but another image of it.
        """
        begun = self.known.record(node, driver)
        if begun is None:
            return self.known.in_the_way(node, driver, action)
        if self.known.is_way_back(node, driver, action) or self._is_broken(node, driver):
            return ()
        known = (key for key in unload_order(driver, self.known.needs) if key in self.known.parts)
        return tuple(key for key in known if key in begun.drivers)

    def _is_broken(self, node: Node, driver: DriverKey) -> bool:
        """Return whether the pods of a driver say that it does not work on a node; not while one loads."""
        said = [(pod, judge(node, pod)[0]) for pod in self.known.pods(node, driver)]
        return bool(said) and all(
            finding is Finding.REFUTED or (finding is Finding.NOTHING and pod.message) for pod, finding in said
        )

    def _has_other(self, node: Node, driver: DriverKey, dependent: DriverKey) -> bool:
        """Return whether a driver has other modules on a node than those that a dependent one is built for."""
        part, placed = self.known.parts.get(driver), self.known.placed(node, driver)
        if part is None:
            return False
        if record_of(node, driver).is_held_out:
            # It has returned to the selector, with what it had before.
            return True
        if placed is None:
            # It is paused, or its image cannot be judged now.
            known = self.known.placed(node, dependent)
            image = known.built_for.get(driver) if known is not None else None
            own = self.known.daemon_set(node, driver)
            return image is not None and own is not None and own.image != image
        front = placed.lanes.front if placed.lanes is not None else None
        wanted = {item.target: item for item in of_driver(self.known.snapshot.daemon_sets, driver)}
        wanted |= {front.target: front} if front is not None else {}
        # Nodes that have not requested a rebuild keep what they have.
        is_kept = not all(_has_same(pod, wanted) for pod in self.known.pods(node, driver))
        return is_kept or node.name in part.rebuilds.pending

    def _not_ready(self, node: Node, driver: DriverKey) -> str:
        """Return why a driver could not be loaded again on a node after another one is replaced there."""
        part = self.known.parts[driver]
        if part.driver.deleting:
            return "it is being removed"
        if not isinstance(part.driver.spec, DriverSpec):
            return "its spec is invalid"
        if part.driver.paused:
            return "it is paused"
        placed = self.known.placed(node, driver)
        if placed is None or not placed.is_written:
            return "its image for the new symbols is not there yet"
        if part.wave is not None and placed.lanes is not None and placed.target in part.wave.refused:
            return f"its new image does not work: {part.wave.refused[placed.target]}"
        return ""

    # ------------------------------------------------------------ what is pulled for those that yield

    def images(self, action: Taking, driver: DriverKey) -> dict[DriverKey, str]:
        """Return the images that those who would yield to a driver get when they are loaded again, by driver.

        Nothing is said of those that yield already: they are without their driver, and wait for no image.
        """
        node = inventory.by_name(self.known.snapshot.nodes).get(action.node)
        if node is None or not self.known.has_dependents(driver) or self.known.record(node, driver) is not None:
            return {}
        is_back = self.known.is_way_back(node, driver, action)
        yielding = self.known.in_the_way(node, driver, action)
        every = {key: self._next_image(node, key, is_back=is_back) for key in yielding}
        return {key: image for key, image in every.items() if image}

    def images_of_yielding(self) -> dict[DriverKey, dict[str, str]]:
        """Return the images with which drivers that yield come back, by driver and node: their pull pods keep them."""
        found: dict[DriverKey, dict[str, str]] = {}
        for node in inventory.held(self.known.snapshot.nodes) if self.known.needs else ():
            record = yielding_of(node.annotations)
            for key in record.drivers if record is not None else ():
                if image := self._next_image(node, key):
                    found.setdefault(key, {})[node.name] = image
        return found

    def _next_image(self, node: Node, driver: DriverKey, *, is_back: bool = False) -> str:
        """Return the image that a driver gets on a node after it has yielded; empty if its pod there has it."""
        placed = self.known.placed(node, driver)
        if placed is None:
            return ""
        lanes = placed.lanes
        item = self.known.daemon_set(node, driver) if lanes is None else lanes.spare if is_back else lanes.front
        if item is None or any(pod.image == item.image for pod in self.known.pods(node, driver)):
            return ""
        return item.image


def _has_same(pod: DriverPod, wanted: Mapping[str, DaemonSet]) -> bool:
    """Return whether a pod has the modules of the DaemonSet of its target, as far as that is known."""
    item = wanted.get(pod.target)
    return item is None or pod.builds == item.builds
