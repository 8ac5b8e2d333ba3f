"""Runs the command of ``spec.validation`` once per node and boot, and records how it ended. Pure.

Place in the flow: ``plan`` adds these actions once every target is decided. What is known is on the Node and in the
validation pod, so a controller that is killed between any two steps continues: create the pod, record its end on the
Node (with the label, in one patch), delete it. The last pod of a command that failed for good stays, for its log.
"""

from collections.abc import Iterable, Set
from dataclasses import dataclass, field

from driver_builder.api.driver_spec import DriverSpec
from driver_builder.desired import permissions
from driver_builder.objects import validated, validation_pod
from driver_builder.objects.validated import Validated
from driver_builder.objects.validation_pod import ValidationPod
from driver_builder.observed.evidence import Finding, ValidationState
from driver_builder.observed.inventory import Node
from driver_builder.observed.validation import UNCHECKED, Progress, Validation
from driver_builder.planning.actions import (
    Action,
    ApplyDaemonSet,
    DeleteValidationPod,
    RememberValidated,
    ReplacePod,
    StartValidation,
)
from driver_builder.planning.plan_labels import evidence_of_weighed, validation_of
from driver_builder.planning.plan_view import DriverView, TargetPart

MAX_PODS = 100
"""Validation pods of one driver that run at the same time."""

_RETRY_MIN_SECONDS, _RETRY_MAX_SECONDS = 30.0, 600.0


@dataclass(slots=True)
class _Steps:
    """What is done, and the pods that may be created: of nodes without a label first."""

    actions: list[Action] = field(default_factory=list)
    starts: list[tuple[bool, str, StartValidation]] = field(default_factory=list)
    times: list[float] = field(default_factory=list)


@dataclass(frozen=True, slots=True, kw_only=True)
class Validating:
    """Actions for now, and when to look again."""

    actions: tuple[Action, ...] = ()
    requeue_at: float | None = None


def validate(view: DriverView, spec: DriverSpec, parts: Iterable[TargetPart], leaving: Set[str]) -> Validating:
    """Return what comes next on each node that is not ordinary; ``leaving`` are those that the driver leaves."""
    parts = tuple(parts)
    settled = _settled(parts)
    is_allowed = not permissions.of_validation(spec, view.settings.template_versions.permissions)
    names = evidence_of_weighed(view, parts).keys() - leaving
    steps = _Steps()
    for node in view.others:
        found = validation_of(view, node) if node.name in names else None
        if found is not None and found.is_unchecked and not found.is_labelled and _is_settled(found, settled):
            pod = found.pod
            replaced = ReplacePod(namespace=pod.namespace, name=pod.name, uid=pod.uid, node=pod.node, why=UNCHECKED)
            steps.actions.append(replaced)
            continue
        progress = found.progress if found is not None and not found.pod.deleting else None
        if found is None or progress is None:
            steps.actions += _ended(view, node, keeps_record=node.name in names and spec.validation.has_command)
        else:
            _run(view, spec, node, found, progress, steps, may_start=is_allowed and _may_start(found, settled))
    running = sum(pod.ended_at is None for pods in view.validation_pods.values() for pod in pods)
    starts = [action for _, _, action in sorted(steps.starts, key=lambda item: item[:2])]
    return Validating(
        actions=(*steps.actions, *starts[: max(0, MAX_PODS - running)]),
        requeue_at=min(steps.times, default=None),
    )


def forget(view: DriverView, nodes: Iterable[Node]) -> tuple[Action, ...]:
    """Remove the validation pods and records of nodes that a driver leaves."""
    return tuple(action for node in nodes for action in _ended(view, node, keeps_record=False))


def _settled(parts: Iterable[TargetPart]) -> frozenset[str]:
    """Return the nodes whose pods have what is wanted, once their DaemonSet is as wanted too."""
    return frozenset(
        node.node
        for part in parts
        if part.standing is not None and part.standing.is_written
        if not any(isinstance(action, ApplyDaemonSet) for action in part.actions)
        for node in part.standing.nodes
        if not node.is_outdated
    )


def _is_settled(found: Validation, settled: Set[str]) -> bool:
    return found.finding is Finding.WORKS and found.pod.node in settled


def _may_start(found: Validation, settled: Set[str]) -> bool:
    """Return whether a command may run: not against a driver that is labelled, and about to be replaced by another."""
    return found.finding is Finding.WORKS and (not found.is_labelled or _is_settled(found, settled))


def _run(
    view: DriverView,
    spec: DriverSpec,
    node: Node,
    found: Validation,
    progress: Progress,
    steps: _Steps,
    *,
    may_start: bool,
) -> None:
    """Run the command on a node, or record how it ended."""
    record, pods = progress.record, view.validation_pods.get(node.name, ())
    steps.actions += _delete(pod for pod in pods if pod.subject != record.subject)
    has_begun = record.succeeded or record.failures > 0
    known = validated.parse(node.annotations.get(view.validated))
    if has_begun and known != record:
        steps.actions.append(_remember(view, node, record, "the validation pod ended"))
        return
    if progress.pod is not None:
        # What ended is recorded: the pod can go. Of a command that failed for good it stays.
        if progress.pod.ended_at is not None and progress.state is not ValidationState.FAILED:
            steps.actions += _delete((progress.pod,))
        return
    if progress.state is not ValidationState.UNDECIDED or pods or not may_start:
        return
    due_at = _due_at(record, view.snapshot.now)
    if view.snapshot.now < due_at:
        steps.times.append(due_at)
        return
    steps.starts.append((found.is_labelled, node.name, _start(view, spec, node, record.subject)))


def _due_at(record: Validated, now: float) -> float:
    """Return when the command runs next. A time that has not come yet is of another clock."""
    if not record.failures or record.failed_at > now:
        return 0.0
    return record.failed_at + min(_RETRY_MAX_SECONDS, _RETRY_MIN_SECONDS * 2.0 ** (record.failures - 1))


def _start(view: DriverView, spec: DriverSpec, node: Node, subject: str) -> StartValidation:
    manifest = validation_pod.manifest(view.driver, spec, node=node.name, subject=subject)
    return StartValidation(
        namespace=view.driver.namespace,
        name=manifest["metadata"]["name"],
        driver=view.driver.key,
        node=node.name,
        manifest=manifest,
    )


def _ended(view: DriverView, node: Node, *, keeps_record: bool) -> tuple[Action, ...]:
    """Delete the pods of a node where nothing is validated, and its record if the driver is not wanted there."""
    gone = _delete(view.validation_pods.get(node.name, ()))
    if keeps_record or view.validated not in node.annotations:
        return gone
    return (*gone, _remember(view, node, None, "nothing is validated there"))


def _remember(view: DriverView, node: Node, record: Validated | None, why: str) -> RememberValidated:
    return RememberValidated(
        node=node.name,
        driver=view.driver.key,
        annotation=view.validated,
        value=None if record is None else validated.render(record),
        why=why,
    )


def _delete(pods: Iterable[ValidationPod]) -> tuple[Action, ...]:
    return tuple(
        DeleteValidationPod(namespace=pod.namespace, name=pod.name, uid=pod.uid, node=pod.node)
        for pod in pods
        if not pod.deleting
    )
