"""What is done on a node before its driver is replaced, and after: locks that are taken, renewed and released."""

from dataclasses import replace
from typing import Any

import pytest

from driver_builder.observed.inventory import Node
from driver_builder.observed.rebuild import Rebuilds
from driver_builder.planning.actions import Action, HoldNode, ReplacePod, SetFinalizer
from driver_builder.planning.plan_view import DriverPlan
from driver_builder.reasons import Reason
from driver_builder.rollout.node_lock import render_lock
from driver_builder.rollout.prepare import prepare
from driver_builder.status.rollout_status import Phase, Wave
from driver_builder.status.status import Trouble
from kube_api import names
from tests.support.driver_builder.factories import NAMESPACE, NOW, driver, node, snapshot

KEY = f"{NAMESPACE}/edu"
REPLACE = ReplacePod(namespace=NAMESPACE, name="pod", uid="uid", node="node-a")


def part(*actions: Action, **changes: Any) -> DriverPlan:
    """Make a driver's plan, in which the replaced pods work."""
    budgeted = frozenset(action.node for action in actions if isinstance(action, ReplacePod))
    values: dict[str, Any] = {"driver": driver(), "actions": actions, "budgeted": budgeted,
                              "wave": Wave(phase=Phase.ROLLING, message="0 of 1", started=NOW)}  # fmt: skip
    return DriverPlan(rebuilds=Rebuilds(requests={}, tokens={}), unknown={}, **values | changes)


def locked(by: str = KEY, *, ago: float = 0.0, name: str = "node-a") -> Node:
    """Make a node that is locked since a while."""
    made = node(name)
    return replace(made, annotations={**made.annotations, names.LOCK_ANNOTATION: render_lock(by, made, NOW - ago)})


def prepared(given: DriverPlan, *nodes: Node) -> DriverPlan:
    """Prepare what one driver does on some nodes."""
    (found,) = prepare((given,), snapshot(*nodes))
    return found


def locks_of(found: DriverPlan) -> list[str]:
    """Say what is done with locks."""
    return [action.why for action in found.actions if isinstance(action, HoldNode)]


def test_a_node_is_locked_before_its_driver_is_replaced() -> None:
    """The lock names the driver and the boot, and is refused if somebody else takes it first."""
    hold, *others = prepared(part(REPLACE), node()).actions
    assert others == [REPLACE]
    assert isinstance(hold, HoldNode)
    assert hold.seen is None
    assert hold.annotations == {names.LOCK_ANNOTATION: render_lock(KEY, node(), NOW)}


@pytest.mark.parametrize(
    ("ago", "expected"), [(10, []), (299, []), (300, ["renew its lock"]), (5000, ["renew its lock"])]
)
def test_a_lock_of_ones_own_is_kept(ago: float, expected: list[str]) -> None:
    """Also by a controller that was killed: it is written again when half of its time is over."""
    found = prepared(part(REPLACE), locked(ago=ago))
    assert (locks_of(found), found.actions[-1]) == (expected, REPLACE)
    assert found.requeue_at == (NOW + 15 if expected else NOW - ago + 300)


def test_a_lock_that_has_expired_is_taken_over() -> None:
    """Whoever held it has not renewed it for ten minutes."""
    assert locks_of(prepared(part(REPLACE), locked("gpu-partitioner", ago=600))) == ["take its lock"]


@pytest.mark.parametrize(
    ("changes", "expected"),
    [
        pytest.param({"busy": frozenset({"node-a"})}, [], id="its successor is not proven yet"),
        pytest.param({"actions": (REPLACE,)}, [], id="it is replaced at once"),
        pytest.param({}, ["release its lock"], id="proven, failed, or not replaced after all"),
        pytest.param({"driver": driver(deleting=True)}, ["release its lock"], id="the driver goes"),
        pytest.param({"trouble": Trouble(reason=Reason.INTERNAL_ERROR, message="")}, [], id="nothing is known"),
    ],
)
def test_a_lock_ends_with_the_work(changes: dict[str, Any], expected: list[str]) -> None:
    """Nothing stays on a node where the driver is not being replaced."""
    assert locks_of(prepared(part(**changes), locked())) == expected


def test_a_deleted_driver_stays_until_its_locks_are_gone() -> None:
    """Afterwards there is nobody who would release them."""
    release = SetFinalizer(namespace=NAMESPACE, name="edu", present=False)
    given = part(release, driver=driver(deleting=True), budgeted=frozenset())
    assert release not in prepared(given, locked()).actions
    assert prepared(given, node()) is given


def test_the_locks_of_others_are_left_alone() -> None:
    """Also where the driver is at work since before: its own lock had expired."""
    given = part(busy=frozenset({"node-a"}))
    assert prepared(given, locked("gpu-partitioner")) is given
