"""What a plan does with builds that nobody needs any more, that are awaited by more nodes, or that are suspended."""

from collections.abc import Callable
from dataclasses import replace
from typing import Any

import pytest

from driver_builder.api import driver_container
from driver_builder.api.status import Event, TargetStatus, events, previous_targets, render
from driver_builder.base.reasons import Reason, TargetState, with_remedy
from driver_builder.builds.circuit_breaker import OPENS_AFTER, Breaker, after_failure
from driver_builder.model.image_state import Absent, Unreachable
from driver_builder.nodes.changes import CancelBuild, Change, StartBuild
from driver_builder.plan.plan import Plan, plan
from driver_builder.rollout.retries import retry_delay
from driver_builder.snapshot.snapshot import FailedBuild, Snapshot, SourceMissing, Suspension
from tests.support.driver_builder.factories import (
    KERNEL,
    NOW,
    OTHER_KERNEL,
    SETTINGS,
    driver,
    driver_object,
    node,
    snapshot,
    wanted,
    with_images,
)
from tests.support.driver_builder.model_world import World

SUSPENDED = "builds are suspended: 5 in a row failed with DiskFull"


def suspension(probe_at: float) -> dict[str, Suspension]:
    """Suspend everybody's builds."""
    return {"": Suspension(why=SUSPENDED, probe_at=probe_at)}


def absent(*nodes: Any, **changes: Any) -> Snapshot:
    """Make a snapshot in which no image exists."""
    return with_images(snapshot(*nodes, **changes), Absent())


def keys_of(seen: Snapshot) -> list[str]:
    """Name the keys that the drivers want."""
    return [item.request.key for item in wanted(seen) if item.request is not None]


def builds(decided: Plan) -> list[StartBuild]:
    """Return the builds that a plan starts."""
    return [action for action in decided.actions if isinstance(action, StartBuild)]


def cancelled(decided: Plan) -> list[str]:
    """Name the builds that a plan cancels."""
    return [action.key for action in decided.actions if isinstance(action, CancelBuild)]


def after(seen: Snapshot, decided: Plan) -> Snapshot:
    """Let the statuses of a plan be written."""
    drivers = []
    for part in decided.drivers:
        status = render(part.driver, part.targets, rebuilds=part.rebuilds, unknown=part.unknown, now=seen.now)
        drivers.append(replace(part.driver, status=status))
    return replace(seen, drivers=tuple(drivers))


# ---------------------------------------------------------------- cancelling


def building() -> Snapshot:
    """Make a cluster in which both kernels' drivers are being built, and said to be."""
    seen = absent(node(), node("b", OTHER_KERNEL))
    seen = replace(seen, running_builds=frozenset(keys_of(seen)))
    return after(seen, plan(seen, SETTINGS))


CHANGES: dict[str, tuple[Callable[[Snapshot], Snapshot], int]] = {
    "nothing": (lambda seen: seen, 0),
    "a node goes": (lambda seen: replace(seen, nodes=seen.nodes[:1]), 1),
    "a node moves to the other kernel": (lambda seen: replace(seen, nodes=(node(), node("b"))), 1),
    "all nodes go": (lambda seen: replace(seen, nodes=()), 2),
    "the driver goes": (lambda seen: replace(seen, drivers=()), 2),
    "the driver is being deleted": (
        lambda seen: replace(seen, drivers=(replace(seen.drivers[0], deleting=True),)),
        2,
    ),
    "the driver is paused": (lambda seen: replace(seen, drivers=(replace(seen.drivers[0], paused=True),)), 0),
    "the spec is wrong for a moment": (
        lambda seen: replace(
            seen,
            drivers=(
                driver_container.parse(
                    driver_object(spec_changes={"image": "nonsense"}, status=seen.drivers[0].status)
                ),
            ),
        ),
        0,
    ),
    "the source is gone for a moment": (
        lambda seen: replace(seen, sources={seen.drivers[0].key: SourceMissing(message="gone")}),
        0,
    ),
    "the registry is away": (
        lambda seen: replace(seen, images=dict.fromkeys(seen.images, Unreachable(message="no answer"))),
        0,
    ),
    "the image is there already": (with_images, 0),
}


@pytest.mark.parametrize(("change", "count"), CHANGES.values(), ids=CHANGES)
def test_a_build_is_cancelled_when_no_node_needs_it(change: Callable[[Snapshot], Snapshot], count: int) -> None:
    """Only what is known not to be needed is; trouble with spec, source or registry is no such knowledge."""
    assert len(cancelled(plan(change(building()), SETTINGS))) == count


def test_a_mapping_that_skips_a_kernel_cancels_its_build() -> None:
    """The admin said that these nodes need none."""
    seen = building()
    skipping = driver(
        spec_changes={"kernelMappings": [{"literal": KERNEL, "skip": True}, {"regexp": ".*"}]},
        status=seen.drivers[0].status,
    )
    of_kernel = {str(item.target.kernel_version): item.request.key for item in wanted(seen) if item.request}
    assert cancelled(plan(replace(seen, drivers=(skipping,)), SETTINGS)) == [of_kernel[KERNEL]]


def test_a_changed_source_cancels_the_build_of_the_older_one() -> None:
    """Its key is no longer wanted; the new one is built."""
    world = World()
    world.add_node("a", KERNEL)
    world.add_driver()
    world.reconcile()
    (old,) = world.builds.running
    world.change_source("int y;")
    world.reconcile()
    (new,) = world.builds.running
    assert new != old
    world.settle()
    assert world.pushed == [new]


def test_a_cancelled_build_says_what_it_is() -> None:
    """In the words of the log."""
    assert str(CancelBuild(key="abc")) == "cancel build abc: no node needs it"


# ---------------------------------------------------------------- waiting nodes


@pytest.mark.parametrize(
    ("queued", "told"),
    [
        pytest.param({"waiting": 1}, [2], id="another node came"),
        pytest.param({"waiting": 2}, [], id="as before"),
        pytest.param({}, [], id="being built already"),
    ],
)
def test_the_queue_learns_when_more_nodes_wait(queued: dict[str, int], told: list[int]) -> None:
    """A queued build is submitted again with its new number of nodes, a running one is left alone."""
    seen = absent(node(), node("b"))
    (key,) = keys_of(seen)
    waiting = {key: queued["waiting"]} if queued else {}
    decided = plan(replace(seen, running_builds=frozenset([key]), queued_builds=waiting), SETTINGS)
    assert [action.waiting for action in builds(decided)] == told
    assert decided.drivers[0].targets[0].state is TargetState.BUILDING


# ---------------------------------------------------------------- suspended


@pytest.mark.parametrize(
    ("running", "queued", "state", "starts"),
    [
        pytest.param(False, False, TargetState.BLOCKED, 1, id="new: queued for later"),
        pytest.param(True, True, TargetState.BLOCKED, 0, id="queued"),
        pytest.param(True, False, TargetState.BUILDING, 0, id="the probe"),
    ],
)
def test_a_suspended_build_is_blocked(running: bool, queued: bool, state: TargetState, starts: int) -> None:
    """Its target says why, and the pass comes back for the probe."""
    seen = absent()
    (key,) = keys_of(seen)
    seen = replace(
        seen,
        running_builds=frozenset([key] if running else []),
        queued_builds={key: 1} if queued else {},
        suspended=suspension(NOW + 60),
    )
    decided = plan(seen, SETTINGS)
    (target,) = decided.drivers[0].targets
    assert (target.state, len(builds(decided))) == (state, starts)
    if state is TargetState.BLOCKED:
        assert (target.reason, target.message, decided.requeue_at) == (Reason.BUILDS_SUSPENDED, SUSPENDED, NOW + 60)
        due = replace(seen, suspended=suspension(NOW))
        assert plan(due, SETTINGS).requeue_at is None, "a past time would be a loop"


@pytest.mark.parametrize(("owner", "is_blocked"), [("", True), ("driverwright/edu", True), ("team-b/other", False)])
def test_a_suspension_concerns_everybody_or_one_driver(owner: str, is_blocked: bool) -> None:
    """The mistakes of another driver suspend none of ours."""
    seen = replace(absent(), suspended={owner: Suspension(why=SUSPENDED, probe_at=NOW + 60)})
    (target,) = plan(seen, SETTINGS).drivers[0].targets
    assert (target.reason == Reason.BUILDS_SUSPENDED) is is_blocked


@pytest.mark.parametrize("fresh", [False, True])
def test_a_failure_of_the_future_counts_as_one_of_now(fresh: bool) -> None:
    """A clock was wrong when it was noted: the next try is as far away as after any failure, and is counted."""
    seen = absent()
    (key,) = keys_of(seen)
    year = 365 * 86400.0
    noted = {key: FailedBuild(reason="RegistryUnreachable", message="m", at=NOW + year)}
    wrong = replace(seen, now=NOW + year, failed_builds=noted)
    failed = {key: FailedBuild(reason="CompileError", message="m", at=NOW)} if fresh else {}
    right = replace(after(wrong, plan(wrong, SETTINGS)), now=NOW, failed_builds=failed)
    decided = plan(right, SETTINGS)
    assert decided.requeue_at is not None
    assert decided.requeue_at < NOW + SETTINGS.retry_max_seconds
    assert decided.drivers[0].targets[0].failures == (2 if fresh else 1)
    later = replace(after(right, decided), now=decided.requeue_at)
    assert builds(plan(later, SETTINGS))


def test_failures_that_no_status_reports_lengthen_the_wait() -> None:
    """Those that it reports are not counted twice."""
    seen = absent()
    (key,) = keys_of(seen)
    one = FailedBuild(reason="CompileError", message="m", at=NOW - 5)
    told = after(seen, plan(replace(seen, failed_builds={key: one}), SETTINGS))
    three = replace(one, at=NOW, earlier=(NOW - 5, NOW - 3))
    for known, expected in ((seen, 3), (told, 3)):
        decided = plan(replace(known, failed_builds={key: three}), SETTINGS)
        assert decided.drivers[0].targets[0].failures == expected
        assert decided.requeue_at == NOW + retry_delay(key, expected, SETTINGS)


def test_a_failed_build_keeps_its_count_while_suspended() -> None:
    """The wait between tries goes on growing afterwards, and the message of the next try quotes no suspension."""
    seen = absent()
    (key,) = keys_of(seen)
    failed = replace(seen, failed_builds={key: FailedBuild(reason="DiskFull", message="full", at=NOW - 1)})
    seen = replace(after(seen, plan(failed, SETTINGS)), now=NOW + 100)
    suspended = replace(seen, suspended=suspension(NOW + 160))
    (target,) = plan(suspended, SETTINGS).drivers[0].targets
    assert (target.reason, target.failures, target.key) == (Reason.BUILDS_SUSPENDED, 1, key)
    again = replace(after(suspended, plan(suspended, SETTINGS)), running_builds=frozenset([key]))
    again = replace(again, suspended={})
    (target,) = plan(again, SETTINGS).drivers[0].targets
    assert (target.state, target.message) == (TargetState.BUILDING, f"building for {KERNEL} (try 2)")


def entries(*kernels: str, reason: Reason = Reason.BUILDS_SUSPENDED) -> list[TargetStatus]:
    """Make targets that are blocked."""
    return [
        TargetStatus(
            target=kernel, kernel=kernel, os="debian:12", architecture="amd64", nodes=1, ready_nodes=0,
            state=TargetState.BLOCKED, reason=reason, message=SUSPENDED,
        )
        for kernel in kernels
    ]  # fmt: skip


def test_a_suspension_is_one_event_for_a_driver() -> None:
    """Not one for each kernel, and none for a kernel that joins later; the next suspension is news again."""
    first = events({}, entries("a", "b", "c"))
    assert first == (
        Event(kind="Warning", reason="BuildsSuspended", message=with_remedy("BuildsSuspended", SUSPENDED)),
    )
    known = {item.target: item for item in entries("a", "b")}
    assert events(known, entries("a", "b", "c")) == ()
    blocked = {item.target: item for item in entries("a", reason=Reason.REGISTRY_UNREACHABLE)}
    assert len(events(blocked, entries("a"))) == 1


def test_a_hundred_suspended_kernels_are_one_event_and_one_reason() -> None:
    """From the breaker's own words to status and Events."""
    breaker = Breaker()
    for number in range(OPENS_AFTER):
        breaker = after_failure(breaker, key=f"{number}", reason="DiskFull", now=NOW)
    nodes = [node(f"n{number}", f"6.1.0-{number}-amd64") for number in range(100)]
    seen = replace(absent(*nodes), suspended={"": Suspension(why=str(breaker), probe_at=breaker.probe_at or 0.0)})
    (part,) = plan(seen, SETTINGS).drivers
    assert {target.reason for target in part.targets} == {Reason.BUILDS_SUSPENDED}
    assert len(events(previous_targets({}), part.targets)) == 1
    said = render(part.driver, part.targets, rebuilds=part.rebuilds, unknown={}, now=NOW)
    degraded = next(item for item in said["conditions"] if item["type"] == "Degraded")
    assert (degraded["status"], degraded["reason"]) == ("True", "BuildsSuspended")


def test_actions_are_cancelled_before_others_begin() -> None:
    """Room in the queue first."""
    seen = replace(absent(), running_builds=frozenset(["gone"]))
    kinds: list[type[Change]] = [type(action) for action in plan(seen, SETTINGS).actions]
    assert kinds.index(CancelBuild) < kinds.index(StartBuild)


def test_a_build_knows_whose_it_is_and_what_it_tolerates() -> None:
    """The uid names what stays in an engine; tolerations are those that the spec names, and no default."""
    taint = {"key": "gpu", "operator": "Exists"}
    for given, expected in (({"tolerations": [taint]}, (taint,)), ({}, ())):
        mine = driver(spec_changes=given)
        (build,) = builds(plan(absent(node(), drivers=(mine,)), SETTINGS))
        assert (build.owner, build.tolerations) == (mine.uid, expected)
