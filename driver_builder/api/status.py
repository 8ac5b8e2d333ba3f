"""The status of a driver: target states, conditions and Events, as values and as the object's status.

Pure. ``plan`` makes the :class:`TargetStatus` values; this module gives them the shape of ``status`` and decides
which changes of status need an Event. The message of a target says what is wrong. Events, ``Degraded`` and the
conditions that nothing else explains also say what to do (:func:`advised`).
"""

from collections.abc import Callable, Iterable, Iterator, Mapping, Sequence
from contextlib import suppress
from dataclasses import dataclass
from typing import Any, TypeVar

from driver_builder.api.driver_container import DriverContainer
from driver_builder.api.driver_spec import DriverSpec
from driver_builder.api.rebuild_status import Rebuilds
from driver_builder.api.spec_parser import DEPRECATED
from driver_builder.base.errors import InvalidDriver
from driver_builder.base.memo import remembers_last
from driver_builder.base.reasons import IN_TROUBLE, WITHOUT_DRIVER, Reason, TargetState, with_remedy, without_remedy
from kube_api.text import MAX_MESSAGE, bounded_message, first_few
from kube_api.timestamps import parse_timestamp, timestamp

Json = dict[str, Any]
Entry = TypeVar("Entry")
Read = TypeVar("Read")

_NO_NODES = "no selected node runs a kernel this driver supports"
_PAUSED = "paused by annotation driverwright.io/pause"

MAX_LISTED = 5
"""Targets or nodes that a condition lists; it counts the others."""


@dataclass(frozen=True, slots=True, kw_only=True)
class Trouble:
    """Why nothing could be decided for a driver or for one of its targets: what runs stays as it is."""

    reason: Reason
    message: str


@dataclass(frozen=True, slots=True, kw_only=True)
class RolledOut:
    """What nodes have that no wave has reached: the image of their DaemonSet, by digest, and its fingerprint."""

    image: str
    fingerprint: str


@dataclass(frozen=True, slots=True, kw_only=True)
class TargetStatus:
    """One entry of ``status.targets``. Times are seconds since the epoch; ``failures`` counts builds of ``key``."""

    target: str
    kernel: str
    os: str
    architecture: str
    nodes: int
    ready_nodes: int
    state: TargetState
    reason: str
    message: str
    image: str = ""
    digest: str = ""
    key: str = ""
    failures: int = 0
    last_failure: float | None = None
    since: float = 0.0
    rolled_out: RolledOut | None = None


def readable(entries: Iterable[Entry] | None, parse: Callable[[Entry], Read]) -> Iterator[Read]:
    """Read the entries of a status; those of another shape are dropped and written again."""
    for entry in entries or ():
        with suppress(KeyError, ValueError, TypeError, AttributeError, OverflowError):
            yield parse(entry)


@remembers_last(256)
def previous_targets(status: Mapping[str, Any]) -> Mapping[str, TargetStatus]:
    """Read ``status.targets`` by target id."""
    return {target.target: target for target in readable(status.get("targets"), parse_target)}


def parse_target(entry: Json) -> TargetStatus:
    """Read one entry of ``status.targets``.

    Raises:
        KeyError, ValueError, TypeError: when it is of another shape.
    """
    return TargetStatus(
        target=f"{entry['kernel']}/{entry['os']}/{entry['architecture']}",
        kernel=entry["kernel"],
        os=entry["os"],
        architecture=entry["architecture"],
        nodes=int(entry["nodes"]),
        ready_nodes=int(entry["readyNodes"]),
        state=TargetState(entry["state"]),
        reason=entry.get("reason", ""),
        message=entry.get("message", ""),
        image=entry.get("image", ""),
        digest=entry.get("imageDigest", ""),
        key=entry.get("buildKey", ""),
        failures=int(entry.get("failures", 0)),
        last_failure=parse_timestamp(entry.get("lastFailureTime")),
        since=parse_timestamp(entry.get("lastTransitionTime")) or 0.0,
        rolled_out=_parse_rolled_out(entry.get("rolledOut")),
    )


def _parse_rolled_out(entry: Json | None) -> RolledOut | None:
    return RolledOut(image=str(entry["image"]), fingerprint=str(entry["fingerprint"])) if entry else None


def render(
    driver: DriverContainer,
    targets: Iterable[TargetStatus],
    *,
    rebuilds: Rebuilds,
    unknown: Mapping[str, str],
    now: float,
    refusal: str = "",
    ahead: Sequence[Json] = (),
    nodes: Sequence[Json] = (),
    rollout: Json | None = None,
    stages: Json | None = None,
    more_conditions: Iterable[Json] = (),
) -> Json:
    """Write the object's whole ``status``.

    ``unknown`` says which selected nodes have no target, and why; ``refusal`` what the API server refused.
    ``ahead`` and ``more_conditions`` are those of :mod:`driver_builder.api.prebuild_status`, ``nodes`` those of
    :mod:`driver_builder.api.node_notes`, ``rollout`` that of :mod:`driver_builder.api.rollout_status`,
    ``stages`` that of :mod:`driver_builder.api.stage_status`.
    """
    targets = tuple(targets)
    # A target without nodes has no state.
    occupied = tuple(target for target in targets if target.nodes)
    wanted = [target for target in occupied if target.state not in WITHOUT_DRIVER]
    ready = [target for target in wanted if target.state is TargetState.READY]
    unused = driver.spec.unused if isinstance(driver.spec, DriverSpec) else ()
    conditions = [
        _ready(driver, occupied),
        _progressing(driver, occupied),
        _degraded(driver, occupied, unknown, refusal),
    ]
    conditions += _deprecated(unused)
    conditions += more_conditions
    return {
        "observedGeneration": driver.generation,
        "conditions": [_with_transition(condition, driver, now) for condition in conditions],
        "targets": [render_target(target) for target in targets],
        **({"ahead": list(ahead)} if ahead else {}),
        **({"nodes": list(nodes)} if nodes else {}),
        **({"rollout": rollout} if rollout else {}),
        **({"stages": stages} if stages else {}),
        "readyNodes": sum(target.ready_nodes for target in targets),
        "desiredNodes": sum(target.nodes for target in wanted),
        "readyTargets": f"{len(ready)}/{len(wanted)}",
        **({"unusedFields": list(unused)} if unused else {}),
        "rebuild": rebuilds.as_status(),
    }


def render_target(target: TargetStatus) -> Json:
    """Write one entry of ``status.targets``."""
    entry: Json = {
        "kernel": target.kernel,
        "os": target.os,
        "architecture": target.architecture,
        "nodes": target.nodes,
        "readyNodes": target.ready_nodes,
        "state": target.state.value,
        "reason": target.reason,
        "message": bounded_message(target.message),
        "lastTransitionTime": timestamp(target.since),
    }
    optional = {"image": target.image, "imageDigest": target.digest, "buildKey": target.key}
    entry |= {field: value for field, value in optional.items() if value}
    if target.failures and target.last_failure is not None:
        entry |= {"failures": target.failures, "lastFailureTime": timestamp(target.last_failure)}
    if (rolled_out := target.rolled_out) is not None:
        entry["rolledOut"] = {"image": rolled_out.image, "fingerprint": rolled_out.fingerprint}
    return entry


def render_trouble(driver: DriverContainer, trouble: Trouble, *, now: float) -> Json:
    """Write the ``status`` of a driver for which nothing could be decided: only one condition changes."""
    degraded = _with_transition(advising("Degraded", True, trouble.reason, trouble.message), driver, now)
    known = [condition for condition in driver.status.get("conditions") or () if condition.get("type") != "Degraded"]
    return {**driver.status, "conditions": [*known, degraded]}


def condition(kind: str, status: bool | None, reason: str, message: str) -> Json:
    """Write a condition; None is unknown."""
    word = {True: "True", False: "False", None: "Unknown"}[status]
    return {"type": kind, "status": word, "reason": str(reason), "message": bounded_message(message)}


def advised(reason: str, message: str) -> str:
    """Write a message for a person: what is wrong, and the remedy of its reason, which is never cut."""
    end = len(with_remedy(reason, message)) - len(message)
    return with_remedy(reason, bounded_message(message, MAX_MESSAGE - end))


def advising(kind: str, status: bool | None, reason: str, message: str) -> Json:
    """Write a condition whose message ends with the remedy of its reason."""
    return condition(kind, status, reason, advised(reason, message))


def _ready(driver: DriverContainer, targets: tuple[TargetStatus, ...]) -> Json:
    if isinstance(driver.spec, InvalidDriver):
        return condition("Ready", False, Reason.INVALID_SPEC, str(driver.spec))
    wanted = [target for target in targets if target.state not in WITHOUT_DRIVER]
    if not wanted:
        # The remedy is added here, because nothing is degraded.
        return advising("Ready", False, Reason.NO_NODES, _NO_NODES)
    ready, nodes = sum(target.ready_nodes for target in wanted), sum(target.nodes for target in wanted)
    behind = [target for target in wanted if target.state is not TargetState.READY]
    if not behind:
        return condition("Ready", True, Reason.ALL_NODES_READY, f"{ready} of {nodes} nodes ready")
    first = behind[0]
    return condition("Ready", False, first.reason, f"{ready} of {nodes} nodes ready; {first.kernel}: {first.message}")


def _progressing(driver: DriverContainer, targets: tuple[TargetStatus, ...]) -> Json:
    if driver.paused:
        return advising("Progressing", False, Reason.PAUSED, _PAUSED)
    moving = [target for target in targets if target.state in (TargetState.BUILDING, TargetState.ROLLING_OUT)]
    if not moving:
        return condition("Progressing", False, Reason.NOTHING_TO_DO, "nothing is being built or rolled out")
    words = _listed(f"{target.kernel}: {target.message}" for target in moving)
    return condition("Progressing", True, Reason.TARGETS_PENDING, words)


def _degraded(
    driver: DriverContainer, targets: tuple[TargetStatus, ...], unknown: Mapping[str, str], refusal: str
) -> Json:
    # First, because nothing else reports it: an invalid spec is in Ready too, and targets have their own messages.
    if refusal:
        return advising("Degraded", True, Reason.ACTION_REFUSED, refusal)
    if isinstance(driver.spec, InvalidDriver):
        return advising("Degraded", True, Reason.INVALID_SPEC, str(driver.spec))
    bad = [target for target in targets if target.state in IN_TROUBLE]
    if bad:
        words = _listed(f"{target.kernel}: {target.message}" for target in bad)
        return advising("Degraded", True, bad[0].reason, words)
    if unknown:
        words = _listed(unknown[node] for node in sorted(unknown))
        return advising("Degraded", True, Reason.KERNEL_MISMATCH, words)
    return condition("Degraded", False, Reason.NOTHING_WRONG, "")


def _deprecated(unused: Iterable[str]) -> list[Json]:
    """Write the condition of a driver with fields that earlier versions acted on."""
    fields = [field for field in unused if field in DEPRECATED]
    words = f"ignored since 0.2: {', '.join(fields)}"
    return [advising("DeprecatedFields", True, Reason.FIELD_IGNORED, words)] if fields else []


def _listed(words: Iterable[str]) -> str:
    """The first few, and how many more: a fleet has thousands, and each entry of ``targets`` has its own message."""
    return first_few(words, MAX_LISTED, separator="; ")


def _with_transition(condition: Json, driver: DriverContainer, now: float) -> Json:
    before = _condition_of(driver.status, condition["type"])
    same = before.get("status") == condition["status"] and before.get("lastTransitionTime")
    return {
        **condition,
        "observedGeneration": driver.generation,
        "lastTransitionTime": before["lastTransitionTime"] if same else timestamp(now),
    }


def _condition_of(status: Json, kind: str) -> Json:
    """Return a condition of a status, empty before it is set."""
    return next((known for known in status.get("conditions") or () if known.get("type") == kind), {})


@dataclass(frozen=True, slots=True, kw_only=True)
class Event:
    """One Kubernetes Event on a DriverContainer: ``kind`` is Normal or Warning."""

    kind: str
    reason: str
    message: str


_NEWS = {
    TargetState.BUILDING: Reason.BUILD_STARTED,
    TargetState.ROLLING_OUT: Reason.ROLLING_OUT,
    TargetState.READY: Reason.TARGET_READY,
}


def events(before: Mapping[str, TargetStatus], after: Iterable[TargetStatus]) -> tuple[Event, ...]:
    """Report changes: one Event for each target whose state or reason changed, one in all for suspended builds."""
    news: list[Event] = []
    suspended = any(target.reason == Reason.BUILDS_SUSPENDED for target in before.values())
    for target in after:
        old = before.get(target.target)
        if old is not None and (old.state, old.reason, old.key) == (target.state, target.reason, target.key):
            continue
        if target.reason == Reason.BUILDS_SUSPENDED:
            if not suspended:
                news.append(Event(kind="Warning", reason=target.reason, message=advised(target.reason, target.message)))
            suspended = True
            continue
        bad = target.state in IN_TROUBLE
        reason = target.reason if bad or target.state in WITHOUT_DRIVER else _NEWS[target.state]
        message = advised(reason, f"{target.target}: {target.message}")
        news.append(Event(kind="Warning" if bad else "Normal", reason=reason, message=message))
    return tuple(news)


def condition_events(before: Json, after: Json) -> tuple[Event, ...]:
    """Report changes of the driver as a whole, such as an invalid spec or a refused action."""
    news: list[Event] = []
    for kind, reason in _CONDITION_NEWS:
        old, new = _condition_of(before, kind), _condition_of(after, kind)
        same = (old.get("reason"), old.get("message")) == (new.get("reason"), new.get("message"))
        if new.get("reason") == reason and not same:
            message = advised(reason, without_remedy(reason, new["message"]))
            news.append(Event(kind="Warning", reason=reason, message=message))
    return tuple(news)


_CONDITION_NEWS = (
    ("Ready", Reason.INVALID_SPEC),
    ("Degraded", Reason.ACTION_REFUSED),
    ("Degraded", Reason.INTERNAL_ERROR),
    ("Degraded", Reason.NAMESPACE_FORBIDDEN),
    ("DeprecatedFields", Reason.FIELD_IGNORED),
    ("Stages", Reason.NO_DEVICE_AGENT),
    ("Stages", Reason.STAGE_NAME_TAKEN),
    ("Stages", Reason.RESOURCE_CONFLICT),
    ("Stages", Reason.DEVICE_PLUGIN_FAILED),
    ("Stages", Reason.RESOURCE_MISSING),
    ("Stages", Reason.DRA_NOT_SERVED),
    ("Stages", Reason.RESOURCE_SLICES_NOT_READ),
    ("Stages", Reason.PLUGIN_VALIDATION_FAILED),
    ("Stages", Reason.SERVICE_ACCOUNT_NOT_ALLOWED),
    ("Stages", Reason.SERVICE_ACCOUNT_NOT_FOUND),
    ("Unloading", Reason.IN_USE),
    ("Unloading", Reason.STAYS_LOADED),
    ("Draining", Reason.DRAIN_TIMEOUT),
    ("Yielding", Reason.DEPENDENT_NOT_UNLOADED),
)
"""Reasons that nothing else reports: targets have their own messages."""
