"""The decision on one target: what its registry says on one side, actions and status on the other."""

from dataclasses import replace

import pytest

from driver_builder.base.reasons import TargetState
from driver_builder.model.image_state import Absent, ImageState, Invalid, NotAsked, Present, Unauthorized, Unreachable
from driver_builder.plan.plan import plan
from driver_builder.snapshot.snapshot import FailedBuild
from tests.support.driver_builder.factories import (
    DIGEST,
    IMAGE_LABELS,
    NOW,
    PRESENT,
    SETTINGS,
    Json,
    driver,
    node,
    ready_snapshot,
    snapshot,
    target,
    wanted,
    with_images,
)
from tests.support.driver_builder.plans import after, key_of, only_target, verbs


@pytest.mark.parametrize(
    ("state", "actions", "target_state", "reason"),
    [
        pytest.param(Absent(), ["StartBuild"], "Building", "KernelMismatch", id="absent: build"),
        pytest.param(PRESENT, ["apply DaemonSet"], "RollingOut", "WaitingForNodes", id="present: roll out"),
        pytest.param(Unauthorized(message="no"), [], "Blocked", "RegistryUnauthorized", id="unauthorised: wait"),
        pytest.param(Unreachable(message="no"), [], "Blocked", "RegistryUnreachable", id="unreachable: wait"),
        pytest.param(Invalid(message="no"), [], "Blocked", "RegistryInvalid", id="invalid: wait"),
        pytest.param(None, [], "Pending", "RegistryNotAsked", id="never asked: wait"),
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


@pytest.mark.parametrize("state", [Absent(), PRESENT], ids=["absent", "present"])
@pytest.mark.parametrize(
    "spec",
    [
        pytest.param({"build": {"reuseAcrossKernels": True}}, id="reuse"),
        pytest.param({"build": {"reuseAcrossKernels": False}}, id="no reuse"),
        pytest.param({"retention": {"versions": 1}}, id="retention"),
    ],
)
def test_deprecated_fields_change_nothing(spec: Json, state: ImageState) -> None:
    """Build key, DaemonSet and fingerprint are those of a driver without them."""
    made, plain = (
        plan(with_images(snapshot(drivers=(driver(spec_changes=changes),)), state), SETTINGS) for changes in (spec, {})
    )
    assert made.actions == plain.actions
    assert made.actions


def test_an_image_that_0_1_made_of_another_kernels_stays_in_use() -> None:
    """It has the build key of the kernel that it was made for."""
    labels = {**IMAGE_LABELS, "io.driverwright.reused": '{"kernel": "6.1.0-54-amd64", "digest": "d", "compared": 11}'}
    reused = plan(with_images(snapshot(), Present(digest=DIGEST, labels=labels)), SETTINGS)
    assert verbs(reused) == ["apply DaemonSet"]
    assert reused.actions == plan(with_images(snapshot()), SETTINGS).actions


@pytest.mark.parametrize(
    "state",
    [
        pytest.param(Absent(), id="absent"),
        pytest.param(Unauthorized(message="no"), id="unauthorised"),
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


def test_an_image_that_was_not_asked_about_changes_nothing_that_was_said() -> None:
    """A controller that has just started writes no status, posts no Event and does nothing before it knows."""
    seen = ready_snapshot()
    written = after(seen, plan(seen, SETTINGS))
    decided = plan(with_images(replace(written, now=NOW + 100), NotAsked()), SETTINGS)
    assert verbs(decided) == []
    assert after(written, decided).drivers == written.drivers


def test_what_was_said_of_another_image_is_not_kept() -> None:
    """Another version is another image: that its registry has not answered is said."""
    seen = ready_snapshot()
    written = after(seen, plan(seen, SETTINGS)).drivers[0].status
    changed = snapshot(drivers=(driver(spec_changes={"version": "2.0.0"}, status=written),))
    entry = only_target(plan(with_images(changed, NotAsked()), SETTINGS))
    assert (entry.state, entry.reason) == (TargetState.PENDING, "RegistryNotAsked")


def test_an_old_absence_starts_no_build() -> None:
    """The registry is being asked again: its answer starts it."""
    decided = plan(with_images(snapshot(), Absent(is_fresh=False)), SETTINGS)
    assert verbs(decided) == []
    assert only_target(decided).state is TargetState.BUILDING


def test_a_build_that_failed_is_counted_while_its_image_is_asked_for() -> None:
    """What is known of a build is said with whatever the registry has not said yet."""
    seen = with_images(snapshot(), NotAsked())
    failed = {key_of(seen): FailedBuild(reason="CompileError", message="error: x", at=NOW)}
    entry = only_target(plan(replace(seen, failed_builds=failed), SETTINGS))
    assert (entry.state, entry.reason, entry.failures) == (TargetState.FAILED, "CompileError", 1)


AWAY = (Unauthorized(message="no"), Unreachable(message="no"), Invalid(message="no"), NotAsked())


@pytest.mark.parametrize("state", AWAY, ids=lambda state: type(state).__name__)
@pytest.mark.parametrize("reason", ["CompileError", "NotApplicable"])
def test_what_is_known_of_builds_outlasts_a_registry_that_is_away(state: ImageState, reason: str) -> None:
    """The back-off and the driver's own verdict are of the build: no build starts as soon as the registry is back."""
    seen = with_images(snapshot(), Absent())
    failed = replace(seen, failed_builds={key_of(seen): FailedBuild(reason=reason, message="x", at=NOW)})
    seen = after(seen, plan(failed, SETTINGS))
    before = only_target(plan(seen, SETTINGS))
    away = with_images(seen, state)
    away = after(away, plan(away, SETTINGS))
    back = plan(with_images(away, Absent()), SETTINGS)
    entry = only_target(back)
    assert verbs(back) == []
    assert (entry.state, entry.key, entry.failures) == (before.state, before.key, before.failures)
    assert entry.last_failure == before.last_failure


def test_a_verdict_of_the_driver_is_said_while_the_registry_is_away() -> None:
    """Its nodes need no driver, whatever the registry says."""
    seen = with_images(snapshot(), Unreachable(message="no"))
    failed = {key_of(seen): FailedBuild(reason="NotApplicable", message="not for 6.1", at=NOW)}
    entry = only_target(plan(replace(seen, failed_builds=failed), SETTINGS))
    assert (entry.state, entry.message) == (TargetState.NOT_APPLICABLE, "not for 6.1")


@pytest.mark.parametrize("state", [*AWAY, Absent()], ids=lambda state: type(state).__name__)
def test_a_daemon_set_that_stays_loses_the_version_of_its_selector(state: ImageState) -> None:
    """An update of the operating system under a running kernel would take its pods away."""
    seen = with_images(ready_snapshot(), state)
    seen = replace(seen, daemon_sets=(replace(seen.daemon_sets[0], selects_os_version=True),))
    assert verbs(plan(seen, SETTINGS)).count("patch DaemonSet") == 1


def test_daemon_sets_that_share_a_kernel_keep_their_selectors() -> None:
    """Each would get the nodes of the other."""
    seen = with_images(ready_snapshot(), Unreachable(message="no"))
    mine = replace(seen.daemon_sets[0], selects_os_version=True)
    there = target(os_version="13")
    other = replace(mine, name="edu-other", target=there.short_hash, os_version="13")
    seen = replace(seen, nodes=(*seen.nodes, node("b", os_version="13")), daemon_sets=(mine, other))
    seen = with_images(seen, Unreachable(message="no"))
    assert "patch DaemonSet" not in verbs(plan(seen, SETTINGS))


def test_each_driver_reports_what_the_registry_says_to_it() -> None:
    """Two drivers of one image may have other passwords: what one may see is not said to the other."""
    seen = with_images(snapshot(drivers=(driver("a"), driver("b"))))
    (own,) = {item.image for item in wanted(seen, seen.drivers[1])}
    seen = replace(seen, images_of={seen.drivers[1].key: {own: Unauthorized(message="no")}})
    states = [part.targets[0].state for part in plan(seen, SETTINGS).drivers]
    assert states == [TargetState.ROLLING_OUT, TargetState.BLOCKED]
