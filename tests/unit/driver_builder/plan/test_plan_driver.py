"""A driver as a whole: its finalizer, its removal, and what is done for one that is paused or wrong."""

from dataclasses import replace
from typing import Any

import pytest

from driver_builder.api.driver_container import FINALIZER, DriverContainer
from driver_builder.model.image_state import Absent, ImageState, Unreachable
from driver_builder.nodes.changes import PatchObject, StartBuild
from driver_builder.objects.loaded import Loaded, annotation, render
from driver_builder.plan.plan import plan
from tests.support.driver_builder.changes import done, labels
from tests.support.driver_builder.factories import (
    BOOT_ID,
    GONE,
    KERNEL,
    NOW,
    OLD,
    OTHER_KERNEL,
    PRESENT,
    SETTINGS,
    driver,
    node,
    ready_snapshot,
    snapshot,
    wanted,
    with_images,
)
from tests.support.driver_builder.plans import READY_LABEL, after, key_of, verbs
from tests.support.driver_builder.snapshots import failed


def test_a_new_driver_gets_the_finalizer_first() -> None:
    """Before anything is labelled it is made sure that labels are cleaned up one day."""
    seen = with_images(snapshot(drivers=(driver(finalizer=False),)))
    action, *_ = plan(seen, SETTINGS).actions
    assert done([action]) == ["patch DriverContainer"]
    assert isinstance(action, PatchObject)
    assert (action.name, action.finalizers) == ("edu", {FINALIZER: True})


@pytest.mark.parametrize(
    ("container", "reason"),
    [
        pytest.param(driver(paused=True), "paused", id="paused"),
        pytest.param(driver(spec_changes={"image": "no repository"}), "invalid", id="invalid spec"),
    ],
)
def test_a_driver_that_is_not_acted_on_keeps_what_was_said(container: DriverContainer, reason: str) -> None:
    """Paused or invalid: nothing is done, and the targets of the last status stay."""
    before = plan(ready_snapshot(), SETTINGS)
    written = after(ready_snapshot(), before).drivers[0].status
    seen = replace(ready_snapshot(), drivers=(replace(container, status=written),), nodes=(node(kernel=OTHER_KERNEL),))
    decided = plan(seen, SETTINGS)
    assert verbs(decided) == [], reason
    assert decided.drivers[0].targets == before.drivers[0].targets


NOT_ACTED_ON = [
    pytest.param(driver(paused=True), id="paused"),
    pytest.param(driver(spec_changes={"image": "no repository"}), id="invalid"),
]


@pytest.mark.parametrize("container", NOT_ACTED_ON)
@pytest.mark.parametrize(
    ("nodes", "pods", "unlabelled"),
    [
        pytest.param({}, {}, False, id="all as it was"),
        pytest.param({"kernel": OTHER_KERNEL}, {}, True, id="another kernel"),
        pytest.param({"boot_id": "newer"}, {}, True, id="another boot"),
        pytest.param({"kernel": None}, {}, False, id="no kernel known"),
        pytest.param({}, {"deleting": True}, False, id="pod deleted"),
        pytest.param({}, {"ready": False}, False, id="probe fails"),
        pytest.param({}, {"contrary": GONE, "ready": False}, True, id="a module is gone"),
        pytest.param({}, {"proof": None}, False, id="no proof"),
        pytest.param({"proven_on": None}, {"proof": None}, True, id="no proof, and none before"),
        pytest.param(
            {"proven_on": f"older {KERNEL}"}, {"proof": None}, True, id="no proof, and one on an older boot before"
        ),
        pytest.param({}, {"expected": {"edudrv": "FF"}}, True, id="another module"),
        pytest.param({}, {"version": "2.0.0", "fingerprint": OLD}, True, id="another version"),
        pytest.param({}, {"node": "elsewhere"}, False, id="pod on a node that is gone"),
        pytest.param({}, {"driver": "driverwright/other"}, False, id="another driver's pod"),
    ],
)
def test_a_label_that_lies_goes_whatever_the_driver(
    container: DriverContainer, nodes: dict[str, Any], pods: dict[str, Any], unlabelled: bool
) -> None:
    """Paused or invalid, a ready label goes by contrary evidence alone, and nothing else is done."""
    seen = ready_snapshot()
    there = node(**{"proven_on": f"{BOOT_ID} {KERNEL}", **nodes}, labels={READY_LABEL: "1.0.0"})
    seen = replace(seen, drivers=(container,), nodes=(there,), pods=(replace(seen.pods[0], **pods),))
    taken = [("node-a", READY_LABEL, None)]
    made = labels(plan(seen, SETTINGS).actions)
    assert made == (taken if unlabelled else [])


@pytest.mark.parametrize("container", NOT_ACTED_ON)
def test_a_driver_that_is_not_acted_on_gives_no_label(container: DriverContainer) -> None:
    """A proven pod on a node without the label is left for when the driver is acted on again."""
    seen = replace(ready_snapshot(), drivers=(container,), nodes=(node(),))
    assert verbs(plan(seen, SETTINGS)) == []


@pytest.mark.parametrize(
    ("container", "state", "taken_in"),
    [
        pytest.param(driver(), Absent(), True, id="to be built"),
        pytest.param(driver(), PRESENT, True, id="there meanwhile"),
        pytest.param(driver(), Unreachable(message="x"), True, id="registry away"),
        pytest.param(driver(paused=True), Absent(), False, id="paused"),
        pytest.param(driver(deleting=True), Absent(), False, id="deleted"),
        pytest.param(driver(spec_changes={"image": "x"}), Absent(), False, id="invalid"),
    ],
)
def test_a_plan_says_which_failures_it_took_in(container: DriverContainer, state: ImageState, taken_in: bool) -> None:
    """Only what a status reports may be forgotten."""
    seen = with_images(snapshot(), state)
    known = {key_of(seen): failed(1)}
    (part,) = plan(replace(seen, drivers=(container,), failed_builds={**known, "ff" * 8: failed(2)}), SETTINGS).drivers
    assert part.failures == (known if taken_in else {})


def test_one_broken_driver_does_not_hold_up_another() -> None:
    """Drivers are decided one by one."""
    seen = with_images(snapshot(drivers=(driver(), driver("other"))), Absent())
    broken = driver("broken", spec_changes={"version": "not a version!"})
    seen = replace(seen, drivers=(broken, *seen.drivers), failed_builds={wanted(seen)[0].request.key: failed(1)})  # type: ignore[union-attr]
    decided = plan(seen, SETTINGS)
    assert [part.driver.name for part in decided.drivers] == ["broken", "edu", "other"]
    (build,) = decided.actions
    assert isinstance(build, StartBuild)
    assert build.request.driver == "driverwright/other"


LEFT = replace(
    node(), annotations={**node().annotations, annotation("driverwright/edu"): render(Loaded(unload_since=int(NOW)))}
)
"""A node whose label is gone, and that remembers that the driver leaves it."""


@pytest.mark.parametrize(
    ("changes", "actions"),
    [
        pytest.param({}, ["label Node"], id="everything still there"),
        pytest.param({"nodes": (LEFT,)}, ["delete DaemonSet"], id="label gone"),
        pytest.param({"daemon_sets": (), "nodes": (LEFT,)}, [], id="pods still leaving"),
        pytest.param({"daemon_sets": (), "nodes": (LEFT,), "pods": ()}, ["record loads"], id="pods gone"),
        pytest.param({"daemon_sets": (), "nodes": (node(),), "pods": ()}, ["patch DriverContainer"], id="all gone"),
    ],
)
def test_a_deleted_driver_is_let_go_last(changes: dict[str, Any], actions: list[str]) -> None:
    """Labels go first, then DaemonSets and their pods; only then is the object released."""
    seen = replace(ready_snapshot(), drivers=(driver(deleting=True),))
    assert verbs(plan(replace(seen, **changes), SETTINGS)) == actions


def test_a_deleted_driver_without_our_finalizer_is_left_alone() -> None:
    """Others' finalizers keep it; ours is not there to be removed."""
    seen = snapshot(node(), drivers=(driver(deleting=True, finalizer=False),))
    assert verbs(plan(seen, SETTINGS)) == []


def test_a_deleted_driver_with_an_invalid_spec_is_cleaned_up() -> None:
    """A DriverContainer with an invalid spec can be deleted."""
    container = driver(deleting=True, spec_changes={"image": "nonsense"})
    assert verbs(plan(replace(ready_snapshot(), drivers=(container,)), SETTINGS)) == ["label Node"]
