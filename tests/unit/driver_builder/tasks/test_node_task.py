"""What comes next of a task, by its pod, what is wanted, and its limits."""

from typing import Any

import pytest

from driver_builder.tasks.kinds import KINDS
from driver_builder.tasks.node_task import Limits, Next, NodeTask, Wanted, task_step
from driver_builder.tasks.task_kind import State
from driver_builder.tasks.unload_pod import UNLOAD
from tests.support.driver_builder.factories import NOW, task

LIMITS = Limits(retry_at=lambda failed: (failed.ended_at or 0.0) + 60, until=NOW + 600, unseen=30)
FAILED = State.FAILED


def pod(**changes: Any) -> NodeTask:
    """Make the pod of a task that runs."""
    return task(UNLOAD, **{"subject": "s", "created_at": NOW - 90, "state": State.RUNNING, **changes})


def ended(state: State = FAILED, at: float = NOW - 10, **changes: Any) -> NodeTask:
    """Make one that has ended."""
    return pod(state=state, ended_at=at, **changes)


OTHER = pod(subject="other", uid="other")
WANTED = Wanted(subject="s")
RECORDED = Wanted(subject="s", recorded="uid-unload-node-a")

STEPS: list[Any] = [
    pytest.param((), None, {}, Next.NOTHING, None, id="nothing is wanted"),
    pytest.param((), WANTED, {}, Next.START, None, id="nothing has begun"),
    pytest.param((), WANTED, {"start_at": NOW + 5}, Next.WAIT, NOW + 5, id="it may not start yet"),
    pytest.param((OTHER,), WANTED, {}, Next.WAIT, None, id="another one has to go first"),
    pytest.param((), WANTED, {"until": NOW}, Next.GIVE_UP, None, id="it never ran in time"),
    pytest.param((pod(),), WANTED, {}, Next.WAIT, None, id="it runs"),
    pytest.param((pod(),), WANTED, {"until": NOW}, Next.GIVE_UP, None, id="it runs too long"),
    pytest.param((pod(state=State.PENDING),), WANTED, {}, Next.GIVE_UP, None, id="its node does not answer"),
    pytest.param((pod(state=State.PENDING, created_at=NOW),), WANTED, {}, Next.WAIT, None, id="it is new"),
    pytest.param((ended(deleting=True),), WANTED, {}, Next.WAIT, None, id="it is being deleted"),
    pytest.param((ended(State.SUCCEEDED),), WANTED, {"until": NOW}, Next.TAKE, None, id="it succeeded, late or not"),
    pytest.param((ended(),), WANTED, {}, Next.WAIT, NOW + 50, id="it failed a moment ago"),
    pytest.param((ended(at=NOW - 60),), WANTED, {}, Next.DELETE, None, id="it is tried again"),
    pytest.param((ended(),), WANTED, {"until": NOW}, Next.GIVE_UP, None, id="it failed too long"),
    pytest.param((ended(),), Wanted(subject="s", recorded=""), {}, Next.TAKE, None, id="its failure is news"),
    pytest.param((ended(at=NOW - 60),), RECORDED, {}, Next.DELETE, None, id="its failure is recorded"),
    pytest.param((ended(),), Wanted(subject="s", recorded=RECORDED.recorded, known=FAILED), {}, Next.NOTHING, None,
                 id="it failed for good"),
    pytest.param((), Wanted(subject="s", known=FAILED), {}, Next.NOTHING, None, id="it failed for good, without a pod"),
    pytest.param((ended(State.SUCCEEDED),), Wanted(subject="s", known=State.SUCCEEDED), {}, Next.DELETE, None,
                 id="its success is recorded"),
]  # fmt: skip


@pytest.mark.parametrize(("tasks", "wanted", "limits", "expected", "at"), STEPS)
def test_each_state_has_one_next_step(
    tasks: tuple[NodeTask, ...], wanted: Wanted | None, limits: dict[str, float], expected: Next, at: float | None
) -> None:
    """Whatever the kind."""
    words = {"start_at": 0.0, "until": LIMITS.until, "unseen": LIMITS.unseen, **limits}
    found = task_step(tasks, wanted, NOW, Limits(retry_at=LIMITS.retry_at, **words))
    assert (found.next, found.at) == (expected, at)


def test_pods_that_nothing_waits_for_go() -> None:
    """Those of other subjects, and one that is tried again; not those that are being deleted already."""
    failed, leaving = ended(at=NOW - 60), pod(subject="older", uid="older", deleting=True)
    assert task_step((failed, OTHER, leaving), WANTED, NOW, LIMITS).gone == (OTHER, failed)
    assert task_step((failed, OTHER, leaving), None, NOW, LIMITS).gone == (failed, OTHER)


def test_each_kind_has_a_label_of_its_own() -> None:
    """A pod is read by it."""
    assert len({kind.label for kind in KINDS.values()}) == len(KINDS)
    assert {name: kind.label for name, kind in KINDS.items()} == {
        "unload": "driverwright.io/unload",
        "validation": "driverwright.io/validation",
        "plugin-validation": "driverwright.io/plugin-validation",
        "proof": "driverwright.io/proof",
        "pull": "driverwright.io/pull",
    }
