"""Pods leave what is changed: driver-builder is asked to evict them, with the node's lock. Pure."""

from collections.abc import Collection
from dataclasses import replace

from device_agent.mig.case import LATER, SOON, Case
from device_agent.mig.node_write import PENDING, Said, drain_failure, drain_request, has_lock
from device_agent.mig.record import BETWEEN, DRAINING, IDLE
from device_agent.mig.values import Holding, Step
from kube_api.names import DRAIN_STATE_ANNOTATION

_LEFT = (
    "driver-builder has not removed its answer to an earlier drain: "
    f"if none runs any more, remove annotation {DRAIN_STATE_ANNOTATION} from the Node"
)
_GRACE_SECONDS = 300.0
"""After the deadline: so long driver-builder may take to say that it has failed."""


def is_draining(case: Case) -> bool:
    """Return whether a drain is asked for now: with the lock, driver-builder keeps new pods away."""
    return case.node.drain_request is not None and has_lock(case.node, case.sight.now)


def drain(case: Case, users: Collection[Holding], why: str) -> Step:
    """Ask for a drain, or wait for it. The lock is released between tries.

    A pod that has left has no name for as long as the kubelet takes to remove it: the request stays as it was, and with
    it the taint, or the next pod would come in its place.
    """
    node, sight = case.node, case.sight
    is_asked = is_draining(case)
    if not is_asked and node.drain_state is not None:
        left = f"{why}; {_LEFT}"
        return case.waits(left, looks=True) if case.before else case.pends(left)
    since = sight.clock if case.memory.drains_since is None or not is_asked else case.memory.drains_since
    failure = drain_failure(node) if is_asked else None
    if failure is None and sight.clock > since + sight.settings.deadline + _GRACE_SECONDS:
        failure = "driver-builder has not answered in time"
    if failure is not None:
        return _undrained(case, users, f"{why}: {failure}")
    said = Said(
        state=PENDING,
        record=case.new_record(DRAINING, case.before, why),
        locks=True,
        request=drain_request(users, sight.settings.deadline) if any(one.pod for one in users) else node.drain_request,
        pauses=bool(case.before),
    )
    memory = replace(case.memory, drains_since=since)
    return replace(case.says(said, why, again=SOON, memory=memory), looks=True)


def _undrained(case: Case, users: Collection[Holding], why: str) -> Step:
    """Release the lock, and try again later, or at once when users change."""
    said = Said(state=PENDING, record=case.new_record(BETWEEN if case.before else IDLE, case.before, why))
    step = case.says(said, why, again=LATER, memory=case.rested(frozenset(users)))
    return replace(step, looks=True)
