"""What the agent writes about a change into its Node: one patch, of keys that are not as they are to be. Pure."""

import json
from collections.abc import Collection, Sequence
from dataclasses import dataclass

from device_agent.mig.record import Record, dump_record
from device_agent.mig.values import Holding, NodeMig, NodeWrite
from kube_api.drain_contract import HOLDER, MAX_PODS, MAX_REQUEST, MAX_RESOURCES, DrainState, digest_of, parse_answer
from kube_api.names import (
    DRAIN_REQUEST_ANNOTATION,
    LOCK_ANNOTATION,
    MIG_ANNOTATION,
    MIG_STATE_LABEL,
    PAUSED_FOR_MIG_CHANGE,
    REBOOT_FOR_MIG,
    REBOOT_REQUIRED_LABEL,
)
from kube_api.node_lock import Lock, parse_lock, render_lock
from kube_api.text import bounded_message

PENDING, REBOOTING, SUCCESS, FAILED = "pending", "rebooting", "success", "failed"
"""Values of the label that says how far a change is."""
_DEPLOYED = "true"
"""The value of labels ``nvidia.com/gpu.deploy.*`` that are paused; ``false`` and the operator's own pauses stay."""


@dataclass(frozen=True, slots=True, kw_only=True)
class Said:
    """What the Node is to say. ``state``: None for no label; ``record``: None for no annotation.

    ``locks``: whether the agent has the lock. ``request``: the drain that it asks for; None for none.
    ``pauses``: whether pods of gpu-operator are to be away. ``reboots``: whether a boot is waited for.
    """

    state: str | None
    record: Record | None
    locks: bool = False
    request: str | None = None
    pauses: bool = False
    reboots: bool = False


def lock_of(node: NodeMig) -> Lock | None:
    """Read the lock of the Node; None where there is none."""
    return None if node.lock is None else parse_lock(node.lock)


def has_lock(node: NodeMig, now: float) -> bool:
    """Return whether the agent has the lock."""
    lock = lock_of(node)
    return lock is not None and lock.holder == HOLDER and not lock.is_expired(now)


def is_locked(node: NodeMig, boot_id: str, now: float) -> bool:
    """Return whether the agent has the lock, and need not renew it yet."""
    lock = lock_of(node)
    return lock is not None and lock.holder == HOLDER and not lock.is_due(boot_id, now)


def write_of(node: NodeMig, said: Said, boot_id: str, now: float) -> NodeWrite | None:
    """Make the patch after which the Node says this; None if it does. A lock that is due is renewed with it."""
    record = None if said.record is None else dump_record(said.record)
    annotations = {MIG_ANNOTATION: record, DRAIN_REQUEST_ANNOTATION: said.request, LOCK_ANNOTATION: node.lock}
    if said.locks and not is_locked(node, boot_id, now):
        annotations[LOCK_ANNOTATION] = render_lock(HOLDER, boot_id, now)
    elif not said.locks and (lock := lock_of(node)) is not None and lock.holder == HOLDER:
        annotations[LOCK_ANNOTATION] = None
    labels = {MIG_STATE_LABEL: said.state, **_deploy(node, pauses=said.pauses), **_reboot(node, reboots=said.reboots)}
    was = {
        MIG_ANNOTATION: node.record,
        DRAIN_REQUEST_ANNOTATION: node.drain_request,
        LOCK_ANNOTATION: node.lock,
        MIG_STATE_LABEL: node.state,
        REBOOT_REQUIRED_LABEL: node.reboot_required,
        **node.deploy,
    }
    new_labels, new_annotations = (
        {key: value for key, value in each.items() if value != was.get(key)} for each in (labels, annotations)
    )
    if not (new_labels or new_annotations):
        return None
    return NodeWrite(
        labels=new_labels,
        annotations=new_annotations,
        event=_news(said, new_labels, new_annotations),
        resource_version=node.resource_version,
    )


def renewal_of(node: NodeMig, boot_id: str, now: float) -> NodeWrite | None:
    """Make the patch that renews the agent's lock; None where it has none, or that is not due."""
    lock = lock_of(node)
    if lock is None or lock.holder != HOLDER or is_locked(node, boot_id, now):
        return None
    annotations = {LOCK_ANNOTATION: render_lock(HOLDER, boot_id, now)}
    return NodeWrite(annotations=annotations, resource_version=node.resource_version)


def drain_request(users: Collection[Holding], deadline: int) -> str:
    """Write what driver-builder is asked to drain: the pods that are known by name, in so many seconds.

    Pods that no request has room for are asked for with the next one.
    """
    named = [one for one in users if one.pod]
    pods = sorted({one.pod for one in named})[:MAX_PODS]
    resources = sorted({one.resource for one in named})[:MAX_RESOURCES]
    within = f"{deadline // 60}m" if deadline % 60 == 0 else f"{deadline}s"
    while len(text := _request(pods, resources, within)) > MAX_REQUEST and pods:
        pods.pop()
    return text


def _request(pods: Sequence[str], resources: Sequence[str], deadline: str) -> str:
    plain = {"pods": pods, "resources": resources, "deadline": deadline}
    return json.dumps(plain, separators=(",", ":"))


def drain_failure(node: NodeMig) -> str | None:
    """Return why driver-builder could not do what is asked now; None while it has not said so."""
    answer = parse_answer(node.drain_state)
    if node.drain_request is None or answer is None or answer.state is not DrainState.FAILED:
        return None
    if answer.request != digest_of(node.drain_request):
        return None
    return bounded_message(answer.message or "driver-builder does not say why", 200)


def _deploy(node: NodeMig, *, pauses: bool) -> dict[str, str]:
    was, becomes = (_DEPLOYED, PAUSED_FOR_MIG_CHANGE) if pauses else (PAUSED_FOR_MIG_CHANGE, _DEPLOYED)
    return {key: becomes for key, value in node.deploy.items() if value == was}


def _reboot(node: NodeMig, *, reboots: bool) -> dict[str, str | None]:
    """Say that a boot is waited for, unless somebody else has a reason for one."""
    if reboots and node.reboot_required is None:
        return {REBOOT_REQUIRED_LABEL: REBOOT_FOR_MIG}
    return {REBOOT_REQUIRED_LABEL: None} if not reboots and node.reboot_required == REBOOT_FOR_MIG else {}


def _news(said: Said, labels: Collection[str], annotations: Collection[str]) -> str | None:
    """Return the message of a failure that the Node does not show yet."""
    if said.state != FAILED or said.record is None or not (MIG_STATE_LABEL in labels or MIG_ANNOTATION in annotations):
        return None
    return said.record.message or None
