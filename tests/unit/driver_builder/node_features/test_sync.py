"""NodeFeature objects become labels of Nodes: what is written when, what is not, and what is said about it."""

import threading
from collections.abc import Callable
from typing import Any

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st
from hypothesis.stateful import RuleBasedStateMachine, initialize, invariant, precondition, rule

from driver_builder.cluster.cluster_cache import ClusterCache
from driver_builder.cluster.follower import Follower
from driver_builder.model.third_party_labels import FIELD_MANAGER
from driver_builder.node_features import sync as module
from driver_builder.node_features.node_feature import read_node_feature
from driver_builder.node_features.sync import NodeFeaturesSync
from driver_builder.node_features.wanted_labels import applied, decide
from driver_builder.snapshot.inventory import read_node
from kube_api.errors import Forbidden, KubeApiError, NotFound, ServerUnavailable, TooManyRequests, Unreachable
from kube_api.resources import NODE_FEATURES, NODES
from tests.support.driver_builder.labelled_nodes import LabelledNodes

GPU, COUNT, RACK = "nvidia.com/gpu.product", "nvidia.com/gpu.count", "feature.node.kubernetes.io/rack"


class Installation:
    """A cluster with two nodes, and a controller that honours the objects of two namespaces."""

    def __init__(self, *namespaces: str) -> None:
        self.server = LabelledNodes()
        self.seconds = 1000.0
        self.woken = 0
        self.server.add_node("n1")
        self.server.add_node("n2")
        self.namespaces = namespaces or ("a", "b")
        self.start()

    def start(self, *namespaces: str) -> None:
        """Start a controller that knows nothing, with other namespaces if some are given."""
        self.namespaces = namespaces or self.namespaces
        self.stop = threading.Event()
        self.cache = ClusterCache(self.server, namespaces=[])
        self.sync = NodeFeaturesSync(
            self.server, self.cache, namespaces=[name for name in self.namespaces if name != "none"], stop=self.stop,
            written=self._woken, clock=lambda: self.seconds, monotonic=lambda: self.seconds,
        )  # fmt: skip

    def _woken(self) -> None:
        self.woken += 1

    def follow(self) -> None:
        """Let the watches bring what happened since they were looked at; the first time there is none yet."""
        self.server.catch_up()
        followers: list[Follower[Any]] = [self.cache.nodes, *(item.follower for item in self.sync.namespaces)]
        for follower in followers:
            try:
                if follower.collection.version:
                    follower.watch(lambda: None, lambda: False)
            except KubeApiError:
                follower.collection.watch_broke()

    def passes(self, count: int = 1) -> list[str]:
        """Look at what changed so many times; returns the nodes that were written."""
        before = len(self.server.applied)
        for _ in range(count):
            self.follow()
            self.sync.sync()
        return self.server.applied[before:]

    def expected(self, name: str) -> dict[str, str]:
        """Return what the rules give a node, of what the API server has now."""
        node = read_node(self.server.get(NODES.path(name=name)))
        views = []
        for item in self.sync.namespaces:
            objects = self.server.list(NODE_FEATURES.path(namespace=item.follower.source.namespace)).items
            read = (read_node_feature(obj) for obj in objects)
            views.append(tuple(feature for feature in read if feature is not None and feature.node == name))
        return dict(decide(node, views).labels)

    def owned(self, name: str) -> dict[str, str]:
        """Return the labels of a node that are ours."""
        return applied(read_node(self.server.get(NODES.path(name=name))))

    def said(self) -> list[str]:
        """Return the words of all Events."""
        return [f"{obj['involvedObject']['name']}: {obj['message']}" for obj in self.server.events()]


@pytest.fixture
def world() -> Installation:
    """Return an installation without objects."""
    return Installation()


def test_labels_come_change_and_go_with_their_object(world: Installation) -> None:
    """On the node that it names, with a field manager of their own; nobody else's labels are touched."""
    world.server.somebody_sets("n1", {"pool": "web"})
    world.server.put("a", "gfd-n1", "n1", {COUNT: "1", "rack": "r1"})
    assert world.passes(2) == ["n1"]
    assert world.server.labels("n1") == {"pool": "web", COUNT: "1", RACK: "r1"}
    assert world.server.owners("n1", COUNT) == {FIELD_MANAGER}
    world.server.put("a", "gfd-n1", "n1", {COUNT: "2"})
    assert world.passes(2) == ["n1"]
    assert world.server.labels("n1") == {"pool": "web", COUNT: "2"}
    world.server.put("a", "gfd-n1", "n2", {COUNT: "2"})
    assert world.passes(2) == ["n1", "n2"]
    assert (world.server.labels("n1"), world.server.labels("n2")) == ({"pool": "web"}, {COUNT: "2"})
    world.server.remove("a", "gfd-n1")
    assert world.passes(2) == ["n2"]
    assert world.server.labels("n2") == {}
    assert FIELD_MANAGER not in str(world.server.objects[NODES.path(name="n2")])


def test_a_steady_state_writes_nothing_and_costs_what_changed(
    world: Installation, monkeypatch: pytest.MonkeyPatch
) -> None:
    """Also after a restart; of many nodes only the one that changed is looked at."""
    for number in range(50):
        world.server.add_node(f"m{number}")
        world.server.put("a", f"o{number}", f"m{number}", {COUNT: "1"})
    assert len(world.passes()) == 50
    assert world.passes(2) == []
    looked: list[str] = []

    def counted(node: object, *args: object) -> object:
        looked.append(getattr(node, "name", ""))
        return decide(node, *args)  # type: ignore[arg-type]

    monkeypatch.setattr(module, "decide", counted)
    world.server.put("a", "o7", "m7", {COUNT: "2"})
    assert world.passes() == ["m7"]
    assert set(looked) == {"m7"}
    world.start()
    assert world.passes(2) == []


def test_the_controller_is_woken_by_what_is_written(world: Installation) -> None:
    """A driver may select nodes by such a label, and no watch says what a write of ours has said already."""
    world.server.put("a", "x", "n1", {COUNT: "1"})
    world.passes()
    assert world.woken == 1
    world.passes()
    assert world.woken == 1
    assert world.cache.nodes.collection.values()[0].labels == {COUNT: "1"}


def test_the_workers_label_wins_before_and_after(world: Installation) -> None:
    """What it has set is not taken; what it takes is let go; what it lets go comes back."""
    world.server.worker_applies("n1", {COUNT: "8"})
    world.server.put("a", "gfd", "n1", {COUNT: "1", GPU: "A100"})
    world.passes()
    assert world.server.labels("n1") == {COUNT: "8", GPU: "A100"}
    world.server.worker_applies("n1", {COUNT: "8", GPU: "H100"})
    assert world.passes() == [], "the API server has let it go already"
    assert world.server.labels("n1") == {COUNT: "8", GPU: "H100"}
    assert world.owned("n1") == {}
    world.server.worker_applies("n1", {})
    world.passes()
    assert world.server.labels("n1") == {COUNT: "1", GPU: "A100"}


def test_no_label_is_absent_when_an_equal_one_changes_hands(world: Installation) -> None:
    """Both own it, so the one that stays keeps it."""
    world.server.worker_applies("n1", {COUNT: "1"})
    world.server.put("a", "gfd", "n1", {COUNT: "1"})
    world.passes()
    world.server.worker_applies("n1", {})
    assert world.server.labels("n1") == {COUNT: "1"}


def test_a_shared_label_outlives_its_other_owner_although_its_object_changed(world: Installation) -> None:
    """NFD has set it, too, and is taken over: the label is there all the time, and has the new value then."""
    world.server.worker_applies("n1", {COUNT: "1"})
    world.server.put("a", "gfd", "n1", {COUNT: "1"})
    world.passes()
    world.server.put("a", "gfd", "n1", {COUNT: "2"})
    assert world.passes() == [], "both own it still"
    world.server.worker_applies("n1", {})
    assert world.server.labels("n1") == {COUNT: "1"}
    world.passes()
    assert world.server.labels("n1") == {COUNT: "2"}


def test_a_conflict_that_only_the_server_knew_leaves_the_others(world: Installation) -> None:
    """Somebody is quicker between the decision and the write: an Event names the manager, all else is set."""
    world.server.put("a", "gfd", "n1", {COUNT: "1", GPU: "A100"})
    world.server.before_apply = _once(lambda: world.server.somebody_sets("n1", {COUNT: "9"}, manager="kubelet"))
    for _ in range(3):
        world.passes()
        world.seconds += module.EVENT_SECONDS
    assert world.server.labels("n1") == {COUNT: "9", GPU: "A100"}
    assert world.said() == [f"gfd: not set on node n1: {COUNT}=1: field manager 'kubelet' has set another value"]


def test_an_event_says_what_is_refused_once(world: Installation) -> None:
    """On the object; not again in each pass, and counted up by the next controller."""
    world.server.put("a", "gfd", "n1", {"kubernetes.io/arch": "arm64", "driverwright.io/x.y.ready": "1", COUNT: "1"})
    world.passes(3)
    (event,) = world.server.events()
    assert (event["type"], event["reason"], event["count"]) == ("Warning", "LabelRefused", 1)
    assert event["metadata"]["namespace"] == event["involvedObject"]["namespace"] == "a"
    assert event["involvedObject"]["kind"] == "NodeFeature"
    assert event["message"] == (
        "not set on node n1: driverwright.io/x.y.ready=1: the namespace driverwright.io is reserved for driverwright; "
        "choose another (and 1 more)"
    )
    world.start()
    world.passes(3)
    (event,) = world.server.events()
    assert event["count"] == 2


def test_an_object_whose_name_is_as_long_as_can_be_gets_its_event(world: Installation) -> None:
    """The Event's own name has room for no more."""
    world.server.put("a", f"{'x' * 241}.{'y' * 11}", "n1", {"kubernetes.io/x": "1"})
    world.passes()
    (event,) = world.server.events()
    assert len(event["metadata"]["name"]) <= 253
    assert ".." not in event["metadata"]["name"]
    assert len(event["involvedObject"]["name"]) == 253


def test_an_object_gets_an_event_a_minute_at_most(world: Installation) -> None:
    """Whoever writes it decides how often it changes."""
    for number in range(10):
        world.server.put("a", "gfd", "n1", {"kubernetes.io/x": str(number)})
        world.passes()
    assert len(world.said()) == 1
    world.seconds += module.EVENT_SECONDS
    world.passes()
    assert len(world.said()) == 2
    assert "kubernetes.io/x=9" in "".join(world.said())


def test_many_objects_with_refusals_take_their_turns(world: Installation, monkeypatch: pytest.MonkeyPatch) -> None:
    """A pass posts some, and the labels of all are set at once."""
    monkeypatch.setattr(module, "EVENTS_OF_A_PASS", 3)
    for number in range(7):
        world.server.add_node(f"m{number}")
        world.server.put("a", f"o{number}", f"m{number}", {"kubernetes.io/x": "1", COUNT: "1"})
    assert len(world.passes()) == 7
    assert len(world.said()) == 3
    for _ in range(2):
        world.seconds += module.EVENT_SECONDS
        world.passes()
    assert len(world.said()) == 7


def test_events_that_may_not_be_posted_keep_no_label_away(
    world: Installation, caplog: pytest.LogCaptureFixture
) -> None:
    """The log has the words."""
    create = world.server.create
    world.server.create = _refusing(create)  # type: ignore[method-assign,assignment]
    world.server.put("a", "gfd", "n1", {"kubernetes.io/x": "1", COUNT: "1"})
    world.passes(2)
    assert world.server.labels("n1") == {COUNT: "1"}
    assert caplog.text.count("no Event on a/gfd: 403") == 1


def test_an_object_for_a_node_that_is_not_there_waits_for_it(world: Installation) -> None:
    """No write, no Event; and none when the node has gone."""
    world.server.put("a", "gfd", "late", {COUNT: "1", "kubernetes.io/x": "1"})
    assert world.passes() == []
    assert world.said() == []
    world.server.add_node("late")
    assert world.passes() == ["late"]
    del world.server.objects[NODES.path(name="late")]
    world.server.put("a", "gfd", "late", {COUNT: "2"})
    assert world.passes() == []


def test_a_namespace_that_may_not_be_read_removes_nothing(world: Installation) -> None:
    """Nor does one that cannot be read for a while; what others want is set meanwhile."""
    world.server.put("a", "x", "n1", {COUNT: "1"})
    world.passes()
    world.server.forbidden = ("/namespaces/a/",)
    world.server.remove("a", "x")
    world.start()
    world.server.put("b", "y", "n1", {COUNT: "5", GPU: "A100"})
    world.passes(2)
    assert world.server.labels("n1") == {COUNT: "1", GPU: "A100"}
    world.server.forbidden = ()
    world.passes()
    assert world.server.labels("n1") == {COUNT: "1", GPU: "A100"}, "it is not asked again at once"
    world.seconds += 31
    world.passes()
    assert world.server.labels("n1") == {COUNT: "5", GPU: "A100"}


def test_a_list_that_breaks_off_removes_nothing(world: Installation, monkeypatch: pytest.MonkeyPatch) -> None:
    """Of two pages the second one does not come."""
    world.server.put("a", "x", "n1", {COUNT: "1"})
    world.server.put("a", "y", "n2", {COUNT: "1"})
    world.passes()
    world.start()
    pages = world.server.pages

    def broken(path: str, **options: object) -> object:
        for page in pages(path, **options):  # type: ignore[arg-type]
            yield page._replace(items=page.items[:1])
            if "nodefeatures" in path:
                raise Unreachable("GET: the response was cut off")

    monkeypatch.setattr(world.server, "pages", broken)
    world.passes(2)
    assert (world.server.labels("n1"), world.server.labels("n2")) == ({COUNT: "1"}, {COUNT: "1"})


def test_a_cluster_without_the_definition_is_no_error(world: Installation) -> None:
    """Nothing is asked for again at once, and nothing is removed: what is left of objects is not known."""
    world.server.put("a", "x", "n1", {COUNT: "1"})
    world.passes()
    world.start()
    asked = _without_definition(world.server)
    world.server.put("b", "y", "n2", {COUNT: "1"})
    world.passes(5)
    assert world.server.labels("n1") == {COUNT: "1"}
    assert asked == ["a", "b"]
    world.seconds += 31
    world.passes()
    assert asked == ["a", "b", "a", "b"]


def test_the_log_says_once_why_a_namespace_is_not_known(world: Installation, caplog: pytest.LogCaptureFixture) -> None:
    """A warning where somebody has to correct it; again when it is another reason, or happens again."""
    caplog.set_level("INFO", logger="driver_builder.node_features")

    def said() -> list[tuple[str, bool]]:
        caplog.clear()
        for _ in range(10):
            world.seconds += 31
            world.passes()
        return [(record.levelname, "403" in record.getMessage()) for record in caplog.records
                if "namespace a: nothing is removed" in record.getMessage()]  # fmt: skip

    world.server.forbidden = ("/namespaces/a/",)
    assert said() == [("WARNING", True)]
    assert said() == []
    world.server.forbidden = ()
    assert said() == []
    world.start()
    _without_definition(world.server)
    assert said() == [("INFO", False)]
    assert said() == []


def test_objects_that_went_before_their_definition_take_their_labels_along(world: Installation) -> None:
    """The API server deletes them first, and the watch says so."""
    world.server.put("a", "x", "n1", {COUNT: "1"})
    world.passes()
    world.server.remove("a", "x")
    world.follow()
    _without_definition(world.server)
    for item in world.sync.namespaces:
        item.follower.collection.doubt()
    world.sync.sync()
    assert world.server.labels("n1") == {}


def test_a_namespace_that_leaves_the_list_takes_its_labels_along(world: Installation) -> None:
    """And with an empty list all of them go: that is how they are removed before an uninstallation."""
    world.server.put("a", "x", "n1", {COUNT: "1"})
    world.server.put("b", "y", "n1", {GPU: "A100"})
    world.passes()
    world.start("b")
    world.passes()
    assert world.server.labels("n1") == {GPU: "A100"}
    world.start("none")
    world.passes()
    assert world.server.labels("n1") == {}


def test_nothing_is_written_while_nodes_are_not_known(world: Installation) -> None:
    """The API server is away: it is tried again, and nothing is lost."""
    world.server.put("a", "x", "n1", {COUNT: "1"})
    world.server.faults = [Unreachable("GET /api/v1/nodes: refused")]
    with pytest.raises(Unreachable):
        world.sync.sync()
    assert world.passes() == ["n1"]


def test_a_node_that_cannot_be_written_delays_no_other(world: Installation, caplog: pytest.LogCaptureFixture) -> None:
    """A policy denies one: that one is tried again after a while."""
    world.server.put("a", "x", "n1", {COUNT: "1"})
    world.server.put("a", "y", "n2", {COUNT: "1"})
    world.server.unpatchable = (NODES.path(name="n1"),)
    assert world.passes() == ["n2"]
    assert "node n1: PATCH /api/v1/nodes/n1: 403" in caplog.text
    world.server.unpatchable = ()
    assert world.passes() == []
    world.seconds += module.REPEAT_SECONDS
    assert world.passes() == ["n1"]


def test_many_nodes_that_may_not_be_written_delay_no_other(world: Installation) -> None:
    """They come first by name, and all are refused for good."""
    denied = [f"a{number:02}" for number in range(40)]
    for name in (*denied, "n1"):
        if name != "n1":
            world.server.add_node(name)
        world.server.put("a", f"o-{name}", name, {COUNT: "1"})
    world.server.unpatchable = tuple(NODES.path(name=name) for name in denied)
    assert world.passes() == ["n1"]


@pytest.mark.parametrize(
    ("error", "tried"),
    [
        pytest.param(TooManyRequests("PATCH: 429", status=429, retry_after=7.0), 1, id="overloaded"),
        pytest.param(ServerUnavailable("PATCH: 500", status=500), module.STRIKES, id="fails"),
        pytest.param(Unreachable("PATCH: timed out"), module.STRIKES, id="away"),
    ],
)
def test_an_api_server_that_fails_is_left_alone(error: Exception, tried: int, world: Installation) -> None:
    """After a few nodes in a row; the others are written as soon as it works again, these a little later."""
    for number in range(20):
        world.server.add_node(f"m{number:02}")
        world.server.put("a", f"o{number}", f"m{number:02}", {COUNT: "1"})
    attempts = 0

    def fail() -> None:
        nonlocal attempts
        attempts += 1
        raise error

    world.server.before_apply = fail
    with pytest.raises(type(error)):
        world.passes()
    assert attempts == tried
    world.server.before_apply = lambda: None
    assert len(world.passes()) == 20 - tried
    world.seconds += module.AGAIN_SECONDS
    assert len(world.passes()) == tried


def test_whoever_removes_a_label_again_and_again_is_written_against_ever_more_seldom(world: Installation) -> None:
    """At once at first; other nodes do not wait; after a quiet time all begins anew."""
    world.server.put("a", "x", "n1", {COUNT: "1"})

    def writes(seconds: int) -> int:
        before = len(world.server.applied)
        for _ in range(seconds):
            world.passes()
            world.server.somebody_sets("n1", {COUNT: None})
            world.seconds += 1
        return len(world.server.applied) - before

    assert writes(module.FREE_WRITES) == module.FREE_WRITES
    assert writes(3600) <= 3600 / module.REPEAT_SECONDS + 9
    world.server.put("a", "y", "n2", {COUNT: "1"})
    assert world.passes() == ["n2"]
    world.seconds += module.REPEAT_SECONDS
    assert world.passes() == ["n1"], "it is tried still"
    world.seconds += module.QUIET_SECONDS
    world.server.somebody_sets("n1", {COUNT: None})
    assert writes(module.FREE_WRITES) == module.FREE_WRITES


def test_an_outage_makes_no_node_wait_longer(world: Installation) -> None:
    """What failed has changed nothing that somebody could undo."""
    world.server.put("a", "x", "n1", {COUNT: "1"})

    def fail() -> None:
        raise Unreachable("PATCH: timed out")

    world.server.before_apply = fail
    for _ in range(3 * module.FREE_WRITES):
        assert world.passes() == []
        world.seconds += module.AGAIN_SECONDS
    world.server.before_apply = lambda: None
    assert world.passes() == ["n1"]


def test_a_stop_ends_a_pass_between_two_nodes(world: Installation) -> None:
    """The next controller has the Lease then."""
    world.server.put("a", "x", "n1", {COUNT: "1"})
    world.server.put("a", "y", "n2", {COUNT: "1"})
    world.server.before_apply = world.stop.set
    assert world.passes() == ["n1"]


def test_the_thread_works_until_it_is_stopped(world: Installation, monkeypatch: pytest.MonkeyPatch) -> None:
    """News wake it, and an API server that is away ends nothing."""
    monkeypatch.setattr(module, "LOOK_SECONDS", 0.01)
    monkeypatch.setattr(module, "SETTLE_SECONDS", 0.0)
    world.server.put("a", "x", "n1", {COUNT: "1"})
    world.server.faults = [Unreachable("GET /api/v1/nodes: refused", retry_after=0.01)]
    reached = threading.Event()
    world.server.before_apply = reached.set
    synced, repair = threading.Event(), world.cache.nodes.repair

    def repaired() -> None:
        repair()
        synced.set()

    monkeypatch.setattr(world.cache.nodes, "repair", repaired)
    thread = threading.Thread(target=world.sync.run)
    thread.start()
    try:
        assert reached.wait(60)
        reached.clear()
        world.server.put("a", "x", "n1", {COUNT: "2"})
        while not reached.wait(0.01):
            world.follow()
        for _ in range(2):
            synced.clear()
            world.sync.wake.set()
            assert synced.wait(60), "the job wakes it, although there is no news"
    finally:
        world.stop.set()
        thread.join(60)
    assert not thread.is_alive()


class Histories(RuleBasedStateMachine):
    """Whatever happens: the worker's labels stay, reserved ones never come, and at rest all is as the rules say."""

    nodes = st.sampled_from(("n1", "n2", "n3"))
    namespaces = st.sampled_from(("a", "b"))
    labels = st.dictionaries(
        st.sampled_from(("rack", RACK, COUNT, GPU, "driverwright.io/a.b.ready", "kubernetes.io/x")),
        st.sampled_from(("1", "2", "not valid")),
        max_size=4,
    )
    worker_labels = st.dictionaries(st.sampled_from((RACK, COUNT)), st.sampled_from(("1", "2", "3")), max_size=2)

    @initialize()
    def install(self) -> None:
        """Begin with an empty cluster."""
        self.world = Installation()
        self.of_worker: dict[str, dict[str, str]] = {}

    @rule(namespace=namespaces, name=st.sampled_from("xyz"), node=nodes, labels=labels)
    def put(self, namespace: str, name: str, node: str, labels: dict[str, str]) -> None:
        """Somebody makes an object, changes it, or gives it to another node."""
        self.world.server.put(namespace, name, node, labels)

    @rule(namespace=namespaces, name=st.sampled_from("xyz"))
    def remove(self, namespace: str, name: str) -> None:
        """Somebody deletes an object."""
        self.world.server.remove(namespace, name)

    @rule(node=st.sampled_from(("n1", "n2")), labels=worker_labels)
    def work(self, node: str, labels: dict[str, str]) -> None:
        """The worker applies what it found."""
        self.world.server.worker_applies(node, labels)
        self.of_worker[node] = labels

    @rule(node=st.sampled_from(("n1", "n2")), value=st.sampled_from(("1", "7", None)))
    def meddle(self, node: str, value: str | None) -> None:
        """A person sets a label that the worker has not, or removes it."""
        self.world.server.somebody_sets(node, {GPU: value})

    @rule()
    def third_node_comes_or_goes(self) -> None:
        """A node joins, or leaves."""
        if self.world.server.objects.pop(NODES.path(name="n3"), None) is None:
            self.world.server.add_node("n3")

    @rule(parts=st.sampled_from(((), ("/namespaces/a/",), ("nodefeatures",))))
    def forbid(self, parts: tuple[str, ...]) -> None:
        """Namespaces may not be read for a while."""
        self.world.server.forbidden = parts

    @rule(namespaces=st.sampled_from((("a", "b"), ("b", "a"), ("b",), ("none",))))
    def restart(self, namespaces: tuple[str, ...]) -> None:
        """Another controller, with another list."""
        self.world.start(*namespaces)

    @rule()
    def distrust(self) -> None:
        """A watch breaks: all is listed anew."""
        for item in self.world.sync.namespaces:
            item.follower.collection.watch_broke()

    @rule(is_quick=st.booleans())
    def sync(self, is_quick: bool) -> None:
        """Look at what changed; somebody may be quicker than the write."""
        if is_quick:
            self.world.server.before_apply = _once(lambda: self.world.server.somebody_sets("n1", {GPU: "9"}))
        self.world.passes(2)
        self.world.server.before_apply = lambda: None

    @precondition(lambda self: hasattr(self, "world"))
    @invariant()
    def nobody_is_harmed(self) -> None:
        """At any time."""
        for node, labels in self.of_worker.items():
            assert self.world.server.labels(node).items() >= labels.items()
        for path, obj in self.world.server.objects.items():
            if path.startswith(NODES.path()):
                found = obj["metadata"].get("labels") or {}
                assert not any(key.startswith(("driverwright.io/", "kubernetes.io/")) for key in found)

    def teardown(self) -> None:
        """At rest everything is as the rules say, and stays so without a write."""
        if not hasattr(self, "world"):
            return
        self.world.server.forbidden = ()
        for _ in range(3):
            self.world.seconds += module.REPEAT_SECONDS
            self.world.passes()
        for path in [path for path in self.world.server.objects if path.startswith(NODES.path())]:
            name = path.rpartition("/")[2]
            assert self.world.owned(name) == self.world.expected(name)
        self.world.seconds += module.REPEAT_SECONDS
        assert self.world.passes() == []


Histories.TestCase.settings = settings(max_examples=30, stateful_step_count=25, deadline=None)
TestHistories = Histories.TestCase


@given(st.integers(0, 9))
@settings(max_examples=5, deadline=None)
def test_who_comes_first_does_not_depend_on_the_order_of_events(seed: int) -> None:
    """The same objects, put in another order, give the same labels."""
    objects = [(namespace, name, str(number)) for number, (namespace, name) in enumerate(
        (namespace, name) for namespace in "ab" for name in "xyz")]  # fmt: skip
    world = Installation()
    for namespace, name, value in objects[seed % 6 :] + objects[: seed % 6]:
        world.server.put(namespace, name, "n1", {COUNT: value})
        if seed % 2:
            world.passes()
    world.passes()
    assert world.server.labels("n1") == {COUNT: "0"}


def _once(act: Callable[[], object]) -> Callable[[], None]:
    left = [act]

    def acting() -> None:
        if left:
            left.pop()()

    return acting


def _refusing(create: Callable[..., object]) -> Callable[..., object]:
    def refusing(path: str, body: object) -> object:
        if path.endswith("/events"):
            raise Forbidden("403 Forbidden", status=403)
        return create(path, body)

    return refusing


def _without_definition(server: LabelledNodes) -> list[str]:
    """Take the definition away; returns the namespaces that are asked for objects."""
    asked: list[str] = []
    pages = server.pages

    def missing(path: str, **options: object) -> object:
        if "nodefeatures" in path:
            asked.append(path.split("/")[-2])
            raise NotFound(f"GET {path}: 404", status=404)
        yield from pages(path, **options)  # type: ignore[arg-type]

    server.pages = missing  # type: ignore[method-assign,assignment]
    return asked
