"""Where a node stands between the image that it runs and the one that it should run."""

from dataclasses import replace
from typing import Any

import pytest

from driver_builder.model.driver_key import DriverKey
from driver_builder.nodes.standing import Standing, Weighing, stand
from driver_builder.objects.yielding import Yielding, render_yielding
from driver_builder.tasks.proof_pod import Program
from kube_api import names
from tests.support.driver_builder.factories import loaded, node, pod, ready_snapshot, snapshot

SEEN = snapshot()
KEY = SEEN.drivers[0].key
(READY_NODE,) = ready_snapshot().nodes
BY = Weighing(target="t", driver=KEY, outdated={"old": False}, asking=frozenset())
NO_PROOF: dict[str, Any] = {"proof": None, "ready": False}
UNPROVEN: dict[str, Any] = {"proof": None, "program": Program(started_at=0.0), "message": "proof pod p: ErrImagePull"}
"""Somebody deleted the proof pod of an image's own program, and another one cannot start."""


@pytest.mark.parametrize(
    ("where", "changes", "expected"),
    [
        pytest.param(READY_NODE, [{"uid": "old"}], Standing.WORKING, id="the previous image works"),
        pytest.param(READY_NODE, [{"uid": "old", "ready": False}], Standing.SILENT, id="it is not heard of"),
        pytest.param(READY_NODE, [{"uid": "old", **NO_PROOF}], Standing.BOOTING, id="it is about to load"),
        pytest.param(READY_NODE, [{"uid": "old", "proof": loaded(boot_id="x")}], Standing.BOOTING, id="another boot"),
        pytest.param(READY_NODE, [{"uid": "old", **NO_PROOF, "message": "ErrImagePull"}], Standing.BROKEN, id="stuck"),
        pytest.param(node(), [{"uid": "old", **NO_PROOF}], Standing.BROKEN, id="it never loaded"),
        pytest.param(READY_NODE, [{"uid": "old", **UNPROVEN}], Standing.SILENT, id="its proof pod was deleted"),
        pytest.param(READY_NODE, [{"uid": "old", **UNPROVEN, "ready": False}], Standing.BROKEN, id="hold has lost it"),
        pytest.param(node(), [{"uid": "old", **UNPROVEN}], Standing.BROKEN, id="its program never loaded"),
        pytest.param(READY_NODE, [{}], Standing.UPDATED, id="the wanted image works"),
        pytest.param(READY_NODE, [NO_PROOF], Standing.UNPROVEN, id="the wanted image is not proven yet"),
        pytest.param(READY_NODE, [], Standing.UNPROVEN, id="a pod that is not made yet"),
        pytest.param(node(), [NO_PROOF], Standing.NEW, id="a new node"),
        pytest.param(node(), [{"uid": "old", "deleting": True}], Standing.UNPROVEN, id="replaced before its label"),
        pytest.param(
            READY_NODE, [{"uid": "old", **NO_PROOF, "message": "m"}, {"uid": "old"}], Standing.WORKING,
            id="of two pods one works",
        ),
    ],
)  # fmt: skip
def test_a_node_stands_where_its_pods_say(where: Any, changes: list[dict[str, Any]], expected: Standing) -> None:
    """What it has to lose decides."""
    pods = [replace(pod(SEEN), **each) for each in changes]
    (found,) = stand([where], pods, BY)
    assert found.standing is expected


def test_a_node_says_why_it_may_be_left_out() -> None:
    """Not Ready, cordoned, annotated."""
    annotated = node()
    annotated = replace(annotated, annotations={**annotated.annotations, names.SKIP_ROLLOUT_ANNOTATION: "true"})
    nodes = (replace(node(), ready=False), replace(node(), unschedulable=True), annotated)
    assert [(it.is_ready, it.is_cordoned, it.skips) for it in stand(nodes, (), BY)] == [
        (False, False, False),
        (True, True, False),
        (True, False, True),
    ]


@pytest.mark.parametrize(
    ("first", "drivers", "changes", "expected"),
    [
        pytest.param(KEY, "apps/mem", {"uid": "old"}, (Standing.SILENT, True), id="the old image works"),
        pytest.param(KEY, "apps/mem", {}, (Standing.UNPROVEN, True), id="the wanted image works"),
        pytest.param(KEY, "apps/mem", NO_PROOF, (Standing.UNPROVEN, False), id="it is not proven yet"),
        pytest.param("apps/ofed", KEY, NO_PROOF, (Standing.UNPROVEN, None), id="it yields itself"),
        pytest.param("apps/ofed", "apps/mem", {}, (Standing.UPDATED, None), id="others do"),
    ],
)
def test_a_node_where_drivers_yield_is_unavailable(
    first: str, drivers: str, changes: dict[str, Any], expected: tuple[Standing, bool | None]
) -> None:
    """For the first one, although it works; and for those that yield, although nothing of them is left there."""
    record = render_yielding(Yielding(first=DriverKey(first), drivers=(DriverKey(drivers),)))
    where = node() if first == "apps/ofed" and changes else READY_NODE
    where = replace(where, annotations={**where.annotations, names.YIELDING_ANNOTATION: record})
    (found,) = stand([where], [replace(pod(SEEN), **changes)], BY)
    assert (found.standing, found.works) == expected
