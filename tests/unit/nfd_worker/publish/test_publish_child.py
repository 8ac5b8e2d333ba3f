"""The publish child: what becomes of the Node, in how many requests, and after any interruption."""

import io
import json
from collections.abc import Callable, Iterator
from typing import Any

import pytest

from feature_rules.model import Taint
from kube_api.client import Client
from kube_api.errors import Conflict, Forbidden, KubeApiError, NotFound, ServerUnavailable, TooManyRequests, Unreachable
from kube_api.once import OnceConnection
from nfd_worker.labels.node_content import NodeContent, Unknown
from nfd_worker.publish import publish_child as module
from nfd_worker.publish.publish_child import ATTEMPTS, carry_out, main, merged, publish, unpublish
from nfd_worker.publish.tracking import EXTENDED_RESOURCES, TAINTS
from nfd_worker.publish.wire import UNPUBLISH, PublishAnswer, PublishRequest, Seen
from tests.contract.misbehaving_server import Handler, misbehaving_server
from tests.support.nfd_worker.node_server import NodeServer, once

Json = dict[str, Any]

FEATURE = "feature.node.kubernetes.io"
NFD = "nfd.node.kubernetes.io"
GPU, OLD, SLOTS = f"{FEATURE}/gpu", f"{FEATURE}/old", f"{FEATURE}/slots"
TAINT = Taint(GPU, "true", "NoSchedule")
FOREIGN: Json = {"key": "node.kubernetes.io/unschedulable", "effect": "NoSchedule"}
FULL = NodeContent({GPU: "true"}, {f"{FEATURE}/note": "hello"}, {SLOTS: "2"}, (TAINT,))
OTHERS: Json = {
    "metadata": {"labels": {"example.io/rack": "r1"}, "annotations": {"example.io/owner": "me"}},
    "spec": {"taints": [FOREIGN]},
    "status": {"capacity": {"cpu": "4"}, "allocatable": {"cpu": "3"}},
}
UPSTREAM: Json = {
    "metadata": {
        "labels": {GPU: "true", OLD: "1"},
        "annotations": {
            f"{NFD}/feature-labels": "gpu,old",
            f"{NFD}/extended-resources": "cards",
            f"{NFD}/taints": f"{OLD}=1:NoExecute",
            f"{NFD}/master.version": "v0.18.0",
        },
    },
    "spec": {"taints": [FOREIGN, {"key": OLD, "value": "1", "effect": "NoExecute"}]},
    "status": {"capacity": {"cpu": "4", f"{FEATURE}/cards": "1"}, "allocatable": {f"{FEATURE}/cards": "1"}},
}


def request(content: NodeContent = FULL, unknown: Unknown | None = None, **others: Any) -> PublishRequest:
    """Make a request for the one Node."""
    return PublishRequest("n", content, unknown, **others)


def told(answer: PublishAnswer) -> PublishAnswer:
    """Give what an answer says, but for how the Node was left."""
    return answer._replace(seen=Seen())


@pytest.fixture(autouse=True)
def no_pause(monkeypatch: pytest.MonkeyPatch) -> None:
    """Do not wait between attempts."""
    monkeypatch.setattr(module, "_PAUSE_SECONDS", 0.0)


@pytest.fixture
def server() -> NodeServer:
    """Make a Node that others have written to."""
    made = NodeServer()
    made.change("kubectl", OTHERS)
    return made


@pytest.fixture
def upstream() -> NodeServer:
    """Make a Node as upstream leaves it."""
    made = NodeServer()
    made.change("kubectl", OTHERS)
    made.change("nfd-master", UPSTREAM)
    return made


def carried(server: NodeServer) -> Json:
    """Give all that publishing can change."""
    return {
        "labels": server.labels(),
        "annotations": server.annotations(),
        "capacity": server.status("capacity"),
        "allocatable": server.status("allocatable"),
        "taints": server.taints(),
    }


BARE: Json = {
    "labels": {"example.io/rack": "r1"},
    "annotations": {"example.io/owner": "me"},
    "capacity": {"cpu": "4"},
    "allocatable": {"cpu": "3"},
    "taints": [FOREIGN],
}
PUBLISHED = {
    "labels": {"example.io/rack": "r1", GPU: "true"},
    "annotations": {
        "example.io/owner": "me",
        f"{FEATURE}/note": "hello",
        **dict.fromkeys(EXTENDED_RESOURCES, "slots"),
        **dict.fromkeys(TAINTS, f"{GPU}=true:NoSchedule"),
    },
    "capacity": {"cpu": "4", SLOTS: "2"},
    "allocatable": {"cpu": "3", SLOTS: "2"},
    "taints": [FOREIGN, {"key": GPU, "value": "true", "effect": "NoSchedule"}],
}


# ---------------------------------------------------------------- publish


def test_all_arrives_and_what_others_wrote_stays(server: NodeServer) -> None:
    """Labels, then the status, then the taints."""
    assert told(publish(request(), server.client)) == PublishAnswer()
    assert carried(server) == PUBLISHED
    assert server.writes == ["", "/status", ""]


def test_publishing_again_is_one_request_that_changes_nothing(server: NodeServer) -> None:
    """The answer of the apply says that the rest is right."""
    publish(request(), server.client)
    version = server.node["metadata"]["resourceVersion"]
    server.log.clear()
    publish(request(), server.client)
    assert server.log == [("apply", "/api/v1/nodes/n")]
    assert server.node["metadata"]["resourceVersion"] == version


@pytest.mark.parametrize("take_over", [False, True])
def test_a_node_without_taints_and_resources_costs_one_request(server: NodeServer, take_over: bool) -> None:
    """Without taints and extended resources a publish is one request."""
    publish(request(NodeContent({GPU: "true"}), take_over=take_over), server.client)
    assert server.log == [("apply", "/api/v1/nodes/n")]


def test_what_is_not_wanted_any_more_goes(server: NodeServer) -> None:
    """Everything that is no longer wanted is removed from the Node."""
    publish(request(), server.client)
    publish(request(NodeContent()), server.client)
    assert carried(server) == BARE


def test_what_was_changed_by_hand_is_set_again(server: NodeServer) -> None:
    """Manual changes of labels, resources and taints are reverted."""
    publish(request(), server.client)
    removed = {"metadata": {"labels": {GPU: None}}, "spec": {"taints": [FOREIGN]}, "status": {"capacity": {SLOTS: "7"}}}
    server.change("kubectl", removed)
    publish(request(), server.client)
    assert carried(server) == PUBLISHED


def test_a_taint_set_by_somebody_meanwhile_survives(server: NodeServer) -> None:
    """The list is read again when it was changed between reading and writing."""
    theirs = {"key": "example.io/maintenance", "effect": "NoExecute"}

    def meddle(number: int) -> None:
        if number == 3:
            server.change("kubectl", {"spec": {"taints": [FOREIGN, theirs]}})

    server.before = meddle
    publish(request(), server.client)
    assert server.taints() == [FOREIGN, theirs, {"key": GPU, "value": "true", "effect": "NoSchedule"}]
    assert [verb for verb, _ in server.log] == ["apply", "patch", "patch", "get", "patch"]


def test_a_node_that_always_changes_is_given_up_for_now(server: NodeServer) -> None:
    """After repeated conflicts the publish fails, and the worker tries again later."""
    counter = iter(range(1000))
    server.before = lambda _: server.change("kubectl", {"metadata": {"labels": {"counter": str(next(counter))}}})
    with pytest.raises(Conflict):
        publish(request(), server.client)
    assert sum(verb == "patch" for verb, _ in server.log) == ATTEMPTS


def test_what_no_source_could_say_stays(server: NodeServer) -> None:
    """After a restart with a source that cannot be read: all kinds, but not what a known prefix covers."""
    publish(request(), server.client)
    publish(request(NodeContent(), Unknown(known_prefixes=(f"{FEATURE}/slots", f"{FEATURE}/note"))), server.client)
    assert server.labels()[GPU] == "true"
    assert server.taints() == PUBLISHED["taints"]
    assert SLOTS not in server.status("capacity")
    assert f"{FEATURE}/note" not in server.annotations()
    publish(request(NodeContent()), server.client)
    assert carried(server) == BARE


def test_a_file_that_goes_bad_holds_after_a_restart_what_it_made_and_nothing_else(server: NodeServer) -> None:
    """The record is on the Node from the write that made the labels, and goes with the last of them."""
    made = NodeContent({GPU: "true", OLD: "1"}, {}, {SLOTS: "2"}, (TAINT,))
    origins = {"rules.d/a.yaml": (GPU, SLOTS), "features.d/f": (OLD,)}
    publish(request(made, origins=origins), server.client)
    for _ in range(2):
        publish(request(NodeContent(), Unknown(origins=("rules.d/a.yaml", "custom.d/README"))), server.client)
        assert server.labels() == {**OTHERS["metadata"]["labels"], GPU: "true"}
        assert SLOTS in server.status("capacity")
        assert TAINT.key in {taint["key"] for taint in server.taints()}
    publish(request(NodeContent(), Unknown(origins=("custom.d/README",))), server.client)
    assert carried(server) == BARE


@pytest.mark.parametrize("steps", range(1, 4))
@pytest.mark.parametrize("is_served", [True, False], ids=["answer lost", "request lost"])
@pytest.mark.parametrize("content", [FULL, NodeContent()], ids=["comes", "goes"])
def test_any_interruption_is_repaired_by_the_next_run(
    server: NodeServer, steps: int, is_served: bool, content: NodeContent
) -> None:
    """After a kill at any request the next run reaches the same end."""
    if content is not FULL:
        publish(request(), server.client)
        server.log.clear()
    fault = once(steps, Unreachable("killed"))
    server.after, server.before = (fault, server.before) if is_served else (server.after, fault)
    with pytest.raises(Unreachable):
        publish(request(content), server.client)
    server.before = server.after = lambda _: None
    publish(request(content), server.client)
    assert carried(server) == (PUBLISHED if content is FULL else BARE)


def test_a_refusal_says_whether_the_node_is_missing(server: NodeServer) -> None:
    """An apply to a missing Node is refused for want of the right to create one."""
    server.before = once(1, Forbidden("PATCH: 403", status=403))
    with pytest.raises(NotFound):
        publish(PublishRequest("other", FULL), server.client)
    server.log.clear()
    with pytest.raises(Forbidden):
        publish(request(), server.client)


# ---------------------------------------------------------------- taking over


def test_upstreams_share_ends_in_one_go(upstream: NodeServer) -> None:
    """What we want is never absent, what only upstream wanted goes, and its annotations with it."""
    seen: list[bool] = []
    upstream.after = lambda _: seen.append(upstream.labels().get(GPU) == "true")
    answer = publish(request(take_over=True), upstream.client)
    assert answer.took_over == "2 labels, 1 extended resources, 1 taints"
    assert all(seen)
    assert carried(upstream) == PUBLISHED


def test_after_taking_over_there_is_nothing_to_take_over(upstream: NodeServer) -> None:
    """One request again, and labels of ours can go."""
    publish(request(take_over=True), upstream.client)
    upstream.log.clear()
    assert told(publish(request(take_over=True), upstream.client)) == PublishAnswer()
    assert len(upstream.log) == 1
    publish(request(NodeContent(), take_over=True), upstream.client)
    assert carried(upstream) == BARE


def test_the_same_content_as_upstreams_becomes_ours(upstream: NodeServer) -> None:
    """Equal tracking annotations change hands, too."""
    taint = Taint(OLD, "1", "NoExecute")
    same = NodeContent({GPU: "true", OLD: "1"}, {}, {f"{FEATURE}/cards": "1"}, (taint,))
    publish(request(same, take_over=True), upstream.client)
    assert told(publish(request(same, take_over=True), upstream.client)) == PublishAnswer()
    publish(request(NodeContent()), upstream.client)
    assert carried(upstream) == BARE


def test_what_upstream_left_stays_while_nobody_knows_better(upstream: NodeServer) -> None:
    """It becomes ours, and goes when all is known."""
    publish(request(unknown=Unknown(), take_over=True), upstream.client)
    assert upstream.labels()[OLD] == "1"
    assert f"{FEATURE}/cards" in upstream.status("capacity")
    assert f"{NFD}/feature-labels" not in upstream.annotations()
    publish(request(take_over=True), upstream.client)
    assert carried(upstream) == PUBLISHED


@pytest.mark.parametrize("steps", range(1, 4))
@pytest.mark.parametrize("is_served", [True, False], ids=["answer lost", "request lost"])
def test_an_interrupted_take_over_is_finished_by_the_next_run(
    upstream: NodeServer, steps: int, is_served: bool
) -> None:
    """Whichever of the three writes was the last."""
    fault = once(steps, Unreachable("killed"))
    upstream.after, upstream.before = (fault, upstream.before) if is_served else (upstream.after, fault)
    with pytest.raises(Unreachable):
        publish(request(take_over=True), upstream.client)
    upstream.before = upstream.after = lambda _: None
    publish(request(take_over=True), upstream.client)
    assert carried(upstream) == PUBLISHED


def test_without_taking_over_both_programs_live_side_by_side(upstream: NodeServer) -> None:
    """What upstream set stays, ours comes and goes."""
    before = carried(upstream)
    assert told(publish(request(), upstream.client)) == PublishAnswer()
    after = carried(upstream)
    for part in ("labels", "annotations", "capacity", "allocatable"):
        assert before[part].items() <= after[part].items()
    assert after["capacity"][SLOTS] == "2"
    assert after["taints"] == [*before["taints"], {"key": GPU, "value": "true", "effect": "NoSchedule"}]
    publish(request(NodeContent()), upstream.client)
    assert carried(upstream) == before


def test_upstream_at_work_again_is_taken_over_again(upstream: NodeServer) -> None:
    """And the answer says so, for the worker to warn."""
    publish(request(take_over=True), upstream.client)
    upstream.change("nfd-master", UPSTREAM)
    assert publish(request(take_over=True), upstream.client).took_over
    assert carried(upstream) == PUBLISHED


# ---------------------------------------------------------------- unpublishing


def test_unpublishing_removes_all_of_ours_and_nothing_else(server: NodeServer) -> None:
    """Unpublishing removes only what nfd-worker set, and may be repeated."""
    publish(request(), server.client)
    for _ in range(2):
        assert told(carry_out(request(action=UNPUBLISH), server.client)) == PublishAnswer()
        assert carried(server) == BARE


def test_unpublishing_applies_nothing_and_so_leaves_no_entry_of_ours(server: NodeServer) -> None:
    """An empty map is a field, too: its owner stays in managedFields."""
    applied: list[Json] = []
    serve = server.apply

    def apply(path: str, body: Json, **others: Any) -> Json:
        applied.append(body)
        return serve(path, body, **others)

    server.apply = apply  # type: ignore[method-assign]
    unpublish("n", server.client)
    assert [body["metadata"] for body in applied] == [{"name": "n"}]


def test_unpublishing_leaves_upstream_alone(upstream: NodeServer) -> None:
    """Unpublishing keeps what upstream set."""
    before = carried(upstream)
    unpublish("n", upstream.client)
    assert carried(upstream) == before


def test_unpublishing_leaves_to_upstream_what_it_tracks(server: NodeServer) -> None:
    """It has written none of it, because all was as it should be; it is owned by nobody then, and may be repeated."""
    publish(request(), server.client)
    tracked = {f"{NFD}/feature-labels": "gpu", f"{NFD}/feature-annotations": "note"}
    server.change("nfd-master", {"metadata": {"annotations": tracked}})
    for _ in range(2):
        assert told(unpublish("n", server.client)) == PublishAnswer()
        assert server.labels() == {**BARE["labels"], GPU: "true"}
        assert server.annotations() == {**BARE["annotations"], f"{FEATURE}/note": "hello", **tracked}


def test_a_node_that_is_gone_needs_no_unpublishing(server: NodeServer) -> None:
    """Unpublishing a deleted Node succeeds with a note."""
    answer = unpublish("other", server.client)
    assert answer.is_published
    assert "other does not exist" in answer.notes[0]
    assert server.writes == []


# ---------------------------------------------------------------- the process


@pytest.fixture(scope="module")
def misbehaving() -> Iterator[str]:
    """Start the server that misbehaves."""
    with misbehaving_server() as url:
        yield url


@pytest.mark.parametrize(
    ("fault", "kind"),
    [
        pytest.param("/close", Unreachable, id="connection closed"),
        pytest.param("/hang", Unreachable, id="no answer in time"),
        pytest.param("/login-page", Unreachable, id="a login page"),
        pytest.param("/no-metadata", Unreachable, id="JSON, but no Node"),
        pytest.param("/bad-gateway", ServerUnavailable, id="502"),
        pytest.param("/too-many", TooManyRequests, id="429"),
        pytest.param("/redirect", KubeApiError, id="redirect"),
    ],
)
@pytest.mark.parametrize("action", ["publish", UNPUBLISH])
def test_a_misbehaving_server_ends_in_an_error_of_the_tree(
    misbehaving: str, monkeypatch: pytest.MonkeyPatch, fault: str, kind: type[KubeApiError], action: str
) -> None:
    """No foreign exception, and no success; the client is the publish child's in a pod."""
    patience = 0.3 if fault == "/hang" else 30.0
    client = Client(OnceConnection(misbehaving, "", dict), timeout_seconds=patience)
    monkeypatch.setitem(Handler.faults, "/api/v1/nodes/n", Handler.faults[fault])
    with pytest.raises(KubeApiError) as caught:
        carry_out(request(action=action), client)
    assert type(caught.value) is kind


@pytest.fixture
def run(
    monkeypatch: pytest.MonkeyPatch, capfd: pytest.CaptureFixture[str]
) -> Callable[[Client], tuple[int, PublishAnswer | None]]:
    """Run the child's main function with a request on standard input."""

    def give(client: Client) -> tuple[int, PublishAnswer | None]:
        monkeypatch.setattr("nfd_worker.publish.publish_child.os.fdopen", lambda *_: io.BytesIO(request().to_bytes()))
        monkeypatch.setattr(Client, "from_environment", lambda *_, **__: client)
        status = main()
        return status, PublishAnswer.from_line(capfd.readouterr().out.encode())

    return give


def test_success_is_status_0(run: Callable[[Client], tuple[int, PublishAnswer | None]], server: NodeServer) -> None:
    """Success gives exit status 0, no error, and how the Node was left."""
    status, answer = run(server.client)
    assert status == 0
    tracked = {TAINTS.own: f"{GPU}=true:NoSchedule", EXTENDED_RESOURCES.own: "slots"}
    assert answer == PublishAnswer(seen=Seen("", server.node["metadata"]["resourceVersion"], tracked))


def test_failure_is_status_1_and_an_answer_with_its_remedy(
    run: Callable[[Client], tuple[int, PublishAnswer | None]], server: NodeServer
) -> None:
    """What the server asked to wait goes along."""
    server.before = once(1, TooManyRequests("PATCH /api/v1/nodes/n: 429 TooManyRequests: later", retry_after=7.0))
    status, answer = run(server.client)
    assert status == 1
    assert answer == PublishAnswer(
        "the API server is overloaded (PATCH /api/v1/nodes/n: 429 TooManyRequests: later)", "TooManyRequests", 7.0
    )


def test_merge_patches_are_merged_at_every_depth() -> None:
    """Patches that both change annotations keep all changes."""
    one, other = {"a": {"b": {"c": 1}}, "x": None}, {"a": {"b": {"d": None}, "e": [2]}}
    assert json.loads(json.dumps(merged(one, other))) == {"a": {"b": {"c": 1, "d": None}, "e": [2]}, "x": None}
    assert merged({}, {}) == {}
