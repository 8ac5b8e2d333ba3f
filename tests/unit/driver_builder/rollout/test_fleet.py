"""All drivers together: which replacements are held back, and what goes instead."""

from typing import Any

import pytest

from driver_builder.api.rebuild_status import Rebuilds
from driver_builder.api.rollout_status import Phase, Wave
from driver_builder.nodes.changes import DeleteObject
from driver_builder.nodes.plan_view import DriverPlan
from driver_builder.rollout.holds import Holds
from driver_builder.rollout.pulls import Pulls
from driver_builder.tasks.node_task import NodeTask
from driver_builder.tasks.pull_pod import PULL
from driver_builder.tasks.task_kind import State
from kube_api.node_lock import Lock
from tests.support.driver_builder.changes import pods_replaced, replaced_pod
from tests.support.driver_builder.factories import NAMESPACE, NOW, driver, task
from tests.support.driver_builder.plans import admitted


def replacement(node: str) -> DeleteObject:
    """Make the replacement of the pod on a node."""
    return replaced_pod(namespace=NAMESPACE, name=f"pod-{node}", uid=f"uid-{node}", node=node)


def part(name: str, budgeted: str = "", *, at_once: str = "", reserve: str = "", **changes: Any) -> DriverPlan:
    """Make a driver's plan: nodes are single letters."""
    return DriverPlan(
        driver=driver(name),
        actions=tuple(map(replacement, (*at_once, *budgeted))),
        budgeted=frozenset(budgeted),
        reserve=tuple(map(replacement, reserve)),
        rebuilds=Rebuilds(requests={}, tokens={}),
        unknown={},
        wave=Wave(phase=Phase.ROLLING, message="1 of 9 nodes updated", started=NOW),
        **changes,
    )


def gone(parts: tuple[DriverPlan, ...]) -> list[str]:
    """Return on which nodes each driver is replaced."""
    return ["".join(action.node for action in pods_replaced(item.actions)) for item in parts]


def test_a_node_is_one_drivers_at_a_time() -> None:
    """The first by its key goes; the others say whom they wait for."""
    found = admitted((part("a", "x"), part("b", "x")))
    assert gone(found) == ["x", ""]
    assert found[1].wave is not None
    assert found[1].wave.message.startswith(f"held back: x: driver {NAMESPACE}/a is being loaded there; ")


def test_the_next_node_goes_in_place_of_one_that_is_busy() -> None:
    """A node where another driver is stuck does not hold the whole wave."""
    assert gone(admitted((part("a", busy=frozenset("xy")), part("b", "x", reserve="yzw")))) == ["", "z"]


def test_a_node_with_disk_pressure_is_left_alone() -> None:
    """Neither begun nor pulled for; what does not work there goes all the same, and the next node instead."""
    holds = Holds(pressed=frozenset("wx"), now=NOW)
    given = part("a", "x", at_once="w", reserve="y", images=dict.fromkeys("xz", "i"), pulls=2)
    (found,) = admitted((given,), holds=holds)
    assert gone((found,)) == ["wy"]
    assert dict(found.images) == {"z": "i"}
    assert found.wave is not None
    assert "held back: x: node x has DiskPressure" in found.wave.message


def test_what_goes_at_once_is_never_held_and_keeps_others_away() -> None:
    """A broken driver is replaced whatever the limit; a working one of the same node waits."""
    assert gone(admitted((part("a", "x"), part("b", at_once="x")), 1)) == ["", "x"]


def test_waves_of_all_drivers_share_the_limit() -> None:
    """The message names the nodes that use it up."""
    found = admitted((part("a", "xy"), part("b", "z")), 2)
    assert gone(found) == ["xy", ""]
    assert found[1].wave is not None
    assert "--max-unavailable-nodes allows 2 for all drivers together: x, y" in found[1].wave.message
    assert gone(admitted((part("a", taken=frozenset("x")), part("b", "z")), 1)) == ["", ""]


def test_a_node_that_no_wave_took_uses_up_nothing() -> None:
    """One that is dead, or loads a driver for the first time, stops no wave."""
    assert gone(admitted((part("a", busy=frozenset("x")), part("b", "z")), 1)) == ["", "z"]


def test_a_node_that_somebody_else_has_locked_is_left_alone() -> None:
    """The next one goes in its place, and the message says who holds it."""
    held = Holds(locks={"x": Lock(holder="gpu-partitioner", renewed=NOW)})
    (found,) = admitted((part("a", "x", reserve="y"),), 0, held)
    assert gone((found,)) == ["y"]
    assert found.wave is not None
    assert "node x is locked by gpu-partitioner until" in found.wave.message
    assert gone(
        admitted((part("a", "x"), part("b", "x")), 0, Holds(locks={"x": Lock(holder=f"{NAMESPACE}/b", renewed=NOW)}))
    ) == [
        "",
        "x",
    ]


def test_a_node_that_is_begun_goes_before_others() -> None:
    """Otherwise a node that comes back first in the order would leave the work on another one half done."""
    held = Holds(locks={"z": Lock(holder=f"{NAMESPACE}/a", renewed=NOW)})
    (found,) = admitted((part("a", "xy", reserve="wz"),), 0, held)
    assert gone((found,)) == ["xz"]
    assert found.budgeted == frozenset("xz")
    assert [action.node for action in found.reserve] == ["y", "w"]


@pytest.mark.parametrize(
    ("message", "last", "expected"),
    [
        pytest.param("", "y", "", id="its image is on its way"),
        pytest.param("ErrImagePull", "y", "y", id="its image cannot be pulled"),
        pytest.param("", "", "y", id="a drain waits on neither"),
        pytest.param("", "xy", "y", id="a drain waits on both"),
    ],
)
def test_a_node_where_a_drain_would_wait_lets_another_one_have_its_image_first(
    message: str, last: str, expected: str
) -> None:
    """It has its image already, because its name comes first; it goes instead where the other one cannot."""
    pulls = Pulls.of((pull("x", message=message), pull("y", state=State.SUCCEEDED)), NOW)
    given = part("a", "x", reserve="y", images={"x": "i", "y": "i"}, pulls=1, drained_last=frozenset(last))
    assert gone(admitted((given,), pulls=pulls)) == [expected]


def pull(where: str, **changes: Any) -> NodeTask:
    """Make a pod that brings the image of driver a to a node."""
    return task(PULL, "i", node=where, driver=f"{NAMESPACE}/a", created_at=NOW, **changes)
