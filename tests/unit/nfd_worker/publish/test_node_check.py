"""A check: whatever a Node has lost comes back, with few reads, and nothing is written where nothing is lost."""

from collections.abc import Callable
from typing import Any

import pytest

from feature_rules.model import Taint
from kube_api.errors import ServerUnavailable, Unreachable
from nfd_worker.labels.node_content import NodeContent, Unknown
from nfd_worker.publish.ownership import ORIGINS_ANNOTATION
from nfd_worker.publish.publish_child import carry_out
from nfd_worker.publish.tracking import EXTENDED_RESOURCES, TAINTS
from nfd_worker.publish.wire import CHECK, PublishAnswer, PublishRequest
from tests.support.nfd_worker.node_server import NodeServer, once

Json = dict[str, Any]

FEATURE = "feature.node.kubernetes.io"
NFD = "nfd.node.kubernetes.io"
GPU, NOTE, SLOTS = f"{FEATURE}/gpu", f"{FEATURE}/note", f"{FEATURE}/slots"
TAINT = Taint(GPU, "true", "NoSchedule")
PLAIN = NodeContent({GPU: "true"}, {NOTE: "hello"})
FULL = PLAIN._replace(extended_resources={SLOTS: "2"}, taints=(TAINT,))
OTHERS: Json = {
    "metadata": {"labels": {"example.io/rack": "r1"}},
    "spec": {"taints": [{"key": "example.io/theirs", "effect": "NoSchedule"}]},
    "status": {"capacity": {"cpu": "4"}, "allocatable": {"cpu": "4"}},
}
HEARTBEAT: Json = {"status": {"conditions": [{"type": "Ready"}]}}


def new_node(uid: str = "first") -> Json:
    """Make a Node as a kubelet registers it."""
    return {"kind": "Node", "metadata": {"name": "n", "uid": uid, "resourceVersion": "1"}}


class World:
    """A Node that was published, and a worker that checks it."""

    def __init__(self, content: NodeContent = FULL, **others: Any) -> None:
        self.server = NodeServer(new_node())
        self.server.change("kubectl", OTHERS)
        self.request = PublishRequest("n", content, origins={"rules.d/r.yaml": (GPU,)}, **others)
        self.seen = carry_out(self.request, self.server.client).seen
        self.is_right = self.carried()
        self.server.log.clear()

    def carried(self) -> tuple[Json, ...]:
        """Give all that publishing writes."""
        server, entries = self.server, self.server.node["metadata"]["managedFields"]
        ours = [entry for entry in entries if (entry["manager"], entry["operation"]) == ("nfd-worker", "Apply")]
        taints = [taint for taint in server.taints() if taint["key"] != "example.io/theirs"]
        parts = (server.labels(), server.annotations(), server.status("capacity"), server.status("allocatable"))
        return (*parts, {"taints": taints, "ours": ours})

    def check(self, *, is_full: bool = True) -> PublishAnswer:
        """Check the Node once."""
        self.server.log.clear()
        asked = self.request._replace(action=CHECK, seen=self.seen, is_full=is_full)
        answer = carry_out(asked, self.server.client)
        if answer.is_published:
            self.seen = answer.seen
        return answer

    @property
    def verbs(self) -> list[str]:
        """The requests of the last check."""
        return [verb for verb, _ in self.server.log]


def replace(world: World, **fields: Any) -> None:
    """Let another program replace the object by one that it has read before, or restored."""
    server = world.server
    node = {**server.node, "metadata": {**server.node["metadata"], **fields}}
    world.server = NodeServer(node)
    node["metadata"]["resourceVersion"] = str(int(node["metadata"]["resourceVersion"]) + 1)


def make_anew(world: World) -> None:
    """Delete the Node and register it again."""
    world.server = NodeServer(new_node("second"))
    world.server.change("kubectl", OTHERS)


METADATA_LOSSES: dict[str, tuple[Callable[[World], object], str]] = {
    "created anew": (make_anew, "the Node object was created anew"),
    "label removed": (
        lambda world: world.server.change("kubectl", {"metadata": {"labels": {GPU: None}}}),
        f"labels were removed or changed: {GPU}",
    ),
    "label changed": (
        lambda world: world.server.change("kubectl", {"metadata": {"labels": {GPU: "no"}}}),
        f"labels were removed or changed: {GPU}",
    ),
    "annotation removed": (
        lambda world: world.server.change("kubectl", {"metadata": {"annotations": {NOTE: None}}}),
        f"annotations were removed or changed: {NOTE}",
    ),
    "record of origins removed": (
        lambda world: world.server.change("kubectl", {"metadata": {"annotations": {ORIGINS_ANNOTATION: None}}}),
        f"annotations were removed or changed: {ORIGINS_ANNOTATION}",
    ),
    "replaced without labels": (
        lambda world: replace(world, labels={"example.io/rack": "r1"}, annotations={}),
        f"labels were removed or changed: {GPU}",
    ),
    "replaced without owners": (
        lambda world: replace(world, managedFields=[_entry("kubectl", {"labels": ["example.io/rack"]})]),
        f"labels were no longer owned by nfd-worker: {GPU}",
    ),
    "replaced by an older one, with a label that was removed since": (
        lambda world: replace(
            world,
            labels={**world.server.labels(), f"{FEATURE}/old": "1"},
            managedFields=[_entry("nfd-worker", {"labels": [GPU, f"{FEATURE}/old"],
                                                 "annotations": [NOTE, ORIGINS_ANNOTATION]})],
        ),
        f"labels that nfd-worker had removed were there again: {FEATURE}/old",
    ),
    "record of taints removed": (
        lambda world: world.server.change("kubectl", {"metadata": {"annotations": {TAINTS.own: None}}}),
        "the record of taints or extended resources was removed or changed",
    ),
}  # fmt: skip


def _entry(manager: str, fields: dict[str, list[str]]) -> Json:
    owned: Json = {f"f:{field}": {f"f:{key}": {} for key in keys} for field, keys in fields.items()}
    return {"manager": manager, "operation": "Apply", "fieldsV1": {"f:metadata": owned}}


@pytest.mark.parametrize(("lose", "words"), METADATA_LOSSES.values(), ids=METADATA_LOSSES)
def test_what_the_metadata_shows_comes_back_with_each_check(lose: Callable[[World], object], words: str) -> None:
    """One small read tells it; then all is as published, the next check finds nothing, and others' labels stay."""
    world = World()
    lose(world)
    answer = world.check(is_full=False)
    assert answer.is_published
    assert any(words in lost for lost in answer.lost), answer.lost
    assert world.verbs[0] == "metadata"
    assert world.carried() == world.is_right
    assert world.check().lost == ()
    assert world.server.writes == []


OTHER_LOSSES: dict[str, tuple[Json, str]] = {
    "capacity set to 0": (
        {"status": {"capacity": {SLOTS: "0"}, "allocatable": {SLOTS: "0"}}},
        "extended resources were removed or changed",
    ),
    "capacity removed": (
        {"status": {"capacity": {SLOTS: None}, "allocatable": {SLOTS: None}}},
        "extended resources were removed or changed",
    ),
    "taint removed": ({"spec": {"taints": OTHERS["spec"]["taints"]}}, "taints were removed or changed"),
}  # fmt: skip


@pytest.mark.parametrize(("body", "words"), OTHER_LOSSES.values(), ids=OTHER_LOSSES)
def test_taints_and_capacity_come_back_with_each_full_check(body: Json, words: str) -> None:
    """They are not in the metadata."""
    world = World()
    world.server.change("kubelet", body)
    assert world.check(is_full=False) == PublishAnswer(seen=world.seen)
    assert world.verbs == ["metadata"]
    answer = world.check()
    assert answer.lost == (words,)
    assert world.verbs[:2] == ["metadata", "get"]
    assert world.carried() == world.is_right
    assert world.check().lost == ()


def test_nothing_but_the_metadata_is_read_of_a_node_that_has_not_changed() -> None:
    """And the whole once for each version of a Node that has."""
    world = World()
    assert world.check() == PublishAnswer(seen=world.seen)
    assert world.verbs == ["metadata"]
    world.server.change("kubelet", HEARTBEAT)
    for verbs in (["metadata", "get"], ["metadata"]):
        assert world.check().lost == ()
        assert world.verbs == verbs


def test_nothing_but_the_metadata_is_read_where_no_taint_and_no_resource_is_ours() -> None:
    """Most Nodes have neither, and a kubelet's heartbeat changes each of them."""
    world = World(PLAIN)
    world.server.change("kubelet", HEARTBEAT)
    assert world.check() == PublishAnswer(seen=world.seen)
    assert world.verbs == ["metadata"]


def test_taints_that_came_back_from_a_backup_go_again() -> None:
    """None is wanted; the record that came back with them says whose they are."""
    world = World()
    backup = world.server.node
    world.request = world.request._replace(content=PLAIN)
    world.seen = carry_out(world.request, world.server.client).seen
    gone = world.carried()
    metadata = {**world.server.node["metadata"], "annotations": {**world.server.annotations(), TAINTS.own: str(TAINT)}}
    world.server = NodeServer({**world.server.node, "metadata": metadata, "spec": backup["spec"]})
    world.server.change(
        "kubectl", {"spec": {"taints": [*world.server.taints(), {"key": GPU, "value": "true", "effect": "NoSchedule"}]}}
    )
    assert world.check().lost == ("taints were removed or changed",)
    assert world.carried() == gone


def test_on_a_node_created_anew_a_taint_of_somebody_else_is_not_taken_for_ours() -> None:
    """What the record said of the Node before says nothing of this one."""
    world = World()
    make_anew(world)
    theirs = [{"key": GPU, "value": "other", "effect": "NoSchedule"}]
    world.server.change("kubectl", {"spec": {"taints": theirs}})
    assert world.check().notes
    assert world.server.taints() == theirs
    assert TAINTS.own not in world.server.annotations()


def test_what_is_not_known_is_not_missed() -> None:
    """A source that was never read keeps its labels, and is no reason to write at every check."""
    world = World()
    world.request = world.request._replace(
        content=NodeContent(), unknown=Unknown((GPU,), ("rules.d/r.yaml",)), origins={}
    )
    world.seen = carry_out(world.request, world.server.client).seen
    kept = world.carried()
    assert world.server.labels()[GPU] == "true"
    for _ in range(2):
        world.server.change("kubelet", HEARTBEAT)
        assert world.check().lost == ()
    assert world.carried() == kept


def test_a_server_that_hides_owners_is_not_written_to_at_every_check() -> None:
    """Some proxies leave managedFields out."""
    world = World(PLAIN)
    whole = world.server.get_metadata

    def hide(path: str) -> Json:
        found = whole(path)
        return {**found, "metadata": {**found["metadata"], "managedFields": []}}

    world.server.get_metadata = hide  # type: ignore[method-assign]
    assert world.check().lost == ()


@pytest.mark.parametrize("take_over", [False, True])
def test_an_upstream_that_writes_again_is_noticed_where_the_node_was_taken_over(take_over: bool) -> None:
    """Else it is none of ours."""
    world = World(PLAIN, take_over=take_over)
    world.server.change("nfd-master", {"metadata": {"annotations": {f"{NFD}/feature-labels": "x"}}})
    assert world.check().lost == (("an upstream Node Feature Discovery has written to it",) if take_over else ())


def test_a_node_that_was_deleted_is_lost() -> None:
    """It cannot be written; the worker tries again soon."""
    world = World()
    world.server.node["metadata"]["name"] = "other"
    answer = world.check()
    assert (answer.kind, answer.lost) == ("NotFound", ("the Node object was deleted",))


def test_what_is_lost_is_reported_though_it_cannot_be_restored() -> None:
    """So that the worker tries again soon, and not at the next check."""
    world = World()
    world.server.change("kubectl", {"metadata": {"labels": {GPU: None}}})
    world.server.log.clear()
    world.server.before = once(2, ServerUnavailable("PATCH: 503", status=503))
    answer = world.check()
    assert (answer.kind, answer.lost) == ("ServerUnavailable", (f"labels were removed or changed: {GPU}",))


def test_no_answer_is_an_error_and_no_loss() -> None:
    """Nothing is known of the Node then."""
    world = World()
    world.server.before = once(1, Unreachable("GET: no response"))
    with pytest.raises(Unreachable):
        world.check()


def test_of_many_keys_a_few_are_named() -> None:
    """A Node that was created anew lacks all of them."""
    world = World(NodeContent({f"{FEATURE}/k{n}": "1" for n in range(9)}))
    make_anew(world)
    _, lost, *_ = world.check().lost
    assert lost.endswith(f"{FEATURE}/k4 and 4 more")


def test_a_new_record_of_resources_is_no_loss() -> None:
    """What the worker wrote itself is what the next check compares with."""
    world = World(PLAIN)
    world.request = world.request._replace(content=FULL)
    world.seen = carry_out(world.request, world.server.client).seen
    assert world.seen.tracked[EXTENDED_RESOURCES.own] == "slots"
    assert world.check().lost == ()
