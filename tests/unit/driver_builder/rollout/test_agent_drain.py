"""What a device agent that asks for a drain is answered, and what is done: from its Node and the pods there alone."""

import json
from dataclasses import replace
from typing import Any

import pytest

from driver_builder.model.agent_drains import AgentDrains
from driver_builder.model.driver_key import DriverKey
from driver_builder.nodes.changes import EvictPod, PatchNode
from driver_builder.objects.plugin import PluginPod, PluginSet
from driver_builder.rollout.agent_drain import MAX_NODES, TURN_SECONDS, AgentDrainsDone, agent_drains, read_first
from driver_builder.rollout.draining import PAUSED, Draining, parse_draining, render_draining
from driver_builder.snapshot.inventory import Node, Taint
from driver_builder.snapshot.node_pods import EvictionRefused, NodePod, NodePods
from driver_builder.snapshot.snapshot import Snapshot
from kube_api import names
from kube_api.drain_contract import HOLDER, DrainAnswer, DrainState, digest_of, parse_answer, render_answer
from kube_api.timestamps import timestamp
from tests.support.driver_builder.changes import TAINTED, UNTAINTED, holds
from tests.support.driver_builder.factories import NAMESPACE, NOW, node

GPU, SLICE = "nvidia.com/gpu", "nvidia.com/mig-1g.5gb"
SETTINGS = AgentDrains(resources=("nvidia.com/gpu*", "nvidia.com/mig-*"), daemon_sets=frozenset({"agents/agent"}))
TEXT = json.dumps({"pods": ["apps/a", "apps/b"], "resources": [GPU, SLICE], "deadline": "30m"})
TAINT = Taint(key=names.UPGRADING_TAINT, value="", effect="NoSchedule")
AGENT = NodePod(namespace="agents", name="agent-x", uid="agent-x", is_daemon=True, daemon_set="agent")
DRIVER = DriverKey(f"{NAMESPACE}/edu")


def lock(holder: str = HOLDER, ago: float = 60.0) -> str:
    """Write a lock."""
    return json.dumps({"holder": holder, "bootID": "", "renewTime": timestamp(NOW - ago)})


def said(state: DrainState, message: str = "", text: str = TEXT) -> str:
    """Write an answer to a request."""
    return render_answer(DrainAnswer(state=state, message=message, request=digest_of(text)))


def asking(
    *,
    text: str | None = TEXT,
    lock_text: str | None = None,
    answer: str | None = None,
    record: Draining | None = None,
    name: str = "node-a",
) -> Node:
    """Make a node whose agent asks; with a ``record`` of ours it is drained."""
    annotations = {
        names.LOCK_ANNOTATION: lock() if lock_text is None else lock_text,
        names.DRAIN_REQUEST_ANNOTATION: text,
        names.DRAIN_STATE_ANNOTATION: answer,
        names.DRAINING_ANNOTATION: render_draining(record) if record is not None else None,
    }
    made = replace(node(), name=name, taints=(TAINT,) if record is not None else ())
    return replace(made, annotations={**made.annotations, **{key: it for key, it in annotations.items() if it}})


def begun(ago: float = 60.0) -> Draining:
    """Return the record of a drain that began a while ago."""
    return Draining(driver=HOLDER, since=int(NOW - ago))


def pod(name: str, **changes: Any) -> NodePod:
    """Make a pod that requests a GPU."""
    return NodePod(**{"namespace": "apps", "name": name, "uid": name, "resources": frozenset({GPU}), **changes})


def decided(seen: Node, *pods: NodePod, settings: AgentDrains = SETTINGS, **changes: Any) -> AgentDrainsDone:
    """Decide on one node with these pods, and that of an agent."""
    found = {seen.name: NodePods(pods=(AGENT, *pods))}
    return agent_drains(Snapshot(**{"now": NOW, "nodes": (seen,), "node_pods": found, **changes}), settings)


def answer_of(found: AgentDrainsDone) -> DrainAnswer:
    """Return what is answered now."""
    (text,) = (
        action.annotations[names.DRAIN_STATE_ANNOTATION]
        for action in found.answers
        if isinstance(action, PatchNode) and names.DRAIN_STATE_ANNOTATION in action.annotations
    )
    answer = parse_answer(text)
    assert answer is not None
    return answer


def evicted(found: AgentDrainsDone) -> list[str]:
    """Name the pods that are evicted now."""
    return [action.name for action in found.answers if isinstance(action, EvictPod)]


def test_a_drain_begins_with_a_taint_and_a_record() -> None:
    """In one patch with the answer, under the lock that was seen; pods are evicted only then."""
    seen = asking()
    found = decided(seen, pod("a"))
    (hold,) = found.answers
    assert isinstance(hold, PatchNode)
    assert (hold.taints, hold.seen, hold.labels) == (TAINTED, {names.LOCK_ANNOTATION: lock()}, {})
    record = parse_draining(hold.annotations[names.DRAINING_ANNOTATION] or "")
    assert (record.driver, record.since) == (HOLDER, int(NOW))
    assert answer_of(found) == DrainAnswer(
        state=DrainState.DRAINING, message="new pods are kept away", request=digest_of(TEXT)
    )
    assert found.requeue_at == NOW + 5


def test_pods_that_are_named_are_evicted_under_the_lock_and_the_request_that_were_seen() -> None:
    """If the agent has given the node back since, or asks for something else, nothing is evicted."""
    found = decided(asking(record=begun()), pod("a"), pod("b"), pod("c"))
    assert evicted(found) == ["a", "b"]
    seen = {names.LOCK_ANNOTATION: lock(), names.DRAIN_REQUEST_ANNOTATION: TEXT}
    assert all(action.seen == seen for action in found.answers if isinstance(action, EvictPod))
    assert answer_of(found).message == "pod apps/a, pod apps/b: a is evicted"


NONE: dict[str, Any] = {"resources": frozenset({"example.com/edu"})}


@pytest.mark.parametrize(
    ("one", "expected", "words"),
    [
        pytest.param(pod("a"), ["a"], "a is evicted", id="named, with a GPU"),
        pytest.param(pod("a", resources=frozenset({SLICE})), ["a"], "a is evicted", id="with a slice"),
        pytest.param(pod("a", **NONE), [], "left alone, without such a resource: pod apps/a", id="with another device"),
        pytest.param(pod("a", resources=frozenset()), [], "left alone", id="with none"),
        pytest.param(pod("c"), [], "", id="not named"),
        pytest.param(pod("a", namespace="other"), [], "", id="of another namespace"),
        pytest.param(pod("a", is_daemon=True), [], "its DaemonSet makes it anew", id="of a DaemonSet"),
        pytest.param(pod("a", is_mirror=True), [], "a file of the node makes it anew", id="mirror pod"),
        pytest.param(pod("a", is_critical=True), [], "it is critical", id="critical, in any namespace"),
        pytest.param(pod("a", is_bare=True), [], "nothing creates it again", id="bare"),
        pytest.param(pod("a", has_local_data=True), [], "its emptyDir would be lost", id="with files"),
        pytest.param(pod("a", deleting=True), [], "a is terminating", id="on its way"),
        pytest.param(pod("a", has_ended=True), [], "", id="has ended"),
    ],
)
def test_which_pods_are_evicted(one: NodePod, expected: list[str], words: str) -> None:
    """Those that the request names and that really have one of the resources; others are waited for, or left alone."""
    found = decided(asking(record=begun()), one)
    assert evicted(found) == expected
    answer = answer_of(found)
    assert words in answer.message
    is_over = not words or words.startswith("left alone")
    assert answer.state is (DrainState.DRAINED if is_over else DrainState.DRAINING)


def test_namespaces_are_those_of_drains() -> None:
    """``--drain-namespaces`` holds for agents as well."""
    seen, pods = asking(record=begun()), NodePods(pods=(AGENT, pod("a")))
    snapshot = Snapshot(now=NOW, nodes=(seen,), node_pods={"node-a": pods})
    found = agent_drains(snapshot, SETTINGS, ("jobs",))
    assert evicted(found) == []
    assert "--drain-namespaces of driver-builder does not name its namespace" in answer_of(found).message
    assert evicted(agent_drains(snapshot, SETTINGS, ("apps",))) == ["a"]


def test_a_node_without_such_pods_is_drained() -> None:
    """Taint and record stay for as long as the agent works; what comes back all the same is evicted again."""
    found = decided(asking(record=begun()), pod("c"))
    assert answer_of(found).state is DrainState.DRAINED
    done = asking(record=begun(), answer=said(DrainState.DRAINED))
    assert decided(done, pod("c")).answers == ()
    back = decided(done, pod("a"))
    assert (answer_of(back).state, evicted(back)) == (DrainState.DRAINING, ["a"])


def test_a_budget_is_named_and_after_the_deadline_the_node_is_given_back() -> None:
    """With the pod that it keeps; the lock is the agent's, and stays."""
    refused = {"a": EvictionRefused(message="the disruption budget a needs 1", at=NOW)}
    waiting = decided(asking(record=begun()), pod("a"), refused_evictions=refused)
    assert (evicted(waiting), answer_of(waiting).message) == (
        [],
        "pod apps/a: a stays: the disruption budget a needs 1",
    )
    late = decided(asking(record=begun(1800)), pod("a"), refused_evictions=refused)
    (hold,) = late.answers
    assert isinstance(hold, PatchNode)
    assert (hold.taints, hold.annotations[names.DRAINING_ANNOTATION]) == (UNTAINTED, None)
    assert names.LOCK_ANNOTATION not in hold.annotations
    assert answer_of(late).state is DrainState.FAILED
    assert "not drained within 1800 seconds: pod apps/a: a stays: the disruption" in answer_of(late).message


def test_a_request_that_has_failed_is_not_tried_again() -> None:
    """Another one is."""
    failed = said(DrainState.FAILED, "no")
    assert decided(asking(answer=failed), pod("a")).answers == ()
    other = json.dumps({"pods": ["apps/a"], "resources": [GPU], "deadline": "1h"})
    again = decided(asking(text=other, answer=failed), pod("a"))
    assert answer_of(again) == DrainAnswer(
        state=DrainState.DRAINING, message="new pods are kept away", request=digest_of(other)
    )


def test_another_request_in_the_same_lock_is_bounded_by_the_first_begin() -> None:
    """Who changes its request again and again does not keep the node for longer than its deadline."""
    other = json.dumps({"pods": ["apps/b"], "resources": [GPU], "deadline": "30m"})
    found = decided(asking(text=other, answer=said(DrainState.DRAINED), record=begun(1000)), pod("a"), pod("b"))
    assert (evicted(found), answer_of(found).request) == (["b"], digest_of(other))
    late = decided(asking(text=other, answer=said(DrainState.DRAINED), record=begun(1800)), pod("b"))
    assert answer_of(late).state is DrainState.FAILED


@pytest.mark.parametrize(
    ("text", "settings", "words"),
    [
        pytest.param("{", SETTINGS, "driverwright.io/drain-request: it is no JSON object", id="no request"),
        pytest.param(
            TEXT, AgentDrains(), f"--agent-drain-resources of driver-builder allows no {GPU}", id="by default"
        ),
        pytest.param(TEXT, AgentDrains(resources=(GPU,)), f"allows no {SLICE}", id="one of two is not allowed"),
        pytest.param(TEXT, AgentDrains(resources=SETTINGS.resources), "no pod of a device agent", id="no agent there"),
    ],
)
@pytest.mark.parametrize("is_begun", [False, True], ids=["", "begun"])
def test_what_cannot_be_is_refused(text: str, settings: AgentDrains, words: str, *, is_begun: bool) -> None:
    """With the reason: nothing is evicted, and no taint is set or stays. An agent that is restarted is waited for."""
    seen = asking(text=text, record=begun() if is_begun else None)
    found = decided(seen, pod("a"), settings=settings)
    (hold,) = found.answers
    assert isinstance(hold, PatchNode)
    assert words in answer_of(found).message
    waits = is_begun and words.startswith("no pod")
    assert answer_of(found).state is (DrainState.DRAINING if waits else DrainState.FAILED)
    assert hold.taints == (UNTAINTED if is_begun and not waits else {})


SET = PluginSet(namespace=NAMESPACE, name="edu-plug", uid="uid-set", driver=DRIVER)
STAGE = PluginPod(namespace=NAMESPACE, name="x", uid="x", driver=DRIVER, node="node-a", owner="uid-set")


@pytest.mark.parametrize(
    ("there", "is_known"),
    [
        pytest.param(STAGE, True, id="of a stage's DaemonSet"),
        pytest.param(replace(STAGE, owner="other"), False, id="of another DaemonSet"),
        pytest.param(replace(STAGE, node="node-b"), False, id="on another node"),
        pytest.param(replace(STAGE, namespace="other"), False, id="in another namespace"),
    ],
)
def test_a_stages_pod_is_known_by_the_uid_of_its_owner(there: PluginPod, *, is_known: bool) -> None:
    """Whatever labels say."""
    seen, pods = asking(), {"node-a": NodePods(pods=(pod("a"),))}
    found = decided(seen, node_pods=pods, plugin_sets=(SET,), plugin_pods=(there,))
    assert answer_of(found).state is (DrainState.DRAINING if is_known else DrainState.FAILED)


@pytest.mark.parametrize(
    ("there", "is_known"),
    [
        pytest.param(AGENT, True, id="of the DaemonSet that is named"),
        pytest.param(replace(AGENT, daemon_set="other"), False, id="of another one"),
        pytest.param(replace(AGENT, namespace="apps"), False, id="of the same name elsewhere"),
        pytest.param(replace(AGENT, name="agent", daemon_set=""), False, id="a pod of that name"),
    ],
)
def test_a_named_daemon_set_is_known_by_what_controls_a_pod(there: NodePod, *, is_known: bool) -> None:
    """Namespace and name are the admin's."""
    found = decided(asking(), node_pods={"node-a": NodePods(pods=(there, pod("a")))})
    assert answer_of(found).state is (DrainState.DRAINING if is_known else DrainState.FAILED)


@pytest.mark.parametrize("is_listing", [True, False], ids=["list", "evict"])
def test_a_missing_right_is_named_and_nothing_is_called_drained(*, is_listing: bool) -> None:
    """Unlike a driver, which is replaced all the same, the agent would destroy what pods use."""
    refused = {"a": EvictionRefused(message="pods is forbidden", at=NOW, is_forbidden=True)}
    pods = NodePods(unread="pods is forbidden") if is_listing else NodePods(pods=(AGENT, pod("a")))
    found = decided(asking(record=begun()), node_pods={"node-a": pods}, refused_evictions=refused)
    assert answer_of(found).state is DrainState.FAILED
    assert (
        "not drained: apply deploy/driver-builder/drain.yaml to allow it; pods is forbidden" in answer_of(found).message
    )


LEFT = asking(record=begun(), answer=said(DrainState.DRAINED))


@pytest.mark.parametrize(
    ("changes", "lock_goes"),
    [
        pytest.param({names.LOCK_ANNOTATION: None}, False, id="the lock is gone"),
        pytest.param({names.LOCK_ANNOTATION: lock(ago=600)}, True, id="the lock has ended"),
        pytest.param({names.LOCK_ANNOTATION: lock(DRIVER)}, False, id="the lock is a driver's"),
        pytest.param({names.LOCK_ANNOTATION: lock("gpu-partitioner")}, False, id="the lock is another program's"),
        pytest.param({names.LOCK_ANNOTATION: "{"}, False, id="the lock cannot be read"),
        pytest.param({names.DRAIN_REQUEST_ANNOTATION: None}, False, id="the request is gone"),
    ],
)
def test_a_node_is_given_back(changes: dict[str, str | None], *, lock_goes: bool) -> None:
    """Taint, record and answer go, and a request that could be taken for a later one; nothing is evicted."""
    annotations = {key: it for key, it in {**LEFT.annotations, **changes}.items() if it is not None}
    seen = replace(LEFT, annotations=annotations)
    found = decided(seen, pod("a"))
    (hold,) = found.released
    assert found.answers == ()
    gone = {names.DRAINING_ANNOTATION, names.DRAIN_STATE_ANNOTATION}
    gone |= {names.DRAIN_REQUEST_ANNOTATION} & annotations.keys() | ({names.LOCK_ANNOTATION} if lock_goes else set())
    assert (hold.annotations, hold.taints) == (dict.fromkeys(gone), UNTAINTED)
    assert hold.seen == {names.LOCK_ANNOTATION: annotations.get(names.LOCK_ANNOTATION)}


def test_what_a_driver_has_begun_is_not_taken_from_it() -> None:
    """Only the answer goes, where a driver drains the node by now."""
    record = Draining(driver=DRIVER, since=int(NOW))
    seen = asking(text=None, lock_text=lock(DRIVER), answer=said(DrainState.DRAINED), record=record)
    (hold,) = decided(seen).released
    assert (hold.annotations, hold.taints) == ({names.DRAIN_STATE_ANNOTATION: None}, {})
    assert decided(asking(text=None, lock_text=lock(DRIVER), record=record)).released == ()


def test_labels_that_a_driver_has_left_paused_come_back_in_the_end() -> None:
    """Its lock had ended: the agent's drain takes over what has to be restored."""
    label = "nvidia.com/gpu.deploy.device-plugin"
    seen = asking(record=Draining(driver=DRIVER, since=1, labels={label: "true"}))
    seen = replace(seen, labels={**seen.labels, label: PAUSED})
    (hold,) = decided(seen, pod("a")).answers
    assert isinstance(hold, PatchNode)
    record = parse_draining(hold.annotations[names.DRAINING_ANNOTATION] or "")
    assert (record.driver, record.since, record.labels) == (HOLDER, int(NOW), {label: "true"})
    left = asking(text=None, lock_text=lock(ago=900), record=record)
    (back,) = decided(replace(left, labels=seen.labels)).released
    assert back.labels == {label: "true"}


RESTS = Draining(driver=DRIVER, failed="pod apps/x did not leave", retry_at=int(NOW + 600), dependent="a/b")


@pytest.mark.parametrize(
    ("changes", "rests"),
    [
        pytest.param({"lock_text": lock(ago=900)}, True, id="the lock has ended"),
        pytest.param({"text": None}, True, id="the request is gone"),
        pytest.param({"text": "{"}, True, id="the request is refused"),
        pytest.param({"text": None, "now": NOW + 601}, False, id="its time is over"),
    ],
)
def test_a_driver_that_leaves_the_node_alone_does_so_afterwards(changes: dict[str, Any], *, rests: bool) -> None:
    """Its own drain has failed, and would begin anew, with its evictions, as often as an agent asks."""
    resting = replace(asking(record=RESTS), taints=())
    (hold,) = decided(resting, pod("a")).answers
    assert isinstance(hold, PatchNode)
    record = parse_draining(hold.annotations[names.DRAINING_ANNOTATION] or "")
    assert (record.driver, record.failed) == (HOLDER, "")
    now = changes.pop("now", NOW)
    found = decided(asking(record=record, **changes), now=now)
    (back,) = found.released or found.answers
    assert isinstance(back, PatchNode)
    text = back.annotations[names.DRAINING_ANNOTATION]
    assert (back.taints, text and parse_draining(text)) == (UNTAINTED, RESTS if rests else None)


def test_a_drain_that_began_while_a_clock_was_ahead_counts_from_now() -> None:
    """It would have no end."""
    (hold,) = decided(asking(record=begun(-9000), answer=said(DrainState.DRAINING)), pod("a")).answers
    assert isinstance(hold, PatchNode)
    assert parse_draining(hold.annotations[names.DRAINING_ANNOTATION] or "").since == int(NOW)


def test_a_lock_from_the_future_ends_by_when_it_was_first_seen() -> None:
    """A forged time keeps no node for ever."""
    seen = asking(lock_text=lock(ago=-9000), record=begun())
    assert evicted(decided(seen, pod("a"))) == ["a"]
    found = decided(seen, pod("a"), locks_first_seen={"node-a": NOW - 600})
    assert (found.answers, len(found.released)) == ((), 1)


def test_so_many_nodes_are_drained_at_once() -> None:
    """Those that have begun go on; others wait, and are not read."""
    waiting = [asking(name=f"a-{number:03}") for number in range(MAX_NODES)]
    nodes = (*waiting, asking(name="z", record=begun()))
    first, *others = read_first(nodes, SETTINGS, NOW, {})
    (left,) = {item.name for item in waiting} - set(others)
    assert (first, len(others)) == ("z", MAX_NODES - 1)
    pods = {item.name: NodePods(pods=(AGENT, pod("a"))) for item in nodes}
    found = agent_drains(Snapshot(now=NOW, nodes=nodes, node_pods=pods), SETTINGS)
    written = {patch.node: patch for patch in holds(found.answers)}
    assert {name for name, hold in written.items() if hold.taints} == set(others)
    answer = parse_answer(written[left].annotations[names.DRAIN_STATE_ANNOTATION])
    assert answer is not None
    assert (answer.state, answer.message) == (DrainState.DRAINING, "50 other nodes are drained at the moment")


def test_each_node_that_waits_has_its_turn() -> None:
    """Whatever its name is, and however often others ask again: here there is one place, and nobody leaves."""
    drained = [asking(name=f"b-{number:03}", record=begun()) for number in range(MAX_NODES - 1)]
    waiting = [asking(name=f"{letter}-1") for letter in "aceghkz"]
    turns = {
        name
        for number in range(100)
        for name in read_first((*drained, *waiting), SETTINGS, NOW + number * TURN_SECONDS, {})
    }
    assert turns == {item.name for item in (*drained, *waiting)}


@pytest.mark.parametrize(
    ("seen", "settings", "expected"),
    [
        pytest.param(asking(), SETTINGS, ("node-a",), id="asked"),
        pytest.param(asking(), AgentDrains(), (), id="by default"),
        pytest.param(asking(answer=said(DrainState.FAILED)), SETTINGS, (), id="refused"),
        pytest.param(asking(lock_text=lock(DRIVER)), SETTINGS, (), id="another's lock"),
        pytest.param(asking(text="{"), SETTINGS, (), id="no request"),
    ],
)
def test_pods_are_read_where_an_answer_needs_them(seen: Node, settings: AgentDrains, expected: tuple[str, ...]) -> None:
    """Nobody else can make the controller list them."""
    assert read_first((seen,), settings, NOW, {}) == expected
