"""What proof pods say of driver pods whose image loads its modules by its own program."""

from dataclasses import replace
from typing import Any

import pytest

from driver_builder.nodes import evidence, proofs
from driver_builder.objects.driver_keys import driver_keys
from driver_builder.objects.load_report import LoadReport
from driver_builder.snapshot.node_record import record_of
from driver_builder.snapshot.snapshot import DriverPod
from driver_builder.tasks.node_task import Next, NodeTask
from driver_builder.tasks.proof_pod import PROOF, Program
from driver_builder.tasks.task_kind import State
from tests.support.driver_builder import factories
from tests.support.driver_builder.factories import KERNEL, NOW, driver, node, snapshot

BOOT = "boot-1"
EDU = driver().key


def report(result: str = "Loaded", boot_id: str = BOOT) -> LoadReport:
    """Make a report."""
    return LoadReport(result=result, kernel=KERNEL, boot_id=boot_id)


def pod(**changes: Any) -> DriverPod:
    """Make a driver pod whose program runs."""
    words: dict[str, Any] = {"uid": "u", "proof": None, "expected": {}, "program": Program(started_at=NOW - 600)}
    return replace(factories.pod(snapshot()), **words | changes)


def proof(name: str = "p1", **changes: Any) -> NodeTask:
    """Make a proof pod of it that has ended well."""
    words: dict[str, Any] = {"report": report(), "created_at": NOW - 300, "ended_at": NOW - 250}
    words |= {"subject": "u", "name": name, "uid": name, **changes}
    if words["ended_at"] is not None:
        is_good = words["report"] is not None and words["report"].result == "Loaded"
        words["state"] = State.SUCCEEDED if is_good else State.FAILED
    return factories.task(PROOF, **words)


def lost(result: str = "NotLive", at: float = NOW - 100, **changes: Any) -> DriverPod:
    """Make a driver pod whose `hold` has ended with a verdict."""
    return pod(program=Program(started_at=NOW - 600, held=report(result), held_at=at), **changes)


def test_the_newest_report_is_that_of_the_driver_pod() -> None:
    """Those of other driver pods say nothing of it; one that runs has not said anything yet."""
    old, new = proof("a", report=report(boot_id="boot-0"), ended_at=NOW - 9000, created_at=NOW - 9000), proof("b")
    others = (proof("c", subject="v", report=report("LoadFailed")), proof("d", ended_at=None, report=None))
    seen = proofs.with_proof(pod(), (new, *others, old))
    assert (seen.proof, seen.contrary) == (report(), None)
    assert proofs.with_proof(pod(), others[:1]).proof is None


def test_what_was_refused_before_the_program_began_stays() -> None:
    """A proof of an earlier boot does not hide it."""
    seen = pod(proof=report("ModuleConflict"))
    assert proofs.with_proof(seen, (proof(),)) is seen


def test_trouble_of_a_proof_pod_is_that_of_the_driver_pod() -> None:
    """Nothing else says why a node does not become ready; while `hold` is content, it is no trouble of the driver."""
    stuck = proof(ended_at=None, report=None, message="ImagePullBackOff: no such image")
    seen = pod(ready=False)
    assert proofs.with_proof(seen, (stuck,)).message == "proof pod p1: ImagePullBackOff: no such image"
    assert proofs.with_proof(pod(), (stuck,)).message == ""


def test_what_hold_finds_after_the_proof_is_contrary() -> None:
    """Not what it found before."""
    assert proofs.with_proof(lost(), (proof(),)).contrary == report("NotLive")
    assert proofs.with_proof(lost(at=NOW - 260), (proof(),)).contrary is None


@pytest.mark.parametrize(
    ("seen", "found", "starts"),
    [
        pytest.param(pod(), (), True, id="nothing is proven"),
        pytest.param(pod(program=Program()), (), False, id="the program does not run"),
        pytest.param(pod(program=Program(has_ended=True)), (), True, id="the program ends as soon as it has begun"),
        pytest.param(pod(deleting=True), (), False, id="the pod ends"),
        pytest.param(pod(), (proof(),), False, id="it is proven"),
        pytest.param(pod(), (proof(ended_at=None, report=None),), False, id="a proof runs"),
        pytest.param(pod(), (proof(report=report(boot_id="boot-0")),), True, id="the node has booted"),
        pytest.param(pod(), (proof(deleting=True, report=None),), False, id="a proof ends"),
        pytest.param(lost(), (proof(),), False, id="a module is gone"),
        pytest.param(lost("OtherBuild"), (proof(),), True, id="the program has loaded another build"),
        pytest.param(
            pod(program=Program(started_at=NOW - 110, held=report("NotLive"), held_at=NOW - 100)),
            (proof(),),
            True,
            id="the program loads again",
        ),
        pytest.param(pod(), (proof(report=report("LoadFailed")),), False, id="it has failed a moment ago"),
        pytest.param(
            pod(),
            (proof(report=report("LoadFailed"), ended_at=NOW - 590, created_at=NOW - 595),),
            True,
            id="it has failed",
        ),
        pytest.param(
            pod(), (proof(report=None, ended_at=NOW - 590, created_at=NOW - 595),), True, id="it did not report"
        ),
        pytest.param(pod(), (proof(report=report("LoadFailed"), ended_at=NOW + 9000),), True, id="by another clock"),
    ],
)
def test_a_pod_is_proven_once_per_boot(seen: DriverPod, found: tuple[NodeTask, ...], starts: bool) -> None:
    """And again where it did not work, or where the program itself changes what is loaded."""
    step = proofs.next_of(proofs.with_proof(seen, found), found, BOOT, NOW)
    assert (step.next is Next.START, step.gone) == (starts, ())
    assert step.task == (found[-1] if found and not seen.deleting and seen.program != Program() else None)


def test_a_failed_proof_is_tried_again_after_as_long_as_the_program_ran() -> None:
    """So the waits grow, up to ten minutes."""
    failed = proof(report=report("LoadFailed"))
    assert proofs.next_of(pod(), (failed,), BOOT, NOW).at == NOW - 250 + 350


def test_evidence_stays_until_there_is_a_newer_one() -> None:
    """Then the older ones are deleted."""
    first, second = proof("a", report=report(boot_id="boot-0")), proof("b", created_at=NOW, ended_at=None, report=None)
    assert proofs.next_of(pod(), (first, second), BOOT, NOW).gone == ()
    done = replace(second, ended_at=NOW, report=report(), state=State.SUCCEEDED)
    assert proofs.next_of(pod(), (first, done), BOOT, NOW).gone == (first,)


@pytest.mark.parametrize(
    ("seen", "stays"),
    [
        pytest.param(pod(ready=True), True, id="the proof pod is gone, hold is content"),
        pytest.param(pod(ready=False), False, id="a new pod, not proven"),
        pytest.param(pod(ready=True, deleting=True, proof=report()), False, id="the pod ends"),
        pytest.param(pod(ready=False, proof=report()), True, id="proven, and not ready"),
        pytest.param(pod(ready=False, program=None, deleting=True), True, id="a pod of our loader ends"),
    ],
)
def test_a_ready_label_goes_when_the_program_may_have_unloaded(seen: DriverPod, stays: bool) -> None:
    """Our own loader leaves the modules; a program may unload them when it ends, and when it begins."""
    place = node("node-a", boot_id=BOOT)
    label = driver_keys(EDU).ready
    place = replace(place, labels={**place.labels, label: "1.0.0"}, annotations={label: f"{BOOT} {KERNEL}"})
    assert (evidence.of_node(record_of(place, EDU), (seen,), {}).version is not None) is stays
