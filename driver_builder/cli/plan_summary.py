"""A plan target by target: what comes next where, in words and counts. Pure.

Place in the flow: ``driver-builder plan`` prints it; the controller does not need it.
"""

from collections import Counter
from collections.abc import Iterable, Mapping
from dataclasses import dataclass
from typing import Any, assert_never

from driver_builder.api.driver_container import DriverContainer
from driver_builder.api.driver_spec import DriverSpec
from driver_builder.api.status import TargetStatus
from driver_builder.base.reasons import TargetState, with_remedy
from driver_builder.nodes.changes import (
    ApplyObject,
    CancelBuild,
    Change,
    DeleteObject,
    DiscoverKernels,
    EvictPod,
    PatchNode,
    PatchObject,
    RunTask,
    StartBuild,
)
from driver_builder.nodes.plan_view import DriverPlan
from driver_builder.plan.plan import Plan
from driver_builder.snapshot.snapshot import Snapshot
from driver_builder.targets.resolve import stock_of
from kube_api.resources import DAEMON_SETS

NOTHING, WAIT = "nothing", "wait"
VERBS = ("look up", "build", "cancel", "roll out", "prepare", "replace", "label", "unlabel", "remove", "unload",
         "validate", "taint", "untaint",
         "keep tidy")  # fmt: skip
"""What an action does, in the order of a plan."""

_OTHERS: Mapping[type, str] = {
    StartBuild: "build",
    CancelBuild: "cancel",
    DiscoverKernels: "look up",
    EvictPod: "prepare",
    PatchObject: "keep tidy",
}
_SETTLED = (TargetState.READY, TargetState.SKIPPED, TargetState.NOT_APPLICABLE)


@dataclass(frozen=True, slots=True, kw_only=True)
class TargetSummary:
    """One target of one driver; ``next`` is what happens now, which may be ``wait`` or ``nothing``."""

    status: TargetStatus
    nodes: tuple[str, ...]
    next: str


@dataclass(frozen=True, slots=True, kw_only=True)
class DriverSummary:
    """One driver; ``others`` are the actions of no current target.

    ``ahead`` are the newest kernels that some of its nodes do not run yet; ``trouble`` says why nothing was decided.
    """

    driver: DriverContainer
    targets: tuple[TargetSummary, ...]
    actions: tuple[Change, ...]
    others: tuple[Change, ...]
    unknown: Mapping[str, str]
    ahead: tuple[TargetSummary, ...] = ()
    trouble: str = ""


def summarise(snapshot: Snapshot, decided: Plan) -> tuple[DriverSummary, ...]:
    """Sum a plan up, driver by driver."""
    return tuple(_driver(snapshot, part) for part in decided.drivers)


def verb(change: Change) -> str:
    """Name what a change does, by one of :data:`VERBS`."""
    match change:
        case PatchNode():
            return _on_node(change)
        case ApplyObject():
            return "roll out"
        case DeleteObject(takes=True):
            return "replace"
        case DeleteObject(resource=resource):
            return "remove" if resource is DAEMON_SETS else "keep tidy"
        case RunTask():
            return change.kind.group
        case _:
            return _OTHERS[type(change)]


def _on_node(patch: PatchNode) -> str:
    if patch.takes:
        return "replace"
    if patch.seen:
        return "prepare"
    word, values = ("taint", patch.taints) if patch.taints else ("label", patch.labels)
    if not values:
        return "keep tidy"
    return word if any(value is not None for value in values.values()) else f"un{word}"


def counted(actions: Iterable[Change]) -> str:
    """Count actions by what they do: ``build 1, label 2``; ``nothing`` for none."""
    found = Counter(map(verb, actions))
    return ", ".join(f"{word} {found[word]}" for word in VERBS if found[word]) or NOTHING


def as_document(summary: DriverSummary) -> dict[str, Any]:
    """Return plain data, for programs."""
    return {
        "driver": summary.driver.key,
        "targets": [
            {**_as_document(item), "nodes": list(item.nodes), "readyNodes": item.status.ready_nodes}
            for item in summary.targets
        ],
        "ahead": [{**_as_document(item), "nodesOnOlder": item.status.nodes} for item in summary.ahead],
        "actions": [
            {"action": type(action).__name__, "verb": verb(action), "what": str(action)} for action in summary.actions
        ],
        "nodesWithoutTarget": dict(summary.unknown),
        **({"trouble": summary.trouble} if summary.trouble else {}),
    }


def _as_document(item: TargetSummary) -> dict[str, Any]:
    return {
        "target": item.status.target,
        "state": item.status.state.value,
        "reason": str(item.status.reason),
        "message": item.status.message,
        "image": item.status.image,
        "next": item.next,
    }


def _driver(snapshot: Snapshot, part: DriverPlan) -> DriverSummary:
    if part.trouble is not None:
        words = f"{part.trouble.reason}: {with_remedy(part.trouble.reason, part.trouble.message)}"
        return DriverSummary(driver=part.driver, targets=(), actions=(), others=(), unknown={}, trouble=words)
    spec = part.driver.spec
    stock = stock_of(snapshot, part.driver, spec).targets if isinstance(spec, DriverSpec) else {}
    places = {target.id: names for target, names in stock.items()}
    homes = {name: target for target, names in places.items() for name in names}
    coming = [entry.target for entry in part.ahead or () if entry.target.nodes]
    shown = {status.target for status in (*part.targets, *coming)}
    at: dict[str, list[Change]] = {}
    for action in part.actions:
        target = _target(action, homes)
        at.setdefault(target if target in shown else "", []).append(action)
    targets = tuple(
        TargetSummary(
            status=status,
            nodes=places.get(status.target, ()),
            next=_next(status, at.get(status.target, [])),
        )
        for status in part.targets
    )
    running = {status.target for status in part.targets}
    ahead = tuple(
        TargetSummary(status=status, nodes=(), next=_next(status, at.get(status.target, [])))
        for status in coming
        if status.target not in running
    )
    return DriverSummary(
        driver=part.driver,
        targets=targets,
        actions=part.actions,
        others=tuple(at.get("", ())),
        unknown=part.unknown,
        ahead=ahead,
    )


def _target(action: Change, homes: Mapping[str, str]) -> str:
    """Return the target of an action, empty for the driver as a whole."""
    match action:
        case StartBuild():
            return action.request.target.id
        case ApplyObject() | PatchObject():
            return action.target
        case PatchNode() | DeleteObject() | RunTask() | EvictPod():
            return homes.get(action.node, "")
        case CancelBuild() | DiscoverKernels():
            return ""
        case _ as never:
            assert_never(never)


def _next(status: TargetStatus, actions: Iterable[Change]) -> str:
    words = counted(actions)
    if words != NOTHING:
        return words
    return NOTHING if status.state in _SETTLED else WAIT
