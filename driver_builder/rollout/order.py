"""Drivers that depend on each other, on a node where one of them is replaced: who yields, and who waits. Pure.

A module that another one uses cannot be replaced. So before the first driver goes on a node, those that depend on it
are unloaded there, the last of the order first; once it is proven, they are loaded again. Each of them is unloaded by
its own plan (:mod:`driver_builder.removal`), because the Node has its label; here is decided who gets that label, and
when it goes. In a wave a dependent driver moves together with the first one: its image is built with the symbols of
that one.
"""

from collections.abc import Iterable, Mapping
from dataclasses import dataclass, field, replace

from driver_builder.api.driver_spec import DriverSpec
from driver_builder.desired.dependencies import NONE, Dependencies, unload_order
from driver_builder.desired.resolve_target import mapping_for
from driver_builder.model.kernels import KernelTarget
from driver_builder.objects import loaded
from driver_builder.objects.bound_pod import PodKind
from driver_builder.objects.yielding import Yielding, is_held_out, label_of, yielding_of
from driver_builder.observed import inventory, pairs
from driver_builder.observed.by_driver import of_driver, pods_of
from driver_builder.observed.evidence import Finding, judge
from driver_builder.observed.inventory import Node
from driver_builder.observed.snapshot import DaemonSet, DriverPod, Snapshot
from driver_builder.planning.actions import MoveNode, ReplacePod, StartPod, TakeNode
from driver_builder.planning.kept_modules import KeptModules, is_tidying
from driver_builder.planning.plan_view import DriverPlan
from driver_builder.planning.standing import Placed
from kube_api import names
from kube_api.names import label_value


@dataclass(frozen=True, slots=True, kw_only=True)
class Clearing:
    """How far a node is cleared of the drivers that depend on the one that is replaced there.

    ``record`` is written, with a ``label``, to unload the next one. Where the driver ``stuck`` cannot be unloaded,
    ``failed`` says why; unless it ``is_over``, that is waited for.
    """

    is_clear: bool = False
    record: Yielding | None = None
    label: str = ""
    words: str = ""
    stuck: str = ""
    failed: str = ""
    is_over: bool = False


@dataclass(frozen=True, slots=True, kw_only=True)
class Return:
    """How far drivers that have yielded are loaded again: ``labels`` let them come, ``words`` say who is late.

    ``has_failed`` says that those who are late have reported why: that may last.
    """

    labels: Mapping[str, str | None] = field(default_factory=dict)
    words: str = ""
    has_failed: bool = False

    @property
    def is_over(self) -> bool:
        """Return whether all of them are back."""
        return not (self.labels or self.words)


@dataclass(frozen=True, slots=True)
class Order:
    """The ``parts`` of all drivers by their keys, and what each needs of others."""

    parts: Mapping[str, DriverPlan]
    needs: Mapping[str, Dependencies]
    snapshot: Snapshot

    @classmethod
    def of(cls, parts: Iterable[DriverPlan], needs: Mapping[str, Dependencies], snapshot: Snapshot) -> "Order":
        """Take all drivers."""
        return cls({part.driver.key: part for part in parts}, needs, snapshot)

    def has_dependents(self, driver: str) -> bool:
        """Return whether other drivers depend on one."""
        return bool(self.needs.get(driver, NONE).dependents)

    # ------------------------------------------------------------ who waits

    def without_waiting(self, part: DriverPlan) -> DriverPlan:
        """Leave out what is replaced at once and has to wait for other drivers.

        What costs a budget is held back by :func:`driver_builder.rollout.fleet.admit`.
        """
        if part.driver.key not in self.needs:
            return part
        held = {
            action: why
            for action in part.actions
            if isinstance(action, ReplacePod | MoveNode) and action.node not in part.budgeted
            if (why := self.obstacle(action, part.driver.key))
        }
        if not held:
            return part
        words = "; ".join(dict.fromkeys(held.values()))
        wave = replace(part.wave, message=f"{words}; {part.wave.message}") if part.wave is not None else None
        staying = (
            action for action in part.actions if not (isinstance(action, ReplacePod | MoveNode) and action in held)
        )
        return replace(part, actions=tuple(staying), wave=wave)

    def obstacle(self, action: TakeNode, driver: str) -> str:
        """Return why a driver may not be replaced on a node before others; empty if it may."""
        needs, node = self.needs.get(driver), inventory.by_name(self.snapshot.nodes).get(action.node)
        if needs is None or node is None or is_tidying(action, self._pairs(driver)):
            return ""
        record = yielding_of(node.annotations)
        if label_of(driver) in node.labels and record is not None and driver in record.drivers:
            return f"driver {record.first}, on which {driver} depends, is replaced on node {node.name}"
        if not self._is_way_back(node, driver, action):
            for first, _ in needs.first:
                if self._is_behind(node, first) or self._has_other(node, first, driver):
                    return f"driver {first}, on which {driver} depends, is not replaced on node {node.name} yet"
        for key in self._coming_back(node, driver, action):
            if why := self._not_ready(node, key):
                return f"node {node.name} waits for driver {key}, which depends on {driver}: {why}"
        return ""

    def _coming_back(self, node: Node, driver: str, action: TakeNode) -> tuple[str, ...]:
        """Return the drivers that have to be loaded again afterwards.

        Where others yield already to a driver that does not work, they wait for nothing but another image of it.
        """
        begun = self._record(node, driver)
        if begun is None:
            return self._in_the_way(node, driver, action)
        if self._is_way_back(node, driver, action) or self._is_broken(node, driver):
            return ()
        return tuple(key for key in unload_order(driver, self.needs) if key in begun.drivers and key in self.parts)

    def _is_way_back(self, node: Node, driver: str, action: TakeNode) -> bool:
        """Return whether a node gets the image of before again."""
        placed = self._placed(node, driver)
        if not isinstance(action, MoveNode) or action.lets_in:
            return False
        return placed is None or placed.lanes is None or action.value == placed.lanes.spare_value

    def _is_behind(self, node: Node, driver: str) -> bool:
        """Return whether a driver still has the image of before on a node, although another one is wanted."""
        if driver not in self.parts:
            return False
        label, placed = _wave_label(driver), self._placed(node, driver)
        if placed is not None:
            return not placed.is_written or not (placed.lanes is None or placed.lanes.has_in_front(node, label))
        return any(pair.of_node(node, label) is not pair.moved for pair in self._pairs_of_kernel(node, driver))

    def _has_before(self, node: Node, driver: str) -> bool:
        """Return whether a node has the image of before of a driver: not where it has moved, whatever is wanted now."""
        placed = self._placed(node, driver)
        if placed is None or placed.lanes is None:
            return self._is_behind(node, driver)
        return not placed.lanes.has_in_front(node, _wave_label(driver))

    def _has_other(self, node: Node, driver: str, dependent: str) -> bool:
        """Return whether a driver has other modules on a node than those that a dependent one is built for."""
        part, placed = self.parts.get(driver), self._placed(node, driver)
        if part is None:
            return False
        if is_held_out(node.labels, node.annotations, driver):
            # It has returned to the selector, with what it had before.
            return True
        if placed is None:
            # It is paused, or its image cannot be judged now.
            known = self._placed(node, dependent)
            image = known.built_for.get(driver) if known is not None else None
            own = self._daemon_set(node, driver)
            return image is not None and own is not None and own.image != image
        front = placed.lanes.front if placed.lanes is not None else None
        wanted = {item.target: item for item in of_driver(self.snapshot.daemon_sets, driver)}
        wanted |= {front.target: front} if front is not None else {}
        # Nodes that have not requested a rebuild keep what they have.
        is_kept = not all(_has_same(pod, wanted) for pod in self._pods(node, driver))
        return is_kept or node.name in part.rebuilds.pending

    def _not_ready(self, node: Node, driver: str) -> str:
        """Return why a driver could not be loaded again on a node after another one is replaced there."""
        part = self.parts[driver]
        if part.driver.deleting:
            return "it is being removed"
        if not isinstance(part.driver.spec, DriverSpec):
            return "its spec is invalid"
        if part.driver.paused:
            return "it is paused"
        placed = self._placed(node, driver)
        if placed is None or not placed.is_written:
            return "its image for the new symbols is not there yet"
        if part.wave is not None and placed.lanes is not None and placed.target in part.wave.refused:
            return f"its new image does not work: {part.wave.refused[placed.target]}"
        return ""

    # ------------------------------------------------------------ what is pulled for those that yield

    def images(self, action: TakeNode, driver: str) -> dict[str, str]:
        """Return the images that those who would yield to a driver get when they are loaded again, by driver.

        Nothing is said of those that yield already: they are without their driver, and wait for no image.
        """
        node = inventory.by_name(self.snapshot.nodes).get(action.node)
        if node is None or not self.has_dependents(driver) or self._record(node, driver) is not None:
            return {}
        is_back = self._is_way_back(node, driver, action)
        every = {key: self._next_image(node, key, is_back=is_back) for key in self._in_the_way(node, driver, action)}
        return {key: image for key, image in every.items() if image}

    def images_of_yielding(self) -> dict[str, dict[str, str]]:
        """Return the images with which drivers that yield come back, by driver and node: their pull pods keep them."""
        found: dict[str, dict[str, str]] = {}
        for node in inventory.held(self.snapshot.nodes) if self.needs else ():
            record = yielding_of(node.annotations)
            for key in record.drivers if record is not None else ():
                if image := self._next_image(node, key):
                    found.setdefault(key, {})[node.name] = image
        return found

    def _next_image(self, node: Node, driver: str, *, is_back: bool = False) -> str:
        """Return the image that a driver gets on a node after it has yielded; empty if its pod there has it."""
        placed = self._placed(node, driver)
        if placed is None:
            return ""
        lanes = placed.lanes
        item = self._daemon_set(node, driver) if lanes is None else lanes.spare if is_back else lanes.front
        if item is None or any(pod.image == item.image for pod in self._pods(node, driver)):
            return ""
        return item.image

    # ------------------------------------------------------------ who yields

    def clearing(self, node: Node, driver: str, action: TakeNode) -> Clearing:
        """Decide what comes next before a driver is replaced on a node."""
        record = yielding_of(node.annotations)
        begun = record.drivers if record is not None else ()
        found = self._in_the_way(node, driver, action)
        known = unload_order(driver, self.needs)
        # One that is deleted or names the driver no longer may still be there.
        is_own = record is not None and record.first == driver
        left = tuple(key for key in begun if is_own and key not in known and not self._is_gone(node, key))
        every = (*left, *(key for key in known if key in found or key in begun))
        for key in every:
            if label_of(key) not in node.labels or not is_own:
                return Clearing(
                    record=Yielding(first=driver, drivers=every),
                    label=label_of(key),
                    words=f"unloading {key}, which depends on it, from {node.name}",
                )
            if why := self._stuck(node, key):
                failed = f"driver {key}, which depends on it, is not unloaded: {why}"
                # As it was it cannot be loaded again: its removal tries on until its deadline.
                is_over = self._is_given_up(node, key) or not self.misfit(node, driver)
                words = "" if is_over else f"{node.name}: {failed}"
                return Clearing(stuck=key, failed=failed, is_over=is_over, words=words)
            if not self._is_gone(node, key):
                return Clearing(words=f"unloading {key}, which depends on it, from {node.name}")
        return Clearing(is_clear=True)

    def is_begun(self, node: Node, driver: str) -> bool:
        """Return whether others yield to a driver on a node."""
        return self._record(node, driver) is not None

    def may_return(self, node: Node, driver: str) -> bool:
        """Return whether those that yield to a driver can be loaded again: it works there, or is gone for good."""
        part = self.parts.get(driver)
        if part is not None and node.name in part.yielded:
            return part.yielded[node.name]
        pods = self._pods(node, driver)
        if any(judge(node, pod)[0] is Finding.WORKS for pod in pods):
            return True
        return not pods and loaded.annotation(driver) not in node.annotations

    def misfit(self, node: Node, driver: str) -> str:
        """Return which of those that yield cannot be loaded again before the driver is replaced there once more.

        What was wanted of both has changed since, and the image of that moment is not known any more.
        """
        record = self._record(node, driver)
        for key in record.drivers if record is not None else ():
            placed = self._placed(node, key)
            if placed is None or (placed.lanes is not None and self._goes_back(node, key)):
                continue
            if not self._fits(node, key, driver):
                return f"{node.name}: {driver} is replaced once more before {key}, which depends on it, is loaded again"
        return ""

    def _fits(self, node: Node, driver: str, first: str) -> bool:
        """Return whether the wanted image of a driver is built for the modules that another one has on a node."""
        placed = self._placed(node, driver)
        image = placed.built_for.get(first) if placed is not None else None
        if image is None:
            return True
        wanted = [item.expected for item in of_driver(self.snapshot.daemon_sets, first) if item.image == image]
        return all(pod.image == image or (pod.expected and pod.expected in wanted) for pod in self._pods(node, first))

    def _goes_back(self, node: Node, driver: str) -> bool:
        """Return whether a driver gets the image of before when it is loaded again: one that it depends on has that."""
        for first, _ in self.needs.get(driver, NONE).first:
            placed = self._placed(node, first)
            # Where only single nodes request a rebuild, the others keep what they have.
            is_kept = placed is not None and placed.lanes is None and not self._fits(node, driver, first)
            if is_kept or self._has_before(node, first):
                return True
        return False

    def returning(self, node: Node, driver: str) -> Return:
        """Decide what comes next where the drivers that have yielded are to be loaded again."""
        record = self._record(node, driver)
        if record is None:
            return Return()
        labelled = [key for key in record.drivers if label_of(key) in node.labels]
        if ending := [key for key in reversed(labelled) if self._is_unloading(node, key)]:
            # A pod that loads beside it could be proven by modules that are about to go.
            return Return(words=f"{', '.join(ending)} is still being unloaded from {node.name}")
        if labelled:
            lanes: dict[str, str | None] = {}
            # Each goes where those go that it depends on itself.
            for key in reversed(record.drivers):
                lanes |= self._lane(_relabelled(node, lanes), key)
            if (found := self._moved(node, record, lanes)) is not None:
                return found
            words = f"loading {', '.join(reversed(labelled))} again on {node.name}"
            return Return(labels={**lanes, **dict.fromkeys(map(label_of, labelled))}, words=words)
        late = {key: why for key in reversed(record.drivers) if (why := self._why_not_back(node, key))}
        words = "; ".join(f"loading {key} again on {node.name}: {why}" for key, why in late.items())
        return Return(words=words, has_failed=bool(late) and all(self._has_failed(node, key) for key in late))

    def _moved(self, node: Node, record: Yielding, lanes: Mapping[str, str | None]) -> Return | None:
        """Let those yield as well that have to move and have not yielded: others may use their modules."""
        moved = [key for key in record.drivers if label_of(key) not in node.labels and _wave_label(key) in lanes]
        key = next((key for key in moved if self._is_loaded(node, key) and not self._stuck(node, key)), None)
        if key is None:
            return None
        words = f"unloading {key} from {node.name}, so that it gets the image of before"
        is_first = all(self._is_gone(node, other) for other in record.drivers if label_of(other) in node.labels)
        return Return(
            words=words, labels={label_of(key): label_value(record.first.partition("/")[2])} if is_first else {}
        )

    def _lane(self, node: Node, driver: str) -> dict[str, str | None]:
        """Return the wave label with which a driver gets the image that fits those that it depends on."""
        placed, goes_back = self._placed(node, driver), self._goes_back(node, driver)
        if placed is not None:
            # The image of before fits, whatever is being written of the next one.
            is_known = placed.lanes is not None and (goes_back or placed.is_written)
            ends = (placed.lanes.front_value, placed.lanes.spare_value) if placed.lanes and is_known else None
        else:
            # Of a driver that is paused the two DaemonSets are known.
            ends = next(((pair.moved.target_label, None) for pair in self._pairs_of_kernel(node, driver)), None)
        if ends is None:
            return {}
        label, value = _wave_label(driver), ends[goes_back]
        return {} if node.labels.get(label) == value else {label: value}

    def _why_not_back(self, node: Node, driver: str) -> str:
        """Return why a driver that has yielded is not proven again; empty if it is, or does not want the node."""
        part = self.parts.get(driver)
        if part is None or part.driver.deleting or not _selects(part, node):
            return ""
        said = [judge(node, pod) for pod in self._pods(node, driver)]
        if any(finding is Finding.WORKS for finding, _ in said):
            # Without its plan it gets no label.
            is_planned = isinstance(part.driver.spec, DriverSpec) and not part.driver.paused
            return "" if part.driver.ready_label in node.labels or not is_planned else "it is not proven yet"
        return next((why for _, why in said), "") or "no driver pod yet"

    def _has_failed(self, node: Node, driver: str) -> bool:
        """Return whether the pods of a driver have reported on this boot that it does not work."""
        return any(
            judge(node, pod)[0] is Finding.REFUTED and pod.proof is not None and pod.proof.boot_id == node.boot_id
            for pod in self._pods(node, driver)
        )

    def _in_the_way(self, node: Node, driver: str, action: TakeNode) -> tuple[str, ...]:
        """Return the drivers that have to yield before a driver is replaced, the last of the order first."""
        every = [key for key in unload_order(driver, self.needs) if key in self.parts]
        # Where this one works, a pod of theirs may load at any moment.
        works = any(judge(node, pod)[0] in (Finding.WORKS, Finding.SILENT) for pod in self._pods(node, driver))
        found = tuple(key for key in every if self._is_loaded(node, key) or (works and self._pods(node, key)))
        return () if not found or self.kept(driver).stay(action) else found

    def kept(self, driver: str) -> KeptModules:
        """Return which modules of a driver stay loaded when it is replaced."""
        return KeptModules.of(self.parts[driver], self.snapshot)

    def _is_broken(self, node: Node, driver: str) -> bool:
        """Return whether the pods of a driver say that it does not work on a node; not while one loads."""
        said = [(pod, judge(node, pod)[0]) for pod in self._pods(node, driver)]
        return bool(said) and all(
            finding is Finding.REFUTED or (finding is Finding.NOTHING and pod.message) for pod, finding in said
        )

    def _is_loaded(self, node: Node, driver: str) -> bool:
        if self.parts[driver].driver.ready_label in node.labels:
            return True
        known = loaded.parse(node.annotations.get(loaded.annotation(driver)))
        return known is not None and any(load.modules for load in known.on_boot(node.boot_id).loads)

    def _is_gone(self, node: Node, driver: str) -> bool:
        """Return whether nothing of a driver is on a node, nor anything that could load it again."""
        part = self.parts.get(driver)
        has_label = part is not None and part.driver.ready_label in node.labels
        if has_label or loaded.annotation(driver) in node.annotations:
            return False
        if pods_of(self.snapshot.pods, driver).on(node.name):
            return False
        orphaned = (pod.node for pod in of_driver(self.snapshot.orphaned_pods, driver))
        unloading = (pod.node for pod in of_driver(self.snapshot.unload_pods, driver))
        return node.name not in {*orphaned, *unloading}

    def _is_unloading(self, node: Node, driver: str) -> bool:
        """Return whether an unload pod of a driver may run on a node, or is made now: each one ends or is given up."""
        part = self.parts.get(driver)
        actions = part.actions if part is not None else ()
        starts = (item.node for item in actions if isinstance(item, StartPod) and item.kind is PodKind.UNLOAD)
        running = (pod.node for pod in of_driver(self.snapshot.unload_pods, driver) if pod.ended_at is None)
        return node.name in {*starts, *running}

    def _stuck(self, node: Node, driver: str) -> str:
        """Return why a driver that is to yield stays on a node."""
        if self._is_gone(node, driver):
            return ""
        part = self.parts.get(driver)
        if part is None or part.trouble is not None or not isinstance(part.driver.spec, DriverSpec):
            return "it is not known what it should do"
        if part.driver.paused:
            return "it is paused"
        known = loaded.parse(node.annotations.get(loaded.annotation(driver)))
        return (known.given_up or known.held) if known is not None else ""

    def _is_given_up(self, node: Node, driver: str) -> bool:
        """Return whether the removal of a driver from a node does nothing more, or does nothing at all."""
        part, known = self.parts.get(driver), loaded.parse(node.annotations.get(loaded.annotation(driver)))
        is_at_work = part is not None and not part.driver.paused and known is not None
        return not is_at_work or bool(known is not None and known.given_up)

    # ------------------------------------------------------------ what is known

    def _record(self, node: Node, driver: str) -> Yielding | None:
        record = yielding_of(node.annotations)
        return record if record is not None and record.first == driver else None

    def _placed(self, node: Node, driver: str) -> Placed | None:
        part, target = self.parts.get(driver), inventory.target_of(node)
        return part.placed.get(target.group) if part is not None and isinstance(target, KernelTarget) else None

    def _pairs(self, driver: str) -> dict[str, pairs.Pair]:
        return pairs.pairs(of_driver(self.snapshot.daemon_sets, driver))

    def _pairs_of_kernel(self, node: Node, driver: str) -> list[pairs.Pair]:
        return [pair for pair in self._pairs(driver).values() if pair.moved.kernel == node.kernel_version]

    def _daemon_set(self, node: Node, driver: str) -> DaemonSet | None:
        """Return the DaemonSet that a node gets a driver from."""
        for pair in self._pairs_of_kernel(node, driver):
            return pair.of_node(node, _wave_label(driver))
        own = of_driver(self.snapshot.daemon_sets, driver)
        return next((item for item in own if item.kernel == node.kernel_version), None)

    def _pods(self, node: Node, driver: str) -> list[DriverPod]:
        found = pods_of(self.snapshot.pods, driver).on(node.name)
        return [pod for pod in found if not pod.deleting]


def _has_same(pod: DriverPod, wanted: Mapping[str, DaemonSet]) -> bool:
    """Return whether a pod has the modules of the DaemonSet of its target, as far as that is known."""
    item = wanted.get(pod.target)
    return item is None or pod.expected == item.expected


def _selects(part: DriverPlan, node: Node) -> bool:
    """Return whether a driver wants a node."""
    spec = part.driver.spec
    if not isinstance(spec, DriverSpec):
        return True
    target = inventory.target_of(node)
    if not isinstance(target, KernelTarget) or any(
        node.labels.get(key) != it for key, it in spec.node_selector.items()
    ):
        return False
    rule = mapping_for(spec, target.kernel_version)
    return rule is not None and not rule.skip


def _relabelled(node: Node, labels: Mapping[str, str | None]) -> Node:
    merged = {**node.labels, **labels}
    return replace(node, labels={key: value for key, value in merged.items() if value is not None})


def _wave_label(driver: str) -> str:
    namespace, _, name = driver.partition("/")
    return names.wave_label(namespace, name)
