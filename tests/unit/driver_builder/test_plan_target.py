"""The decision on one target: what its registry says on one side, actions and status on the other."""

from dataclasses import replace

import pytest

from driver_builder.model.image_state import Absent, ImageState, Invalid, Unauthorised, Unreachable
from driver_builder.planning.plan import plan
from driver_builder.planning.status import TargetState
from tests.unit.driver_builder.factories import NOW, PRESENT, SETTINGS, ready_snapshot, snapshot, with_images
from tests.unit.driver_builder.plans import after, only_target, verbs


@pytest.mark.parametrize(
    ("state", "actions", "target_state", "reason"),
    [
        pytest.param(Absent(), ["StartBuild"], "Building", "KernelMismatch", id="absent: build"),
        pytest.param(PRESENT, ["ApplyDaemonSet"], "RollingOut", "WaitingForNodes", id="present: roll out"),
        pytest.param(Unauthorised(message="no"), [], "Blocked", "RegistryUnauthorized", id="unauthorised: wait"),
        pytest.param(Unreachable(message="no"), [], "Blocked", "RegistryUnreachable", id="unreachable: wait"),
        pytest.param(Invalid(message="no"), [], "Blocked", "RegistryInvalid", id="invalid: wait"),
        pytest.param(None, [], "Blocked", "RegistryUnreachable", id="never asked: wait"),
    ],
)
def test_only_a_proven_absence_starts_a_build(
    state: ImageState | None, actions: list[str], target_state: str, reason: str
) -> None:
    """What the registry cannot say for sure starts nothing and removes nothing."""
    seen = snapshot() if state is None else with_images(snapshot(), state)
    decided = plan(seen, SETTINGS)
    assert verbs(decided) == actions
    assert (only_target(decided).state, only_target(decided).reason) == (target_state, reason)


@pytest.mark.parametrize(
    "state",
    [
        pytest.param(Absent(), id="absent"),
        pytest.param(Unauthorised(message="no"), id="unauthorised"),
        pytest.param(Unreachable(message="no"), id="unreachable"),
        pytest.param(Invalid(message="no"), id="invalid"),
    ],
)
def test_a_working_driver_stays_whatever_the_registry_says(state: ImageState) -> None:
    """Nodes that work keep DaemonSet, pods and label while the registry is away or has lost the image."""
    decided = plan(with_images(ready_snapshot(), state), SETTINGS)
    assert [verb for verb in verbs(decided) if verb != "StartBuild"] == []
    assert only_target(decided).ready_nodes == 1


def test_the_time_of_the_last_change_is_kept() -> None:
    """``since`` moves only when state or reason change."""
    seen = ready_snapshot()
    written = after(seen, plan(seen, SETTINGS))
    assert only_target(plan(replace(written, now=NOW + 100), SETTINGS)).since == NOW
    lost = replace(written, now=NOW + 100, pods=())
    assert only_target(plan(lost, SETTINGS)).since == NOW + 100


def test_a_driver_whose_source_was_not_read_waits() -> None:
    """A snapshot without the source says so instead of guessing."""
    entry = only_target(plan(snapshot(sources={}), SETTINGS))
    assert (entry.state, entry.message) == (TargetState.PENDING, "the source has not been read yet")
