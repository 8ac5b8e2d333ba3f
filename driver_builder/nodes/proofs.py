"""What proof pods say of the driver pods whose image loads its modules by its own program. Pure.

Place in the flow: ``cluster/pods_of_drivers`` gives each such pod the report of its newest proof pod, so that all that
follows judges it as any driver pod; ``plan/proof_step`` asks what comes next. A pod is proven once per boot. What
``hold`` says later is contrary evidence, as everywhere. Where the program was started again, or has loaded another
build, it does so by itself: it is proven anew, and its pod is not replaced.
"""

from collections.abc import Iterable, Sequence
from dataclasses import replace
from functools import partial

from driver_builder.base.reasons import Reason
from driver_builder.base.retry import Retry
from driver_builder.objects.load_report import CONTRARY, LOADED, LoadReport
from driver_builder.snapshot.snapshot import DriverPod
from driver_builder.tasks.node_task import Limits, Next, NodeTask, TaskStep, Wanted, task_step
from driver_builder.tasks.proof_pod import Program

_RETRY = Retry(30.0, 600.0)


def with_proof(pod: DriverPod, proofs: Iterable[NodeTask]) -> DriverPod:
    """Return a driver pod with the newest report of its proof pods; what ``prepare`` has refused stays."""
    program = pod.program
    if program is None or pod.proof is not None:
        return pod
    own = _of(pod, proofs)
    last = _reported(own)
    if last is None:
        # While `hold` is content, the trouble of a proof that is made again is none of the driver.
        said = own[-1].message if own and not pod.ready else ""
        return replace(pod, message=pod.message or f"proof pod {own[-1].name}: {said}") if said else pod
    return replace(
        pod,
        proof=last.report,
        contrary=_contrary(program, last),
        program=replace(program, proven_at=last.over_at),
    )


def _contrary(program: Program, last: NodeTask) -> LoadReport | None:
    """Return what ``hold`` found after the proof, on the same boot."""
    held, report = program.held, last.report
    if held is None or report is None or held.boot_id != report.boot_id or held.result not in CONTRARY:
        return None
    return held if program.held_at is not None and program.held_at > last.over_at else None


def _of(pod: DriverPod, proofs: Iterable[NodeTask]) -> list[NodeTask]:
    """Return the proof pods of a driver pod, the newest last."""
    return sorted((item for item in proofs if item.subject == pod.uid), key=lambda item: (item.created_at, item.name))


def _reported(own: Sequence[NodeTask]) -> NodeTask | None:
    return next((item for item in reversed(own) if item.report is not None), None)


def is_reloading(pod: DriverPod) -> bool:
    """Return whether a program changes its modules by itself: it is proven anew, and not replaced."""
    program = pod.program
    if program is None or pod.contrary is None or pod.proof is None or pod.proof.result != LOADED:
        return False
    if pod.contrary.result == Reason.OTHER_BUILD or program.started_at is None or program.proven_at is None:
        return True
    return program.started_at > program.proven_at


def next_of(pod: DriverPod, proofs: Iterable[NodeTask], boot_id: str | None, now: float) -> TaskStep:
    """Decide what comes next for a driver pod on a node with this boot id.

    Another proof starts beside the newest one: the last report stays until there is another.
    """
    own, program = _of(pod, proofs), pod.program
    kept = {item.uid for item in (*own[-1:], _reported(own)) if item is not None}
    gone = tuple(item for item in own if item.uid not in kept and not item.deleting)
    # One that ends at once may never be seen to run: its proof says after the same time that nothing is live.
    if pod.deleting or program is None or (program.started_at is None and not program.has_ended):
        return TaskStep(next=Next.NOTHING, gone=gone)
    limits = Limits(retry_at=partial(_retry_at, program=program, now=now))
    step = task_step(own[-1:], Wanted(subject=pod.uid), now, limits)
    is_stale = step.task is not None and step.next is Next.TAKE and not _stands(pod, step.task, boot_id)
    return replace(step, next=Next.START if is_stale or step.next is Next.DELETE else step.next, gone=gone)


def _stands(pod: DriverPod, newest: NodeTask, boot_id: str | None) -> bool:
    """Return whether the newest proof is that of this boot, and nothing asks for another one."""
    report = newest.report
    if report is None or report.result != LOADED or boot_id not in (None, report.boot_id):
        return False
    return not is_reloading(pod)


def _retry_at(failed: NodeTask, program: Program, now: float) -> float:
    """Return when a proof that failed is tried again: as long after it as the program had run by then."""
    at = failed.over_at + _RETRY.by_elapsed(failed.over_at - (program.started_at or failed.created_at))
    # A time that is so far away is of another clock.
    return at if at <= now + _RETRY.most else now
