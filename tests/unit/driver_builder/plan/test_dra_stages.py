"""The label ``plug`` of a DRA driver: what its ResourceSlices say, and what is done where they are not known."""

from collections.abc import Sequence
from dataclasses import replace
from typing import Any

import pytest

from driver_builder.base.persistent import Layered, cut
from driver_builder.base.reasons import Reason
from driver_builder.nodes.settled import Settled
from driver_builder.objects.plugin import PluginPod, PluginSet
from driver_builder.objects.stage_labels import TRUE, Stage, stage_label
from driver_builder.plan.node_stages import MISSING_SECONDS, REGISTER_SECONDS, NodeStages, Standing, of_node
from driver_builder.plan.stage_view import StageView
from driver_builder.snapshot.inventory import Node
from driver_builder.snapshot.resource_slices import NodeSlice, SlicesUnread
from driver_builder.snapshot.snapshot import Snapshot
from tests.support.driver_builder.factories import NAMESPACE, NOW, driver, node

GPU = "gpu.nvidia.com"
PLUGIN: dict[str, Any] = {"image": "r.io/dra:1", "dra": {"driver": GPU, "serviceAccountName": "dra"}}
CONTAINER = driver(spec_changes={"stages": {"devicePlugin": PLUGIN}})
KEYS = {stage: stage_label(CONTAINER.key, stage) for stage in Stage}
PLUG_SET = PluginSet(namespace=NAMESPACE, name="edu-plug", uid="uid-set", driver=CONTAINER.key, resource=f"dra:{GPU}")
POD = PluginPod(namespace=NAMESPACE, name="edu-plug-x", uid="uid-pod", driver=CONTAINER.key, node="node-a",
                owner="uid-set", started_at=NOW - 601, ready_since=NOW - 600)  # fmt: skip
STARTED = replace(POD, started_at=NOW - 7, ready_since=NOW - 5)
UNREADY = replace(POD, ready_since=None)
CRASHED = replace(UNREADY, message="CrashLoopBackOff: back-off")
SLICE = NodeSlice(driver=GPU, node="node-a", created_at=NOW - 6)
OLD = replace(SLICE, created_at=NOW - 900)
EMPTY = replace(SLICE, has_devices=False)
ELSEWHERE = replace(SLICE, node="node-b")
WORKS = Standing(is_valid=True, works=True)
V, R, P = Stage.VALID, Stage.RUN, Stage.PLUG


def a_node(*stages: Stage, missing_since: float | None = None) -> Node:
    """Make a node with some labels, which has none of any resource."""
    made = node(labels={KEYS[stage]: TRUE for stage in stages})
    since = {KEYS[P]: str(int(missing_since))} if missing_since is not None else {}
    return replace(made, annotations={**made.annotations, **since})


def decided(
    where: Node, pods: Sequence[PluginPod], slices: Sequence[NodeSlice], unread: SlicesUnread | None = None
) -> NodeStages:
    """Decide on a node whose driver works."""
    seen = Snapshot(now=NOW, drivers=(CONTAINER,), plugin_sets=(PLUG_SET,), plugin_pods=tuple(pods),
                    node_slices={GPU: tuple(slices)} if slices else {}, slices_unread=unread)  # fmt: skip
    return of_node(StageView.of(seen, CONTAINER), where, WORKS)


@pytest.mark.parametrize(
    ("where", "pods", "slices", "plug", "words"),
    [
        pytest.param(a_node(V, R), [POD], [SLICE], True, "", id="a slice brings it"),
        pytest.param(a_node(V, R), [STARTED], [SLICE], True, "", id="a slice that its pod has made, at once"),
        pytest.param(a_node(V, R), [STARTED], [OLD], False, "is older than its plugin's pod", id="one of a pod before"),
        pytest.param(a_node(V, R), [STARTED], [OLD, SLICE], True, "", id="an old one and a new one"),
        pytest.param(a_node(V, R), [POD], [OLD], True, "", id="one that the kubelet has left"),
        pytest.param(a_node(V, R), [STARTED], [], False, f"no ResourceSlice of {GPU} with a device yet", id="not yet"),
        pytest.param(a_node(V, R), [POD], [EMPTY], False, f"it has no ResourceSlice of {GPU}", id="no device in it"),
        pytest.param(a_node(V, R), [POD], [ELSEWHERE], False, "it has no ResourceSlice", id="of another node"),
        pytest.param(a_node(V, R), [UNREADY], [SLICE], False, "not ready yet", id="a pod that is not ready"),
        pytest.param(a_node(V, R), [CRASHED], [SLICE], False, "CrashLoopBackOff", id="a pod that crashes"),
        pytest.param(a_node(V, R), [], [SLICE], False, "not ready yet", id="no pod"),
        pytest.param(a_node(V, R, P), [], [SLICE], True, "", id="a pod that is replaced takes none"),
        pytest.param(a_node(V, R, P), [CRASHED], [SLICE], True, "CrashLoopBackOff", id="nor one that crashes"),
        pytest.param(a_node(V, R, P), [POD], [], True, "at the moment", id="a slice that goes is waited for"),
        pytest.param(a_node(V, R, P, missing_since=NOW - MISSING_SECONDS), [POD], [], False, "it has no ResourceSlice",
                     id="and after a minute it goes"),
    ],
)  # fmt: skip
def test_what_the_label_says(
    where: Node, pods: list[PluginPod], slices: list[NodeSlice], plug: bool, words: str
) -> None:
    """By the slices of the node, and the pod that has made them."""
    found = decided(where, pods, slices)
    assert (found.labels[P], words in found.why if words else found.why == "") == (plug, True), found


def test_a_slice_of_a_pod_before_counts_once_the_kubelet_would_have_removed_it() -> None:
    """Then this one has registered. It is looked at when that is known."""
    found = decided(a_node(V, R), [STARTED], [OLD])
    assert found.due_at == NOW - 5 + REGISTER_SECONDS
    late = replace(STARTED, started_at=NOW - REGISTER_SECONDS - 2, ready_since=NOW - REGISTER_SECONDS)
    assert decided(a_node(V, R), [late], [OLD]).labels[P]


UNSERVED = SlicesUnread(message="the API server has no resource.k8s.io", is_unserved=True)
UNREAD = SlicesUnread(message="ResourceSlices may not be read: 403")


@pytest.mark.parametrize(
    ("unread", "reason"),
    [
        pytest.param(UNSERVED, Reason.DRA_NOT_SERVED, id="not served"),
        pytest.param(UNREAD, Reason.RESOURCE_SLICES_NOT_READ, id="no right"),
    ],
)
@pytest.mark.parametrize("has", [False, True], ids=["without the label", "with the label"])
def test_what_is_not_known_moves_no_label(unread: SlicesUnread, reason: Reason, has: bool) -> None:
    """The reason says why."""
    where = a_node(V, R, P) if has else a_node(V, R)
    found = decided(where, [POD], [], unread)
    assert (found.labels[P], found.reason, found.why) == (has, reason, unread.message)
    crashed = decided(where, [CRASHED], [], unread)
    assert (crashed.labels[P], crashed.reason) == (has, Reason.DEVICE_PLUGIN_FAILED)


def test_a_driver_with_a_device_plugin_does_not_look_at_slices() -> None:
    """Whatever is known of them."""
    container = driver(spec_changes={"stages": {"devicePlugin": {"image": "a", "resourceName": "b.c/d"}}})
    seen = Snapshot(now=NOW, drivers=(container,), node_slices={"": (SLICE,)}, slices_unread=UNSERVED)
    view = StageView.of(seen, container)
    assert (view.slices, view.slices_unread) == ({}, None)


def test_slices_that_stayed_cost_no_node() -> None:
    """The same ones are the same mapping; of others the nodes are looked at that differ."""
    first, second = cut([replace(SLICE, node=f"node-{number}") for number in range(200)]), cut([SLICE])
    views = [
        StageView.of(Snapshot(now=NOW, drivers=(CONTAINER,), node_slices={GPU: items}), CONTAINER)
        for items in (first, first, cut([*first, ELSEWHERE]))
    ]
    settled, nodes = Settled(), Layered({name: node(name) for name in views[0].slices})
    face = (views[0].settings,)
    assert settled.begin(face, nodes, views[0].slices) == set(nodes)
    settled.end(set(nodes), set(nodes), ())
    assert views[1].slices is views[0].slices
    assert settled.begin(face, nodes, views[1].slices) == set()
    more = Layered({**nodes, "node-b": node("node-b")})
    settled.begin(face, more, views[1].slices)
    settled.end({"node-b"}, {"node-b"}, ())
    assert settled.begin(face, more, views[2].slices) == {"node-b"}
    assert StageView.of(Snapshot(now=NOW, node_slices={GPU: second}), CONTAINER).slices.keys() == {"node-a"}
