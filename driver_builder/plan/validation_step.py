"""Runs the command of ``spec.validation`` once per node and boot, and records how it ended. Pure.

Place in the flow: ``plan`` adds these actions once every target is decided. What is known is on the Node and in the
validation pod, so a controller that is killed between any two steps continues: create the pod, record its end on the
Node (with the label, in one patch), delete it. The last pod of a command that failed for good stays, for its log.
"""

from collections.abc import Iterable, Set
from dataclasses import dataclass

from driver_builder.api.driver_spec import DriverSpec
from driver_builder.nodes.changes import ApplyObject, Change, PatchNode, RunTask, delete_pods, replace_pod
from driver_builder.nodes.evidence import Finding
from driver_builder.nodes.plan_labels import evidence_of_weighed, validation_of
from driver_builder.nodes.plan_view import DriverView, TargetPart
from driver_builder.nodes.validation import UNCHECKED, Progress, next_of
from driver_builder.objects import validated
from driver_builder.objects.validated import Validated
from driver_builder.snapshot.inventory import Node
from driver_builder.targets import permissions
from driver_builder.tasks import validation_pod
from driver_builder.tasks.bound_pod import PodKind

MAX_PODS = 100
"""Validation pods of one driver that run at the same time."""


@dataclass(frozen=True, slots=True, kw_only=True)
class _Step:
    """What comes next on one node; ``subject`` is what its command is run against now, empty for nothing."""

    node: Node
    actions: tuple[Change, ...] = ()
    subject: str = ""
    is_labelled: bool = False
    due_at: float | None = None


@dataclass(frozen=True, slots=True, kw_only=True)
class Validating:
    """Actions for now, and when to look again."""

    actions: tuple[Change, ...] = ()
    requeue_at: float | None = None


def validate(view: DriverView, spec: DriverSpec, parts: Iterable[TargetPart], leaving: Set[str]) -> Validating:
    """Return what comes next on each node that is not ordinary; ``leaving`` are those that the driver leaves."""
    parts = tuple(parts)
    names, settled = evidence_of_weighed(view, parts).keys() - leaving, _settled(parts)
    steps = [_step(view, node, settled, is_wanted=node.name in names) for node in _nodes(view)]
    is_allowed = not permissions.of_validation(spec, view.settings.template_versions.permissions)
    running = sum(pod.ended_at is None for pods in view.validation_pods.values() for pod in pods)
    starts = sorted((step for step in steps if step.subject), key=lambda step: (step.is_labelled, step.node.name))
    room = max(0, MAX_PODS - running) if is_allowed else 0
    return Validating(
        actions=(
            *(action for step in steps for action in step.actions),
            *(_start(view, spec, step.node, step.subject) for step in starts[:room]),
        ),
        requeue_at=min((step.due_at for step in steps if step.due_at is not None), default=None),
    )


def _nodes(view: DriverView) -> Iterable[Node]:
    """Return the nodes that are not ordinary; where nothing is validated, those with something left of it."""
    if view.validation.is_set:
        return view.others
    key, pods = view.validated, view.validation_pods
    return [node for node in view.others if key in node.annotations or node.name in pods]


def forget(view: DriverView, nodes: Iterable[Node]) -> tuple[Change, ...]:
    """Remove the validation pods and records of nodes that a driver leaves."""
    return tuple(action for node in nodes for action in _ended(view, node, keeps_record=False))


def _settled(parts: Iterable[TargetPart]) -> frozenset[str]:
    """Return the nodes whose pods have what is wanted, once their DaemonSet is as wanted too."""
    return frozenset(
        node.node
        for part in parts
        if part.standing is not None and part.standing.is_written
        if not any(isinstance(action, ApplyObject) for action in part.actions)
        for node in part.standing.nodes
        if not node.is_outdated
    )


def _step(view: DriverView, node: Node, settled: Set[str], *, is_wanted: bool) -> _Step:
    """Return what comes next on a node; those in ``settled`` have what is wanted."""
    found = validation_of(view, node) if is_wanted else None
    if found is None or found.pod.deleting:
        return _Step(node=node, actions=_ended(view, node, keeps_record=is_wanted and view.validation.has_command))
    works = found.finding is Finding.WORKS
    if works and found.is_unchecked and not found.is_labelled and node.name in settled:
        return _Step(node=node, actions=(replace_pod(found.pod, why=UNCHECKED),))
    if found.progress is None:
        return _Step(node=node, actions=_ended(view, node, keeps_record=False))
    # Not against a driver that is labelled, and about to be replaced by another.
    may_start = works and (not found.is_labelled or node.name in settled)
    return _run(view, node, found.progress, is_labelled=found.is_labelled, may_start=may_start)


def _run(view: DriverView, node: Node, progress: Progress, *, is_labelled: bool, may_start: bool) -> _Step:
    """Run the command on a node, or record how it ended."""
    known, pods = validated.parse(node.annotations.get(view.validated)), view.validation_pods.get(node.name, ())
    found = next_of(progress, known, pods, view.snapshot.now, may_start=may_start)
    news = (_remember(view, node, progress.record, "the validation pod ended"),) if found.is_news else ()
    return _Step(
        node=node,
        actions=(*delete_pods(found.gone), *news),
        subject=progress.record.subject if found.starts else "",
        is_labelled=is_labelled,
        due_at=found.due_at,
    )


def _start(view: DriverView, spec: DriverSpec, node: Node, subject: str) -> RunTask:
    manifest = validation_pod.manifest(view.driver, spec, node=node.name, subject=subject)
    return RunTask(kind=PodKind.VALIDATION, driver=view.driver.key, manifest=manifest)


def _ended(view: DriverView, node: Node, *, keeps_record: bool) -> tuple[Change, ...]:
    """Delete the pods of a node where nothing is validated, and its record if the driver is not wanted there."""
    gone = delete_pods(view.validation_pods.get(node.name, ()))
    if keeps_record or view.validated not in node.annotations:
        return gone
    return (*gone, _remember(view, node, None, "nothing is validated there"))


def _remember(view: DriverView, node: Node, record: Validated | None, why: str) -> PatchNode:
    annotations = {view.validated: None if record is None else validated.render(record)}
    return PatchNode(node=node.name, driver=view.driver.key, annotations=annotations, why=why)
