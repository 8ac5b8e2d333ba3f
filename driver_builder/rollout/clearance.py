"""A node is cleared of the drivers that depend on the one that is replaced there, and these are loaded again. Pure.

Each of them is unloaded by its own plan (:mod:`driver_builder.plan.removal`), because the Node has its label; here is
decided who gets that label, and when it goes.
"""

from collections.abc import Mapping
from dataclasses import dataclass, field, replace

from driver_builder.api.driver_spec import DriverSpec
from driver_builder.model.driver_key import NOBODY, DriverKey
from driver_builder.model.kernels import KernelTarget
from driver_builder.nodes.changes import PatchNode, RunTask, Taking
from driver_builder.nodes.evidence import Finding, judge
from driver_builder.nodes.plan_view import DriverPlan
from driver_builder.objects.driver_keys import driver_keys
from driver_builder.objects.yielding import OUTSIDE, Yielding, yielding_of
from driver_builder.rollout.drivers_on_nodes import DriversOnNodes
from driver_builder.snapshot import inventory
from driver_builder.snapshot.by_driver import tasks_of
from driver_builder.snapshot.inventory import Node
from driver_builder.snapshot.node_record import record_of
from driver_builder.targets.dependencies import NONE, unload_order
from driver_builder.targets.resolve_target import mapping_for
from driver_builder.tasks.unload_pod import UNLOAD
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
    stuck: DriverKey = NOBODY
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
class Clearance:
    """Who yields to a driver on a node, and what comes next there."""

    known: DriversOnNodes

    def clearing(self, node: Node, driver: DriverKey, action: Taking) -> Clearing:
        """Decide what comes next before a driver is replaced on a node."""
        record = yielding_of(node.annotations)
        begun = record.drivers if record is not None else ()
        found = self.known.in_the_way(node, driver, action)
        known = unload_order(driver, self.known.needs)
        # One that is deleted or names the driver no longer may still be there.
        is_own = record is not None and record.first == driver
        left = tuple(key for key in begun if is_own and key not in known and not self.known.is_gone(node, key))
        every = (*left, *(key for key in known if key in found or key in begun))
        for key in every:
            if not (is_own and record_of(node, key).has_yielded):
                return Clearing(
                    record=Yielding(first=driver, drivers=every),
                    label=driver_keys(key).yields,
                    words=f"unloading {key}, which depends on it, from {node.name}",
                )
            if why := self._stuck(node, key):
                failed = f"driver {key}, which depends on it, is not unloaded: {why}"
                # As it was it cannot be loaded again: its removal tries on until its deadline.
                has_to = self.misfit(node, driver) or self.way_back(node, driver) is not None
                is_over = self._is_given_up(node, key) or not has_to
                words = "" if is_over else f"{node.name}: {failed}"
                return Clearing(stuck=key, failed=failed, is_over=is_over, words=words)
            if not self.known.is_gone(node, key):
                return Clearing(words=f"unloading {key}, which depends on it, from {node.name}")
        return Clearing(is_clear=True)

    def is_begun(self, node: Node, driver: DriverKey) -> bool:
        """Return whether others yield to a driver on a node."""
        return self.known.record(node, driver) is not None

    def may_return(self, node: Node, driver: DriverKey) -> bool:
        """Return whether those that yield to a driver can be loaded again: it works there, or is gone for good."""
        if record_of(node, driver).is_held_out:
            # It has what it had before, and theirs may be built for what its own wave is to bring.
            return False
        part = self.known.parts.get(driver)
        if part is not None and node.name in part.yielded:
            return part.yielded[node.name]
        pods = self.known.pods(node, driver)
        if any(judge(node, pod)[0] is Finding.WORKS for pod in pods):
            return True
        return not pods and not record_of(node, driver).is_recorded

    def misfit(self, node: Node, driver: DriverKey) -> str:
        """Return which of those that yield cannot be loaded again before the driver is replaced there once more.

        What was wanted of both has changed since, and the image of that moment is not known any more.
        """
        record = self.known.record(node, driver)
        for key in record.drivers if record is not None else ():
            placed = self.known.placed(node, key)
            if placed is None or (placed.lanes is not None and self.known.goes_back(node, key)):
                continue
            # Modules that are there with this one can be loaded with it, whichever image of it theirs is built for.
            if not (self.known.fits(node, key, driver) or self.known.has_wanted(node, key)):
                return f"{node.name}: {driver} is replaced once more before {key}, which depends on it, is loaded again"
        return ""

    def way_back(self, node: Node, driver: DriverKey) -> PatchNode | None:
        """Return how a driver that is not replaced once more gets the image of before; None where it need not.

        Those that yield to it have images that were to be loaded over its next one: over what it has theirs do not fit.
        The images of before fit each other.
        """
        record, back = self.known.record(node, driver), self.known.way_back(node, driver)
        if record is None or back is None or not self.known.is_overtaken(node, driver):
            return None
        is_next = not any(self.known.is_behind(node, first) for first, _ in self.known.needs.get(driver, NONE).first)
        yielded = (key for key in record.drivers if record_of(node, key).has_yielded)
        yielding = [key for key in yielded if self.known.way_back(node, key)]
        unfit = (key for key in yielding if not (self._is_fit(node, key, driver) or self.known.has_wanted(node, key)))
        key = next((key for key in unfit if not is_next or self.known.placed(node, key) is None), None)
        if key is None:
            return None
        return replace(back, why=f"back to the image of before, as {key}, which has none that fits this one")

    def _is_fit(self, node: Node, driver: DriverKey, first: DriverKey) -> bool:
        """Return whether what a driver that yields would get is known to be built for what another one has."""
        return self.known.placed(node, driver) is not None and self.known.fits(node, driver, first)

    def returning(self, node: Node, driver: DriverKey, *, is_kept: bool = False) -> Return:
        """Decide what comes next where the drivers that have yielded are to be loaded again.

        Where the driver ``is_kept``, because one of them is not unloaded, what is loaded of them is not replaced.
        """
        record = self.known.record(node, driver)
        if record is None:
            return Return()
        labelled = [key for key in record.drivers if record_of(node, key).has_yielded]
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
            there = _relabelled(node, lanes)
            kept = [key for key in labelled if is_kept and self.known.would_reload(there, key)]
            labels = {driver_keys(key).yields: OUTSIDE if key in kept else None for key in labelled}
            return Return(labels={**lanes, **labels}, words=words)
        # One that is kept away until its own wave does not come back before.
        coming = [key for key in reversed(record.drivers) if not record_of(node, key).is_held_out]
        late = {key: why for key in coming if (why := self._why_not_back(node, key))}
        words = "; ".join(f"loading {key} again on {node.name}: {why}" for key, why in late.items())
        return Return(words=words, has_failed=bool(late) and all(self._has_failed(node, key) for key in late))

    def _moved(self, node: Node, record: Yielding, lanes: Mapping[str, str | None]) -> Return | None:
        """Let one yield as well that has to move and has not yielded: those that do may still use its modules."""
        labelled = [key for key in record.drivers if record_of(node, key).has_yielded]
        moved = (key for key in record.drivers if key not in labelled and driver_keys(key).wave in lanes)
        key = next((key for key in moved if self.known.is_loaded(node, key)), None)
        if key is None or any(self._stuck(node, other) for other in (key, *labelled)):
            return None
        words = f"unloading {key} from {node.name}, so that it gets the image of before"
        if not all(self.known.is_gone(node, other) for other in labelled):
            return Return(words=words)
        return Return(labels={driver_keys(key).yields: label_value(record.first.name)}, words=words)

    def _lane(self, node: Node, driver: DriverKey) -> dict[str, str | None]:
        """Return the wave label with which a driver gets the image that fits those that it depends on."""
        placed, goes_back = self.known.placed(node, driver), self.known.goes_back(node, driver)
        if placed is not None:
            # The image of before fits, whatever is being written of the next one.
            is_known = placed.lanes is not None and (goes_back or placed.is_written)
            ends = (placed.lanes.front_value, placed.lanes.spare_value) if placed.lanes and is_known else None
        else:
            # Of a driver that is paused the two DaemonSets are known.
            ends = next(((pair.moved.target_label, None) for pair in self.known.pairs_of_kernel(node, driver)), None)
        if ends is None:
            return {}
        found, value = record_of(node, driver), ends[goes_back]
        return {} if found.wave == value else {found.keys.wave: value}

    def _why_not_back(self, node: Node, driver: DriverKey) -> str:
        """Return why a driver that has yielded is not proven again; empty if it is, or does not want the node."""
        part = self.known.parts.get(driver)
        if part is None or part.driver.deleting or not _selects(part, node):
            return ""
        said = [judge(node, pod) for pod in self.known.pods(node, driver)]
        if any(finding is Finding.WORKS for finding, _ in said):
            # Without its plan it gets no label.
            is_planned = isinstance(part.driver.spec, DriverSpec) and not part.driver.paused
            return "" if record_of(node, driver).ready is not None or not is_planned else "it is not proven yet"
        return next((why for _, why in said), "") or "no driver pod yet"

    def _has_failed(self, node: Node, driver: DriverKey) -> bool:
        """Return whether the pods of a driver have reported on this boot that it does not work."""
        return any(
            judge(node, pod)[0] is Finding.REFUTED and pod.proof is not None and pod.proof.boot_id == node.boot_id
            for pod in self.known.pods(node, driver)
        )

    def _is_unloading(self, node: Node, driver: DriverKey) -> bool:
        """Return whether an unload pod of a driver may run on a node, or is made now: each one ends or is given up."""
        part = self.known.parts.get(driver)
        actions = part.actions if part is not None else ()
        starts = (item.node for item in actions if isinstance(item, RunTask) and item.kind is UNLOAD)
        unloads = tasks_of(self.known.snapshot.tasks, driver, UNLOAD)
        running = (task.node for task in unloads if not task.has_ended)
        return node.name in {*starts, *running}

    def _stuck(self, node: Node, driver: DriverKey) -> str:
        """Return why a driver that is to yield stays on a node."""
        if self.known.is_gone(node, driver):
            return ""
        part = self.known.parts.get(driver)
        if part is None or part.trouble is not None or not isinstance(part.driver.spec, DriverSpec):
            return "it is not known what it should do"
        if part.driver.paused:
            return "it is paused"
        known = record_of(node, driver).loaded
        return (known.given_up or known.held) if known is not None else ""

    def _is_given_up(self, node: Node, driver: DriverKey) -> bool:
        """Return whether the removal of a driver from a node does nothing more, or does nothing at all."""
        part, known = self.known.parts.get(driver), record_of(node, driver).loaded
        is_at_work = part is not None and not part.driver.paused and known is not None
        return not is_at_work or bool(known is not None and known.given_up)


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
