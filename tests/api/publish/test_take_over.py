"""Taking over a Node from Node Feature Discovery."""

import time

import pytest

from feature_rules.model import Taint
from kube_api.client import JSON_PATCH, Client
from kube_api.resources import NODES
from nfd_worker.labels.node_content import NodeContent, Unknown
from nfd_worker.publish.publish_child import publish, unpublish
from nfd_worker.publish.wire import PublishAnswer
from tests.support.nfd_worker.publishing import (
    BARE,
    CARDS,
    FEATURE,
    GPU,
    NFD,
    OLD,
    PUBLISHED,
    SLOTS,
    TAINT,
    THEIRS,
    carried,
    read,
    request,
    version,
    without_seen,
)
from tests.support.real_parts.cluster_setup import Json


def make_upstream(root: Client, name: str, *, instance: str = "") -> None:
    """Write to a Node as nfd-master does: JSON patches, a list of operations each."""
    annotations = {
        f"{instance}{NFD}/feature-labels": "gpu,old,vendor.example/card",
        f"{instance}{NFD}/feature-annotations": "note,old-note",
        f"{instance}{NFD}/extended-resources": "cards,slots",
        f"{NFD}/taints": f"{GPU}=true:NoSchedule,{OLD}=1:NoExecute",
        f"{instance}{NFD}/master.version": "v0.18.0",
        f"{FEATURE}/note": "hello",
        f"{FEATURE}/old-note": "x",
    }
    labels = {GPU: "true", OLD: "1", "vendor.example/card": "a", "watched": name}
    taints = [
        {"key": GPU, "value": "true", "effect": "NoSchedule"},
        {"key": OLD, "value": "1", "effect": "NoExecute"},
    ]
    _as_upstream(root, name, "status", [
        _add("status", part, key, "1" if key == CARDS else "2")
        for part in ("capacity", "allocatable") for key in (CARDS, SLOTS)
    ])  # fmt: skip
    _as_upstream(root, name, None, [
        *(_add("metadata", "labels", key, value) for key, value in labels.items()),
        *(_add("metadata", "annotations", key, value) for key, value in annotations.items()),
        *({"op": "add", "path": "/spec/taints/-", "value": taint} for taint in taints),
    ])  # fmt: skip


def _add(*path: str) -> Json:
    *where, key, value = path
    return {"op": "add", "path": f"/{'/'.join(where)}/{key.replace('/', '~1')}", "value": value}


def _as_upstream(root: Client, name: str, subresource: str | None, operations: list[Json]) -> None:
    path = NODES.path(name=name, subresource=subresource) + "?fieldManager=nfd-master"
    root.patch(path, operations, content_type=JSON_PATCH)


TAKEN_OVER = {**PUBLISHED, "taints": [THEIRS, {"key": GPU, "value": "true", "effect": "NoSchedule"}]}


@pytest.mark.parametrize("instance", ["", "x."], ids=["no instance", "an instance"])
def test_taking_over_never_lacks_a_label_and_ends_upstreams_part(
    root: Client, worker: Client, node: str, instance: str
) -> None:
    """A watch sees each state the Node was in: what both want is always there."""
    make_upstream(root, node, instance=instance)
    before = root.list(NODES.path()).resource_version
    answer = publish(request(node, take_over=True), worker)
    last = read(root, node)["metadata"]["resourceVersion"]
    assert answer.took_over == "3 labels, 2 annotations, 2 extended resources, 2 taints"
    assert carried(root, node) == TAKEN_OVER
    seen: list[Json] = []
    for event in root.watch(NODES.path(), resource_version=before, label_selector=f"watched={node}", seconds=600):
        seen += [event.object] if event.kind != "BOOKMARK" else []
        if seen and seen[-1]["metadata"]["resourceVersion"] == last:
            break
    assert len(seen) >= 2
    for state in seen:
        assert state["metadata"]["labels"][GPU] == "true"
        assert state["metadata"]["annotations"][f"{FEATURE}/note"] == "hello"
        assert state["status"]["capacity"][SLOTS] == "2"
        assert GPU in {taint["key"] for taint in state["spec"]["taints"]}


def test_after_taking_over_we_own_alone(root: Client, worker: Client, node: str) -> None:
    """Nothing is written by taking over again, and all of ours can go."""
    make_upstream(root, node)
    publish(request(node, take_over=True), worker)
    before = version(root, node)
    time.sleep(1.1)
    assert without_seen(publish(request(node, take_over=True), worker)) == PublishAnswer()
    assert version(root, node) == before
    publish(request(node, NodeContent()), worker)
    assert carried(root, node) == BARE


def test_the_very_same_content_changes_hands(root: Client, worker: Client, node: str) -> None:
    """Equal texts of the annotations are no obstacle."""
    make_upstream(root, node)
    taints = (TAINT, Taint(OLD, "1", "NoExecute"))
    labels = {GPU: "true", OLD: "1", "vendor.example/card": "a"}
    notes = {f"{FEATURE}/note": "hello", f"{FEATURE}/old-note": "x"}
    same = NodeContent(labels, notes, {CARDS: "1", SLOTS: "2"}, taints)
    assert publish(request(node, same, take_over=True), worker).took_over
    assert without_seen(publish(request(node, same, take_over=True), worker)) == PublishAnswer()
    publish(request(node, NodeContent()), worker)
    assert carried(root, node) == BARE


def test_an_upstream_that_still_runs_is_reported_each_time(root: Client, worker: Client, node: str) -> None:
    """Its annotations come back, and are taken over again."""
    make_upstream(root, node)
    publish(request(node, take_over=True), worker)
    _as_upstream(root, node, None, [_add("metadata", "annotations", f"{NFD}/feature-labels", "gpu")])
    assert publish(request(node, take_over=True), worker).took_over == "1 labels"
    assert carried(root, node) == TAKEN_OVER


def test_without_taking_over_upstreams_things_stay(root: Client, worker: Client, node: str) -> None:
    """Unpublishing, too, leaves them alone."""
    make_upstream(root, node)
    before = carried(root, node)
    publish(request(node), worker)
    unpublish(node, worker)
    assert carried(root, node) == before


def test_what_upstream_left_stays_while_nobody_knows_better(root: Client, worker: Client, node: str) -> None:
    """It becomes ours and goes when all is known."""
    make_upstream(root, node)
    publish(request(node, unknown=Unknown(), take_over=True), worker)
    kept = carried(root, node)
    assert (kept["labels"][OLD], kept["capacity"][CARDS]) == ("1", "1")
    publish(request(node, take_over=True), worker)
    assert carried(root, node) == TAKEN_OVER
