"""What ``spec.validation`` adds to the evidence of a node: validated, failed, or not known yet. Pure.

A node whose driver is loaded, and not validated on this boot, has no ready label. Where the label is there for the same
modules on the same boot, as when the validation is first set, it stays as it is until the validation fails. Modules of
the same build that are loaded anew, with other parameters or for a rebuild, are not the same.

Device nodes are checked by the driver pod. One that was made before they were set does not check them: it is replaced
where the node has no label, and stays where it has one.
"""

from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass, replace
from typing import NamedTuple

from driver_builder.api.driver_spec import ValidationSettings
from driver_builder.base.reasons import Reason
from driver_builder.base.retry import Retry
from driver_builder.nodes import evidence
from driver_builder.nodes.changes import Change, PatchNode, delete_tasks, patch_node
from driver_builder.nodes.evidence import Finding, NodeEvidence, ValidationState
from driver_builder.objects import validated
from driver_builder.objects.validated import Validated
from driver_builder.snapshot.inventory import Node
from driver_builder.snapshot.node_record import NodeRecord
from driver_builder.snapshot.snapshot import DaemonSet, DriverPod
from driver_builder.tasks.node_task import Limits, Next, NodeTask, TaskStep, Wanted, task_step
from driver_builder.tasks.task_kind import State
from driver_builder.tasks.validation_pod import subject_of

_RETRY = Retry(30.0, 600.0)

UNCHECKED = "its driver pod does not check spec.validation.deviceNodes yet"


@dataclass(frozen=True, slots=True, kw_only=True)
class Progress:
    """Where a command stands; ``record`` is what the Node has to say of it, ``step`` what comes next of its pod."""

    state: ValidationState
    record: Validated
    step: TaskStep
    why: str = ""


def progress(
    settings: ValidationSettings,
    pod: DriverPod,
    known: Validated | None,
    tasks: Sequence[NodeTask],
    now: float,
) -> Progress | None:
    """Weigh what a Node records and how its validation ended; None where no command has to run for a pod."""
    if not settings.has_command or pod.proof is None:
        return None
    subject = subject_of(settings, boot_id=pod.proof.boot_id, fingerprint=pod.fingerprint)
    return weigh(subject, known, tasks, retries=settings.retries, now=now)


def weigh(
    subject: str,
    known: Validated | None,
    tasks: Sequence[NodeTask],
    *,
    retries: int,
    now: float,
    reason: Reason = Reason.VALIDATION_FAILED,
) -> Progress:
    """Weigh what a Node records of a subject, and how its pod ended; ``reason`` is why it has failed for good.

    A pod that is being deleted is recorded already, or was deleted by hand: then the command runs again.
    """
    record = known if known is not None and known.subject == subject else Validated(subject=subject)
    ends = {ValidationState.VALIDATED: State.SUCCEEDED, ValidationState.FAILED: State.FAILED}
    wanted = Wanted(subject=subject, recorded=record.pod, known=ends.get(_state(record, retries)))
    step = task_step(tasks, wanted, now, Limits(start_at=_due_at(record, now)))
    run = step.task
    if run is not None and step.next is Next.TAKE:
        record = _with_end(record, run, now)
    state, why = _state(record, retries), ""
    if state is ValidationState.FAILED:
        why = f"{reason}: {record.message}"
    elif state is ValidationState.UNDECIDED and record.pod:
        tries = f"failed {record.failures} of {retries + 1} times and " if record.failures else ""
        why = f"validation {tries}is tried again: {record.message}"
    elif state is ValidationState.UNDECIDED:
        why = f"validation is running{f': {run.message}' if run is not None and run.message else ''}"
    return Progress(state=state, record=record, step=step, why=why)


def _state(record: Validated, retries: int) -> ValidationState:
    if record.succeeded:
        return ValidationState.VALIDATED
    return ValidationState.FAILED if record.failures > retries else ValidationState.UNDECIDED


class CommandRecord(NamedTuple):
    """What a Node records of a driver's command, in the annotation ``key``."""

    on: NodeRecord
    key: str

    def remember(self, record: Validated | None, why: str) -> PatchNode:
        """Record how the command ended, or remove the record."""
        value = None if record is None else validated.render(record)
        ended = f"how the validation of {self.on.driver} ended"
        return patch_node(self.on, why, annotations={self.key: value}, record=ended)

    def go_on(self, progress: Progress, why: str) -> tuple[Change, ...]:
        """Delete the pods that nothing waits for, and record how the command ended."""
        gone = delete_tasks(progress.step.gone)
        return (*gone, self.remember(progress.record, why)) if progress.step.next is Next.TAKE else gone

    def forget(self, tasks: Iterable[NodeTask], why: str) -> tuple[Change, ...]:
        """Remove the pods and the record of a node where nothing is validated."""
        gone = delete_tasks(tasks)
        return (*gone, self.remember(None, why)) if self.key in self.on.node.annotations else gone


def _due_at(record: Validated, now: float) -> float:
    """Return when the command runs next. A time that has not come yet is of another clock."""
    if not record.pod or record.failed_at > now:
        return 0.0
    return record.failed_at + _RETRY.by_attempt(record.failures)


def _with_end(record: Validated, run: NodeTask, now: float) -> Validated:
    if run.state is State.SUCCEEDED:
        return Validated(subject=record.subject, succeeded=True)
    has_run = run.state is State.FAILED
    return replace(
        record,
        failures=record.failures + has_run,
        pod=run.uid,
        failed_at=int(now),
        message=run.message or ("the command failed" if has_run else "its pod did not run"),
    )


def is_unchecked(settings: ValidationSettings, pod: DriverPod, daemon_sets: Mapping[str, DaemonSet]) -> bool:
    """Return whether a pod has what is wanted on its node, and does not check the device nodes that are wanted.

    A pod that is to be replaced anyway checks those of its own time.
    """
    daemon_set = daemon_sets.get(pod.target)
    is_wanted = daemon_set is not None and evidence.is_current(pod, daemon_set)
    return is_wanted and not set(settings.device_nodes).issubset(pod.device_nodes)


def proving(node: Node, pods: Iterable[DriverPod]) -> tuple[DriverPod, Finding] | None:
    """Return the pod whose load stands on a node, and whether it works now or is silent."""
    said = [(pod, evidence.judge(node, pod)[0]) for pod in pods]
    order = (Finding.WORKS, Finding.SILENT)
    return next((item for finding in order for item in said if item[1] is finding), None)


@dataclass(frozen=True, slots=True, kw_only=True)
class Validation:
    """What is known of one node: ``pod`` is its driver pod, ``progress`` that of the command."""

    state: ValidationState
    pod: DriverPod
    finding: Finding
    progress: Progress | None
    is_unchecked: bool
    labelled: str = ""
    """What the ready label says, if it is there for what the pod has loaded."""
    why: str = ""

    @property
    def is_labelled(self) -> bool:
        """Return whether the ready label is there for what the pod has loaded."""
        return bool(self.labelled)

    @property
    def is_running(self) -> bool:
        """Return whether the command has not ended for good."""
        return self.progress is not None and self.progress.state is ValidationState.UNDECIDED


def of_node(
    settings: ValidationSettings,
    on: NodeRecord,
    pods: Iterable[DriverPod],
    tasks: Sequence[NodeTask],
    *,
    daemon_sets: Mapping[str, DaemonSet],
    may_reload: bool,
    now: float,
) -> Validation | None:
    """Return what is known of a node's validation; None where no load stands there.

    ``may_reload`` says that the same modules may be loaded anew for another fingerprint.
    """
    found = proving(on.node, pods)
    if found is None:
        return None
    pod, finding = found
    command = progress(settings, pod, on.validated, tasks, now)
    unchecked = is_unchecked(settings, pod, daemon_sets)
    state = ValidationState.VALIDATED if command is None else command.state
    why = "" if command is None else command.why
    if unchecked and state is ValidationState.VALIDATED:
        state, why = ValidationState.UNDECIDED, UNCHECKED
    is_same = evidence.is_as_labelled(pod, on.node) and not (may_reload and evidence.is_anew(pod, on.node))
    return Validation(
        state=state,
        pod=pod,
        finding=finding,
        progress=command,
        is_unchecked=unchecked,
        labelled=(on.ready or "") if is_same else "",
        why=why,
    )


def weighed(found: NodeEvidence, validation: Validation | None) -> NodeEvidence:
    """Add to the evidence of a node what its validation says."""
    if found.version is None or validation is None or validation.state is ValidationState.VALIDATED:
        return found
    if validation.state is ValidationState.UNDECIDED and validation.is_labelled:
        if not validation.is_running:
            return found
        # Another version is said once it is validated.
        return replace(found, version=validation.labelled, why=validation.why, validation=validation.state)
    return NodeEvidence(version=None, why=validation.why, validation=validation.state)
