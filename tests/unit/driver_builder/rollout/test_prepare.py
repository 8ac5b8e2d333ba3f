"""What is done on a node before its driver is pods_replaced, and after: locks that are taken, renewed and released."""

from dataclasses import replace
from typing import Any

import pytest

from driver_builder.api.rebuild_status import Rebuilds
from driver_builder.api.rollout_status import Phase, Wave
from driver_builder.api.status import Trouble
from driver_builder.base.reasons import Reason
from driver_builder.model.driver_key import DriverKey
from driver_builder.nodes.changes import Change, PatchNode
from driver_builder.nodes.plan_view import DriverPlan
from driver_builder.objects.driver_keys import driver_keys
from driver_builder.objects.yielding import Yielding, render_yielding
from driver_builder.rollout.draining import PAUSED, Draining, parse_draining, render_draining
from driver_builder.rollout.holds import Holds
from driver_builder.rollout.pulls import Pulls
from driver_builder.snapshot.inventory import Node, Taint
from driver_builder.snapshot.node_pods import NodePod, NodePods
from driver_builder.tasks import pull_pod
from driver_builder.tasks.node_task import NodeTask
from driver_builder.tasks.pull_pod import PULL
from driver_builder.tasks.task_kind import State
from kube_api import names
from kube_api.node_lock import Lock, render_lock
from tests.support.driver_builder.changes import TAINTED, UNTAINTED, done, finalizer, holds, pods_replaced, replaced_pod
from tests.support.driver_builder.factories import (
    NAMESPACE,
    NOW,
    daemon_set,
    driver,
    node,
    pod,
    snapshot,
    task,
    with_images,
)
from tests.support.driver_builder.plans import admitted, prepare_nodes

KEY = DriverKey(f"{NAMESPACE}/edu")
REPLACE = replaced_pod(namespace=NAMESPACE, name="pod", uid="uid", node="node-a")


def part(*actions: Change, **changes: Any) -> DriverPlan:
    """Make a driver's plan, in which the replaced pods work."""
    budgeted = frozenset(action.node for action in pods_replaced(actions))
    values: dict[str, Any] = {"driver": driver(), "actions": actions, "budgeted": budgeted,
                              "wave": Wave(phase=Phase.ROLLING, message="0 of 1", started=NOW)}  # fmt: skip
    return DriverPlan(rebuilds=Rebuilds(requests={}, tokens={}), unknown={}, **values | changes)


def locked(by: str = KEY, *, ago: float = 0.0, name: str = "node-a") -> Node:
    """Make a node that is locked since a while."""
    made = node(name)
    return replace(
        made, annotations={**made.annotations, names.LOCK_ANNOTATION: render_lock(by, made.boot_id or "", NOW - ago)}
    )


def prepared(given: DriverPlan, *nodes: Node) -> DriverPlan:
    """Prepare what one driver does on some nodes."""
    (found,) = prepare_nodes((given,), snapshot(*nodes)).parts
    return found


def locks_of(found: DriverPlan) -> list[str]:
    """Say what is done with locks."""
    return [action.why for action in holds(found.actions)]


def test_a_node_is_locked_before_its_driver_is_replaced() -> None:
    """The lock names the driver and the boot, and is refused if somebody else takes it first."""
    hold, *others = prepared(part(REPLACE), node()).actions
    assert others == [REPLACE]
    assert isinstance(hold, PatchNode)
    assert hold.seen == {names.LOCK_ANNOTATION: None}
    assert hold.annotations == {names.LOCK_ANNOTATION: render_lock(KEY, node().boot_id or "", NOW)}


@pytest.mark.parametrize(
    ("ago", "expected"), [(10, []), (299, []), (300, ["renew its lock"]), (5000, ["renew its lock"])]
)
def test_a_lock_of_ones_own_is_kept(ago: float, expected: list[str]) -> None:
    """Also by a controller that was killed: it is written again when half of its time is over."""
    found = prepared(part(REPLACE), locked(ago=ago))
    assert (locks_of(found), found.actions[-1]) == (expected, REPLACE)
    assert found.requeue_at == (NOW + 15 if expected else NOW - ago + 300)


def test_a_lock_that_has_expired_is_taken_over() -> None:
    """Whoever held it has not renewed it for ten minutes."""
    assert locks_of(prepared(part(REPLACE), locked("gpu-partitioner", ago=600))) == ["take its lock"]


@pytest.mark.parametrize(
    ("changes", "expected"),
    [
        pytest.param({"busy": frozenset({"node-a"})}, [], id="its successor is not proven yet"),
        pytest.param({"actions": (REPLACE,)}, [], id="it is replaced at once"),
        pytest.param({}, ["release it"], id="proven, failed, or not replaced after all"),
        pytest.param({"driver": driver(deleting=True)}, ["release it"], id="the driver goes"),
        pytest.param({"trouble": Trouble(reason=Reason.INTERNAL_ERROR, message="")}, [], id="nothing is known"),
    ],
)
def test_a_lock_ends_with_the_work(changes: dict[str, Any], expected: list[str]) -> None:
    """Nothing stays on a node where the driver is not being replaced."""
    assert locks_of(prepared(part(**changes), locked())) == expected


def test_a_deleted_driver_stays_until_its_locks_are_gone() -> None:
    """Afterwards there is nobody who would release them."""
    release = finalizer("edu", present=False)
    given = part(release, driver=driver(deleting=True), budgeted=frozenset())
    assert release not in prepared(given, locked()).actions
    assert prepared(given, node()) is given


def test_the_locks_of_others_are_left_alone() -> None:
    """Also where the driver is at work since before: its own lock had expired."""
    given = part(busy=frozenset({"node-a"}))
    assert prepared(given, locked("gpu-partitioner")) is given


# ---------------------------------------------------------------- drain

DRAIN = {"resources": ["example.com/fpga"], "deadline": "5m", "pauseLabels": ["example.com/fpga.deploy.plugin"]}
EDU = driver(spec_changes={"rollout": {"drain": DRAIN}})
LABEL = DRAIN["pauseLabels"][0]
USER = NodePod(namespace="apps", name="web", uid="web", resources=frozenset({"example.com/fpga"}))


def draining(record: Draining | None, *, by: str | None = KEY, label: str = PAUSED, tainted: bool = True) -> Node:
    """Make a node that is being drained."""
    made = node(labels={LABEL: label}) if by is None else locked(by)
    text = {} if record is None else {names.DRAINING_ANNOTATION: render_draining(record)}
    taints = (Taint(key=names.UPGRADING_TAINT, value="", effect="NoSchedule"),) if tainted else ()
    annotations = {**made.annotations, **text}
    return replace(made, labels={**made.labels, LABEL: label}, annotations=annotations, taints=taints)


def drained(given: DriverPlan, *nodes: Node, later: float = 0.0, **changes: Any) -> DriverPlan:
    """Prepare what one driver with a drain does."""
    (found,) = prepare_nodes((replace(given, driver=EDU),), snapshot(*nodes, now=NOW + later, **changes)).parts
    return found


def only_hold(found: DriverPlan) -> PatchNode:
    """Return the only action, which is about the node."""
    (hold,) = found.actions
    assert isinstance(hold, PatchNode)
    return hold


RECORD = Draining(driver=KEY, since=int(NOW), labels={LABEL: "true"})


def test_a_drain_begins_with_one_patch() -> None:
    """Lock, taint, labels and the record of what they were: whatever happens afterwards can be undone."""
    hold = only_hold(drained(part(REPLACE), replace(node(), labels={**node().labels, LABEL: "true"})))
    assert hold.taints == TAINTED
    assert hold.labels == {LABEL: PAUSED}
    assert parse_draining(str(hold.annotations[names.DRAINING_ANNOTATION])) == RECORD
    assert names.LOCK_ANNOTATION in hold.annotations


def test_a_label_that_a_node_has_not_stays_away() -> None:
    """Nor is one touched that somebody else has paused."""
    for made in (node(), node(labels={LABEL: PAUSED})):
        assert only_hold(drained(part(REPLACE), made)).labels == {}


def test_pods_are_evicted_while_the_driver_stays() -> None:
    """The message says what it waits for."""
    pods = {"node-a": NodePods(pods=(USER,))}
    found = drained(part(REPLACE), draining(RECORD), node_pods=pods)
    assert done(found.actions) == ["EvictPod"]
    assert found.wave is not None
    assert found.wave.message.startswith("draining node-a: pod apps/web: web is evicted; ")
    assert (found.budgeted, found.requeue_at) == (frozenset(), NOW + 5)


def test_a_drained_node_gets_its_driver() -> None:
    """That it is drained is recorded: what comes back in spite of the taint is not evicted again."""
    hold, *others = drained(part(REPLACE), draining(RECORD), node_pods={"node-a": NodePods()}).actions
    assert others == [REPLACE]
    assert isinstance(hold, PatchNode)
    done = replace(RECORD, is_drained=True)
    assert parse_draining(str(hold.annotations[names.DRAINING_ANNOTATION])) == done
    assert drained(part(REPLACE), draining(done)).actions == (REPLACE,)


def test_what_was_left_out_for_want_of_rights_is_said_until_the_node_is_done() -> None:
    """Also while the new driver loads."""
    given = part(busy=frozenset({"node-a"}))
    found = drained(given, draining(replace(RECORD, is_drained=True, note="not drained: apply x")))
    assert found.wave is not None
    assert found.wave.message == "node-a is not drained: apply x; 0 of 1"


def test_after_the_deadline_the_node_is_as_it_was_and_rests() -> None:
    """Labels, taint and lock go in one patch, with a record of why and until when."""
    pods = {"node-a": NodePods(pods=(USER,))}
    found = drained(part(REPLACE), draining(replace(RECORD, since=int(NOW) - 300)), node_pods=pods)
    hold = only_hold(found)
    assert (hold.taints, hold.labels, hold.annotations[names.LOCK_ANNOTATION]) == (UNTAINTED, {LABEL: "true"}, None)
    left = parse_draining(str(hold.annotations[names.DRAINING_ANNOTATION]))
    assert (left.failed, left.retry_at) == ("pod apps/web: web is evicted", int(NOW) + 600)
    assert found.wave is not None
    assert found.wave.message.startswith("node-a could not be drained: pod apps/web: web is evicted")
    assert found.undrained == {"node-a": "pod apps/web: web is evicted"}


def test_a_node_that_rests_is_held_back() -> None:
    """The record stays until then, if the wave is still there; afterwards the node is drained again, or is clean."""
    resting = draining(Draining(driver=KEY, failed="pod x", retry_at=int(NOW) + 60), by=None, tainted=False)
    holds = Holds.of((resting,), NOW)
    assert holds.obstacle("node-a", KEY) == (
        "node node-a keeps its driver, and is tried again at 2023-11-14T22:14:20Z: pod x"
    )
    rests = drained(part(), resting)
    assert (rests.actions, rests.undrained) == ((), {"node-a": "pod x"})
    assert drained(part(REPLACE), resting, later=60).undrained == {}
    assert only_hold(drained(part(wave=None), resting)).annotations == {names.DRAINING_ANNOTATION: None}
    assert only_hold(drained(part(), resting, later=60)).annotations == {names.DRAINING_ANNOTATION: None}
    assert only_hold(drained(part(REPLACE), resting, later=60)).taints == TAINTED


@pytest.mark.parametrize(
    ("label", "expected"), [(PAUSED, {LABEL: "true"}), ("false", {}), ("true", {})], ids=["ours", "changed", "back"]
)
def test_what_was_changed_is_restored(label: str, expected: dict[str, str]) -> None:
    """A label that somebody has set since is theirs."""
    hold = only_hold(drained(part(), draining(RECORD, label=label)))
    assert (hold.labels, hold.taints) == (expected, UNTAINTED)
    assert hold.annotations == {names.LOCK_ANNOTATION: None, names.DRAINING_ANNOTATION: None}


@pytest.mark.parametrize(
    "left",
    [
        pytest.param(draining(replace(RECORD, driver=f"{NAMESPACE}/gone"), by=None), id="of a driver that is gone"),
        pytest.param(draining(None, by=None), id="a taint alone"),
    ],
)
def test_what_nobody_holds_any_more_is_taken_away(left: Node) -> None:
    """A DriverContainer whose finalizer somebody removed, or an annotation."""
    (hold,) = prepare_nodes((part(),), snapshot(left)).released
    assert hold.taints == UNTAINTED
    locked_since = replace(left, annotations={**left.annotations, **locked("gpu-partitioner").annotations})
    assert prepare_nodes((part(),), snapshot(locked_since)).released == ()


def test_the_labels_that_another_drain_has_left_are_restored_with_ones_own() -> None:
    """Its lock has expired: what it changed is still there."""
    left = draining(replace(RECORD, driver=f"{NAMESPACE}/gone"), by=None)
    record = parse_draining(str(only_hold(drained(part(REPLACE), left)).annotations[names.DRAINING_ANNOTATION]))
    assert (record.driver, record.labels) == (KEY, {LABEL: "true"})


def test_nothing_is_drained_where_the_same_modules_are_live() -> None:
    """Whatever uses them is not in the way of a pod that only takes over."""
    seen = with_images(snapshot())
    known = pod(seen, leaves_modules=True)
    action = replace(REPLACE, uid=known.uid)
    changes: dict[str, Any] = {"pods": (known,), "daemon_sets": (daemon_set(seen),)}
    found = drained(part(action), node(), **changes)
    assert done(found.actions) == ["hold Node", "replace Pod"]
    other = {**changes, "pods": (replace(known, expected={"edudrv": "FFFF"}),)}
    assert only_hold(drained(part(action), node(), **other)).taints == TAINTED


# ---------------------------------------------------------------- the image comes first

IMAGE = "registry.example.com/edu@sha256:2"
DONE = State.SUCCEEDED


def pull(name: str = "node-a", image: str = IMAGE, **changes: Any) -> NodeTask:
    """Make a pull pod."""
    names = {"name": PULL.name_of(KEY, name, image), "uid": f"p-{name}", "driver": KEY}
    return task(PULL, image, node=name, **{"created_at": NOW, **names, **changes})


def pulled(given: DriverPlan, *pods: NodeTask, later: float = 0.0, nodes: tuple[Node, ...] = ()) -> DriverPlan:
    """Let a driver's plan through for nodes with these pull pods: first going, then prepared."""
    seen = snapshot(node("node-a"), node("node-b"), node("node-c"), tasks=pods, now=NOW + later)
    pulls = Pulls.of(pods, seen.now, {item.name: item for item in nodes or seen.nodes})
    (found,) = prepare_nodes(admitted((given,), 0, Holds(), pulls), seen, "loader", pulls).parts
    return found


def kinds(found: DriverPlan) -> list[str]:
    """Name the actions, and their nodes."""
    return [f"{done([action])[0]} {getattr(action, 'node', '')[-1:]}" for action in found.actions]


WAITS = part(REPLACE, images={"node-a": IMAGE}, pulls=1)


@pytest.mark.parametrize(
    ("pods", "expected", "words"),
    [
        pytest.param((), ["run pull a"], "pulling the next image on node-a", id="not begun"),
        pytest.param((pull(),), [], "pulling the next image on node-a", id="on its way"),
        pytest.param((pull(message="ErrImagePull: x"),), [],
                     "held back: node-a: the next image cannot be pulled there: ErrImagePull: x", id="it fails"),
        pytest.param((pull(state=State.FAILED, message="Evicted"),), [],
                     "held back: node-a: the next image cannot be pulled there: Evicted", id="it ended without it"),
        pytest.param((pull(state=State.FAILED, created_at=NOW - 60),), ["delete Pod a"],
                     "held back: node-a: the next image cannot be pulled there: its pod has ended", id="a minute ago"),
        pytest.param((pull(created_at=NOW - 600),), [],
                     "held back: node-a: the next image cannot be pulled there: it is not there after 10 minutes",
                     id="it takes too long"),
        pytest.param((pull(state=DONE),), ["hold Node a", "replace Pod a"], "0 of 1", id="it is there"),
        pytest.param((pull(state=DONE, deleting=True),), [], "pulling the next image on node-a", id="deleted"),
        pytest.param((pull(image="older", state=DONE),), ["run pull a", "delete Pod a"],
                     "pulling the next image on node-a", id="another image is"),
    ],
)  # fmt: skip
def test_a_node_has_its_image_before_its_driver_goes(
    pods: tuple[NodeTask, ...], expected: list[str], words: str
) -> None:
    """Until then nothing of it changes, and the status says what keeps the image from it."""
    found = pulled(WAITS, *pods)
    assert kinds(found) == expected
    assert found.wave is not None
    assert found.wave.message.removesuffix("; 0 of 1") == words
    assert bool(found.budgeted) is ("replace Pod a" in expected)


@pytest.mark.parametrize(
    ("changed", "expected"),
    [
        (None, ["hold Node a", "replace Pod a"]),
        (NOW - 60, ["hold Node a", "replace Pod a"]),
        (NOW + 60, ["delete Pod a"]),
    ],
    ids=["never", "before it was pulled", "since it was pulled"],
)
def test_an_image_is_pulled_again_where_disk_space_was_short_since(changed: float | None, expected: list[str]) -> None:
    """The kubelet may have removed what no container uses that runs."""
    there = replace(node("node-a"), disk_changed=changed)
    found = pulled(WAITS, pull(state=DONE, ended_at=NOW, created_at=NOW - 60), nodes=(there,))
    assert kinds(found) == expected


def test_an_end_that_the_kubelet_does_not_say_is_not_held_against_the_disk() -> None:
    """Its pod's creation is of the API server's clock."""
    there = replace(node("node-a"), disk_changed=NOW + 60)
    found = pulled(WAITS, pull(state=DONE, created_at=NOW), nodes=(there,))
    assert kinds(found) == ["hold Node a", "replace Pod a"]


def test_a_pull_may_end_in_the_second_in_which_its_pod_was_made() -> None:
    """Times have whole seconds: the kubelet has said that it ended all the same."""
    there = replace(node("node-a"), disk_changed=NOW + 60)
    found = pulled(WAITS, pull(state=DONE, ended_at=NOW, created_at=NOW), nodes=(there,))
    assert kinds(found) == []


def test_a_node_that_runs_the_image_needs_no_pull() -> None:
    """Nor does one where nothing works: neither is among the images."""
    assert kinds(pulled(part(REPLACE))) == ["hold Node a", "replace Pod a"]


THREE = {"images": dict.fromkeys(("node-a", "node-b", "node-c"), IMAGE), "pulls": 1,
         "reserve": (replace(REPLACE, node="node-b"), replace(REPLACE, node="node-c"))}  # fmt: skip


@pytest.mark.parametrize(
    ("pods", "expected"),
    [
        pytest.param((), ["run pull a"], id="one at a time"),
        pytest.param((pull(message="ErrImagePull"),), ["run pull b"], id="instead of one that fails"),
        pytest.param((pull(created_at=NOW - 600),), ["run pull b"], id="instead of one that is slow"),
        pytest.param((pull(), pull("node-b", state=DONE)), ["hold Node b", "replace Pod b"], id="the next has it"),
        pytest.param((pull(state=DONE),), ["hold Node a", "replace Pod a", "run pull b"],
                     id="the next one gets it meanwhile"),
    ],
)  # fmt: skip
def test_the_next_node_goes_in_place_of_one_without_its_image(pods: tuple[NodeTask, ...], expected: list[str]) -> None:
    """And nodes that are next get theirs while another one is upgraded, no more than go at once."""
    assert sorted(kinds(pulled(part(REPLACE, **THREE), *pods))) == sorted(expected)


def test_no_image_comes_while_the_canary_is_prepared() -> None:
    """Preparing it takes as long as its drain; another node gets the image in place of a canary, not after it."""
    canary = replace(part(REPLACE, **THREE), wave=Wave(phase=Phase.CANARY, started=NOW))
    assert sorted(kinds(pulled(canary, pull(state=DONE)))) == ["hold Node a", "replace Pod a"]
    assert kinds(pulled(canary, pull(message="ErrImagePull"))) == ["run pull b"]


def test_images_come_while_the_budget_is_used_up() -> None:
    """No driver is replaced now, and the next node gets its image."""
    assert kinds(pulled(part(**{**THREE, "reserve": ()}))) == ["run pull a"]
    assert kinds(pulled(part(**{**THREE, "pulls": 0}))) == []


def test_nothing_is_pulled_where_somebody_else_is_at_work() -> None:
    """Such a node does not go next."""
    held = Holds(locks={"node-a": Lock(holder="gpu-partitioner", renewed=NOW)})
    (found,) = admitted((part(REPLACE, **THREE),), 0, held, Pulls())
    assert list(found.images) == ["node-b", "node-c"]


def test_a_pull_is_looked_at_again() -> None:
    """When it takes too long, and when its pod is made anew."""
    assert pulled(WAITS, pull(created_at=NOW - 1)).requeue_at == NOW + 599
    assert pulled(WAITS, pull(state=State.FAILED)).requeue_at == NOW + 60
    assert pulled(WAITS, pull(message="ErrImagePull", created_at=NOW - 700)).requeue_at is None


def test_a_pull_that_no_wave_needs_is_ended() -> None:
    """Also when the driver is paused: it was begun for a node that is not taken any more."""
    assert kinds(pulled(part(), pull())) == ["delete Pod a"]
    assert kinds(pulled(part(), pull(deleting=True))) == []


def test_an_image_is_kept_on_its_node_until_the_driver_is_proven() -> None:
    """The kubelet removes no image of a container that is there."""
    busy = part(busy=frozenset({"node-a"}))
    assert kinds(pulled(busy, pull(state=DONE))) == []
    assert kinds(pulled(busy, pull())) == ["delete Pod a"]


@pytest.mark.parametrize("record", [RECORD, replace(RECORD, is_drained=True)], ids=["draining", "drained"])
@pytest.mark.parametrize("pods", [(), (pull(),), (pull(message="ErrImagePull"),)], ids=["not begun", "begun", "fails"])
def test_a_node_that_is_drained_is_given_back_while_another_image_is_pulled(
    pods: tuple[NodeTask, ...], record: Draining
) -> None:
    """Its users come back at once: how long a pull takes is not known."""
    seen = draining(record)
    going = admitted((replace(WAITS, driver=EDU),), 0, Holds.of((seen,), NOW), Pulls.of(pods, NOW))
    (found,) = prepare_nodes(going, snapshot(seen, tasks=pods), "", Pulls.of(pods, NOW)).parts
    (hold,) = holds(found.actions)
    assert (hold.labels, hold.taints) == ({LABEL: "true"}, UNTAINTED)
    assert set(hold.annotations.values()) == {None}


def test_a_pull_pod_is_bound_and_runs_nothing_of_its_image() -> None:
    """It may do nothing on the node, and has the Secrets of driver pods."""
    container = driver(spec_changes={"imagePullSecrets": [{"name": "pull"}]})
    made = pull_pod.manifest(container, node="node-a", image="r/i@sha256:1", loader_image="r/l:1")
    spec = made["spec"]
    assert (spec["nodeName"], spec["restartPolicy"], spec["imagePullSecrets"]) == (
        "node-a",
        "Never",
        [{"name": "pull"}],
    )
    assert made["metadata"]["name"] == PULL.name_of(KEY, "node-a", "r/i@sha256:1")
    assert [(item["image"], item["securityContext"]["privileged"]) for item in spec["initContainers"]] == [
        ("r/l:1", False)
    ]
    (puller,) = spec["containers"]
    assert (puller["image"], puller["command"]) == ("r/i@sha256:1", ["/driverwright/busybox", "true"])
    assert not any("hostPath" in volume for volume in spec["volumes"])


def test_a_drain_whose_lock_has_ended_begins_anew() -> None:
    """No controller ran for ten minutes: somebody else may have worked there since. What was paused stays recorded."""
    left = draining(RECORD)
    expired = replace(left, annotations={**left.annotations, **locked(ago=600).annotations})
    hold = only_hold(drained(part(REPLACE), expired, later=100, node_pods={"node-a": NodePods()}))
    record = parse_draining(str(hold.annotations[names.DRAINING_ANNOTATION]))
    assert (record.since, record.labels, hold.taints) == (int(NOW) + 100, {LABEL: "true"}, TAINTED)


# ---------------------------------------------------------------- drivers that yield

MEM = DriverKey("driverwright/mem")


def yielding(first: str, *, by: str | None = KEY) -> Node:
    """Make a node where a driver yields to another one."""
    made = node() if by is None else locked(by)
    record = {names.YIELDING_ANNOTATION: render_yielding(Yielding(first=DriverKey(first), drivers=(MEM,)))}
    labels = {**made.labels, driver_keys(MEM).yields: "edu"}
    return replace(made, annotations={**made.annotations, **record}, labels=labels)


def test_where_the_driver_works_those_that_yield_come_back_before_the_node_is_released() -> None:
    """The lock is held until they are proven."""
    hold = only_hold(prepared(part(yielded={"node-a": True}), yielding(KEY)))
    assert hold.labels == {driver_keys(MEM).yields: None}
    assert names.YIELDING_ANNOTATION not in hold.annotations
    assert hold.annotations[names.LOCK_ANNOTATION] is not None


@pytest.mark.parametrize(
    ("busy", "expected"), [(frozenset({"node-a"}), []), (frozenset(), ["release its lock"])], ids=["it loads", "failed"]
)
def test_where_the_driver_does_not_work_nobody_comes_back(busy: frozenset[str], expected: list[str]) -> None:
    """Once nothing moves there, others may work on the node."""
    found = prepared(part(yielded={"node-a": False}, busy=busy), yielding(KEY))
    assert locks_of(found) == expected
    assert all(not action.labels for action in holds(found.actions))


@pytest.mark.parametrize("first", ["driverwright/gone", "x"], ids=["deleted", "not readable"])
def test_what_a_driver_that_is_gone_has_left_is_removed(first: str) -> None:
    """Nothing else would let those come back that yield to it."""
    (hold,) = prepare_nodes((part(),), snapshot(yielding(first, by=None))).released
    assert hold.labels == {driver_keys(MEM).yields: None}
    assert hold.annotations == {names.YIELDING_ANNOTATION: None}
