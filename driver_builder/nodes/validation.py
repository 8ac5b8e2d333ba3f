"""What ``spec.validation`` adds to the evidence of a node: validated, failed, or not known yet. Pure.

A node whose driver is loaded, and not validated on this boot, has no ready label. Where the label is there for the same
modules on the same boot, as when the validation is first set, it stays as it is until the validation fails. Modules of
the same build that are loaded anew, with other parameters or for a rebuild, are not the same.

Device nodes are checked by the driver pod. One that was made before they were set does not check them: it is replaced
where the node has no label, and stays where it has one.
"""

from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass, replace

from driver_builder.api.driver_spec import ValidationSettings
from driver_builder.base.reasons import Reason
from driver_builder.base.retry import Retry
from driver_builder.nodes import evidence
from driver_builder.nodes.evidence import Finding, NodeEvidence, ValidationState
from driver_builder.objects.validated import Validated
from driver_builder.snapshot.inventory import Node
from driver_builder.snapshot.snapshot import DaemonSet, DriverPod
from driver_builder.tasks.validation_pod import ValidationPod, subject_of

_RETRY = Retry(30.0, 600.0)

UNCHECKED = "its driver pod does not check spec.validation.deviceNodes yet"


@dataclass(frozen=True, slots=True, kw_only=True)
class Progress:
    """Where the command stands in the boot of a pod's proof; ``record`` is what the Node has to say of it.

    ``pod`` is the validation pod that is under way or ended.
    """

    state: ValidationState
    record: Validated
    pod: ValidationPod | None = None
    why: str = ""


def progress(
    settings: ValidationSettings,
    pod: DriverPod,
    known: Validated | None,
    validation_pods: Iterable[ValidationPod],
    now: float,
) -> Progress | None:
    """Weigh what a Node records and how its validation pod ended; None where no command has to run for a pod."""
    if not settings.has_command or pod.proof is None:
        return None
    subject = subject_of(settings, boot_id=pod.proof.boot_id, fingerprint=pod.fingerprint)
    return weigh(subject, known, validation_pods, retries=settings.retries, now=now)


def weigh(
    subject: str,
    known: Validated | None,
    validation_pods: Iterable[ValidationPod],
    *,
    retries: int,
    now: float,
    reason: Reason = Reason.VALIDATION_FAILED,
) -> Progress:
    """Weigh what a Node records of a subject, and how its pod ended; ``reason`` is why it has failed for good."""
    record = known if known is not None and known.subject == subject else Validated(subject=subject)
    run = next((item for item in validation_pods if item.subject == subject), None)
    # One that is being deleted is recorded already, or was deleted by hand: then the command runs again.
    has_ended = run is not None and run.ended_at is not None and not run.deleting
    if run is not None and has_ended and not record.succeeded and record.pod != run.uid:
        record = _with_end(record, run, now)
    if record.succeeded:
        return Progress(state=ValidationState.VALIDATED, record=record, pod=run)
    if record.failures > retries:
        return Progress(state=ValidationState.FAILED, record=record, pod=run, why=f"{reason}: {record.message}")
    why = f"validation is running{f': {run.message}' if run is not None and run.message else ''}"
    if record.pod:
        tries = f"failed {record.failures} of {retries + 1} times and " if record.failures else ""
        why = f"validation {tries}is tried again: {record.message}"
    return Progress(state=ValidationState.UNDECIDED, record=record, pod=run, why=why)


@dataclass(frozen=True, slots=True, kw_only=True)
class Next:
    """What comes next of a command: pods that are ``gone``, then a record that is written, or the next run.

    ``is_news`` says that the Node does not record how a pod ended. The command ``starts`` now, or ``due_at`` a time.
    """

    gone: tuple[ValidationPod, ...] = ()
    is_news: bool = False
    starts: bool = False
    due_at: float | None = None


def next_of(
    found: Progress, known: Validated | None, pods: Sequence[ValidationPod], now: float, *, may_start: bool = True
) -> Next:
    """Decide what comes next on a node that records ``known`` and has ``pods``, also those of other commands."""
    record, run = found.record, found.pod
    others = tuple(pod for pod in pods if pod.subject != record.subject and not pod.deleting)
    if (record.succeeded or record.pod) and known != record:
        return Next(gone=others, is_news=True)
    if run is not None and run.ended_at is not None:
        # Its end is recorded: it can go. Of a command that failed for good it stays, for its log.
        is_kept = found.state is ValidationState.FAILED or run.deleting
        return Next(gone=others if is_kept else (*others, run))
    if pods or not may_start or found.state is not ValidationState.UNDECIDED:
        return Next(gone=others)
    due_at = _due_at(record, now)
    return Next(due_at=due_at) if now < due_at else Next(starts=True)


def _due_at(record: Validated, now: float) -> float:
    """Return when the command runs next. A time that has not come yet is of another clock."""
    if not record.pod or record.failed_at > now:
        return 0.0
    return record.failed_at + _RETRY.by_attempt(record.failures)


def _with_end(record: Validated, run: ValidationPod, now: float) -> Validated:
    if run.succeeded:
        return Validated(subject=record.subject, succeeded=True)
    return replace(
        record,
        failures=record.failures + run.has_run,
        pod=run.uid,
        failed_at=int(now),
        message=run.message or ("the command failed" if run.has_run else "its pod did not run"),
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
    node: Node,
    pods: Iterable[DriverPod],
    known: Validated | None,
    validation_pods: Iterable[ValidationPod],
    *,
    label: str,
    daemon_sets: Mapping[str, DaemonSet],
    may_reload: bool,
    now: float,
) -> Validation | None:
    """Return what is known of a node's validation; None where no load stands there.

    ``may_reload`` says that the same modules may be loaded anew for another fingerprint.
    """
    found = proving(node, pods)
    if found is None:
        return None
    pod, finding = found
    command = progress(settings, pod, known, validation_pods, now)
    unchecked = is_unchecked(settings, pod, daemon_sets)
    state = ValidationState.VALIDATED if command is None else command.state
    why = "" if command is None else command.why
    if unchecked and state is ValidationState.VALIDATED:
        state, why = ValidationState.UNDECIDED, UNCHECKED
    is_as_labelled = evidence.is_as_labelled(pod, node, label) and not (may_reload and evidence.is_anew(pod, node))
    return Validation(
        state=state,
        pod=pod,
        finding=finding,
        progress=command,
        is_unchecked=unchecked,
        labelled=node.labels.get(label, "") if is_as_labelled else "",
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
