"""Stages where a profile renames what the plugin offers: by what it reports, bounded to what may be its."""

from collections.abc import Iterable
from dataclasses import replace
from typing import Any

import pytest

from driver_builder.nodes.changes import Change, PatchNode, RunTask
from driver_builder.objects import loaded, validated
from driver_builder.objects.plugin import PluginPod, PluginSet
from driver_builder.objects.stage_labels import TRUE, Stage, stage_label
from driver_builder.objects.validated import Validated
from driver_builder.plan.node_stages import Standing, of_node
from driver_builder.plan.plugin_validation import MAX_LOOKED_AT, NextNodes, start
from driver_builder.plan.stage_view import StageView
from driver_builder.snapshot.inventory import Node
from driver_builder.snapshot.node_pods import NodePod, NodePods
from driver_builder.snapshot.snapshot import Snapshot
from driver_builder.tasks import validation_pod
from tests.support.driver_builder.factories import NAMESPACE, NOW, driver, node, spec_of

GPU, SHARED, L4 = "nvidia.com/gpu", "nvidia.com/gpu.shared", "nvidia.com/l4"
NVIDIA: dict[str, Any] = {"nvidia": {"profiles": {"configMap": "p"}, "serviceAccountName": "gpu"}}
VALIDATION: dict[str, Any] = {"image": "r.io/test:1", "command": ["/test"]}
CONTAINER = driver(spec_changes={"stages": {"devicePlugin": NVIDIA}})
VALIDATED = driver(spec_changes={"stages": {"devicePlugin": NVIDIA, "pluginValidation": VALIDATION}})
KEYS = {stage: stage_label(CONTAINER.key, stage) for stage in Stage}
WITH_TOKEN = PluginSet(
    namespace=NAMESPACE, name="edu-plug", uid="uid-set", driver=CONTAINER.key, resource="nvidia.com/",
    spec={"template": {"spec": {"volumes": [{"name": "token"}, {"name": "profiles"}]}}},
)  # fmt: skip
WITHOUT_TOKEN = replace(WITH_TOKEN, spec={"template": {"spec": {"volumes": []}}})
POD = PluginPod(namespace=NAMESPACE, name="edu-plug-x", uid="uid-pod", driver=CONTAINER.key, node="node-a",
                owner="uid-set", ready_since=NOW - 600, has_token=True)  # fmt: skip
OLD = replace(POD, has_token=False)
CRASHED = replace(POD, ready_since=None, message="CrashLoopBackOff: back-off")
WORKS = Standing(is_valid=True, works=True)
V, R, P = Stage.VALID, Stage.RUN, Stage.PLUG


def a_node(
    *stages: Stage,
    allocatable: Iterable[str] = (),
    offered: Iterable[str] = (),
    name: str = "node-a",
    late: bool = True,
) -> Node:
    """Make a node; ``late`` says that what is not there has been missing for a minute."""
    made = node(name, labels={KEYS[stage]: TRUE for stage in stages})
    since = {KEYS[P]: str(int(NOW - 60))} if late else {}
    annotations = {**made.annotations, loaded.annotation(CONTAINER.key): '{"loads":[]}', **since}
    return replace(made, annotations=annotations, allocatable=frozenset(allocatable), offered=tuple(offered))


def users(*resources: str, **changes: Any) -> NodePods:
    """Make the pods of a node: one for each resource."""
    pods = [NodePod(namespace="a", name=name.rpartition("/")[2], uid=name, resources=frozenset({name}))
            for name in resources]  # fmt: skip
    return NodePods(pods=tuple(replace(pod, **changes) for pod in pods))


def view(
    pods: NodePods | None = None,
    *,
    plug_set: PluginSet = WITH_TOKEN,
    pod: PluginPod = POD,
    validates: bool = False,
) -> StageView:
    """Make what is known of the stages; ``pods`` are those of the node, None: they are not listed."""
    container = VALIDATED if validates else CONTAINER
    listed = {} if pods is None else {"node-a": pods}
    seen = Snapshot(now=NOW, drivers=(container,), plugin_sets=(plug_set,), plugin_pods=(pod,), resource_users=listed)
    return StageView.of(seen, container)


PLUG_CASES = [
    pytest.param(view(), a_node(V, R, P, allocatable=[SHARED], offered=[SHARED]), True, id="renamed"),
    pytest.param(view(), a_node(V, R, allocatable=[SHARED], offered=[SHARED]), True, id="it comes by a new name"),
    pytest.param(view(), a_node(V, R, P, allocatable=[GPU], offered=[GPU, SHARED]), True, id="one of two"),
    pytest.param(view(users()), a_node(V, R, P, allocatable=["nvidia.com/hostdev"], offered=[GPU]), False,
                 id="another plugin's"),
    pytest.param(view(), a_node(V, R, P, allocatable=["nvidia.com/hostdev"]), True, id="it says nothing"),
    pytest.param(view(plug_set=WITHOUT_TOKEN), a_node(V, R, P, allocatable=[GPU], offered=[SHARED]), True,
                 id="what it said while it had a token"),
    pytest.param(view(users(), pod=OLD), a_node(V, R, P, allocatable=[GPU], offered=[SHARED]), True,
                 id="what an earlier pod said: the next one, which has a token again, is not there yet"),
    pytest.param(view(), a_node(V, R, allocatable=["cpu"], offered=["cpu"]), False, id="what every node has"),
    pytest.param(view(), a_node(V, R, allocatable=["example.com/a"], offered=["example.com/a"]), False,
                 id="another domain's"),
    pytest.param(view(users(GPU)), a_node(V, R, P, offered=[GPU]), True, id="in use"),
    pytest.param(view(users(GPU)), a_node(V, R, P, offered=[GPU, SHARED]), True, id="an earlier name is in use"),
    pytest.param(view(users(GPU)), a_node(V, R, offered=[GPU]), False, id="in use, and never there"),
    pytest.param(view(), a_node(V, R, P, offered=[GPU]), True, id="perhaps in use: pods are not listed yet"),
    pytest.param(view(users()), a_node(V, R, P, offered=[GPU]), False, id="not in use"),
    pytest.param(view(users()), a_node(V, R, P, offered=[GPU], late=False), True, id="not in use, for a moment"),
    pytest.param(view(users(GPU, has_ended=True)), a_node(V, R, P, offered=[GPU]), False, id="its pod has ended"),
    pytest.param(view(users(L4)), a_node(V, R, P, offered=[GPU]), False, id="another one is in use"),
    pytest.param(view(NodePods(unread="forbidden")), a_node(V, R, P, offered=[GPU]), False, id="pods may not be read"),
    pytest.param(view(users(GPU), pod=CRASHED), a_node(V, R, P, offered=[GPU]), True, id="it crashes, and is in use"),
    pytest.param(view(users(), pod=CRASHED), a_node(V, R, P, offered=[GPU]), False, id="it crashes, and is not"),
    pytest.param(view(users(GPU)), a_node(V, R, P), False, id="in use, and it says nothing"),
]  # fmt: skip


@pytest.mark.parametrize(("stages", "seen", "is_there"), PLUG_CASES)
def test_plug_is_there_while_something_that_is_offered_can_be_given_or_is_in_use(
    stages: StageView, seen: Node, is_there: bool
) -> None:
    """Without a report, while the kubelet has anything of the domain."""
    assert of_node(stages, seen, WORKS).labels[P] is is_there


def test_what_is_missing_is_named() -> None:
    """By what is offered, and whether pods use it: such a node is not settled, and is looked at again."""
    assert of_node(view(users()), a_node(V, R, P, offered=[GPU, SHARED]), WORKS).why == f"it has no {GPU}, {SHARED}"
    used = of_node(view(users(GPU)), a_node(V, R, P, offered=[GPU]), WORKS)
    assert (used.why, used.reason) == (f"it has no {GPU} to give, and pods use it", None)


def _asked_for(actions: tuple[Change, ...]) -> str:
    """Return what a validation requests, or why there is none."""
    for action in actions:
        if isinstance(action, RunTask):
            (container,) = action.manifest["spec"]["containers"]
            return ",".join(container["resources"]["limits"])
        assert isinstance(action, PatchNode)
        return action.why
    return ""


@pytest.mark.parametrize(
    ("pods", "seen", "expected"),
    [
        pytest.param(users(), a_node(allocatable=[SHARED], offered=[SHARED]), SHARED, id="renamed"),
        pytest.param(users(), a_node(allocatable=[GPU, L4], offered=[GPU, L4]), GPU, id="its own name first"),
        pytest.param(users(), a_node(allocatable=[L4, SHARED], offered=[L4, SHARED]), SHARED, id="else by name"),
        pytest.param(users(GPU), a_node(allocatable=[GPU, L4], offered=[GPU, L4]), L4, id="the first that is free"),
        pytest.param(users(GPU, L4), a_node(allocatable=[GPU, L4], offered=[GPU, L4]),
                     f"skipped: pod a/gpu uses {GPU}", id="none is free"),
        pytest.param(users(GPU), a_node(allocatable=[SHARED], offered=[GPU, SHARED]), SHARED,
                     id="an earlier name is in use"),
        pytest.param(users(), a_node(allocatable=[SHARED], offered=[GPU, SHARED]), SHARED, id="one cannot be given"),
        pytest.param(users(GPU), a_node(offered=[GPU]), f"skipped: pod a/gpu uses {GPU}", id="all in use and broken"),
        pytest.param(users(), a_node(offered=[GPU]), "", id="nothing can be given"),
        pytest.param(users(), a_node(allocatable=[SHARED]), GPU, id="it says nothing"),
        pytest.param(users(GPU), a_node(allocatable=[SHARED]), f"skipped: pod a/gpu uses {GPU}",
                     id="it says nothing, and its own name is in use"),
        pytest.param(NodePods(unread="forbidden"), a_node(allocatable=[SHARED], offered=[SHARED]), SHARED,
                     id="pods may not be read"),
    ],
)  # fmt: skip
def test_a_validation_requests_the_first_that_is_free(pods: NodePods, seen: Node, expected: str) -> None:
    """Of what is offered and can be given."""
    actions = start(view(validates=True), seen, "f" * 16, {"node-a": pods})
    assert _asked_for(actions) == expected


def _fleet(*nodes: Node, plug_set: PluginSet = WITH_TOKEN) -> Snapshot:
    return Snapshot(now=NOW, nodes=nodes, drivers=(CONTAINER,), plugin_sets=(plug_set,))


def test_pods_are_listed_where_it_matters_and_as_long_as_it_does() -> None:
    """Where none of what is offered can be given: nowhere else, so that a fleet costs nothing."""
    broken = a_node(V, R, P, offered=[GPU], name="b")
    fleet = (
        a_node(V, R, P, allocatable=[GPU], offered=[GPU], name="a"),
        broken,
        a_node(V, R, offered=[GPU], name="c"),
        a_node(V, R, P, name="d"),
    )
    asked = NextNodes()
    assert (asked.of(_fleet(*fleet)), asked.of(_fleet(*fleet))) == (("b",), ("b",))
    back = replace(broken, allocatable=frozenset({GPU}))
    assert asked.of(_fleet(*(back if item is broken else item for item in fleet))) == ()
    assert NextNodes().of(_fleet(*fleet, plug_set=WITHOUT_TOKEN)) == ()
    old = replace(_fleet(*fleet), plugin_pods=(replace(OLD, node="b"),))
    assert (asked.of(old), asked.of(_fleet(*fleet))) == ((), ("b",))


def test_only_so_many_nodes_are_listed_at_once() -> None:
    """The others keep what they have until it is their turn."""
    nodes = [a_node(V, R, P, offered=[GPU], name=f"node-{number:02}") for number in range(MAX_LOOKED_AT + 5)]
    assert len(NextNodes().of(_fleet(*nodes))) == MAX_LOOKED_AT


def test_a_validation_does_not_wait_until_enough_nodes_have_devices_again() -> None:
    """Devices that cannot be given may be in use for days."""
    broken = [a_node(V, R, P, offered=[GPU], name=f"a-{number:02}") for number in range(MAX_LOOKED_AT)]
    settings = spec_of(VALIDATED).stages
    assert settings is not None
    subject = validation_pod.plugin_subject_of(settings, loaded='{"loads":[]}')
    record = {KEYS[Stage.PLGOK]: validated.render(Validated(subject=subject, succeeded=True))}
    nodes = [replace(item, annotations={**item.annotations, **record}) for item in broken]
    due = a_node(V, R, P, allocatable=[GPU], offered=[GPU], name="b")
    looked_at = NextNodes().of(replace(_fleet(*nodes, due), drivers=(VALIDATED,)))
    assert (looked_at[0], len(looked_at)) == ("b", MAX_LOOKED_AT)
