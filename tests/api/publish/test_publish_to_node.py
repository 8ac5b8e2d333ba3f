"""Publishing to a Node of a real API server, and unpublishing: what is owned, shared and left alone.

Everything here goes through the publish child's own code, with the service account of ``deploy/`` and no more.
``test_worker_publish.py`` runs the whole worker.
"""

import itertools
import threading
import time
from collections.abc import Callable
from contextlib import suppress
from typing import cast

import pytest

from feature_rules.model import Taint
from kube_api.client import Client
from kube_api.errors import Conflict
from kube_api.resources import NODES
from nfd_worker.labels.node_content import NodeContent, Unknown
from nfd_worker.publish.publish_child import ATTEMPTS, publish, unpublish
from nfd_worker.publish.wire import PublishAnswer
from tests.support.nfd_worker.publishing import (
    BARE,
    FEATURE,
    FULL,
    GPU,
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


def test_everything_comes_and_goes_and_what_others_wrote_stays(root: Client, worker: Client, node: str) -> None:
    """Labels, annotations, extended resources and taints, with the rights of deploy/ and no more."""
    assert without_seen(publish(request(node), worker)) == PublishAnswer()
    assert carried(root, node) == PUBLISHED
    publish(request(node, NodeContent()), worker)
    assert carried(root, node) == BARE


def test_publishing_the_same_again_writes_nothing(root: Client, worker: Client, node: str) -> None:
    """A second publish of the same content changes nothing, not even managedFields."""
    publish(request(node), worker)
    before = version(root, node)
    time.sleep(1.1)
    publish(request(node), worker)
    assert version(root, node) == before


@pytest.mark.parametrize(
    ("wanted", "written"),
    [
        pytest.param("2048", "2048", id="as it is"),
        pytest.param("3000", "3k", id="made shorter by the API server"),
        pytest.param("1024Ki", "1Mi", id="binary"),
        pytest.param("1500m", "1500m", id="a fraction"),
        pytest.param("0", "0", id="none"),
    ],
)
def test_quantities_are_compared_by_value(root: Client, worker: Client, node: str, wanted: str, written: str) -> None:
    """The API server writes them its own way; that is no reason to write again."""
    content = NodeContent(extended_resources={SLOTS: wanted})
    publish(request(node, content), worker)
    assert carried(root, node)["capacity"][SLOTS] == written
    before = version(root, node)
    time.sleep(1.1)
    publish(request(node, content), worker)
    assert version(root, node) == before


def test_a_node_without_a_status_gets_resources(root: Client, worker: Client, node: str) -> None:
    """It has just been registered."""
    bare = f"{node}-bare"
    root.create(NODES.path(), {"metadata": {"name": bare}})
    publish(request(bare), worker)
    assert carried(root, bare)["allocatable"] == {SLOTS: "2"}
    unpublish(bare, worker)
    assert carried(root, bare) == {
        **{part: {} for part in ("labels", "annotations", "capacity", "allocatable")},
        "taints": [],
    }
    root.delete(NODES.path(name=bare))


def test_what_others_change_of_ours_is_set_again(root: Client, worker: Client, node: str) -> None:
    """A kubelet that restarts may set resources to 0; people do anything."""
    publish(request(node), worker)
    zero = {"status": {"capacity": {SLOTS: "0"}, "allocatable": {SLOTS: "0"}}}
    root.patch(NODES.path(name=node, subresource="status") + "?fieldManager=kubelet", zero)
    root.patch(NODES.path(name=node), {"metadata": {"labels": {GPU: None}}, "spec": {"taints": [THEIRS]}})
    publish(request(node), worker)
    assert carried(root, node) == PUBLISHED
    publish(request(node, NodeContent()), worker)
    assert carried(root, node) == BARE


def test_what_no_source_could_say_stays(root: Client, worker: Client, node: str) -> None:
    """Until all is known again."""
    publish(request(node), worker)
    publish(request(node, NodeContent(), Unknown(known_prefixes=(f"{FEATURE}/slots",))), worker)
    kept = carried(root, node)
    assert (kept["labels"], kept["taints"]) == (PUBLISHED["labels"], PUBLISHED["taints"])
    assert kept["capacity"] == BARE["capacity"]
    publish(request(node, NodeContent()), worker)
    assert carried(root, node) == BARE


def test_a_bad_file_holds_what_the_record_says_and_nothing_else(root: Client, worker: Client, node: str) -> None:
    """Across restarts: the record comes with the labels, and goes with the last of them."""
    made = FULL._replace(labels={**FULL.labels, OLD: "1"})
    publish(request(node, made, origins={"rules.d/a.yaml": (GPU, SLOTS), "features.d/f": (OLD,)}), worker)
    for _ in range(2):
        publish(request(node, NodeContent(), Unknown(origins=("rules.d/a.yaml", "custom.d/README"))), worker)
        kept = carried(root, node)
        assert (kept["labels"], kept["taints"]) == (PUBLISHED["labels"], PUBLISHED["taints"])
        assert kept["capacity"] == PUBLISHED["capacity"]
    publish(request(node, NodeContent(), Unknown(origins=("custom.d/README",))), worker)
    assert carried(root, node) == BARE


def test_a_taint_of_somebody_else_is_left_though_we_want_the_same(root: Client, worker: Client, node: str) -> None:
    """It is not removed later either."""
    held = Taint(THEIRS["key"], "other", THEIRS["effect"])
    answer = publish(request(node, NodeContent(taints=(held,))), worker)
    assert "another client" in answer.notes[0]
    publish(request(node, NodeContent()), worker)
    assert carried(root, node) == BARE


def test_taints_that_others_change_at_the_same_time_survive(root: Client, worker: Client, node: str) -> None:
    """Neither side loses one, over many conflicts."""
    stop = threading.Event()
    theirs: list[set[str]] = []

    def meddle() -> None:
        for number in itertools.count():
            if stop.is_set():
                return
            with suppress(Conflict):
                theirs.append(_toggle(root, node, f"example.io/{number % 3}"))
            time.sleep(0.02)

    other = threading.Thread(target=meddle)
    other.start()
    try:
        for number in itertools.takewhile(lambda number: number < 30 or len(theirs) < 3, itertools.count()):
            with suppress(Conflict):
                publish(request(node, FULL if number % 2 else NodeContent({GPU: str(number)})), worker)
    finally:
        stop.set()
        other.join()
    publish(request(node), worker)
    now = {taint["key"] for taint in carried(root, node)["taints"]}
    assert now == theirs[-1] | {GPU}
    publish(request(node, NodeContent()), worker)
    assert {taint["key"] for taint in carried(root, node)["taints"]} == theirs[-1]


class Meddled:
    """The worker's client, but somebody else changes the taints just before each of its first patches."""

    def __init__(self, worker: Client, meddle: Callable[[int], object], *, times: int) -> None:
        self.get, self.apply = worker.get, worker.apply
        self._patch = worker.patch
        self._meddle = meddle
        self._left = times

    def patch(self, path: str, body: Json) -> Json:
        """Let the other one go first."""
        if self._left:
            self._left -= 1
            self._meddle(self._left)
        return self._patch(path, body)


@pytest.mark.parametrize("times", [1, ATTEMPTS - 1, ATTEMPTS])
def test_a_list_of_taints_that_is_no_longer_the_one_read_is_never_written(
    root: Client, worker: Client, node: str, times: int
) -> None:
    """It is read again a few times; then the worker backs off."""
    meddled = Meddled(worker, lambda left: _toggle(root, node, f"example.io/{left}"), times=times)
    content = NodeContent({GPU: "true"}, taints=(TAINT,))
    if times == ATTEMPTS:
        with pytest.raises(Conflict):
            publish(request(node, content), cast(Client, meddled))
    else:
        publish(request(node, content), cast(Client, meddled))
    theirs = {THEIRS["key"], *(f"example.io/{left}" for left in range(times))}
    assert {t["key"] for t in carried(root, node)["taints"]} == theirs | ({GPU} if times < ATTEMPTS else set())


def _toggle(root: Client, name: str, key: str) -> set[str]:
    """Add or remove a taint as a careful program does; returns all keys but the worker's and the cluster's."""
    found = read(root, name)
    taints = found["spec"].get("taints", [])
    left = [taint for taint in taints if taint["key"] != key]
    taints = left if left != taints else [*taints, {"key": key, "effect": "NoSchedule"}]
    guard = {"resourceVersion": found["metadata"]["resourceVersion"]}
    root.patch(NODES.path(name=name), {"metadata": guard, "spec": {"taints": taints}})
    return {t["key"] for t in taints if t["key"] != GPU and not t["key"].startswith("node.kubernetes.io/")}


def test_workers_of_two_nodes_do_not_touch_each_others(
    root: Client, worker: Client, make_node: Callable[[], str]
) -> None:
    """One field manager, many Nodes."""
    one, other = make_node(), make_node()
    publish(request(one), worker)
    publish(request(other), worker)
    publish(request(one, NodeContent()), worker)
    assert (carried(root, one), carried(root, other)) == (BARE, PUBLISHED)


def test_unpublishing_removes_all_of_ours_and_nothing_else(root: Client, worker: Client, node: str) -> None:
    """Unpublishing removes only what nfd-worker set, and may be repeated."""
    publish(request(node), worker)
    for _ in range(2):
        assert without_seen(unpublish(node, worker)) == PublishAnswer()
        assert carried(root, node) == BARE
    entries = read(root, node)["metadata"]["managedFields"]
    assert ("nfd-worker", "Apply") not in {(entry["manager"], entry["operation"]) for entry in entries}


def test_unpublishing_a_node_that_is_gone_is_success(worker: Client) -> None:
    """There is nothing to remove."""
    answer = unpublish("no-such-node", worker)
    assert answer.is_published
    assert "does not exist" in answer.notes[0]
