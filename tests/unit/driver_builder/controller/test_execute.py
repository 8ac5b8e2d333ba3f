"""What the actions of a plan write, that they may be repeated, and how they bear what goes wrong."""

from dataclasses import replace

import pytest

from driver_builder.api.driver_container import FINALIZER
from driver_builder.base.errors import InternalError
from driver_builder.controller.execute import Executor, FailedChange
from driver_builder.model.driver_key import DriverKey
from driver_builder.model.image_state import Absent
from driver_builder.nodes.changes import (
    DeleteObject,
    EvictPod,
    PatchNode,
    PatchObject,
    StartBuild,
    apply_daemon_set,
    move_node,
)
from driver_builder.objects import manifests
from driver_builder.plan.plan import plan
from kube_api import names
from kube_api.errors import Conflict, Forbidden, KubeApiError, ServerUnavailable, Unreachable
from kube_api.resources import DAEMON_SETS, NODES, PODS
from tests.support.driver_builder.changes import finalizer, label_node, replaced_pod
from tests.support.driver_builder.factories import KERNEL, NAMESPACE, SETTINGS, snapshot, with_images
from tests.support.driver_builder.memory_client import MemoryClient
from tests.support.driver_builder.model_parts import ModelBuilds
from tests.support.driver_builder.model_world import World
from tests.support.driver_builder.worlds import DRIVER_PATH, small_world


@pytest.fixture
def world() -> World:
    """Make a world of one node and one driver."""
    return small_world()


def executor(client: MemoryClient) -> Executor:
    """Make an executor with a queue of its own."""
    return Executor(client, ModelBuilds())


def deletion(name: str, uid: str = "u") -> DeleteObject:
    """Make the deletion of a DaemonSet."""
    why = "no node should run it"
    return DeleteObject(resource=DAEMON_SETS, namespace=NAMESPACE, name=name, uid=uid, why=why)


UNLABEL = label_node(node="node-a", driver="d", label="driverwright.io/x.ready", value=None, why="because")
LABEL = label_node(node="node-a", driver="d", label="driverwright.io/x.ready", value="1", why="")


def test_a_label_is_set_and_taken_away(world: World) -> None:
    """Setting and removing a label changes no other label of the Node."""
    path = NODES.path(name="node-a")
    before = world.client.get(path)["metadata"]["labels"]
    assert executor(world.client).perform((LABEL,)) == ()
    assert world.client.get(path)["metadata"]["labels"] == {**before, "driverwright.io/x.ready": "1"}
    assert executor(world.client).perform((UNLABEL,)) == ()
    assert world.client.get(path)["metadata"]["labels"] == before


def test_every_action_may_be_repeated(world: World) -> None:
    """Doing an action twice is doing it once."""
    decided = plan(with_images(snapshot()), SETTINGS)
    actions = (*decided.actions, LABEL, finalizer("edu", present=True))
    assert executor(world.client).perform(actions) == ()
    writes = len(world.client.writes)
    assert executor(world.client).perform(actions) == ()
    assert world.client.writes[writes:] == []
    assert world.client.get(DRIVER_PATH)["metadata"]["finalizers"] == [FINALIZER]


def test_others_finalizers_stay(world: World) -> None:
    """Ours comes and goes beside them."""
    world.client.patch(DRIVER_PATH, {"metadata": {"finalizers": ["other"]}})
    for present, expected in ((True, ["other", FINALIZER]), (False, ["other"])):
        executor(world.client).perform((finalizer("edu", present=present),))
        assert world.client.get(DRIVER_PATH)["metadata"]["finalizers"] == expected


def test_a_world_that_moved_on_is_no_error(world: World) -> None:
    """What is gone, or another object of the same name, is left to the next reconcile."""
    gone = label_node(node="gone", driver="d", label="l", value="1", why="")
    stranger = deletion("ds", uid="older")
    world.client.create(DAEMON_SETS.path(namespace=NAMESPACE), {"metadata": {"name": "ds"}})
    assert executor(world.client).perform((gone, stranger)) == ()
    assert DAEMON_SETS.path(namespace=NAMESPACE, name="ds") in world.client.objects


def test_a_daemon_set_loses_nothing_but_the_version_of_its_selector(world: World) -> None:
    """Whatever wrote it: its pods stay as they are, and an annotation says which version it was made for."""
    path, version = DAEMON_SETS.path(namespace=NAMESPACE, name="ds"), {names.OS_VERSION_LABEL: "12"}
    pod = {"nodeSelector": {"a": "b", **version}, "containers": [{"name": "hold", "image": "i"}]}
    body = {"metadata": {"name": "ds", "uid": "u"}, "spec": {"template": {"spec": pod}}}
    world.client.create(DAEMON_SETS.path(namespace=NAMESPACE), body)
    widen = PatchObject(
        resource=DAEMON_SETS,
        namespace=NAMESPACE,
        name="ds",
        uid="u",
        why="keep nodes",
        body={
            "metadata": {"annotations": {manifests.OS_VERSION_ANNOTATION: "12"}},
            "spec": {"template": {"spec": {"nodeSelector": {names.OS_VERSION_LABEL: None}}}},
        },
    )
    executor(world.client).perform((widen,))
    made = world.client.get(path)
    assert made["spec"]["template"]["spec"] == {**pod, "nodeSelector": {"a": "b"}}
    assert made["metadata"]["annotations"] == {manifests.OS_VERSION_ANNOTATION: "12"}


def test_a_daemon_set_loses_its_hooks_before_it_is_applied(world: World) -> None:
    """An apply alone would be refused: see ``MemoryClient.apply``."""
    hold = {"name": "hold", "image": "i", "lifecycle": {"preStop": {"exec": {"command": ["leave"]}}}}
    body = {"metadata": {"name": "ds"}, "spec": {"template": {"spec": {"containers": [hold]}}}}
    world.client.create(DAEMON_SETS.path(namespace=NAMESPACE), body)
    wanted = {"metadata": {"name": "ds"}, "spec": {"template": {"spec": {"containers": [{"name": "hold"}]}}}}
    action = apply_daemon_set(
        namespace=NAMESPACE, name="ds", driver="d", target="t", manifest=wanted, hooks=("hold",)
    )  # fmt: skip
    assert executor(world.client).perform((action, action)) == ()
    made = world.client.get(DAEMON_SETS.path(namespace=NAMESPACE, name="ds"))
    assert made["spec"]["template"]["spec"]["containers"] == [{"name": "hold"}]


def test_one_refused_action_does_not_stop_the_others(world: World) -> None:
    """Errors are gathered; the rest is done."""
    error = Forbidden("403", status=403)
    world.client.faults = [error]
    later = finalizer("edu", present=True)
    assert executor(world.client).perform((LABEL, later)) == (FailedChange(change=LABEL, error=error),)
    assert FINALIZER in world.client.get(DRIVER_PATH)["metadata"]["finalizers"]


LOCK = PatchNode(
    node="node-a",
    driver="d",
    seen={names.LOCK_ANNOTATION: None},
    annotations={names.LOCK_ANNOTATION: "ours"},
    why="take its lock",
)
REPLACE = replaced_pod(namespace=NAMESPACE, name="p", uid="u", node="node-a")


def test_a_lock_is_taken_with_what_else_is_written_on_its_node(world: World) -> None:
    """It is one patch of the version that was read, and repeating it changes nothing."""
    path = NODES.path(name="node-a")
    assert executor(world.client).perform((LABEL, LOCK)) == ()
    assert world.client.writes[-2:].count(path) == 1
    assert world.client.get(path)["metadata"]["annotations"][names.LOCK_ANNOTATION] == "ours"
    again = replace(LOCK, seen={names.LOCK_ANNOTATION: "ours"}, annotations={names.LOCK_ANNOTATION: None})
    assert executor(world.client).perform((again,)) == ()
    assert names.LOCK_ANNOTATION not in world.client.get(path)["metadata"]["annotations"]


def test_a_lock_that_somebody_else_took_first_stays_theirs(world: World) -> None:
    """What is written beside it is written all the same; the driver pod stays."""
    path = NODES.path(name="node-a")
    world.client.patch(path, {"metadata": {"annotations": {names.LOCK_ANNOTATION: "theirs"}}})
    pod = {"metadata": {"name": "p", "uid": "u"}, "spec": {}}
    world.client.create(PODS.path(namespace=NAMESPACE), pod)
    assert executor(world.client).perform((LABEL, LOCK, REPLACE)) == ()
    metadata = world.client.get(path)["metadata"]
    assert metadata["annotations"][names.LOCK_ANNOTATION] == "theirs"
    assert metadata["labels"]["driverwright.io/x.ready"] == "1"
    assert "deletionTimestamp" not in world.client.get(PODS.path(namespace=NAMESPACE, name="p"))["metadata"]


def test_without_its_lock_a_node_keeps_its_driver_pod(world: World) -> None:
    """An admission policy of before refuses the annotation: the status says so, and nothing is replaced."""
    world.client.create(PODS.path(namespace=NAMESPACE), {"metadata": {"name": "p", "uid": "u"}, "spec": {}})
    (path,) = [path for path in world.client.objects if path.endswith("/pods/p")]

    world.client.unpatchable = (NODES.path(name="node-a"),)
    (failed,) = executor(world.client).perform((LOCK, REPLACE))
    assert failed.change is LOCK
    assert "deletionTimestamp" not in world.client.objects[path]["metadata"]


@pytest.mark.parametrize("noted", [False, True])
def test_without_its_lock_a_node_does_not_move_either(world: World, *, noted: bool) -> None:
    """Also where only the status records the move, which is a patch of its own."""
    path, driver = NODES.path(name="node-a"), DriverKey("ns/d")
    world.client.patch(path, {"metadata": {"annotations": {names.LOCK_ANNOTATION: "theirs"}}})
    move = move_node(node="node-a", driver=driver, value="new", noted=noted)
    changes = (move, replace(LOCK, driver=driver), replace(LABEL, driver=driver))
    assert executor(world.client).perform(changes) == ()
    labels = world.client.get(path)["metadata"]["labels"]
    assert labels["driverwright.io/x.ready"] == "1"
    assert names.wave_label("ns", "d") not in labels


@pytest.mark.parametrize(
    ("there", "is_evicted"),
    [
        pytest.param("seen", True, id="as it was"),
        pytest.param("renewed", False, id="another one"),
        pytest.param(None, False, id="gone"),
    ],
)
def test_a_pod_is_evicted_only_while_its_node_says_what_it_said(
    world: World, there: str | None, *, is_evicted: bool
) -> None:
    """Who asked for it may have given the node back since; that is no failure of the reconcile."""
    world.client.patch(NODES.path(name="node-a"), {"metadata": {"annotations": {names.LOCK_ANNOTATION: there}}})
    world.client.create(PODS.path(namespace="apps"), {"metadata": {"name": "p", "uid": "u"}, "spec": {}})
    evict = EvictPod(namespace="apps", name="p", uid="u", node="node-a", at=1.0, seen={names.LOCK_ANNOTATION: "seen"})
    assert executor(world.client).perform((evict,)) == ()
    assert bool(world.client.evicted) is is_evicted


def tainting(key: str, *, is_wanted: bool = True) -> PatchNode:
    """Make a change of a taint, and of the record of the boot."""
    taint = {"key": key, "value": "pending", "effect": "NoSchedule"} if is_wanted else None
    annotations = {"pending": "b" if is_wanted else None}
    return PatchNode(node="node-a", driver="d", taints={key: taint}, annotations=annotations)


TAINT = tainting("driverwright.io/ns.d")


def test_a_taint_is_one_of_many(world: World) -> None:
    """Those of others stay, what is there already is not written again, and boot and label are in the same patch."""
    path, other = NODES.path(name="node-a"), {"key": "x", "effect": "NoExecute"}
    world.client.patch(path, {"spec": {"taints": [other]}})
    made = {"key": "driverwright.io/ns.d", "value": "pending", "effect": "NoSchedule"}
    before = len(world.client.writes)
    assert executor(world.client).perform((LABEL, TAINT)) == ()
    assert len(world.client.writes) == before + 1
    node = world.client.get(path)
    assert (node["spec"]["taints"], node["metadata"]["annotations"]["pending"]) == ([other, made], "b")
    assert executor(world.client).perform((TAINT, tainting("driverwright.io/ns.e"))) == ()
    assert [item["key"] for item in world.client.get(path)["spec"]["taints"]] == [
        "x", "driverwright.io/ns.d", "driverwright.io/ns.e"
    ]  # fmt: skip
    gone = tuple(tainting(f"driverwright.io/ns.{name}", is_wanted=False) for name in "de")
    assert executor(world.client).perform(gone) == ()
    assert world.client.get(path)["spec"]["taints"] == [other]


@pytest.mark.parametrize("error", [Conflict("409", status=409), Forbidden("403", status=403)])
def test_a_label_does_not_depend_on_a_taint(world: World, error: KubeApiError) -> None:
    """Somebody else has written the Node, or an admission policy of before refuses the taint."""
    world.client.faults = [error, error]
    executor(world.client).perform((TAINT, LABEL))
    world.client.faults = []
    executor(world.client).perform((TAINT,))
    node = world.client.get(NODES.path(name="node-a"))
    assert node["metadata"]["labels"]["driverwright.io/x.ready"] == "1"
    assert [item["key"] for item in node["spec"]["taints"]] == [*TAINT.taints]


OTHER_LABEL = label_node(node="node-a", driver="e", label="b", value="2", why="", annotations={"c": "3"})
RECORD = PatchNode(node="node-a", driver="f", annotations={"loaded": "{}"})


def test_a_node_is_patched_once(world: World) -> None:
    """Whatever drivers have to say on it, and however many."""
    before = len(world.client.writes)
    assert executor(world.client).perform((LABEL, OTHER_LABEL, RECORD)) == ()
    assert len(world.client.writes) == before + 1
    metadata = world.client.get(NODES.path(name="node-a"))["metadata"]
    assert (metadata["labels"]["driverwright.io/x.ready"], metadata["labels"]["b"]) == ("1", "2")
    assert (metadata["annotations"]["c"], metadata["annotations"]["loaded"]) == ("3", "{}")


def test_a_patch_that_is_refused_is_tried_driver_by_driver(world: World) -> None:
    """What one driver wants to say may be refused for itself: the others say theirs."""
    error = Forbidden("403", status=403)
    world.client.faults = [error, error]
    assert executor(world.client).perform((LABEL, OTHER_LABEL)) == (FailedChange(change=LABEL, error=error),)
    assert world.client.get(NODES.path(name="node-a"))["metadata"]["labels"]["b"] == "2"


def test_a_patch_without_an_answer_is_not_tried_again(world: World) -> None:
    """Each try would wait as long; the next pass does what is left."""
    error = Unreachable("timed out")
    world.client.faults = [error]
    before = len(world.client.writes)
    owners = {id(LABEL): "d", id(OTHER_LABEL): "e"}
    later = finalizer("edu", present=True)
    failed = executor(world.client).perform((LABEL, OTHER_LABEL, later), lambda action: owners.get(id(action), "e"))
    assert failed == tuple(
        FailedChange(change=change, owner=owners[id(change)], error=error) for change in (LABEL, OTHER_LABEL)
    )
    assert len(world.client.writes) == before, "of both drivers nothing more is written"


def test_a_driver_whose_writes_got_no_answer_is_written_apart(world: World) -> None:
    """The others of its nodes do not wait for it again."""
    known, error = executor(world.client), Unreachable("timed out")
    world.client.faults = [error]
    known.perform((OTHER_LABEL,), lambda action: action.driver if isinstance(action, PatchNode) else "")
    before = len(world.client.writes)
    owner_of = {id(LABEL): "d", id(OTHER_LABEL): "e"}
    assert known.perform((LABEL, OTHER_LABEL), lambda action: owner_of[id(action)]) == ()
    assert len(world.client.writes) == before + 2


def test_a_pod_is_replaced_only_if_it_is_that_pod(world: World) -> None:
    """A younger pod of the same name stays."""
    world.client.create(PODS.path(namespace=NAMESPACE), {"metadata": {"name": "p", "uid": "new"}})
    for uid, gone in (("old", False), ("new", True)):
        executor(world.client).perform((replaced_pod(namespace=NAMESPACE, name="p", uid=uid, node="n"),))
        obj = world.client.get(PODS.path(namespace=NAMESPACE, name="p"))
        assert ("deletionTimestamp" in obj["metadata"]) is gone


def test_a_pod_goes_after_the_label_that_its_node_loses(world: World) -> None:
    """It may be the only evidence: where the label could not be removed for now, the pod stays, and those of others go.

    A controller that is killed in between leaves no label without evidence either.
    """
    pods = PODS.path(namespace=NAMESPACE)
    for name in ("p", "q"):
        world.client.create(pods, {"metadata": {"name": name, "uid": name}})
    replace_pods = tuple(
        replaced_pod(namespace=NAMESPACE, name=name, uid=name, node=node)
        for name, node in (("p", "node-a"), ("q", "node-b"))
    )
    for error, replaced in ((ServerUnavailable("503"), ["q"]), (Forbidden("403", status=403), ["p", "q"])):
        world.client.faults = [error]
        assert executor(world.client).perform((*replace_pods, UNLABEL)) == (FailedChange(change=UNLABEL, error=error),)
        found = {name: world.client.get(f"{pods}/{name}")["metadata"] for name in ("p", "q")}
        assert [name for name, metadata in found.items() if "deletionTimestamp" in metadata] == replaced


@pytest.mark.parametrize(
    ("action", "words"),
    [
        pytest.param(LABEL, "label node node-a: driverwright.io/x.ready=1", id="label"),
        pytest.param(UNLABEL, "unlabel node node-a: driverwright.io/x.ready (because)", id="unlabel"),
        pytest.param(finalizer("d", present=True), "let DriverContainer driverwright/d wait or go", id="patch"),
        pytest.param(label_node(node="x", driver="n/e", label="l", value=None, why="w", annotations={"a": "b"}),
                     "unlabel node x: l (w)", id="with a record"),
        pytest.param(label_node(node="x", driver="n/e", label="l", value="1", why="w"), "label node x: l=1", id="set"),
        pytest.param(move_node(node="x", driver=DriverKey("n/e"), value="1", why="w"),
                     "label node x: driverwright.io/n.e.wave=1 (w)", id="move"),
        pytest.param(replaced_pod("x", namespace="n", name="p"),
                     "replace pod n/p on x: its node needs another image or settings", id="replace"),
        pytest.param(deletion("d"), "delete DaemonSet driverwright/d: no node should run it", id="delete"),
        pytest.param(apply_daemon_set(namespace="n", name="d", driver="n/e", target="t", manifest={}),
                     "roll out n/e to nodes on t (DaemonSet n/d)", id="apply"),
    ],
)  # fmt: skip
def test_actions_speak_for_themselves(action: object, words: str) -> None:
    """The dry run prints what would be done."""
    assert str(action) == words


def test_a_build_says_who_waits() -> None:
    """One node waits, two nodes wait."""
    (build,) = plan(with_images(snapshot(), Absent()), SETTINGS).actions
    assert isinstance(build, StartBuild)
    assert str(build).endswith("(1 node waits)")


LABELS = tuple(label_node(node=f"n{number}", driver="d", label="l", value="1", why="") for number in range(5))


def test_an_api_server_that_does_not_answer_ends_the_pass(world: World) -> None:
    """Each further action would wait for it as long: the next reconcile goes on."""
    error = Unreachable("PATCH: no answer")
    world.client.faults = [error] * 5
    assert executor(world.client).perform(LABELS) == (FailedChange(change=LABELS[0], error=error),)
    assert len(world.client.faults) == 4


@pytest.mark.parametrize(
    ("faults", "expected"),
    [
        pytest.param(1, ["n2", "n3", "n4"], id="one driver: the others go on"),
        pytest.param(2, [], id="two drivers: the rest is left"),
    ],
)
def test_an_action_without_an_answer_ends_those_of_its_driver(world: World, faults: int, expected: list[str]) -> None:
    """A webhook may time out for one driver; with a second one it is the API server."""
    for label in LABELS:
        world.add_node(label.node, KERNEL)
    owners = {"n0": "a", "n1": "a", "n2": "b", "n3": "c", "n4": "c"}
    labels = {id(label): owners[label.node] for label in LABELS}
    world.client.faults = [Unreachable("PATCH: no answer")] * faults
    failed = executor(world.client).perform(LABELS, lambda action: labels[id(action)])
    assert len(failed) == faults
    nodes = [world.client.get(NODES.path(name=label.node))["metadata"] for label in LABELS]
    assert [metadata["name"] for metadata in nodes if "l" in metadata["labels"]] == expected


def test_drivers_whose_actions_got_no_answer_come_last_the_next_time(world: World) -> None:
    """Two that never get one keep no other from what it wants; one that answers again goes back to its place."""
    owners = {"n0": "a", "n1": "b", "n2": "c", "n3": "d", "n4": "d"}
    asked: list[str] = []
    silent = {"n0", "n1"}

    def patch(path: str, _body: object, **_more: object) -> dict[str, object]:
        node = path.rpartition("/")[2]
        asked.append(node)
        if node in silent:
            raise Unreachable("PATCH: no answer")
        return {}

    world.client.patch = patch  # type: ignore[method-assign, assignment]
    labels = {id(label): owners[label.node] for label in LABELS}
    made = executor(world.client)
    for expected in (["n0", "n1"], ["n2", "n3", "n4", "n0", "n1"]):
        made.perform(LABELS, lambda action: labels[id(action)])
        assert asked == expected
        asked.clear()
    silent.clear()
    for expected in (["n2", "n3", "n4", "n0", "n1"], ["n0", "n1", "n2", "n3", "n4"]):
        made.perform(LABELS, lambda action: labels[id(action)])
        assert asked == expected
        asked.clear()


def test_a_controller_that_is_to_stop_stops_between_two_actions(world: World) -> None:
    """Without the Lease another controller acts."""
    for label in LABELS:
        world.add_node(label.node, KERNEL)
    asked = iter([False, False, True])
    stopping = Executor(world.client, ModelBuilds(), is_stopping=lambda: next(asked))
    assert stopping.perform(LABELS) == ()
    nodes = [world.client.get(NODES.path(name=label.node))["metadata"] for label in LABELS]
    assert [metadata["name"] for metadata in nodes if "l" in metadata["labels"]] == ["n0", "n1"]


def test_a_bug_in_one_action_does_not_stop_the_others(world: World) -> None:
    """It is said with the action, as a refusal is."""

    class Broken(ModelBuilds):
        def submit(self, action: StartBuild) -> None:
            raise RuntimeError(f"cannot start {action.request.key}")

    (build,) = plan(with_images(snapshot(), Absent()), SETTINGS).actions
    (failed,) = Executor(world.client, Broken()).perform((build, LABEL))
    assert isinstance(failed.error, InternalError)
    assert "driverwright.io/x.ready" in world.client.get(NODES.path(name="node-a"))["metadata"]["labels"]
