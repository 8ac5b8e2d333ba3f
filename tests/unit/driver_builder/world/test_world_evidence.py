"""A fleet whose drivers work: what may take a label or a pod away from it, and what may not."""

import itertools
from collections.abc import Callable
from typing import Any

import pytest

from driver_builder.model.image_state import Unreachable
from driver_builder.objects import manifests
from driver_builder.snapshot.rebuild import NODES_HEARD_SECONDS
from kube_api import names
from kube_api.resources import DRIVER_CONTAINERS, NODES
from kube_api.timestamps import timestamp
from tests.support.driver_builder.factories import KERNEL, NAMESPACE, OTHER_KERNEL
from tests.support.driver_builder.model_world import World

READY = "driverwright.io/driverwright.edu.ready"
IDENTITY = "A1B2C3"


@pytest.fixture
def world() -> World:
    """Three nodes of one kernel with a driver that works; each build gives modules of one identity."""
    made = World()
    made.identity = IDENTITY
    for name in ("a", "b", "c"):
        made.add_node(name, KERNEL)
    made.add_driver()
    made.settle()
    return made


def edit(world: World, spec: dict[str, Any]) -> None:
    """Let somebody edit the driver."""
    world.client.patch(DRIVER_CONTAINERS.path(namespace=NAMESPACE, name="edu"), {"spec": spec})


def ask(world: World, node: str, value: str) -> None:
    """Let somebody ask for a rebuild on a node."""
    world.client.patch(NODES.path(name=node), {"metadata": {"annotations": {names.REBUILD_ANNOTATION: value}}})


def uids(world: World) -> dict[str, str]:
    """Return the uid of each node's pod."""
    return {pod["spec"]["nodeName"]: pod["metadata"]["uid"] for name in world.nodes() for pod in world.pods_on(name)}


def ready(world: World) -> dict[str, str | None]:
    """Return each node's ready label."""
    return {name: labels.get(READY) for name, labels in world.nodes().items()}


ALL_READY = dict.fromkeys("abc", "1.0.0")


@pytest.mark.parametrize(
    "change",
    [
        pytest.param({"tolerations": [{"key": "gpu", "operator": "Exists"}]}, id="tolerations"),
        pytest.param({"priorityClassName": "drivers"}, id="priority"),
        pytest.param({"imagePullSecrets": [{"name": "other"}]}, id="pull Secrets"),
    ],
)
def test_how_a_pod_runs_waits_for_its_next_occasion(world: World, change: dict[str, Any]) -> None:
    """The DaemonSet is written, no pod is replaced, no label moves."""
    before, writes = uids(world), len(world.client.writes)
    edit(world, change)
    world.settle()
    assert (uids(world), ready(world)) == (before, ALL_READY)
    assert any("/daemonsets/" in path for path in world.client.writes[writes:])


@pytest.mark.parametrize(
    "change",
    [
        pytest.param({"resources": {"limits": {"memory": "128Mi"}}}, id="resources"),
        pytest.param({"securityContext": {"seccompProfile": {"type": "RuntimeDefault"}}}, id="security context"),
    ],
)
def test_containers_that_a_later_release_writes_otherwise_wait_for_their_next_occasion(
    world: World, monkeypatch: pytest.MonkeyPatch, change: dict[str, Any]
) -> None:
    """No spec has these: the controller's own choice of them replaces no pod either, and moves no label."""
    before, written = uids(world), manifests._pod_spec

    def of_later(*arguments: Any, **words: Any) -> Any:
        pod = written(*arguments, **words)
        kinds = ("initContainers", "containers")
        return {**pod, **{kind: [{**container, **change} for container in pod[kind]] for kind in kinds}}

    monkeypatch.setattr(manifests, "_pod_spec", of_later)
    world.kill()
    world.settle()
    assert (uids(world), ready(world)) == (before, ALL_READY)
    (daemon_set,) = [obj for _, obj in world._objects("daemonsets")]
    assert change.items() <= daemon_set["spec"]["template"]["spec"]["containers"][0].items()


def test_a_new_version_of_the_same_modules_moves_the_labels_value_alone(world: World) -> None:
    """The pods stay, also while the registry is away; the label is never missing on the way."""
    before = uids(world)
    edit(world, {"version": "2.0.0"})
    for _ in range(6):
        world.reconcile()
        assert None not in ready(world).values()
        world.finish_builds()
        world.turn()
    assert (uids(world), ready(world)) == (before, dict.fromkeys("abc", "2.0.0"))
    world.registries.answers = {image: Unreachable(message="away") for image in world.registries.images}
    world.reconcile()
    assert ready(world) == dict.fromkeys("abc", "2.0.0")


@pytest.mark.parametrize("paused", [False, True], ids=["rolls out", "paused"])
def test_a_label_that_was_moved_to_a_new_version_does_not_move_back(world: World, *, paused: bool) -> None:
    """Version 3 brings other modules; nodes that wait for it keep the version that theirs are of."""
    edit(world, {"version": "2.0.0"})
    world.settle()
    edit(world, {"version": "3.0.0"})
    world.identity = ""
    world.change_source("int z;")
    for _ in range(4):
        world.reconcile()
        world.finish_builds()
    assert any(set(obj.expected.values()) != {IDENTITY} for obj in world.observe().daemon_sets)
    if paused:
        annotations = {names.PAUSE_ANNOTATION: "true"}
        path = DRIVER_CONTAINERS.path(namespace=NAMESPACE, name="edu")
        world.client.patch(path, {"metadata": {"annotations": annotations}})
        world.reconcile()
    assert ready(world) == dict.fromkeys("abc", "2.0.0")
    if not paused:
        world.settle()
        assert ready(world) == dict.fromkeys("abc", "3.0.0")


def test_a_rebuild_of_the_driver_replaces_every_pod(world: World) -> None:
    """Also where the new image has the same modules: an admin asked for it."""
    before = uids(world)
    world.annotate_driver("edu", "1")
    world.settle()
    assert not set(uids(world).values()) & set(before.values())
    assert ready(world) == ALL_READY


@pytest.mark.parametrize("identity", [IDENTITY, ""], ids=["same modules", "other modules"])
def test_a_rebuild_that_a_node_asks_for_replaces_its_pod_alone(world: World, identity: str) -> None:
    """Its target is built anew, and the other nodes keep what they have, whatever the new image holds."""
    before, pushed, world.identity = uids(world), len(world.pushed), identity
    ask(world, "b", "1")
    world.settle()
    after = uids(world)
    assert {name for name in after if after[name] != before[name]} == {"b"}
    assert len(world.pushed) == pushed + 1
    assert ready(world) == ALL_READY
    assert world.status()["rebuild"]["pending"] == {}
    world.kill()
    world.settle()
    assert uids(world) == after


def test_a_change_after_that_reaches_all_nodes(world: World) -> None:
    """What other nodes kept is of before; a new source is for all."""
    world.identity = ""
    ask(world, "b", "1")
    world.settle()
    before = uids(world)
    world.change_source("int y;")
    world.settle()
    assert not set(uids(world).values()) & set(before.values())


def test_a_node_that_asks_again_and_again_is_heard_once_in_a_while(world: World) -> None:
    """Its own pod at most, and one build in ten minutes."""
    began, pushed, before = world.now, len(world.pushed), uids(world)
    for value in ("1", "2", "3"):
        ask(world, "b", value)
        for _ in range(5):
            world.reconcile()
            world.finish_builds()
            world.turn()
            world.now += 1
    assert len(world.pushed) == pushed + 1
    world.now = began + NODES_HEARD_SECONDS
    world.settle()
    assert len(world.pushed) == pushed + 2
    assert {name for name, uid in uids(world).items() if uid == before[name]} == {"a", "c"}


def test_a_node_that_is_not_heard_of_keeps_its_label(world: World) -> None:
    """Its status says since when, a restart of the controller forgets nothing, and nothing is replaced."""
    before, since = uids(world), world.now
    world.silence("b")
    for later in (10, 400, 4000):
        world.now = since + later
        world.kill()
        world.reconcile()
        world.turn()
    assert (uids(world), ready(world)) == (before, ALL_READY)
    (target,) = world.status()["targets"]
    assert (target["state"], target["readyNodes"]) == ("Ready", 3)
    assert "b: no report since 2023-11-14T22:1" in target["message"]
    assert [note["name"] for note in world.status()["nodes"]] == ["b"]
    world.hear("b")
    world.settle()
    assert "nodes" not in world.status()


@pytest.mark.parametrize(
    "condition",
    [
        pytest.param({"status": "False", "reason": "ContainersNotReady"}, id="probe without an answer yet"),
        pytest.param({"status": "Unknown", "reason": "NodeStatusUnknown"}, id="unknown"),
        pytest.param(None, id="no condition"),
    ],
)
@pytest.mark.parametrize("phase", ["Running", "Unknown"])
def test_a_restarted_kubelet_takes_no_label(world: World, phase: str, condition: dict[str, str] | None) -> None:
    """Its pods' containers run on and are not ready until their probe has answered; nothing is replaced."""
    before = uids(world)
    for pod in world.pods_on("b"):
        (hold,) = pod["status"]["containerStatuses"]
        hold |= {"ready": False, "started": False}
        since = {"type": "Ready", "lastTransitionTime": timestamp(world.now)}
        conditions = [] if condition is None else [{**since, **condition}]
        pod["status"] |= {"phase": phase, "conditions": conditions}
    for later in (0, 60, 4000):
        world.now += later
        world.reconcile()
        world.turn()
        assert (uids(world), ready(world)) == (before, ALL_READY)
    world.hear("b")
    world.settle()
    assert (uids(world), ready(world)) == (before, ALL_READY)


def test_a_pod_that_somebody_deletes_costs_no_label(world: World) -> None:
    """At no moment until its successor works: its module stays loaded."""
    (path,) = [path for path, pod in world._objects("pods") if pod["spec"]["nodeName"] == "b"]
    world.client.delete(path)
    for step in world.steps():
        world.reconcile()
        assert ready(world) == ALL_READY
        step()
        world.reconcile()
        assert ready(world) == ALL_READY
    world.settle()
    assert ready(world) == ALL_READY


def test_a_roll_out_of_other_modules_costs_no_label(world: World) -> None:
    """While a pod is replaced the node keeps the label it had, and then says the new version."""
    edit(world, {"version": "2.0.0"})
    world.identity = ""
    for _ in range(20):
        world.reconcile()
        for step in (world.finish_builds, *world.steps()):
            step()
            assert None not in ready(world).values()
        world.now += 1
    assert ready(world) == dict.fromkeys("abc", "2.0.0")


@pytest.mark.parametrize("kernel", [KERNEL, OTHER_KERNEL])
def test_another_boot_costs_the_label_also_without_a_pod(world: World, kernel: str) -> None:
    """Nothing that a kernel of before had loaded is there; the boot is written beside the label."""
    for path, pod in world._objects("pods"):
        if pod["spec"]["nodeName"] == "b":
            del world.client.objects[path]
    world.reconcile()
    assert ready(world) == ALL_READY
    world.reboot("b", kernel)
    world.reconcile()
    assert ready(world) == {**ALL_READY, "b": None}
    world.finish_builds()
    world.settle()
    assert ready(world) == ALL_READY


def test_nodes_that_lose_the_labels_of_their_kernel_keep_the_ready_label(world: World) -> None:
    """nfd-worker may be restarted or removed: that says nothing of the driver."""
    gone = {names.KERNEL_VERSION_LABEL: None, names.OS_ID_LABEL: None}
    world.client.patch(NODES.path(name="b"), {"metadata": {"labels": gone}})
    world.reconcile()
    assert ready(world) == ALL_READY


def test_a_module_that_somebody_removes_is_loaded_again(world: World) -> None:
    """The label goes, the pod is replaced in the same pass, and the label comes with the new pod's proof."""
    before = uids(world)
    world.remove_module("b")
    world.reconcile()
    assert ready(world) == {**ALL_READY, "b": None}
    world.turn()
    world.settle()
    assert {name for name, uid in uids(world).items() if uid != before[name]} == {"b"}
    assert ready(world) == ALL_READY


def test_it_is_loaded_again_with_growing_waits(world: World) -> None:
    """Each time waits longer than the one before, across restarts of the controller, up to an hour."""
    times: list[float] = []
    known = uids(world)["b"]
    while len(times) < 10:
        world.remove_module("b")
        decided = world.reconcile()
        world.turn()
        world.turn()
        world.kill()
        if uids(world)["b"] != known:
            known = uids(world)["b"]
            times.append(world.now)
        else:
            assert decided.requeue_at is not None
            world.now = max(world.now + 1, decided.requeue_at)
    waits = [after - before for before, after in itertools.pairwise(times)]
    assert waits == sorted(waits)
    assert waits[0] >= 60
    assert waits[-1] == pytest.approx(3600, abs=2)
    assert world.status()["nodes"][0]["reloads"] == 10


def test_nothing_is_loaded_again_while_the_driver_is_paused(world: World) -> None:
    """The label goes all the same: it is not true."""
    world.client.patch(
        DRIVER_CONTAINERS.path(namespace=NAMESPACE, name="edu"),
        {"metadata": {"annotations": {names.PAUSE_ANNOTATION: "true"}}},
    )
    before = uids(world)
    world.remove_module("b")
    world.settle()
    assert (uids(world), ready(world)) == (before, {**ALL_READY, "b": None})


def as_before_this_release(world: World) -> None:
    """Make DaemonSets and pods as release 0.1.0 had them: another fingerprint, the version in the selector, a hook."""
    for _, obj in (*world._objects("daemonsets"), *world._objects("pods")):
        annotations = obj["metadata"]["annotations"]
        for key in [key for key in annotations if key not in OLD_ANNOTATIONS]:
            del annotations[key]
        annotations[manifests.FINGERPRINT_ANNOTATION] = "0123456789abcdef"
        template = obj["spec"].get("template", obj)
        template["spec"]["nodeSelector"][names.OS_VERSION_LABEL] = "12"
        template["spec"]["containers"][0]["lifecycle"] = {"preStop": {"exec": {"command": ["leave"]}}}
    for _, obj in world._objects("nodes"):
        obj["metadata"]["annotations"].pop(READY, None)


OLD_ANNOTATIONS = {
    manifests.FINGERPRINT_ANNOTATION, manifests.KERNEL_ANNOTATION, manifests.VERSION_ANNOTATION,
    manifests.MODULES_ANNOTATION,
}  # fmt: skip


def edit_parameters(world: World) -> None:
    """Let somebody edit the module's parameters."""
    edit(world, {"module": {"names": ["edudrv"], "parameters": {"edudrv": ["debug=1"]}}})


OCCASIONS: dict[str, Callable[[World], None]] = {
    "other parameters": edit_parameters,
    "a rebuild": lambda world: world.annotate_driver("edu", "1"),
}


@pytest.mark.parametrize("occasion", OCCASIONS)
def test_pods_of_an_earlier_release_stay_until_their_next_occasion(world: World, occasion: str) -> None:
    """Their fingerprint is of another form; the DaemonSet keeps the one that was wanted when they were first seen."""
    as_before_this_release(world)
    before = uids(world)
    world.settle()
    edit(world, {"tolerations": [{"key": "gpu", "operator": "Exists"}], "version": "2.0.0"})
    world.settle()
    assert (uids(world), ready(world)) == (before, dict.fromkeys("abc", "2.0.0"))
    (daemon_set,) = [obj for _, obj in world._objects("daemonsets")]
    assert names.OS_VERSION_LABEL not in daemon_set["spec"]["template"]["spec"]["nodeSelector"]
    OCCASIONS[occasion](world)
    world.settle()
    assert not set(uids(world).values()) & set(before.values())
    assert ready(world) == dict.fromkeys("abc", "2.0.0")


def test_an_update_of_the_operating_system_during_the_first_build_of_this_release_takes_no_pod(world: World) -> None:
    """The selector loses the version at once, so the DaemonSet has to say by itself what it was."""
    as_before_this_release(world)
    before = uids(world)
    world.registries.images.clear()
    world.reconcile()
    assert len(world.builds.running) == 1
    for name in sorted(world.selected()):
        world.update_os(name, "13")
    world.reconcile()
    world.settle()
    assert (uids(world), ready(world)) == (before, ALL_READY)


def test_a_pod_that_proved_nothing_is_no_reason_to_keep_a_forged_label(world: World) -> None:
    """A label that somebody sets on a node without a proof of this boot goes."""
    world.add_node("d", OTHER_KERNEL)
    world.fail_builds = 10
    world.reconcile()
    world.client.patch(NODES.path(name="d"), {"metadata": {"labels": {READY: "forged"}}})
    world.reconcile()
    assert ready(world)["d"] is None
