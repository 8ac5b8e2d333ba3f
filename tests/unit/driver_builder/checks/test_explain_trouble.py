"""What ``explain`` says of drivers in trouble: what the state is, why, in which words, and what to do."""

from collections.abc import Callable
from dataclasses import replace
from typing import Any

import pytest

from driver_builder.api import status
from driver_builder.api.status import Trouble
from driver_builder.api.unloading import Unloading, condition
from driver_builder.base.check_result import Status
from driver_builder.base.reasons import Reason
from driver_builder.checks import explain as checks
from driver_builder.checks.explain import explain
from driver_builder.checks.explanation import Explanation
from driver_builder.model.image_state import Absent
from driver_builder.plan import plan as plan_module
from driver_builder.snapshot.snapshot import FailedBuild, Snapshot
from tests.support.driver_builder.factories import (
    NAMESPACE,
    NOW,
    SETTINGS,
    driver,
    node,
    ready_snapshot,
    snapshot,
    wanted,
    with_images,
)


def explained(seen: Snapshot, name: str = "edu") -> Explanation:
    """Explain the first node and a driver."""
    return explain(seen, seen.nodes[0], next(item for item in seen.drivers if item.name == name), SETTINGS)


def told(trouble: Trouble, seen: Snapshot) -> Snapshot:
    """Let a controller have written a trouble into the status of the only driver."""
    written = status.render_trouble(seen.drivers[0], trouble, now=NOW)
    return replace(seen, drivers=(replace(seen.drivers[0], status=written),))


def unreadable() -> Snapshot:
    """Make a snapshot whose reader may not read the driver's pods."""
    return replace(ready_snapshot(), forbidden={NAMESPACE: "no permission to read namespace driverwright: 403"})


def bug(seen: Snapshot) -> Snapshot:
    """Make a snapshot of a driver whose controller ran into a bug."""
    return told(Trouble(reason=Reason.INTERNAL_ERROR, message="internal error: KeyError: 'x'"), seen)


def forbidden(seen: Snapshot) -> Snapshot:
    """Make a snapshot of a driver whose namespace the controller may not read."""
    return told(
        Trouble(reason=Reason.NAMESPACE_FORBIDDEN, message="no permission to read namespace driverwright"), seen
    )


@pytest.mark.parametrize(
    ("make", "reason", "message", "remedy"),
    [
        pytest.param(
            unreadable,
            "NamespaceForbidden",
            "no permission to read namespace driverwright: 403",
            "Role",
            id="explain may not read it",
        ),
        pytest.param(
            lambda: forbidden(with_images(snapshot())),
            "NamespaceForbidden",
            "no permission to read namespace driverwright",
            "--namespace",
            id="the controller may not read it",
        ),
        pytest.param(lambda: bug(with_images(snapshot())), "InternalError", "KeyError: 'x'", "traceback", id="a bug"),
    ],
)
def test_a_driver_in_trouble_is_said_to_be(
    make: Callable[[], Snapshot], reason: str, message: str, remedy: str
) -> None:
    """Before every other check: nothing is decided for it."""
    first = explained(make()).first_broken
    assert first is not None
    assert (first.check, first.status) == ("driver", Status.FAILED)
    assert f"Degraded: {reason}: " in first.message
    assert message in first.message
    assert remedy in first.remedy


@pytest.mark.parametrize("module", [plan_module, checks], ids=["in the plan", "before the plan"])
def test_a_bug_in_explaining_is_a_trouble_of_its_driver(module: Any, monkeypatch: pytest.MonkeyPatch) -> None:
    """What works there meanwhile is said as well."""
    seen = ready_snapshot()

    def fail(*_: object) -> object:
        raise ZeroDivisionError("here")

    monkeypatch.setattr(module, {plan_module: "plan_target", checks: "stock_of"}[module], fail)
    said = explained(seen)
    assert said.first_broken is not None
    assert "Degraded: InternalError: internal error: ZeroDivisionError: here" in said.first_broken.message
    assert "Report" in said.first_broken.remedy
    assert (said.selected, said.serving) == (True, "1.0.0")


def test_a_node_that_is_ready_stays_so_while_its_driver_is_in_trouble() -> None:
    """What it has stays as it is; the trouble is said all the same, with what to do."""
    said = explained(bug(ready_snapshot()))
    assert said.is_ready
    assert "Degraded: InternalError: internal error: KeyError: 'x'" in said.steps[0].message
    assert "traceback" in said.steps[0].remedy


def test_a_trouble_does_not_hide_what_a_person_has_to_fix() -> None:
    """It is not why a node is not selected."""
    said = explained(bug(with_images(snapshot(node(labels={"pool": "web"})))))
    assert said.first_broken is not None
    assert said.first_broken.check == "selector"


def test_a_conflict_says_who_keeps_the_module_and_what_to_do() -> None:
    """Nothing is rolled out there, however long one waits."""
    drivers = (
        replace(driver("old", spec_changes={"module": {"names": ["edudrv"]}}), created_at=NOW - 100),
        replace(driver("edu"), created_at=NOW),
    )
    first = explained(with_images(snapshot(drivers=drivers))).first_broken
    assert first is not None
    assert (first.check, first.status) == ("rollout", Status.FAILED)
    assert first.message.startswith("Blocked: ModuleConflict: module edudrv is also named by driver driverwright/old")
    assert "spec.nodeSelector" in first.remedy


def test_a_driver_that_is_being_deleted_says_what_it_waits_for() -> None:
    """The condition has the words of the node."""
    waits = condition(Unloading(in_use={"node-a": "module edudrv is in use (refcnt 1)"}))
    assert waits is not None
    container = driver(deleting=True, status={"conditions": [waits]})
    first = explained(replace(ready_snapshot(), drivers=(container,))).first_broken
    assert first is not None
    assert "InUse: not unloaded yet: node-a: module edudrv is in use (refcnt 1)" in first.message
    assert first.remedy.count("End what uses") == 1
    assert "End what uses" not in first.message


def test_a_build_that_ended_by_a_bug_says_so() -> None:
    """With the reason, the message, and where to look."""
    seen = with_images(snapshot(), Absent())
    (item,) = wanted(seen)
    assert item.request is not None
    failure = FailedBuild(reason="InternalError", message="internal error: KeyError", at=NOW - 1)
    first = explained(replace(seen, failed_builds={item.request.key: failure})).first_broken
    assert first is not None
    assert first.check == "build"
    assert "InternalError: internal error: KeyError" in first.message
    assert "traceback" in first.remedy


@pytest.mark.parametrize(
    ("others", "step", "words"),
    [
        pytest.param(
            ("ofed",),
            "build",
            "no build is started: the image of driver driverwright/ofed, whose symbols the build needs, does not exist",
            id="not built",
        ),
        pytest.param((), "image", "driver driverwright/ofed, which spec.dependsOn names, does not exist", id="missing"),
    ],
)
def test_a_dependency_is_explained(others: tuple[str, ...], step: str, words: str) -> None:
    """The first check that does not hold names the other driver."""
    drivers = (driver(spec_changes={"dependsOn": [{"name": "ofed"}]}), *(driver(name) for name in others))
    for seen in (snapshot(drivers=drivers), with_images(snapshot(drivers=drivers), Absent())):
        found = explained(seen).first_broken
    assert found is not None
    assert found.check == step
    assert words in found.message
