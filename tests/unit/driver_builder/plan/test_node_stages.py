"""What the labels of stages say of one node, by what is known of driver, plugin and kubelet."""

import json
from dataclasses import replace
from typing import Any

import pytest

from driver_builder.objects import loaded, validated
from driver_builder.objects.plugin import PluginPod, PluginSet
from driver_builder.objects.stage_labels import TRUE, Stage, stage_label
from driver_builder.objects.validated import Validated
from driver_builder.plan.node_stages import Standing, labels_of, of_node
from driver_builder.plan.stage_view import LEAVE_SECONDS, StageView
from driver_builder.snapshot.inventory import Node
from driver_builder.snapshot.snapshot import Snapshot
from driver_builder.tasks import validation_pod
from kube_api import names
from kube_api.timestamps import timestamp
from tests.support.driver_builder.factories import NAMESPACE, NOW, driver, node, spec_of

RESOURCE: dict[str, Any] = {"name": "example.com/edu", "groups": [{"paths": [{"path": "/dev/edu*"}]}]}
VALIDATION: dict[str, Any] = {"image": "r.io/test:1", "command": ["/test"], "retries": 0}
CONTAINER = driver(spec_changes={"stages": {"devicePlugin": {"resource": RESOURCE}, "pluginValidation": VALIDATION}})
KEYS = {stage: stage_label(CONTAINER.key, stage) for stage in Stage}
PLUG_SET = PluginSet(namespace=NAMESPACE, name="edu-plug", uid="uid-set", driver=CONTAINER.key)
POD = PluginPod(namespace=NAMESPACE, name="edu-plug-x", uid="uid-pod", driver=CONTAINER.key, node="node-a",
                owner="uid-set", ready_since=NOW - 600)  # fmt: skip
WORKS, SILENT, GONE = Standing(is_valid=True, works=True), Standing(is_valid=True), Standing(why="NotLive")
LOADS = '{"loads":[]}'
SETTINGS = spec_of(CONTAINER).stages
assert SETTINGS is not None
SUBJECT = validation_pod.plugin_subject_of(SETTINGS, loaded=LOADS)


def a_node(*stages: Stage, has: bool = True, record: Validated | None = None) -> Node:
    """Make a node with some labels, where the kubelet has the resource."""
    made = node(labels={KEYS[stage]: TRUE for stage in stages})
    annotations = {**made.annotations, loaded.annotation(CONTAINER.key): LOADS}
    annotations |= {KEYS[Stage.PLGOK]: validated.render(record)} if record is not None else {}
    return replace(made, annotations=annotations, allocatable=frozenset({"example.com/edu"} if has else ()))


def missing(since: float) -> Node:
    """Make a node whose kubelet has none of the resource, as it records, since a time."""
    made = a_node(Stage.VALID, Stage.RUN, Stage.PLUG, has=False)
    return replace(made, annotations={**made.annotations, KEYS[Stage.PLUG]: str(int(since))})


def view(*pods: PluginPod, sets: tuple[PluginSet, ...] = (PLUG_SET,)) -> StageView:
    """Make what is known of the stages."""
    seen = Snapshot(now=NOW, drivers=(CONTAINER,), plugin_sets=sets, plugin_pods=pods)
    return StageView.of(seen, CONTAINER)


V, R, P, OK = Stage.VALID, Stage.RUN, Stage.PLUG, Stage.PLGOK
DONE = Validated(subject=SUBJECT, succeeded=True)
STARTED = replace(POD, ready_since=NOW - 5)
CRASHED = replace(POD, ready_since=None, message="CrashLoopBackOff: back-off")
CASES: list[Any] = [
    pytest.param(WORKS, a_node(), (), {V, R}, id="proven"),
    pytest.param(SILENT, a_node(), (), {V}, id="run does not come without proof"),
    pytest.param(SILENT, a_node(V, R), (POD,), {V, R, P}, id="run does not go without evidence"),
    pytest.param(GONE, a_node(V, R, P, OK), (POD,), set(), id="contrary evidence takes all"),
    pytest.param(WORKS, a_node(V, R), (POD,), {V, R, P}, id="plugin ready"),
    pytest.param(WORKS, a_node(V, R), (STARTED,), {V, R}, id="a report of the plugin before"),
    pytest.param(WORKS, replace(a_node(V, R), reported_at=NOW - 5), (STARTED,), {V, R, P}, id="a report since"),
    pytest.param(WORKS, a_node(V, R, has=False), (POD,), {V, R}, id="no resource"),
    pytest.param(WORKS, a_node(V, R), (CRASHED,), {V, R}, id="plugin not ready"),
    pytest.param(WORKS, a_node(V, R, P, has=False), (POD,), {V, R, P}, id="the kubelet has lost the resource just now"),
    pytest.param(WORKS, missing(NOW - 59), (POD,), {V, R, P}, id="for less than a minute"),
    pytest.param(WORKS, missing(NOW - 60), (POD,), {V, R}, id="for a minute"),
    pytest.param(WORKS, missing(NOW + 900), (POD,), {V, R, P}, id="as another clock says"),
    pytest.param(WORKS, a_node(V, R, P, has=False), (STARTED,), {V, R, P}, id="the plugin has just started again"),
    pytest.param(WORKS, a_node(V, R, P, has=False), (), {V, R, P}, id="its pod is being replaced"),
    pytest.param(WORKS, a_node(V, R, P, has=False), (CRASHED,), {V, R}, id="it crashes, and the resource is gone"),
    pytest.param(WORKS, a_node(V, R, P), (CRASHED,), {V, R, P}, id="it crashes, and the kubelet has the resource"),
    pytest.param(WORKS, a_node(V, R), (replace(POD, owner="other"),), {V, R}, id="a pod that is not ours"),
    pytest.param(WORKS, a_node(V, R, P, record=DONE), (POD,), {V, R, P, OK}, id="validated"),
    pytest.param(WORKS, a_node(V, R, P, OK, record=replace(DONE, subject="f" * 16)), (POD,), {V, R, P, OK},
                 id="another command is not known yet"),
    pytest.param(WORKS, a_node(V, R, P, OK, record=Validated(subject=SUBJECT, failures=1, pod="x", message="no")),
                 (POD,), {V, R, P}, id="failed"),
]  # fmt: skip


@pytest.mark.parametrize(("standing", "seen", "pods", "wanted"), CASES)
def test_each_label_is_what_is_proven(
    standing: Standing, seen: Node, pods: tuple[PluginPod, ...], wanted: set[Stage]
) -> None:
    """And nothing more."""
    found = of_node(view(*pods), seen, standing)
    assert {stage for stage, is_wanted in found.labels.items() if is_wanted} == wanted


def partitioned(made: Node, *, holder: str = "device-agent", state: str = "pending", ago: float = 60.0) -> Node:
    """Make a node on which a program works, and whose MIG layout is in a state."""
    lock = {"holder": holder, "bootID": "", "renewTime": timestamp(NOW - ago)}
    return replace(
        made,
        annotations={**made.annotations, names.LOCK_ANNOTATION: json.dumps(lock)},
        labels={**made.labels, names.MIG_STATE_LABEL: state},
    )


@pytest.mark.parametrize(
    ("seen", "pods", "stays"),
    [
        pytest.param(partitioned(missing(NOW - 900)), (POD,), True, id="pending"),
        pytest.param(partitioned(missing(NOW - 900), state="rebooting"), (POD,), True, id="rebooting"),
        pytest.param(partitioned(missing(NOW - 900), state="success"), (POD,), False, id="it is over"),
        pytest.param(partitioned(missing(NOW - 900), state="failed"), (POD,), False, id="it has failed"),
        pytest.param(partitioned(missing(NOW - 900), holder="gpu-partitioner"), (POD,), False, id="another's lock"),
        pytest.param(partitioned(missing(NOW - 900), ago=600), (POD,), False, id="the lock has ended"),
        pytest.param(partitioned(missing(NOW - 900), ago=-900), (POD,), False, id="a lock of another clock"),
        pytest.param(partitioned(a_node(V, R, P, has=False)), (CRASHED,), True, id="the plugin crashes meanwhile"),
        pytest.param(partitioned(a_node(V, R, has=False)), (POD,), False, id="it does not come by it"),
    ],
)
def test_plug_does_not_fall_while_the_gpus_of_a_node_are_partitioned(
    seen: Node, pods: tuple[PluginPod, ...], *, stays: bool
) -> None:
    """Lock and label have to say so; since when the resource is missing counts from the end of it."""
    found = of_node(view(*pods), seen, WORKS)
    assert found.labels[P] is stays
    if stays:
        assert (found.due_at, found.missing_since, found.starts) == (NOW + 540, None, "")


def test_the_end_of_the_driver_takes_plug_also_from_a_node_whose_gpus_are_partitioned() -> None:
    """Contrary evidence comes first."""
    assert not of_node(view(POD), partitioned(a_node(V, R, P)), GONE).labels[P]


def test_a_plugin_that_has_just_started_is_looked_at_again() -> None:
    """Although nothing may change until then."""
    assert of_node(view(STARTED), a_node(V, R, has=False), WORKS).due_at == NOW - 5 + 60
    assert of_node(view(STARTED), a_node(V, R), WORKS).due_at == NOW - 5 + 60


def test_nothing_is_validated_before_a_label_says_that_the_plugin_is_there() -> None:
    """Its pod would be refused by the kubelet."""
    assert of_node(view(POD), a_node(V, R), WORKS).starts == ""
    assert of_node(view(POD), a_node(V, R, P), WORKS).starts == SUBJECT


def test_since_when_run_is_gone_is_recorded_with_it() -> None:
    """In one patch; the record goes when it comes back, or when the driver leaves for good."""
    stages, seen = view(POD), a_node(V, R, P)
    run = next(action for action in labels_of(stages, seen, of_node(stages, seen, GONE)) if KEYS[R] in action.labels)
    assert (run.labels[KEYS[R]], run.annotations) == (None, {KEYS[R]: str(int(NOW))})
    left = replace(a_node(), annotations={**a_node().annotations, KEYS[R]: "1"})
    (back, *_) = [item for item in labels_of(view(), left, of_node(view(), left, WORKS)) if KEYS[R] in item.labels]
    assert (back.labels[KEYS[R]], back.annotations) == ("true", {KEYS[R]: None})
    assert labels_of(view(), left, of_node(view(), left, GONE)) == ()
    over = labels_of(view(), left, of_node(view(), left, replace(GONE, leaves=True)))
    assert [item.annotations for item in over] == [{KEYS[R]: None}]


def test_since_when_the_resource_is_missing_is_recorded_until_it_is_back() -> None:
    """Or until the label goes, which it does after a minute: then nothing is left of it."""
    stages, seen = view(POD), a_node(V, R, P, has=False)
    found = of_node(stages, seen, WORKS)
    (record,) = labels_of(stages, seen, found)
    assert (record.labels, record.annotations) == ({KEYS[P]: "true"}, {KEYS[P]: str(int(NOW))})
    assert (found.due_at, found.starts) == (NOW + 60, "")
    back = replace(missing(NOW - 5), allocatable=frozenset({"example.com/edu"}))
    (record,) = labels_of(stages, back, of_node(stages, back, WORKS))
    assert (record.labels[KEYS[P]], record.annotations) == ("true", {KEYS[P]: None})
    over = missing(NOW - 60)
    gone = [item for item in labels_of(stages, over, of_node(stages, over, WORKS)) if KEYS[P] in item.labels]
    assert [(item.labels[KEYS[P]], item.annotations) for item in gone] == [(None, {KEYS[P]: None})]


@pytest.mark.parametrize(
    ("labels", "since", "pods", "may_go"),
    [
        pytest.param((R,), None, (), False, id="run is there"),
        pytest.param((), None, (), True, id="nothing is there"),
        pytest.param((), None, (POD,), False, id="a pod without a record"),
        pytest.param((), str(int(NOW) - 5), (POD,), False, id="a pod is leaving"),
        pytest.param(
            (), str(int(NOW) - 5), (replace(POD, owner="gone", deleting=True),), False, id="its DaemonSet is gone"
        ),
        pytest.param((), str(int(NOW - LEAVE_SECONDS)), (POD,), True, id="it had its time"),
        pytest.param((), str(int(NOW) + 9000), (POD,), True, id="another clock"),
        pytest.param((), "junk", (POD,), True, id="a record that cannot be read"),
    ],
)
def test_a_driver_goes_when_its_stages_have_left(
    labels: tuple[Stage, ...], since: str | None, pods: tuple[PluginPod, ...], may_go: bool
) -> None:
    """Or had so long for it."""
    seen = a_node(*labels)
    if since is not None:
        seen = replace(seen, annotations={**seen.annotations, KEYS[R]: since})
    assert view(*pods).has_left(seen) is may_go


@pytest.mark.parametrize(
    ("allocatable", "is_there"),
    [
        pytest.param({"nvidia.com/gpu"}, True, id="full cards"),
        pytest.param({"nvidia.com/mig-1g.5gb"}, True, id="MIG devices alone"),
        pytest.param({"example.com/edu"}, False, id="another domain's"),
        pytest.param(set(), False, id="none"),
    ],
)
def test_nvidias_plugin_is_there_with_any_resource_of_its_domain(allocatable: set[str], is_there: bool) -> None:
    """Cards in MIG mode may leave a node without a full one."""
    container = driver(spec_changes={"stages": {"devicePlugin": {"nvidia": {"migStrategy": "mixed"}}}})
    plug_set = replace(PLUG_SET, resource="nvidia.com/")
    seen = Snapshot(now=NOW, drivers=(container,), plugin_sets=(plug_set,), plugin_pods=(POD,))
    at = replace(a_node(V, R), allocatable=frozenset(allocatable))
    found = of_node(StageView.of(seen, container), at, WORKS)
    assert found.labels[P] is is_there
    assert found.why == ("" if is_there else "it has no resources in nvidia.com/")


@pytest.mark.parametrize(
    ("has", "why"),
    [
        pytest.param(True, "its kubelet has not reported resources in nvidia.com/ anew yet", id="reported before"),
        pytest.param(False, "it has no resources in nvidia.com/ yet", id="not reported"),
    ],
)
def test_what_a_plugin_of_a_domain_waits_for_is_said(has: bool, why: str) -> None:
    """With words that fit several resources."""
    container = driver(spec_changes={"stages": {"devicePlugin": {"nvidia": {}}}})
    plug_set = replace(PLUG_SET, resource="nvidia.com/")
    seen = Snapshot(now=NOW, drivers=(container,), plugin_sets=(plug_set,), plugin_pods=(STARTED,))
    at = replace(a_node(V, R), allocatable=frozenset({"nvidia.com/gpu"} if has else ()))
    assert of_node(StageView.of(seen, container), at, WORKS).why == why
