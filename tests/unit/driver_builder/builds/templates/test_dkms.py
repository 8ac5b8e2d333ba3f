"""A driver that says of itself that it is not for a kernel: from the exit code of dkms to status and Events."""

from dataclasses import replace
from typing import Any

import pytest

from driver_builder.api import status
from driver_builder.api.status import TargetStatus
from driver_builder.base.reasons import Reason, TargetState
from driver_builder.builds.failures import NOT_FOR_THIS_KERNEL, classify
from driver_builder.controller import metrics
from driver_builder.model.image_state import Absent
from driver_builder.nodes.changes import StartBuild
from driver_builder.nodes.plan_view import DriverPlan
from driver_builder.plan.plan import plan
from driver_builder.snapshot.snapshot import FailedBuild, Snapshot
from tests.support.driver_builder.factories import NOW, OTHER_KERNEL, SETTINGS, node, snapshot, wanted, with_images

SAID = 'driverwright: team/edu 1.0 is not for 6.1.0-55-cloud-amd64, says its dkms.conf: BUILD_EXCLUSIVE_CONFIG="X"'


def absent() -> Snapshot:
    """A target whose image was never built."""
    return with_images(snapshot(), Absent())


def key_of(seen: Snapshot) -> str:
    """Return the build key of the only target."""
    (item,) = wanted(seen)
    assert item.request is not None
    return item.request.key


def excluded(seen: Snapshot) -> Snapshot:
    """The moment at which the build has ended, as the classifier reports it."""
    reason, message = classify(NOT_FOR_THIS_KERNEL, "", [SAID])
    return replace(seen, failed_builds={key_of(seen): FailedBuild(reason=reason, message=message, at=NOW)})


def later(part: DriverPlan, seen: Snapshot, seconds: float) -> Snapshot:
    """A later pass, when the status was written and the queue has forgotten the build."""
    driver = replace(part.driver, status=written(part))
    return replace(seen, drivers=(driver,), failed_builds={}, now=seen.now + seconds)


def written(part: DriverPlan) -> dict[str, Any]:
    """Return the status of the driver as it is reported."""
    return status.render(part.driver, part.targets, rebuilds=part.rebuilds, unknown=part.unknown, now=NOW)


def decide(seen: Snapshot) -> tuple[DriverPlan, TargetStatus]:
    """Plan for the only driver; returns its only target too."""
    (part,) = plan(seen, SETTINGS).drivers
    (entry,) = part.targets
    return part, entry


def test_exit_code_77_of_dkms_ends_in_a_state_of_its_own() -> None:
    """The message is what the build said, and no failure is counted."""
    _, entry = decide(excluded(absent()))
    assert (entry.state, entry.reason, entry.failures) == (TargetState.NOT_APPLICABLE, "NotApplicable", 0)
    assert entry.message == SAID.removeprefix("driverwright: ")


@pytest.mark.parametrize("seconds", [60.0, 7200.0, 30 * 86400.0], ids=["a minute", "two hours", "a month"])
def test_it_is_not_tried_again(seconds: float) -> None:
    """However much time goes by: no build, no requeue, the same words."""
    part, entry = decide(excluded(absent()))
    again, still = decide(later(part, absent(), seconds))
    assert not [action for action in again.actions if isinstance(action, StartBuild)]
    assert again.requeue_at is None
    assert (still.state, still.message, still.key) == (entry.state, entry.message, entry.key)


def test_another_version_is_built() -> None:
    """A new key asks the driver anew, at once."""
    part, _ = decide(excluded(absent()))
    seen = later(part, absent(), 60)
    (driver,) = seen.drivers
    assert not isinstance(driver.spec, Exception)
    newer = replace(seen, drivers=(replace(driver, spec=replace(driver.spec, version="2.0")),))
    newer = with_images(newer, Absent())
    again, entry = decide(newer)
    assert [type(action) for action in again.actions if isinstance(action, StartBuild)] == [StartBuild]
    assert entry.state is TargetState.BUILDING


def test_another_failure_of_the_same_key_is_a_failure() -> None:
    """Only the driver's own word is final."""
    seen = absent()
    failure = FailedBuild(reason=Reason.COMPILE_ERROR, message="x.c:1: no", at=NOW)
    _, entry = decide(replace(seen, failed_builds={key_of(seen): failure}))
    assert entry.state is TargetState.FAILED


def test_the_driver_is_not_degraded_and_one_event_reports_it() -> None:
    """A Normal one, once; the nodes are counted neither as desired nor as without driver."""
    part, entry = decide(excluded(absent()))
    conditions = {condition["type"]: condition for condition in written(part)["conditions"]}
    assert (conditions["Degraded"]["status"], conditions["Progressing"]["status"]) == ("False", "False")
    assert (conditions["Ready"]["status"], conditions["Ready"]["reason"]) == ("False", "NoMatchingNodes")
    assert written(part)["desiredNodes"] == 0
    (event,) = status.events({}, part.targets)
    assert (event.kind, event.reason) == ("Normal", "NotApplicable")
    assert status.events({entry.target: entry}, part.targets) == ()
    assert metrics.fleet_state(plan(excluded(absent()), SETTINGS)).without_driver == {}


def test_nodes_on_other_kernels_decide_whether_the_driver_is_ready() -> None:
    """A pool that the driver is not for does not keep it from being Ready."""
    _, entry = decide(excluded(absent()))
    (part,) = plan(with_images(snapshot(node(), node("node-b", OTHER_KERNEL)), Absent()), SETTINGS).drivers
    ready = replace(part.targets[0], target="other", state=TargetState.READY, nodes=1, ready_nodes=1)
    (condition, *_) = written(replace(part, targets=(entry, ready)))["conditions"]
    assert (condition["status"], condition["message"]) == ("True", "1 of 1 nodes ready")
