"""Which drains a wave begins next, and which nodes could go instead."""

from dataclasses import replace
from typing import Any

import pytest

from driver_builder.api.rebuild_status import Rebuilds
from driver_builder.api.rollout_status import Phase, Wave
from driver_builder.nodes.changes import DeleteObject
from driver_builder.nodes.plan_view import DriverPlan
from driver_builder.rollout.holds import Holds
from driver_builder.rollout.next_drains import NextDrains, next_drains
from driver_builder.rollout.order import Order
from driver_builder.snapshot.node_pods import NodePod, NodePods
from driver_builder.snapshot.snapshot import Snapshot
from kube_api.node_lock import Lock
from tests.support.driver_builder.changes import replaced_pod
from tests.support.driver_builder.factories import NAMESPACE, NOW, daemon_set, driver, node, pod, snapshot, with_images

KEY = f"{NAMESPACE}/edu"
DRAIN = {"rollout": {"drain": {"resources": ["example.com/fpga"]}}}
NOTHING = Rebuilds(requests={}, tokens={})
NOBODY = Holds()
OURS = Holds(locks={"node-a": Lock(holder=KEY, renewed=NOW)})


def part(budgeted: str, reserve: str = "", **changes: Any) -> DriverPlan:
    """Make a plan; nodes are named by their last letters."""

    def replacements(letters: str) -> tuple[DeleteObject, ...]:
        return tuple(replaced_pod(namespace=NAMESPACE, name=one, uid=one, node=f"node-{one}") for one in letters)

    actions = replacements(budgeted)
    given: dict[str, Any] = {"driver": driver(spec_changes=DRAIN), "rebuilds": NOTHING, **changes}
    return DriverPlan(
        actions=actions,
        budgeted=frozenset(action.node for action in actions),
        reserve=replacements(reserve),
        unknown={},
        wave=Wave(phase=Phase.ROLLING, message="", started=NOW),
        **given,
    )


def drains(given: DriverPlan, holds: Holds = NOBODY, seen: Snapshot | None = None) -> NextDrains | None:
    """Return what is drained next."""
    return next_drains(given, holds, Order.of((given,), {}, seen or snapshot(drivers=(given.driver,))))


@pytest.mark.parametrize(
    ("given", "holds", "expected"),
    [
        pytest.param(part("a", "bc"), NOBODY, ("abc", 1), id="one, and two that could go instead"),
        pytest.param(part("ba", "c"), NOBODY, ("abc", 2), id="two"),
        pytest.param(part("ab", "c"), OURS, ("bc", 1), id="one is begun"),
        pytest.param(part("b", "ca"), OURS, None, id="one that is begun goes in its place"),
        pytest.param(part("a"), NOBODY, None, id="no other one"),
        pytest.param(part("", "b"), NOBODY, None, id="none is next"),
        pytest.param(part("a", "b", driver=driver()), NOBODY, None, id="nothing is drained"),
        pytest.param(
            part("a", "b", rebuilds=replace(NOTHING, pending={"node-a": "now"})),
            NOBODY,
            None,
            id="it requests a rebuild",
        ),
    ],
)
def test_which_nodes_are_drained_next(given: DriverPlan, holds: Holds, expected: tuple[str, int] | None) -> None:
    """Those whose drain is not begun yet, with those that the wave could take instead, in its order."""
    found = drains(given, holds)
    named = None if found is None else ("".join(name[-1] for name in found.nodes), found.number)
    assert named == expected


def test_nothing_is_drained_where_the_modules_stay() -> None:
    """So it does not matter what uses them; a pod of an old version unloads them."""
    given = part("a", "b")
    seen = with_images(snapshot(node("node-a"), drivers=(given.driver,)))
    same = replace(seen, daemon_sets=(daemon_set(seen),), pods=(pod(seen, leaves_modules=True),))
    assert drains(given, seen=same) is None
    assert drains(given, seen=replace(same, pods=(pod(seen),))) is not None


@pytest.mark.parametrize(
    ("changes", "expected"),
    [({}, False), ({"is_bare": True}, True), ({"is_bare": True, "resources": frozenset()}, False)],
    ids=["is evicted", "nothing creates it again", "does not use the driver"],
)
def test_a_drain_waits_for_what_it_may_not_evict(changes: dict[str, Any], expected: bool) -> None:
    """By the settings of the driver's own spec."""
    values: dict[str, Any] = {"resources": frozenset({"example.com/fpga"}), **changes}
    found = drains(part("a", "b"))
    assert found is not None
    assert found.waits_on(NodePods(pods=(NodePod(namespace="apps", name="a", uid="a", **values),))) is expected
