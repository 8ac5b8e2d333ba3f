"""What proof pods say of the driver pods whose image loads its modules by its own program. Pure.

Place in the flow: ``cluster/pods_of_drivers`` gives each such pod the report of its newest proof pod, so that all that
follows judges it as any driver pod; ``plan/proof_step`` asks what comes next. A pod is proven once per boot. What
``hold`` says later is contrary evidence, as everywhere. Where the program was started again, or has loaded another
build, it does so by itself: it is proven anew, and its pod is not replaced.
"""

from collections.abc import Iterable, Sequence
from dataclasses import dataclass, replace

from driver_builder.base.reasons import Reason
from driver_builder.base.retry import Retry
from driver_builder.objects.load_report import CONTRARY, LOADED, LoadReport
from driver_builder.snapshot.snapshot import DriverPod
from driver_builder.tasks.proof_pod import Program, ProofPod

_RETRY = Retry(30.0, 600.0)


def with_proof(pod: DriverPod, proofs: Iterable[ProofPod]) -> DriverPod:
    """Return a driver pod with the newest report of its proof pods; what ``prepare`` has refused stays."""
    program = pod.program
    if program is None or pod.proof is not None:
        return pod
    own = _of(pod, proofs)
    last = _reported(own)
    if last is None or last.ended_at is None:
        # While `hold` is content, the trouble of a proof that is made again is none of the driver.
        said = own[-1].message if own and not pod.ready else ""
        return replace(pod, message=pod.message or f"proof pod {own[-1].name}: {said}") if said else pod
    return replace(
        pod,
        proof=last.report,
        contrary=_contrary(program, last),
        program=replace(program, proven_at=last.ended_at),
    )


def _contrary(program: Program, last: ProofPod) -> LoadReport | None:
    """Return what ``hold`` found after the proof, on the same boot."""
    held, report = program.held, last.report
    if held is None or report is None or held.boot_id != report.boot_id or held.result not in CONTRARY:
        return None
    is_newer = program.held_at is not None and last.ended_at is not None and program.held_at > last.ended_at
    return held if is_newer else None


def _of(pod: DriverPod, proofs: Iterable[ProofPod]) -> list[ProofPod]:
    """Return the proof pods of a driver pod, the newest last."""
    return sorted((item for item in proofs if item.of_pod == pod.uid), key=lambda item: (item.created_at, item.name))


def _reported(own: Sequence[ProofPod]) -> ProofPod | None:
    return next((item for item in reversed(own) if item.ended_at is not None and item.report is not None), None)


def is_reloading(pod: DriverPod) -> bool:
    """Return whether a program changes its modules by itself: it is proven anew, and not replaced."""
    program = pod.program
    if program is None or pod.contrary is None or pod.proof is None or pod.proof.result != LOADED:
        return False
    if pod.contrary.result == Reason.OTHER_BUILD or program.started_at is None or program.proven_at is None:
        return True
    return program.started_at > program.proven_at


@dataclass(frozen=True, slots=True, kw_only=True)
class Next:
    """What comes next for one driver pod: proof pods that are ``gone``, and whether another one ``starts``.

    ``before`` is the uid of the newest one, ``due_at`` when another one starts after a failure.
    """

    gone: tuple[ProofPod, ...] = ()
    starts: bool = False
    before: str = ""
    due_at: float | None = None


def next_of(pod: DriverPod, proofs: Iterable[ProofPod], boot_id: str | None, now: float) -> Next:
    """Decide what comes next for a driver pod on a node with this boot id."""
    own = _of(pod, proofs)
    newest = own[-1] if own else None
    kept = {item.uid for item in (newest, _reported(own)) if item is not None}
    gone = tuple(item for item in own if item.uid not in kept and not item.deleting)
    program = pod.program
    # One that ends at once may never be seen to run: its proof says after the same time that nothing is live.
    if pod.deleting or program is None or (program.started_at is None and not program.has_ended):
        return Next(gone=gone)
    if newest is None:
        return Next(gone=gone, starts=True)
    if newest.ended_at is None or newest.deleting or _stands(pod, newest, boot_id):
        return Next(gone=gone)
    due_at = _due_at(newest, program.started_at or newest.created_at)
    is_due = due_at is None or due_at > now + _RETRY.most or now >= due_at
    return Next(gone=gone, starts=is_due, before=newest.uid, due_at=None if is_due else due_at)


def _stands(pod: DriverPod, newest: ProofPod, boot_id: str | None) -> bool:
    """Return whether the newest proof is that of this boot, and nothing asks for another one."""
    report = newest.report
    if report is None or report.result != LOADED or boot_id not in (None, report.boot_id):
        return False
    return not is_reloading(pod)


def _due_at(newest: ProofPod, started_at: float) -> float | None:
    """Return when a proof that failed is tried again: as long after it as the program had run by then."""
    if newest.ended_at is None or (newest.report is not None and newest.report.result == LOADED):
        return None
    return newest.ended_at + _RETRY.by_elapsed(newest.ended_at - started_at)
