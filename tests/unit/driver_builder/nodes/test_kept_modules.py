"""Whether modules stay loaded when a driver is replaced: one answer for drain, dependent drivers and stages."""

from dataclasses import replace
from typing import Any

import pytest

from driver_builder.api.rebuild_status import Rebuilds
from driver_builder.model.driver_key import DriverKey
from driver_builder.nodes.changes import Taking, move_node
from driver_builder.nodes.kept_modules import KeptModules
from driver_builder.nodes.plan_view import DriverPlan
from driver_builder.objects.load_report import LoadReport
from driver_builder.objects.slots import SECOND, Place, Slot
from driver_builder.tasks.proof_pod import Program
from kube_api import names
from tests.support.driver_builder.changes import replaced_pod
from tests.support.driver_builder.factories import BOOT_ID, IDENTITY, KERNEL, NAMESPACE, daemon_set, driver, node, pod
from tests.support.driver_builder.factories import snapshot as seen_by

SEEN = seen_by()
OLD = daemon_set(SEEN)
POD = pod(SEEN, leaves_modules=True)
LABEL = names.wave_label(NAMESPACE, "edu")
SAME_BUILD = replace(OLD, fingerprint="v2:other")
OTHER_BUILD = replace(SAME_BUILD, expected={"edudrv": "FFFF"})
REPLACE = replaced_pod(namespace=NAMESPACE, name=POD.name, uid=POD.uid, node=POD.node)
PARAMETERS = {"module": {"names": ["edudrv"], "parameters": {"edudrv": ["level=2"]}}}
CONTRARY = LoadReport(result="NotLive", kernel=KERNEL, boot_id=BOOT_ID)
REBUILT = Rebuilds(requests={}, tokens={"*": "token"})


def kept(
    *daemon_sets: Any, rebuilds: Rebuilds = REBUILT, spec: dict[str, Any] | None = None, **changes: Any
) -> KeptModules:
    """Say what is known of a driver whose pod is as it is but for ``changes``."""
    container = driver(spec_changes=spec or {})
    seen = seen_by(node(), drivers=(container,), pods=(replace(POD, **changes),), daemon_sets=daemon_sets)
    return KeptModules.of(DriverPlan(driver=container, rebuilds=rebuilds, unknown={}), seen)


NOT_REBUILT: dict[str, Any] = {"rebuilds": Rebuilds(requests={}, tokens={})}


@pytest.mark.parametrize(
    ("item", "changes", "expected"),
    [
        pytest.param(OLD, {}, True, id="the same"),
        pytest.param(OLD, {"spec": PARAMETERS}, True, id="the same, with parameters"),
        pytest.param(SAME_BUILD, NOT_REBUILT, True, id="the same build"),
        pytest.param(SAME_BUILD, {**NOT_REBUILT, "ready": False}, True, id="a pod that says nothing now"),
        pytest.param(OTHER_BUILD, NOT_REBUILT, False, id="another build"),
        pytest.param(replace(SAME_BUILD, needed={"educore": "A"}), {**NOT_REBUILT, "needed": {"educore": "A"}}, True,
                     id="the same build with what it needs"),
        pytest.param(replace(SAME_BUILD, needed={"educore": "A"}), {**NOT_REBUILT, "needed": {"educore": "B"}}, False,
                     id="another build of what it needs"),
        pytest.param(SAME_BUILD, {**NOT_REBUILT, "spec": PARAMETERS}, False, id="perhaps with other parameters"),
        pytest.param(SAME_BUILD, {**NOT_REBUILT, "spec": {"module": None}}, False, id="an invalid spec"),
        pytest.param(SAME_BUILD, {}, False, id="a rebuild"),
        pytest.param(OLD, {"rebuilds": Rebuilds(requests={}, tokens={}, pending={"node-a": "x"})}, False,
                     id="a rebuild that the node requests"),
        pytest.param(OLD, {"contrary": CONTRARY}, False, id="not live any more"),
        pytest.param(OLD, {"proof": None}, False, id="not reported"),
        pytest.param(OLD, {"deleting": True}, False, id="no pod stays"),
        pytest.param(OLD, {"leaves_modules": False}, False, id="a pod that unloads when it ends"),
        pytest.param(OLD, {"program": Program(environment=())}, False, id="a program of the image"),
        pytest.param(replace(SAME_BUILD, expected={}), {**NOT_REBUILT, "expected": {}}, False, id="unknown builds"),
        pytest.param(replace(OLD, target="0000"), {}, False, id="no DaemonSet of its target"),
    ],
)  # fmt: skip
def test_modules_of_the_same_build_stay_unless_they_may_be_loaded_anew(
    item: Any, changes: dict[str, Any], expected: bool
) -> None:
    """By the pod that is there and the DaemonSet of the next one."""
    assert kept(item, **changes).stay(REPLACE) is expected


@pytest.mark.parametrize(("value", "expected"), [(f"{OLD.target}-b", False), (None, True)], ids=["forward", "back"])
def test_in_a_wave_the_label_says_which_pod_is_next(value: str | None, expected: bool) -> None:
    """That of the new DaemonSet, or that of before."""
    new = replace(OTHER_BUILD, slot=Slot(SECOND, Place.MOVED), name=f"{OLD.name}-b")
    move: Taking = move_node(node="node-a", driver=DriverKey(f"{NAMESPACE}/edu"), value=value)
    assert IDENTITY in OLD.expected.values()
    assert kept(replace(OLD, slot=Slot("", Place.OTHERS)), new, **NOT_REBUILT).stay(move) is expected


def test_the_label_of_a_wave_that_has_ended_moves_no_module() -> None:
    """No pod goes."""
    move: Taking = move_node(node="node-a", driver=DriverKey(f"{NAMESPACE}/edu"), value=None)
    assert kept(OTHER_BUILD).stay(move)


def test_where_no_node_is_nothing_stays() -> None:
    """It is gone, or has no pod."""
    assert not kept(OLD).stay(replace(REPLACE, node="node-b"))
