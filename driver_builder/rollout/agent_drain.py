"""Drains that the device agent of a node asks for, before it changes devices there. Pure.

Place in the flow: ``plan`` asks for all nodes at once, beside what waves do. The agent holds the lock of its node
meanwhile, so no driver is replaced there, and evicts nothing itself. All progress is on the Node: the record of a drain
(:mod:`driver_builder.rollout.draining`), as a driver has it, with the agent's name in place of the driver's, and the
answer. Both go, with the taint, as soon as the lock is not the agent's any more or nothing is asked.
"""

import hashlib
from collections.abc import Iterable, Iterator, Mapping
from dataclasses import dataclass, replace
from functools import partial

from driver_builder.api.rollout_settings import DrainSettings
from driver_builder.base.boundary import contained
from driver_builder.model.agent_drains import AgentDrains
from driver_builder.nodes.changes import Change, EvictPod, PatchNode
from driver_builder.rollout.drain import MANIFEST, Progress, Reasons, progress
from driver_builder.rollout.drain_request import DrainRequest, read_drain_request
from driver_builder.rollout.draining import Draining, draining_of, parse_draining, render_draining
from driver_builder.rollout.hold_node import LOOK_SECONDS, POLL_SECONDS, UPGRADING, Step, hold_node, restoration
from driver_builder.rollout.node_lock import lock_of
from driver_builder.snapshot import inventory
from driver_builder.snapshot.inventory import Node
from driver_builder.snapshot.node_pods import NodePod, NodePods
from driver_builder.snapshot.snapshot import Snapshot
from kube_api import names
from kube_api.drain_contract import HOLDER, DrainAnswer, DrainState, digest_of, parse_answer, render_answer
from kube_api.node_lock import LOCK_SECONDS, Lock
from kube_api.text import first_few, printable

MAX_NODES = 50
"""So many nodes are drained for their agents at once: the pods of each are listed again and again."""
TURN_SECONDS = 60.0
"""After so many seconds nodes that wait for their turn wait in another order."""
_MAX_LISTED = 3
_REASONS = Reasons(
    of_daemon_set="is not evicted: its DaemonSet makes it anew",
    bare="is not evicted: nothing creates it again",
    local_data="is not evicted: its emptyDir would be lost",
    of_node="is not evicted: a file of the node makes it anew",
    critical="is not evicted: it is critical",
)


@dataclass(frozen=True, slots=True, kw_only=True)
class AgentDrainsDone:
    """What is done: ``released`` nodes, where nothing is asked any more, and the answers on others."""

    released: tuple[PatchNode, ...] = ()
    answers: tuple[Change, ...] = ()
    requeue_at: float | None = None


@dataclass(frozen=True, slots=True, kw_only=True)
class Asking:
    """A node whose agent has its lock and asks for a drain; ``answer`` is the one that its request has got."""

    node: Node
    lock: Lock
    text: str
    answer: DrainAnswer | None
    record: Draining | None

    @property
    def is_begun(self) -> bool:
        """Return whether the node is drained, and the record says since when."""
        return self.record is not None and self.record.driver == HOLDER and self.node.has_taint(names.UPGRADING_TAINT)

    @property
    def is_refused(self) -> bool:
        """Return whether the request has failed: it is not tried again."""
        return self.answer is not None and self.answer.state is DrainState.FAILED


def _asking_of(node: Node, now: float, first_seen: Mapping[str, float]) -> Asking | None:
    text, lock = node.annotations.get(names.DRAIN_REQUEST_ANNOTATION), lock_of(node, first_seen)
    if text is None or lock is None or lock.holder != HOLDER or lock.is_expired(now):
        return None
    answer = parse_answer(node.annotations.get(names.DRAIN_STATE_ANNOTATION))
    is_own = answer is not None and answer.request == digest_of(text)
    return Asking(node=node, lock=lock, text=text, answer=answer if is_own else None, record=draining_of(node))


def read_first(
    nodes: Iterable[Node], settings: AgentDrains, now: float, first_seen: Mapping[str, float]
) -> tuple[str, ...]:
    """Name the nodes whose pods have to be known to answer their agents: those that may be drained now."""
    every = (item for node in nodes if (item := _asking_of(node, now, first_seen)) is not None)
    return tuple(item.node.name for item in _in_turn(every, now) if isinstance(_request(item, settings), DrainRequest))


def _in_turn(every: Iterable[Asking], now: float) -> list[Asking]:
    """Return the nodes that may be drained at once: those that are begun, then others in an order that changes.

    By their names alone, nodes that fail and ask again would always come before the last ones.
    """
    turn = int(now // TURN_SECONDS)

    def place(item: Asking) -> tuple[bool, bytes]:
        return not item.is_begun, hashlib.sha256(f"{turn} {item.node.name}".encode()).digest()

    return sorted((item for item in every if not item.is_refused), key=place)[:MAX_NODES]


def _request(item: Asking, settings: AgentDrains) -> DrainRequest | str:
    """Return what is asked for, or why that cannot be."""
    request = read_drain_request(item.text)
    if isinstance(request, str):
        return f"{names.DRAIN_REQUEST_ANNOTATION}: {request}"
    if (wrong := next((name for name in request.resources if not settings.allows(name)), None)) is not None:
        return (
            f"{names.DRAIN_REQUEST_ANNOTATION}: resources: --agent-drain-resources of driver-builder allows no {wrong}"
        )
    return request


def agent_drains(
    snapshot: Snapshot, settings: AgentDrains, namespaces: tuple[str, ...] | None = None
) -> AgentDrainsDone:
    """Answer the agents of all nodes, and release the nodes where they ask for nothing any more.

    Pods are evicted in ``namespaces``, None for all. An error on a node leaves that node as it is.
    """
    now, first_seen = snapshot.now, snapshot.locks_first_seen
    held = {node.name: (node, _asking_of(node, now, first_seen)) for node in inventory.held(snapshot.nodes)}
    asking = [item for _, item in held.values() if item is not None]
    turn = {item.node.name for item in _in_turn(asking, now)}
    drains = _Drains(snapshot, settings, namespaces)

    def step(item: Asking) -> Step:
        return contained("node", item.node.name, partial(drains.step, item, item.node.name in turn), lambda _: Step())

    steps = [step(item) for item in asking]
    released = (_release(node, snapshot) for node, item in held.values() if item is None)
    times = [step.requeue_at for step in steps if step.requeue_at is not None]
    return AgentDrainsDone(
        released=tuple(action for action in released if action is not None),
        answers=tuple(action for step in steps for action in step.actions),
        requeue_at=min(times, default=None),
    )


_OF_REQUEST = (names.DRAIN_REQUEST_ANNOTATION, names.DRAIN_STATE_ANNOTATION)
"""Both go with the lock: a request that outlives it would be taken for one of the next."""


def _release(node: Node, snapshot: Snapshot) -> PatchNode | None:
    """Give a node back where a request or a drain of an agent has left something; None where it has not."""
    record, lock = draining_of(node), lock_of(node, snapshot.locks_first_seen)
    is_agents = lock is not None and lock.holder == HOLDER
    # What nobody can read belongs to who holds the lock.
    is_own = record is not None and (record.driver == HOLDER or (record.is_lost and is_agents))
    left = dict.fromkeys(key for key in _OF_REQUEST if key in node.annotations)
    if not (is_own or left):
        return None
    is_over = is_agents and lock is not None and lock.is_expired(snapshot.now)
    action = _given_back(node, record if is_own else None, snapshot.now, is_own_lock=is_over)
    return replace(action, annotations={**action.annotations, **left}, why="its device agent asks for no drain")


def _given_back(node: Node, record: Draining | None, now: float, *, is_own_lock: bool) -> PatchNode:
    """Give a node back as it was, and a driver its record that leaves the node alone."""
    action = restoration(node, HOLDER, record, is_own_lock=is_own_lock)
    if record is None or not parse_draining(record.behind).is_resting(now):
        return action
    return replace(action, annotations={**action.annotations, names.DRAINING_ANNOTATION: record.behind})


@dataclass(frozen=True, slots=True)
class _Drains:
    snapshot: Snapshot
    settings: AgentDrains
    namespaces: tuple[str, ...] | None

    @property
    def now(self) -> float:
        return self.snapshot.now

    def step(self, item: Asking, is_its_turn: bool) -> Step:
        """Decide what comes next on a node whose agent asks."""
        if item.answer is not None and item.is_refused:
            return self._refused(item, item.answer.message)
        request = _request(item, self.settings)
        if isinstance(request, str):
            return self._refused(item, request)
        found = self.snapshot.node_pods.get(item.node.name) if is_its_turn else None
        if found is not None:
            return self._drain(item, request, found)
        why = "its pods are not read yet" if is_its_turn else f"{MAX_NODES} other nodes are drained at the moment"
        return self._said(item, DrainState.DRAINING, why)

    def _drain(self, item: Asking, request: DrainRequest, found: NodePods) -> Step:
        if found.unread:
            return self._refused(item, f"not drained: apply {MANIFEST} to allow it; {found.unread}")
        if not self._has_agent(item.node, found):
            why = "no pod of a device agent is there: of a stage, or of a DaemonSet that --agent-daemonsets names"
            # One that is replaced by its DaemonSet is back soon.
            return self._said(item, DrainState.DRAINING, why) if item.is_begun else self._refused(item, why)
        if item.record is None or not item.is_begun or item.record.since > self.now:
            return self._begin(item)
        return self._go_on(item, request, item.record, found)

    def _has_agent(self, node: Node, found: NodePods) -> bool:
        """Return whether a pod of a device agent is on a node: by what controls it, whatever labels say."""
        uids = {(item.namespace, item.uid) for item in self.snapshot.plugin_sets}
        pods = (pod for pod in self.snapshot.plugin_pods if pod.node == node.name)
        if any((pod.namespace, pod.owner) in uids for pod in pods):
            return True
        return any(f"{pod.namespace}/{pod.daemon_set}" in self.settings.daemon_sets for pod in found.pods)

    def _begin(self, item: Asking) -> Step:
        """Keep new pods away from a node, and record since when; what a driver has left there is restored with it."""
        record = item.record or Draining()
        since = record.since if record.driver == HOLDER and 0 < record.since <= self.now else int(self.now)
        behind = render_draining(record) if record.is_resting(self.now) else record.behind
        begun = Draining(driver=HOLDER, since=since, labels=record.labels, behind=behind)
        texts = {names.DRAINING_ANNOTATION: render_draining(begun)}
        hold = hold_node(item.node, HOLDER, texts, "drain it for its device agent")
        hold = replace(hold, taints={names.UPGRADING_TAINT: UPGRADING})
        return self._said(item, DrainState.DRAINING, "new pods are kept away", hold)

    def _go_on(self, item: Asking, request: DrainRequest, record: Draining, found: NodePods) -> Step:
        """Let the pods leave that are named, until none is left or the deadline is over."""
        named = tuple(pod for pod in found.pods if (pod.namespace, pod.name) in request.pods)
        settings = DrainSettings(resources=request.resources, deadline_seconds=request.deadline_seconds)
        refused = self.snapshot.refused_evictions
        made = progress(
            settings, record, NodePods(pods=named), refused, self.now, namespaces=self.namespaces, reasons=_REASONS
        )
        if made.has_failed:
            return self._refused(item, f"not drained within {request.deadline_seconds:.0f} seconds: {made.words}")
        if made.is_drained and made.note:
            return self._refused(item, made.note)
        if made.is_drained:
            return self._said(item, DrainState.DRAINED, _left_alone(named, request))
        said = self._said(item, DrainState.DRAINING, made.words)
        return replace(said, actions=(*said.actions, *self._evictions(item, made)))

    def _evictions(self, item: Asking, made: Progress) -> Iterator[EvictPod]:
        """Evict pods, if the agent still has the lock and asks for the same then."""
        lock = item.node.annotations[names.LOCK_ANNOTATION]
        for pod in made.evicted:
            yield EvictPod(
                namespace=pod.namespace,
                name=pod.name,
                uid=pod.uid,
                node=item.node.name,
                at=self.now,
                seen={names.LOCK_ANNOTATION: lock, names.DRAIN_REQUEST_ANNOTATION: item.text},
                why="the device agent asks for it",
            )

    def _refused(self, item: Asking, why: str) -> Step:
        """Give a node back, and say why: the agent may ask for something else, or try again with another lock."""
        record = item.record
        if record is None or not (record.driver == HOLDER or record.is_lost):
            return self._said(item, DrainState.FAILED, why)
        back = _given_back(item.node, record, self.now, is_own_lock=False)
        return self._said(item, DrainState.FAILED, why, replace(back, why=f"release it: {printable(why)}"))

    def _said(self, item: Asking, state: DrainState, message: str, hold: PatchNode | None = None) -> Step:
        """Answer, if that is news, together with what else is written; look again, also once the lock ends."""
        answer = DrainAnswer(state=state, message=printable(message), request=digest_of(item.text))
        text = render_answer(answer)
        is_news = item.node.annotations.get(names.DRAIN_STATE_ANNOTATION) != text
        if is_news:
            hold = hold or hold_node(item.node, HOLDER, {}, f"{state}: {answer.message}")
            hold = replace(hold, annotations={**hold.annotations, names.DRAIN_STATE_ANNOTATION: text})
        again = {DrainState.DRAINING: POLL_SECONDS, DrainState.DRAINED: LOOK_SECONDS}.get(state, LOCK_SECONDS)
        ends = item.lock.renewed + LOCK_SECONDS if item.lock.renewed is not None else self.now + again
        return Step(actions=(hold,) if hold is not None else (), requeue_at=min(ends, self.now + again))


def _left_alone(named: Iterable[NodePod], request: DrainRequest) -> str:
    """Say which pods of a request stay, because they have nothing of what it is about; empty if there is none."""
    others = [pod for pod in named if not (pod.has_ended or any(name in pod.resources for name in request.resources))]
    return f"left alone, without such a resource: {first_few(others, _MAX_LISTED)}" if others else ""
