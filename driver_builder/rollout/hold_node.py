"""What one driver does on one node before it is replaced there, and once that is over. Pure.

Place in the flow: :mod:`driver_builder.rollout.prepare` asks for each node. All progress is on the Node.
"""

from collections.abc import Mapping
from dataclasses import dataclass, field, replace

from driver_builder.api.node_notes import BegunDrain, previous_drains
from driver_builder.api.rollout_settings import DrainSettings
from driver_builder.model.driver_key import DriverKey
from driver_builder.nodes.changes import Change, EvictPod, PatchNode, Taking, takes_driver
from driver_builder.nodes.plan_view import DriverPlan
from driver_builder.objects.yielding import render_yielding, yield_labels
from driver_builder.rollout.clearance import Clearing, Return
from driver_builder.rollout.drain import progress
from driver_builder.rollout.draining import PAUSED, Draining, draining_of, parse_draining, render_draining
from driver_builder.rollout.node_lock import is_locked_by, lock_of
from driver_builder.rollout.order import Order
from driver_builder.snapshot import inventory
from driver_builder.snapshot.inventory import Node
from driver_builder.snapshot.snapshot import Snapshot
from kube_api import names
from kube_api.names import label_value
from kube_api.node_lock import RENEW_SECONDS, Lock, render_lock

LOOK_SECONDS = 15.0
"""After so many seconds a node that is held is looked at again, whatever happens."""
POLL_SECONDS = 5.0
"""So often the pods of a node that is drained are listed: nothing reports that they are gone."""
REST_SECONDS = 600.0
"""So long at least a node is left alone that could not be drained."""
MAX_REST_SECONDS = 86400.0
"""And so long at most: no ``drain.deadline`` is longer."""

UPGRADING = {"key": names.UPGRADING_TAINT, "effect": "NoSchedule"}
"""The taint of a node that is drained."""


@dataclass(frozen=True, slots=True, kw_only=True)
class Step:
    """What comes next on one node; ``goes``: its driver may be replaced now.

    ``failed`` says why it was not drained, ``stuck`` why a driver that is to yield is not unloaded.
    """

    actions: tuple[Change, ...] = ()
    goes: bool = False
    failed: str = ""
    stuck: str = ""
    words: str = ""
    requeue_at: float | None = None


def restoration(
    node: Node, driver: str, record: Draining | None, *, is_own_lock: bool, is_yielded: bool = False
) -> PatchNode:
    """Return what gives a node back as it was; ``is_yielded`` says that no other driver yields there any more."""
    annotations: dict[str, str | None] = {names.LOCK_ANNOTATION: None} if is_own_lock else {}
    if record is not None:
        annotations[names.DRAINING_ANNOTATION] = None
    labels = restored(node, record)
    if is_yielded and names.YIELDING_ANNOTATION in node.annotations:
        annotations[names.YIELDING_ANNOTATION] = None
        labels |= dict.fromkeys(yield_labels(node.labels, node.annotations))
    taints = {} if record is None else {names.UPGRADING_TAINT: None}
    return replace(hold_node(node, driver, annotations, "release it"), labels=labels, taints=taints)


def hold_node(node: Node, driver: str, annotations: Mapping[str, str | None], why: str) -> PatchNode:
    """Take, renew or release the lock of a node, or change what stands there with it: unless another one has it."""
    seen = {names.LOCK_ANNOTATION: node.annotations.get(names.LOCK_ANNOTATION)}
    return PatchNode(node=node.name, driver=driver, seen=seen, annotations=annotations, why=why)


def restored(node: Node, record: Draining | None) -> dict[str, str | None]:
    """Return the labels that are still as they were paused."""
    known = {} if record is None else record.labels
    return {key: value for key, value in known.items() if node.labels.get(key) == PAUSED}


def renewals(driver: str, snapshot: Snapshot) -> Step:
    """Keep the locks of a driver of which nothing is decided: what it has begun is not over."""
    every = [renewal(node, driver, snapshot.now) for node in inventory.held(snapshot.nodes)]
    times = [step.requeue_at for step in every if step.requeue_at is not None]
    return Step(actions=tuple(action for step in every for action in step.actions), requeue_at=min(times, default=None))


def renewal(node: Node, driver: str, now: float) -> Step:
    """Renew a lock that a driver has on a node, where that is due."""
    lock = lock_of(node)
    if lock is None or lock.holder != driver:
        return Step()
    if lock.renewed is not None and not lock.is_due(node.boot_id or "", now):
        return Step(requeue_at=lock.renewed + RENEW_SECONDS)
    return Step(actions=(_lock(node, driver, now, "renew its lock"),), requeue_at=now + LOOK_SECONDS)


def _lock(node: Node, driver: str, now: float, why: str) -> PatchNode:
    return hold_node(node, driver, {names.LOCK_ANNOTATION: render_lock(driver, node.boot_id or "", now)}, why)


@dataclass(frozen=True, slots=True)
class Hold:
    """What one driver does on nodes."""

    part: DriverPlan
    order: Order
    drain_namespaces: tuple[str, ...] | None = None
    """Where drains may evict pods; None for everywhere."""
    taken: Mapping[str, Taking] = field(init=False)
    """How a driver is taken from nodes now."""
    begun: Mapping[str, BegunDrain] = field(init=False)
    """The drains that the status records: what a Node says may be gone."""

    def __post_init__(self) -> None:
        taken = {action.node: action for action in self.part.actions if takes_driver(action)}
        object.__setattr__(self, "taken", taken)
        object.__setattr__(self, "begun", previous_drains(self.part.driver.status))

    @property
    def driver(self) -> DriverKey:
        """The key of the driver."""
        return self.part.driver.key

    @property
    def snapshot(self) -> Snapshot:
        """What is seen of the cluster."""
        return self.order.known.snapshot

    @property
    def now(self) -> float:
        """Seconds since the epoch."""
        return self.snapshot.now

    def is_at_work(self, node: str) -> bool:
        """Return whether the driver is being replaced on a node: it goes, or its successor is not proven yet."""
        return node in self.taken or node in self.part.busy

    def go_on(self, node: Node) -> Step:
        """Go on where something was begun."""
        if self.order.clearance.is_begun(node, self.driver):
            # Drivers that yield are loaded again once this one works, and not before.
            if node.name not in self.taken and self.order.clearance.may_return(node, self.driver):
                if (back := self.order.clearance.way_back(node, self.driver)) is not None:
                    return self._goes_back(node, back)
                why = self.order.clearance.misfit(node, self.driver)
                return replace(self._unlocked(node), words=why) if why else self.leave(node)
            return self.keep(node) if self.is_at_work(node.name) else self._unlocked(node)
        # Also where it is drained, and another image is wanted since, which is not there yet.
        return self.keep(node) if self.is_at_work(node.name) else self.leave(node)

    def take(self, node: Node) -> Step:
        """Lock, drain and clear a node, and let its driver be replaced."""
        drained = self._drained(node)
        return self._cleared(node, drained) if drained.goes else drained

    def has_to_clear(self, name: str) -> bool:
        """Return whether other drivers have to yield where this one is replaced at once."""
        node = inventory.by_name(self.snapshot.nodes).get(name)
        if node is None or not self.order.known.has_dependents(self.driver):
            return False
        is_begun = self.order.clearance.is_begun(node, self.driver)
        return is_begun or not self.order.clearance.clearing(node, self.driver, self.taken[name]).is_clear

    def clear(self, node: Node) -> Step:
        """Lock and clear a node, and let its driver be replaced."""
        lock = self._lock_of(node)
        if lock is not None and lock.holder != self.driver and not lock.is_expired(self.now):
            return Step(words=f"node {node.name} {lock}", requeue_at=self.now + LOOK_SECONDS)
        return self._cleared(node, replace(self.keep(node), goes=True))

    def _goes_back(self, node: Node, back: PatchNode) -> Step:
        """Clear a node whose driver gets the image of before, because those that yield have no other that fits."""
        hold = Hold(replace(self.part, actions=(back,)), self.order, self.drain_namespaces)
        step = hold.clear(node)
        return replace(step, actions=(*step.actions, back), words=str(back)) if step.goes else step

    def _cleared(self, node: Node, step: Step) -> Step:
        """Let the drivers that depend on this one yield, one after the other."""
        if not self.order.known.has_dependents(self.driver) or node.name not in self.taken:
            return step
        record = self._record(node)
        if record is not None and record.is_resting(self.now):
            return replace(self.leave(node), words=f"{node.name} keeps its driver: {record.failed}")
        found = self.order.clearance.clearing(node, self.driver, self.taken[node.name])
        if found.is_clear:
            return step
        if found.is_over:
            return self._keep_driver(node, record, found)
        actions = step.actions
        if found.record is not None:
            texts = {names.LOCK_ANNOTATION: self._lock(node), names.YIELDING_ANNOTATION: render_yielding(found.record)}
            action = hold_node(node, self.driver, texts, found.words)
            actions = (*actions, replace(action, labels={found.label: label_value(self.part.driver.name)}))
        return Step(actions=actions, words=found.words, stuck=found.failed, requeue_at=self.now + LOOK_SECONDS)

    def _keep_driver(self, node: Node, record: Draining | None, found: Clearing) -> Step:
        """Let those that have yielded be loaded again, with the driver as it is, and record why."""
        why = found.failed
        failed = Draining(driver=self.driver, failed=why, retry_at=int(self.now + REST_SECONDS), dependent=found.stuck)
        annotations = {names.LOCK_ANNOTATION: self._lock(node), names.DRAINING_ANNOTATION: render_draining(failed)}
        action = hold_node(node, self.driver, annotations, why=f"it keeps its driver: {why}")
        back = self.order.clearance.returning(node, self.driver, is_kept=True)
        labels = {**restored(node, record), **back.labels}
        action = replace(action, labels=labels, taints={} if record is None else {names.UPGRADING_TAINT: None})
        words = f"{node.name} keeps its driver: {why}"
        return Step(actions=(action,), stuck=why, words=words, requeue_at=self.now + LOOK_SECONDS)

    def _drained(self, node: Node) -> Step:
        """Lock a node and drain it."""
        settings, record = self._drain_settings(node), self._record(node)
        if settings is None or (record is not None and record.is_drained):
            return replace(self.keep(node), goes=True)
        if record is not None and record.is_lost and 0 < record.since <= self.now - settings.deadline_seconds:
            why = f"annotation {names.DRAINING_ANNOTATION} of the Node was removed, or cannot be read"
            return self._give_up(node, record, why)
        if record is None or record.failed or record.is_lost or not is_locked_by(self.driver, node, self.now):
            return self._begin(node, settings)
        return self._begun_now(node, record) if record.since > self.now else self._go_on(node, settings, record)

    def _go_on(self, node: Node, settings: DrainSettings, record: Draining) -> Step:
        """Let what uses the driver leave a node, until none is left or the deadline is over."""
        pods, refused = self.snapshot.node_pods.get(node.name), self.snapshot.refused_evictions
        found = progress(settings, record, pods, refused, self.now, namespaces=self.drain_namespaces)
        if found.has_failed:
            return self._give_up(node, record, found.words)
        kept = self.keep(node)
        if found.is_drained:
            drained = render_draining(replace(record, is_drained=True, note=found.note))
            action = hold_node(node, self.driver, {names.DRAINING_ANNOTATION: drained}, why="it is drained")
            return replace(kept, actions=(*kept.actions, action), goes=True, words=_said(node, found.note))
        evictions = (
            EvictPod(namespace=pod.namespace, name=pod.name, uid=pod.uid, node=node.name, at=self.now)
            for pod in found.evicted
        )
        return Step(
            actions=(*kept.actions, *evictions),
            words=f"draining {node.name}: {found.words}",
            requeue_at=self.now + POLL_SECONDS,
        )

    def keep(self, node: Node) -> Step:
        """Hold the lock of a node, and renew it where that is due."""
        record = self._record(node)
        words = _said(node, record.note if record is not None else "")
        lock = self._lock_of(node)
        is_own = lock is not None and lock.holder == self.driver
        if lock is not None and not is_own and not lock.is_expired(self.now):
            # It expired while no controller ran, and somebody else has taken it since.
            return Step(words=words, requeue_at=self.now + LOOK_SECONDS)
        if is_own:
            return replace(renewal(node, self.driver, self.now), words=words)
        action = _lock(node, self.driver, self.now, "take its lock")
        return Step(actions=(action,), words=words, requeue_at=self.now + LOOK_SECONDS)

    def leave(self, node: Node) -> Step:
        """Give a node back, but for the record that its drain has failed while a wave may come to it again."""
        record, lock = self._record(node), lock_of(node)
        is_own_lock = lock is not None and lock.holder == self.driver
        may_come = self.part.wave is not None and not self.part.driver.deleting
        is_begun = self.order.clearance.is_begun(node, self.driver)
        is_resting = record is not None and may_come and record.is_resting(self.now)
        stuck = record.failed if record is not None and is_resting and record.dependent else ""
        if is_begun and not (found := self.order.clearance.returning(node, self.driver)).is_over:
            return replace(self._returning(node, found), stuck=stuck)
        if record is not None and is_resting and record.retry_at > (latest := self.now + self._rest_seconds):
            # Written while a clock was ahead.
            text = render_draining(replace(record, retry_at=int(latest)))
            why = "it is tried again by the clock of now"
            action = hold_node(node, self.driver, {names.DRAINING_ANNOTATION: text}, why)
            return Step(actions=(action,), stuck=stuck, requeue_at=self.now + LOOK_SECONDS)
        if record is not None and is_resting and not is_own_lock and not is_begun:
            failed = record.failed if self.part.drain is not None and not stuck else ""
            return Step(failed=failed, stuck=stuck, requeue_at=float(record.retry_at))
        left = None if is_resting else record
        action = restoration(node, self.driver, left, is_own_lock=is_own_lock, is_yielded=is_begun)
        return Step(actions=(action,), stuck=stuck, requeue_at=self.now + LOOK_SECONDS)

    def _returning(self, node: Node, found: Return) -> Step:
        """Let drivers that have yielded be loaded again, and hold the node until they are."""
        if found.has_failed:
            return replace(self._unlocked(node), words=found.words)
        kept = self.keep(node)
        if not found.labels:
            return replace(kept, words="; ".join(filter(None, (kept.words, found.words))))
        action = hold_node(node, self.driver, {names.LOCK_ANNOTATION: self._lock(node)}, why=found.words)
        action = replace(action, labels=found.labels)
        return Step(actions=(action,), words=found.words, requeue_at=self.now + LOOK_SECONDS)

    def _unlocked(self, node: Node) -> Step:
        """Let others work on a node where nothing can be done now: one that the driver itself depends on, perhaps."""
        lock = lock_of(node)
        is_own = lock is not None and lock.holder == self.driver
        action = hold_node(node, self.driver, {names.LOCK_ANNOTATION: None}, why="release its lock")
        return Step(actions=(action,) if is_own else (), requeue_at=self.now + LOOK_SECONDS)

    def _begin(self, node: Node, settings: DrainSettings) -> Step:
        """Lock a node, keep new pods away, and pause the labels of DaemonSets."""
        own = self._record(node)
        # What a driver before has left, whose lock has expired, is restored with our own.
        left = draining_of(node) if own is None else own
        paused = {key: node.labels[key] for key in settings.pause_labels if node.labels.get(key, PAUSED) != PAUSED}
        # Whoever removes our record again and again does not keep the node for ever.
        since = own.since if own is not None and own.is_lost and 0 < own.since <= self.now else int(self.now)
        record = Draining(
            driver=self.driver, since=since, labels={**(left.labels if left is not None else {}), **paused}
        )
        annotations = {names.LOCK_ANNOTATION: self._lock(node), names.DRAINING_ANNOTATION: render_draining(record)}
        action = hold_node(node, self.driver, annotations, why="lock and drain it")
        action = replace(action, labels=dict.fromkeys(paused, PAUSED), taints={names.UPGRADING_TAINT: UPGRADING})
        return Step(actions=(action,), words=f"draining {node.name}", requeue_at=self.now + POLL_SECONDS)

    def _begun_now(self, node: Node, record: Draining) -> Step:
        """Let a drain that has begun while a clock was ahead count from now."""
        kept, text = self.keep(node), render_draining(replace(record, since=int(self.now)))
        action = hold_node(node, self.driver, {names.DRAINING_ANNOTATION: text}, why="its deadline counts from now")
        actions = (*kept.actions, action)
        return Step(actions=actions, words=f"draining {node.name}", requeue_at=self.now + POLL_SECONDS)

    def _give_up(self, node: Node, record: Draining, why: str) -> Step:
        """Give a node back with its driver as it is, and record why."""
        failed = Draining(driver=self.driver, failed=why, retry_at=int(self.now + self._rest_seconds))
        action = restoration(node, self.driver, record, is_own_lock=True)
        action = replace(
            action,
            annotations={**action.annotations, names.DRAINING_ANNOTATION: render_draining(failed)},
            why=f"release it: it could not be drained: {why}",
        )
        words = f"{node.name} could not be drained: {why}"
        return Step(actions=(action,), failed=why, words=words, requeue_at=self.now + LOOK_SECONDS)

    @property
    def _rest_seconds(self) -> float:
        """Return how long a node is left alone that could not be prepared."""
        return max(self.part.drain.deadline_seconds, REST_SECONDS) if self.part.drain is not None else REST_SECONDS

    def _drain_settings(self, node: Node) -> DrainSettings | None:
        """Return how a node is drained; None where it is not, or where the same modules stay loaded."""
        drain, action = self.part.drain, self.taken.get(node.name)
        if drain is None or action is None:
            return drain
        return None if self.order.known.kept(self.driver).stay(action) else drain

    def _record(self, node: Node) -> Draining | None:
        """Return the record of this driver; what nobody can read belongs to who holds the lock.

        Of one that is lost the status has the rest, while something of ours is left on the node.
        """
        record, begun = draining_of(node), self.begun.get(node.name, BegunDrain())
        if record is not None and not record.is_lost:
            return record if record.driver == self.driver else None
        lost = Draining(since=begun.since, labels=begun.labels)
        is_left = record is not None or is_locked_by(self.driver, node, self.now) or bool(restored(node, lost))
        return lost if is_left else None

    def drains(self) -> dict[str, BegunDrain]:
        """Return the drains of nodes that are under way, as they are once the actions of the part are done."""
        nodes = inventory.by_name(self.snapshot.nodes)
        known = {name: self._record(nodes[name]) for name in self.begun if name in nodes}
        for node in inventory.held(self.snapshot.nodes):
            known[node.name] = self._record(node)
        for action in self.part.actions:
            if isinstance(action, PatchNode) and names.DRAINING_ANNOTATION in action.annotations:
                text = action.annotations[names.DRAINING_ANNOTATION]
                known[action.node] = parse_draining(text) if text is not None else None
        return {
            name: BegunDrain(since=record.since, labels=record.labels)
            for name, record in known.items()
            if record is not None and record.since and not record.failed
        }

    def _lock_of(self, node: Node) -> Lock | None:
        return lock_of(node, self.snapshot.locks_first_seen)

    def _lock(self, node: Node) -> str:
        return render_lock(self.driver, node.boot_id or "", self.now)


def _said(node: Node, note: str) -> str:
    return f"{node.name} is {note}" if note else ""
