"""What happens on a node before a wave replaces its driver, and when that is over. Pure.

Place in the flow: :func:`driver_builder.rollout.fleet.admit` has said on which nodes a working driver is replaced next.
:func:`prepare` locks each of them first, and drains it where ``rollout.drain`` asks; nodes are released where the
driver is proven, has failed, or is not replaced after all. All progress is on the Node: a controller that is killed
anywhere continues from what it reads there.
"""

from collections.abc import Callable, Iterable, Mapping, Sequence, Set
from dataclasses import dataclass, replace
from functools import partial

from driver_builder.api.node_notes import previous_drains
from driver_builder.base.boundary import contained
from driver_builder.base.errors import InternalError
from driver_builder.model.driver_key import DriverKey
from driver_builder.nodes.changes import PatchNode, PatchObject, takes_driver
from driver_builder.nodes.plan_view import Alone, DriverPlan
from driver_builder.objects.yielding import yielding_of
from driver_builder.rollout.draining import Draining, draining_of
from driver_builder.rollout.hold_node import MAX_REST_SECONDS, Hold, Step, renewal, restoration, restored
from driver_builder.rollout.next_drains import NextDrains
from driver_builder.rollout.node_lock import lock_of
from driver_builder.rollout.order import Order
from driver_builder.rollout.pulls import Pulls, with_pulls
from driver_builder.snapshot import inventory
from driver_builder.snapshot.inventory import Node
from driver_builder.snapshot.snapshot import Snapshot
from kube_api.drain_contract import HOLDER


@dataclass(frozen=True, slots=True, kw_only=True)
class Prepared:
    """``parts`` of the drivers; ``released`` is what drivers that are gone have left on nodes.

    ``drains`` are those that begin next.
    """

    parts: tuple[DriverPlan, ...]
    released: tuple[PatchNode, ...] = ()
    drains: tuple[NextDrains, ...] = ()


def prepare(
    parts: Iterable[DriverPlan],
    snapshot: Snapshot,
    loader_image: str,
    pulls: Pulls,
    order: Order,
    *,
    drain_namespaces: tuple[str, ...] | None,
    alone: Alone,
) -> Prepared:
    """Prepare the nodes where a working driver is replaced next, and release those where that is over.

    Pull pods run the loader of ``loader_image``; ``pulls`` are those that are there, as ``admit`` knows them.
    ``order`` says which drivers depend on others. Drains evict pods in ``drain_namespaces``, None for all. An error on
    a node keeps what is there; of a driver whose work ends in an error ``alone`` returns the plan.
    """
    nodes, parts = inventory.by_name(snapshot.nodes), tuple(parts)
    held: dict[str, list[Node]] = {}
    for node in inventory.held(snapshot.nodes):
        for driver in _holders(node):
            held.setdefault(driver, []).append(node)

    def prepared(part: DriverPlan) -> DriverPlan:
        own = [*held.get(part.driver.key, ()), *_with_paused_labels(part, nodes, held.get(part.driver.key, ()))]
        given = with_pulls(part, snapshot, pulls, loader_image)
        found = _prepared(Hold(given, order, drain_namespaces), nodes, own)
        drains = Hold(found, order).drains() if found.trouble is None else {}
        return replace(found, draining=drains) if drains else found

    done = tuple(alone(part, partial(prepared, part)) for part in parts)
    known = {part.driver.key for part in parts}
    # What device agents ask for is answered beside waves.
    gone = (driver for driver in sorted(held.keys() - known - {HOLDER}) if _is_gone(driver, snapshot))
    released = (_released(node, snapshot) for driver in gone for node in held[driver])
    return Prepared(parts=done, released=tuple(action for action in released if action is not None))


def _holders(node: Node) -> set[str]:
    """Return the drivers that have begun something on a node; an empty key for a record that nobody can read."""
    lock, record, yielding = lock_of(node), draining_of(node), yielding_of(node.annotations)
    holders = {lock.holder} if lock is not None and lock.holder else set()
    holders |= {yielding.first} if yielding is not None else set()
    return holders | ({record.driver} if record is not None and not (record.driver == "" and holders) else set())


def _with_paused_labels(part: DriverPlan, nodes: Mapping[str, Node], held: Iterable[Node]) -> Iterable[Node]:
    """Return the nodes of which only labels that a drain has paused are left: the status has their values."""
    known = {node.name for node in held}
    for name, begun in previous_drains(part.driver.status).items():
        if name in nodes and name not in known and restored(nodes[name], Draining(labels=begun.labels)):
            yield nodes[name]


def _is_gone(driver: str, snapshot: Snapshot) -> bool:
    """Return whether a driver is not there any more, as far as this can be seen."""
    return DriverKey(driver).namespace not in snapshot.forbidden


def _released(node: Node, snapshot: Snapshot) -> PatchNode | None:
    """Release a node whose driver is gone; of another controller's driver nothing is known but its lock."""
    return contained("node", node.name, partial(_left, node, snapshot), lambda _error: None)


def _left(node: Node, snapshot: Snapshot) -> PatchNode | None:
    lock, now = lock_of(node, snapshot.locks_first_seen), snapshot.now
    record, yielding = draining_of(node), yielding_of(node.annotations)
    is_locked = lock is not None and not lock.is_expired(now)
    # One that was written while a clock was ahead counts no longer than any may.
    is_resting = record is not None and record.is_resting(now) and record.retry_at <= now + MAX_REST_SECONDS
    if is_locked or (record is None and yielding is None) or (is_resting and yielding is None):
        return None
    driver = record.driver if record is not None else yielding.first if yielding is not None else ""
    return restoration(node, driver or "no driver", record, is_own_lock=lock is not None, is_yielded=True)


def _prepared(hold: Hold, nodes: Mapping[str, Node], held: Sequence[Node]) -> DriverPlan:
    part = hold.part
    # A driver of which nothing is decided has only its locks renewed, by its own plan.
    if part.trouble is not None or not (part.budgeted or held or hold.order.known.has_dependents(part.driver.key)):
        return part

    def step(node: Node, work: Callable[[Node], Step]) -> Step:
        def stay(error: InternalError) -> Step:
            return replace(renewal(node, hold.driver, hold.now), words=f"node {node.name} stays as it is: {error}")

        return contained("node", node.name, partial(work, node), stay)

    steps = {name: step(nodes[name], hold.take) for name in sorted(part.budgeted)}
    steps |= {
        name: step(nodes[name], hold.clear)
        for name in sorted(hold.taken.keys() - part.budgeted)
        if hold.has_to_clear(name)
    }
    asked = frozenset(steps)
    for node in held:
        if node.name not in steps:
            steps[node.name] = step(node, hold.go_on)
    return _with_steps(part, steps, {name for name in asked if not steps[name].goes}) if steps else part


def _with_steps(part: DriverPlan, steps: Mapping[str, Step], waiting: Set[str]) -> DriverPlan:
    first = [action for step in steps.values() for action in step.actions]
    staying = [action for action in part.actions if not (takes_driver(action) and action.node in waiting)]
    if any(isinstance(action, PatchNode) and action.seen for action in first):
        # The driver's object stays until nothing of it is left on any node.
        staying = [
            action
            for action in staying
            if not (isinstance(action, PatchObject) and False in action.finalizers.values())
        ]
    words = "; ".join(step.words for step in steps.values() if step.words)
    wave = part.wave
    if words and wave is not None:
        wave = replace(wave, message="; ".join(filter(None, (words, wave.message))))
    times = (part.requeue_at, *(step.requeue_at for step in steps.values()))
    return replace(
        part,
        actions=(*first, *staying),
        budgeted=part.budgeted - waiting,
        wave=wave,
        undrained={node: step.failed for node, step in steps.items() if step.failed},
        unyielded={node: step.stuck for node, step in steps.items() if step.stuck},
        requeue_at=min((time for time in times if time is not None), default=None),
    )
