"""What happens on a node before a wave replaces its driver, and when that is over. Pure.

Place in the flow: :func:`driver_builder.rollout.fleet.admit` has said on which nodes a working driver is replaced next.
:func:`prepare` locks each of them first, and releases those where the driver is proven, has failed, or is not replaced
after all. All progress is on the Node: a controller that is killed anywhere continues from what it reads there.
"""

from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass, field, replace

from driver_builder.observed import inventory
from driver_builder.observed.inventory import Node
from driver_builder.observed.snapshot import Snapshot
from driver_builder.planning.actions import Action, HoldNode, ReplacePod, SetFinalizer
from driver_builder.planning.plan_view import DriverPlan
from driver_builder.rollout.node_lock import RENEW_SECONDS, lock_of, render_lock
from kube_api import names

LOOK_SECONDS = 15.0
"""After so many seconds a node that is held is looked at again, whatever happens."""

TAKES = (ReplacePod,)
"""The actions that take a driver from a node."""


@dataclass(frozen=True, slots=True, kw_only=True)
class _Step:
    """What comes next on one node; ``goes`` says that its driver may be replaced now."""

    actions: tuple[Action, ...] = ()
    goes: bool = False
    words: str = ""
    requeue_at: float | None = None


def prepare(parts: Iterable[DriverPlan], snapshot: Snapshot) -> tuple[DriverPlan, ...]:
    """Prepare the nodes where a working driver is replaced next, and release those where that is over."""
    nodes = inventory.by_name(snapshot.nodes)
    held: dict[str, list[Node]] = {}
    for node in inventory.held(snapshot.nodes):
        for driver in _holders(node):
            held.setdefault(driver, []).append(node)
    return tuple(_prepared(part, nodes, held.get(part.driver.key, ()), snapshot.now) for part in parts)


def _holders(node: Node) -> set[str]:
    """Return the drivers that have begun something on a node."""
    lock = lock_of(node)
    return {lock.holder} if lock is not None and lock.holder else set()


def _prepared(part: DriverPlan, nodes: Mapping[str, Node], held: Sequence[Node], now: float) -> DriverPlan:
    # Of a driver of which nothing is decided nothing is known either: its locks expire.
    if part.trouble is not None or not (part.budgeted or held):
        return part
    hold = _Hold(part, now)
    steps = {name: hold.take(nodes[name]) for name in sorted(part.budgeted)}
    for node in held:
        if node.name not in steps:
            steps[node.name] = hold.keep(node) if hold.is_at_work(node.name) else hold.release(node)
    return _with_steps(part, steps)


def _with_steps(part: DriverPlan, steps: Mapping[str, _Step]) -> DriverPlan:
    waiting = {name for name in part.budgeted if not steps[name].goes}
    first = [action for step in steps.values() for action in step.actions]
    staying = [action for action in part.actions if not (isinstance(action, TAKES) and action.node in waiting)]
    if any(isinstance(action, HoldNode) for action in first):
        # The driver's object stays until nothing of it is left on any node.
        staying = [action for action in staying if not (isinstance(action, SetFinalizer) and not action.present)]
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
        requeue_at=min((time for time in times if time is not None), default=None),
    )


@dataclass(frozen=True, slots=True)
class _Hold:
    """What one driver does on nodes."""

    part: DriverPlan
    now: float
    moved: frozenset[str] = field(init=False)
    """Nodes from which a driver is taken now."""

    def __post_init__(self) -> None:
        taken = frozenset(action.node for action in self.part.actions if isinstance(action, TAKES))
        object.__setattr__(self, "moved", taken)

    @property
    def driver(self) -> str:
        return self.part.driver.key

    def is_at_work(self, node: str) -> bool:
        """Return whether the driver is being replaced on a node: it goes, or its successor is not proven yet."""
        return node in self.moved or node in self.part.busy

    def take(self, node: Node) -> _Step:
        """Lock a node, and let its driver be replaced."""
        return replace(self.keep(node), goes=True)

    def keep(self, node: Node) -> _Step:
        """Hold the lock of a node, and renew it where that is due."""
        lock = lock_of(node)
        is_own = lock is not None and lock.holder == self.driver
        if lock is not None and not is_own and not lock.is_expired(self.now):
            # It expired while no controller ran, and somebody else has taken it since.
            return _Step(requeue_at=self.now + LOOK_SECONDS)
        if lock is not None and is_own and lock.renewed is not None and not lock.is_due(node, self.now):
            return _Step(requeue_at=lock.renewed + RENEW_SECONDS)
        value = render_lock(self.driver, node, self.now)
        verb = "renew" if is_own else "take"
        action = self._write(node, {names.LOCK_ANNOTATION: value}, why=f"{verb} its lock")
        return _Step(actions=(action,), requeue_at=self.now + LOOK_SECONDS)

    def release(self, node: Node) -> _Step:
        """Give a node back."""
        action = self._write(node, {names.LOCK_ANNOTATION: None}, why="release its lock")
        return _Step(actions=(action,), requeue_at=self.now + LOOK_SECONDS)

    def _write(self, node: Node, annotations: Mapping[str, str | None], why: str) -> HoldNode:
        return HoldNode(
            node=node.name,
            driver=self.driver,
            seen=node.annotations.get(names.LOCK_ANNOTATION),
            annotations=annotations,
            why=why,
        )
