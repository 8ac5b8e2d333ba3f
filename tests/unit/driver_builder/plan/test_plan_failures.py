"""What a plan does with builds that failed: they are reported, counted, and tried again when their time has come."""

from dataclasses import replace

import pytest

from driver_builder.api import status
from driver_builder.model.build import SourceImage
from driver_builder.model.driver_key import DriverKey
from driver_builder.model.image_state import Absent
from driver_builder.nodes.changes import StartBuild
from driver_builder.nodes.plan_view import PlanSettings
from driver_builder.plan.plan import plan
from driver_builder.rollout.retries import retry_delay
from driver_builder.snapshot.snapshot import FailedBuild
from tests.support.driver_builder.factories import KERNEL, NOW, OTHER_KERNEL, SETTINGS, node, snapshot, with_images
from tests.support.driver_builder.plans import after, key_of, only_target, verbs
from tests.support.driver_builder.snapshots import failed


@pytest.mark.parametrize(
    ("running", "failure", "actions", "target_state", "reason"),
    [
        pytest.param(False, None, ["StartBuild"], "Building", "KernelMismatch", id="none: start"),
        pytest.param(True, None, [], "Building", "KernelMismatch", id="running: wait"),
        pytest.param(False, failed(1), [], "Failed", "CompileError", id="just failed: back off"),
        pytest.param(False, failed(40), ["StartBuild"], "Building", "KernelMismatch", id="failed long ago: again"),
        pytest.param(True, failed(1), [], "Building", "KernelMismatch", id="failed, running again: wait"),
    ],
)
def test_an_absent_image_is_built_once_at_a_time(
    running: bool, failure: FailedBuild | None, actions: list[str], target_state: str, reason: str
) -> None:
    """A build runs at most once, and after a failure only when its time has come."""
    seen = with_images(snapshot(), Absent())
    key = key_of(seen)
    seen = replace(
        seen,
        running_builds=frozenset([key] if running else []),
        failed_builds={key: failure} if failure else {},
    )
    decided = plan(seen, SETTINGS)
    assert verbs(decided) == actions
    assert (only_target(decided).state, only_target(decided).reason) == (target_state, reason)


def test_a_failure_says_when_it_is_tried_again() -> None:
    """The plan asks to be looked at again exactly when the back-off of the failed build ends."""
    seen = with_images(snapshot(), Absent())
    key = key_of(seen)
    decided = plan(replace(seen, failed_builds={key: failed(1)}), SETTINGS)
    assert decided.requeue_at == NOW - 1 + retry_delay(key, 1, SETTINGS)
    assert only_target(decided).message == "edudrv.c:1: error"


def test_failures_are_counted_across_restarts() -> None:
    """The number of failures lives in the status: a new controller goes on where the old one was."""
    seen = with_images(snapshot(), Absent())
    key = key_of(seen)
    first = replace(seen, failed_builds={key: failed(100)})
    restarted = replace(after(first, plan(first, SETTINGS)), failed_builds={key: failed(1)})
    entry = only_target(plan(restarted, SETTINGS))
    assert (entry.failures, entry.last_failure) == (2, NOW - 1)


def test_a_failure_is_counted_once() -> None:
    """A failure that is in the status already and still remembered is the same failure."""
    seen = with_images(snapshot(), Absent())
    first = replace(seen, failed_builds={key_of(seen): failed(1)})
    again = after(first, plan(first, SETTINGS))
    assert only_target(plan(again, SETTINGS)).failures == 1


def test_a_changed_source_is_built_at_once_after_failures() -> None:
    """Failures belong to a key: a fixed source does not wait for the back-off."""
    seen = with_images(snapshot(), Absent())
    first = replace(seen, failed_builds={key_of(seen): failed(1)})
    mended = with_images(snapshot(drivers=after(first, plan(first, SETTINGS)).drivers, sources={}), Absent())
    mended = replace(
        mended, sources={DriverKey("driverwright/edu"): SourceImage(reference="r/i@sha256:" + "0" * 64, path="/")}
    )
    mended = with_images(mended, Absent())
    decided = plan(mended, SETTINGS)
    assert verbs(decided) == ["StartBuild"]
    assert only_target(decided).failures == 0


def test_the_message_of_a_running_retry_stays_the_same() -> None:
    """While a retry runs, pass after pass writes the same status: no message grows, no Event is due."""
    seen = with_images(snapshot(), Absent())
    key = key_of(seen)
    seen = replace(seen, failed_builds={key: failed(40)})
    first = plan(seen, SETTINGS)
    running = replace(after(seen, first), failed_builds={}, running_builds=frozenset([key]))
    second = plan(running, SETTINGS)
    assert only_target(second).message == only_target(first).message
    assert "edudrv.c:1: error" in only_target(second).message
    assert status.events(status.previous_targets(running.drivers[0].status), second.drivers[0].targets) == ()


@pytest.mark.parametrize(
    ("failures", "least"),
    [pytest.param(1, 30.0, id="first"), pytest.param(2, 60.0, id="second"), pytest.param(5, 480.0, id="fifth"),
     pytest.param(12, 3600.0, id="at most an hour"), pytest.param(10_000, 3600.0, id="no overflow")],
)  # fmt: skip
def test_the_wait_doubles_up_to_a_limit(failures: int, least: float) -> None:
    """Each failure doubles the wait; the key adds up to a quarter, so that keys do not come back together."""
    delays = {key: retry_delay(key, failures, SETTINGS) for key in ("0000aa", "8000aa", "ffffaa")}
    assert delays["0000aa"] == least
    assert delays["ffffaa"] == least * 1.25
    assert least < delays["8000aa"] < least * 1.25


def test_the_target_with_most_waiting_nodes_is_built_first() -> None:
    """With one builder and many kernels the one that most nodes wait for goes first."""
    nodes = (node("a", OTHER_KERNEL), node("b"), node("c"))
    seen = with_images(snapshot(*nodes), Absent())
    kernels = [action.request.target.kernel_version for action in plan(seen, SETTINGS).actions
               if isinstance(action, StartBuild)]  # fmt: skip
    assert kernels == [KERNEL, OTHER_KERNEL]


def test_settings_have_sane_defaults() -> None:
    """Half a minute after the first failure, an hour at most."""
    settings = PlanSettings(template_versions=SETTINGS.template_versions)
    assert (settings.retry_min_seconds, settings.retry_max_seconds) == (30.0, 3600.0)
