"""``spec.validation`` on a model of a cluster: a ready label needs it, whenever the controller is killed."""

from dataclasses import replace
from typing import Any

import pytest

from driver_builder.model.driver_key import DriverKey
from driver_builder.nodes.changes import Change
from driver_builder.objects import loaded, manifests, validated
from driver_builder.tasks import validation_pod
from kube_api import names
from kube_api.client import Object
from kube_api.resources import DRIVER_CONTAINERS, NODES
from tests.support.driver_builder.changes import patches
from tests.support.driver_builder.factories import KERNEL, NAMESPACE
from tests.support.driver_builder.model_world import World

READY = names.ready_label(NAMESPACE, "edu")
RECORD = validated.annotation(f"{NAMESPACE}/edu")
COMMAND: dict[str, Any] = {"image": "registry.example.com/edu-test:1", "command": ["/test", "--all"]}
DEVICES: dict[str, Any] = {"deviceNodes": ["/dev/edu0"]}
ALL_READY = dict.fromkeys("abc", "1.0.0")


def fleet(**changes: Any) -> World:
    """Make three nodes of one kernel and a driver."""
    world = World()
    for name in ALL_READY:
        world.add_node(name, KERNEL)
    world.add_driver(**changes)
    return world


def edit(world: World, **spec: Any) -> None:
    """Let somebody edit the driver."""
    world.client.patch(DRIVER_CONTAINERS.path(namespace=NAMESPACE, name="edu"), {"spec": spec})


def ready(world: World) -> dict[str, str | None]:
    """Return each node's ready label."""
    return {name: labels.get(READY) for name, labels in world.nodes().items()}


def without(name: str) -> dict[str, str | None]:
    """Return the labels where one node has none."""
    return {**ALL_READY, name: None}


def pods(world: World) -> list[Object]:
    """Return the validation pods."""
    every = (pod for name in world.nodes() for pod in world.pods_on(name))
    return [pod for pod in every if validation_pod.VALIDATION.label in pod["metadata"]["labels"]]


def driver_pods(world: World) -> dict[str, str]:
    """Return the uid of each node's driver pod."""
    every = (pod for name in world.nodes() for pod in world.pods_on(name))
    return {pod["spec"]["nodeName"]: pod["metadata"]["uid"] for pod in every if pod not in pods(world)}


def records(world: World) -> dict[str, validated.Validated | None]:
    """Return what each Node records of the command."""
    nodes = {name: world.client.get(NODES.path(name=name)) for name in world.nodes()}
    return {name: validated.parse(obj["metadata"]["annotations"].get(RECORD)) for name, obj in nodes.items()}


def settle(world: World) -> None:
    """Let everything happen, and check that nothing is left to do or to wait for."""
    for _ in range(10):
        world.settle()
        due = world.decide().requeue_at
        if due is None:
            break
        world.now = max(world.now, due)
    decided = world.decide()
    assert (decided.actions, decided.requeue_at) == ((), None)


def test_the_label_comes_once_the_command_has_succeeded() -> None:
    """It runs once on each node, its pods are gone, and the Nodes say so."""
    world = fleet(validation=COMMAND)
    for _ in range(10):
        world.reconcile()
        world.finish_builds()
        world.turn()
        done = {node for _, node, _ in world.validations}
        assert {name for name, value in ready(world).items() if value} <= done
    settle(world)
    assert ready(world) == ALL_READY
    assert sorted(node for _, node, _ in world.validations) == ["a", "b", "c"]
    assert pods(world) == []
    assert all(record is not None and record.succeeded for record in records(world).values())
    assert world.status()["targets"][0]["state"] == "Ready"


def test_a_pod_is_bound_to_its_node_and_owned_by_the_driver() -> None:
    """Its name is the same each time, so that a repeated creation changes nothing."""
    world = fleet(validation={**COMMAND, "timeout": "1m"}, imagePullSecrets=[{"name": "pull"}])
    world.dead.update(ALL_READY)
    for _ in range(5):
        world.reconcile()
        world.finish_builds()
        world.turn()
    (pod,) = [pod for pod in pods(world) if pod["spec"]["nodeName"] == "a"]
    spec, (container,) = pod["spec"], pod["spec"]["containers"]
    assert pod["metadata"]["name"] == validation_pod.VALIDATION.name_of(DriverKey(f"{NAMESPACE}/edu"), "a")
    assert pod["metadata"]["ownerReferences"][0]["kind"] == "DriverContainer"
    assert (spec["restartPolicy"], spec["activeDeadlineSeconds"]) == ("Never", 60)
    assert spec["imagePullSecrets"] == [{"name": "pull"}]
    assert (container["image"], container["command"]) == (COMMAND["image"], COMMAND["command"])
    assert container["securityContext"] == {"privileged": True}
    assert "validation is running" in world.status()["targets"][0]["message"]


def test_it_runs_again_after_a_boot() -> None:
    """The label goes with the boot, and comes back with the command; the other nodes are left alone."""
    world = fleet(validation=COMMAND)
    settle(world)
    world.reboot("b", KERNEL)
    world.reconcile()
    assert ready(world) == without("b")
    settle(world)
    assert ready(world) == ALL_READY
    assert [node for _, node, _ in world.validations].count("b") == 2
    assert len(world.validations) == 4


def test_a_command_that_fails_is_tried_again_with_growing_waits() -> None:
    """What it reported is on the Node meanwhile, and its end is counted once, also when the controller is killed."""
    world = fleet(validation=COMMAND)
    world.invalid["b"] = 2
    began = world.now
    for _ in range(40):
        world.reconcile(lambda _action: True)
        world.finish_builds()
        world.turn()
        world.now += 5
    settle(world)
    assert ready(world) == ALL_READY
    assert [node for _, node, _ in world.validations].count("b") == 3
    assert world.now - began >= 90


def test_after_the_last_try_the_reason_is_in_the_status_and_the_node_has_no_label() -> None:
    """The pod of the last try stays, for its log; the next boot tries again."""
    world = fleet(validation={**COMMAND, "retries": 1})
    world.invalid["b"] = 2
    settle(world)
    assert ready(world) == without("b")
    assert [node for _, node, _ in world.validations].count("b") == 2
    (target,) = world.status()["targets"]
    assert (target["state"], target["reason"]) == ("Blocked", "ValidationFailed")
    assert target["message"] == "b: the command failed (1): no answer"
    assert [pod["spec"]["nodeName"] for pod in pods(world)] == ["b"]
    world.now += 100_000
    settle(world)
    assert len(world.validations) == 4
    world.reboot("b", KERNEL)
    settle(world)
    assert (ready(world), pods(world)) == (ALL_READY, [])


def test_a_record_that_is_removed_by_hand_runs_the_command_again() -> None:
    """With the last pod, whose end would be counted again."""
    world = fleet(validation={**COMMAND, "retries": 0})
    world.invalid["b"] = 1
    settle(world)
    world.client.patch(NODES.path(name="b"), {"metadata": {"annotations": {RECORD: None}}})
    for name in list(world.client.objects):
        if "-validate-" in name:
            world.client.delete(name)
    settle(world)
    assert ready(world) == ALL_READY


@pytest.mark.parametrize("validation", [COMMAND, DEVICES, {**COMMAND, **DEVICES}], ids=["command", "nodes", "both"])
def test_a_node_that_is_ready_when_it_is_first_set_keeps_its_label(validation: dict[str, Any]) -> None:
    """At every moment, and no driver pod is replaced."""
    world = fleet()
    settle(world)
    before = driver_pods(world)
    edit(world, validation=validation)
    for _ in range(12):
        world.reconcile()
        assert ready(world) == ALL_READY
        world.turn()
        world.now += 1
    settle(world)
    assert (ready(world), driver_pods(world)) == (ALL_READY, before)
    expected = ["a", "b", "c"] if "command" in validation else []
    assert sorted(node for _, node, _ in world.validations) == expected


def test_its_label_goes_when_the_validation_fails_there() -> None:
    """Not while it is tried again; the driver pod stays."""
    world = fleet()
    settle(world)
    before = driver_pods(world)
    world.invalid["b"] = 3
    edit(world, validation=COMMAND)
    while world.invalid["b"]:
        assert ready(world) == ALL_READY
        world.reconcile()
        world.turn()
        world.now += 10
    settle(world)
    assert (ready(world), driver_pods(world)) == (without("b"), before)


def test_a_changed_command_keeps_the_label_until_it_fails() -> None:
    """It is another validation of the same driver: it runs once more on each node."""
    world = fleet(validation=COMMAND)
    settle(world)
    edit(world, validation={**COMMAND, "command": ["/other"]})
    for _ in range(8):
        world.reconcile()
        assert ready(world) == ALL_READY
        world.turn()
    settle(world)
    assert len(world.validations) == 6


def test_a_new_driver_has_no_label_before_it_is_validated() -> None:
    """A wave takes the next node once this one is validated."""
    world = fleet(validation=COMMAND)
    settle(world)
    world.change_source("int y;")
    edit(world, version="2.0.0")
    for _ in range(80):
        world.reconcile()
        validated_now = [node for _, node, _ in world.validations[3:]]
        assert {name for name, value in ready(world).items() if value == "2.0.0"} <= set(validated_now)
        for step in (world.finish_builds, *world.steps()):
            step()
            assert sum(value is None for value in ready(world).values()) <= 1
        world.now += 1
    settle(world)
    assert ready(world) == dict.fromkeys("abc", "2.0.0")
    assert [node for _, node, _ in world.validations[3:]] == ["a", "b", "c"]


def test_a_validation_set_with_a_new_driver_does_not_run_against_the_old_one() -> None:
    """It could fail there, and take the label of every node."""
    world = fleet()
    settle(world)
    before = driver_pods(world)
    world.change_source("int y;")
    edit(world, version="2.0.0", validation=COMMAND)
    for _ in range(80):
        world.reconcile()
        world.finish_builds()
        world.turn()
        after = driver_pods(world)
        assert all(after.get(node) != before[node] for _, node, _ in world.validations)
        assert sum(value is None for value in ready(world).values()) <= 1
        world.now += 1
    settle(world)
    assert ready(world) == dict.fromkeys("abc", "2.0.0")


PARAMETERS: dict[str, Any] = {"parameters": {"edudrv": ["level=2"]}}


@pytest.mark.parametrize("is_set_before", [True, False], ids=["set before", "set with them"])
def test_modules_that_are_loaded_with_other_parameters_are_not_those_of_the_label(is_set_before: bool) -> None:
    """They are of the same build: the label goes all the same until they are validated, one node after the other."""
    world = fleet(**({"validation": COMMAND} if is_set_before else {}))
    world.identity = "SAME"
    settle(world)
    world.validations.clear()
    edit(world, version="2.0.0", validation=COMMAND, module=PARAMETERS)
    for _ in range(80):
        world.reconcile()
        validated_now = [node for _, node, _ in world.validations]
        assert {name for name, value in ready(world).items() if value == "2.0.0"} <= set(validated_now)
        for step in (world.finish_builds, *world.steps()):
            step()
            assert sum(value is None for value in ready(world).values()) <= 1
        world.now += 1
    settle(world)
    assert ready(world) == dict.fromkeys("abc", "2.0.0")
    assert [node for _, node, _ in world.validations] == ["a", "b", "c"]


def test_a_rebuild_of_the_same_modules_is_validated_before_its_node_has_the_label() -> None:
    """They were loaded anew."""
    world = fleet(validation=COMMAND)
    world.identity = "SAME"
    settle(world)
    world.validating.add("a")
    world.annotate_driver("edu", "now")
    for _ in range(20):
        world.reconcile()
        world.finish_builds()
        world.turn()
        world.now += 1
    assert ready(world) == without("a")
    world.validating.clear()
    settle(world)
    assert ready(world) == ALL_READY


def test_where_the_same_modules_stay_loaded_the_label_says_the_new_version_once_they_are_validated() -> None:
    """The wave waits for that on each node."""
    world = fleet(validation=COMMAND)
    world.identity = "SAME"
    settle(world)
    world.validating.update("abc")
    edit(world, version="2.0.0", module={"blacklist": ["other"]})
    for _ in range(20):
        world.reconcile()
        assert ready(world) == ALL_READY
        world.finish_builds()
        world.turn()
        world.now += 1
    assert "waits for a: validation is running" in world.status()["rollout"]["message"]
    world.validating.clear()
    settle(world)
    assert ready(world) == dict.fromkeys("abc", "2.0.0")


@pytest.mark.parametrize("validation", [None, COMMAND], ids=["without a validation", "with a validation"])
def test_a_record_of_an_earlier_release_is_written_again_only_for_a_validation(validation: Object | None) -> None:
    """It has no fingerprint."""
    world = fleet(validation=validation)
    settle(world)
    key = loaded.annotation(f"{NAMESPACE}/edu")
    annotations: Object = world.client.objects[NODES.path(name="a")]["metadata"]["annotations"]
    before = annotations[key]
    known = loaded.parse(before)
    assert known is not None
    annotations[key] = loaded.render(replace(known, loads=tuple(replace(it, fingerprint="") for it in known.loads)))
    assert annotations[key] != before
    world.kill()
    written = [text for part in patches(world.decide().actions, "record loads") for text in part.annotations.values()]
    assert written == ([before] if validation else [])
    assert len(world.decide().actions) == len(written)


def test_a_failed_validation_halts_the_wave() -> None:
    """The other nodes keep the driver that works there, and the node returns to it."""
    world = fleet(validation={**COMMAND, "retries": 0})
    settle(world)
    world.invalid["a"] = 1
    world.change_source("int y;")
    edit(world, version="2.0.0")
    settle(world)
    assert ready(world) == dict.fromkeys("abc", "1.0.0")
    rollout = world.status()["rollout"]
    assert (rollout["phase"], rollout["failedNodes"], rollout["returned"]) == ("Halted", 1, ["a"])
    assert "ValidationFailed: the command failed (1): no answer" in rollout["message"]
    world.change_source("int z;")
    edit(world, version="3.0.0")
    settle(world)
    assert ready(world) == dict.fromkeys("abc", "3.0.0")


def test_a_missing_device_node_keeps_the_label_away() -> None:
    """It comes once the node is there."""
    world = fleet(validation=DEVICES)
    world.missing.add("b")
    world.settle()
    assert ready(world) == without("b")
    assert "b: DeviceNodeMissing: device node /dev/edu0 is missing" in world.status()["targets"][0]["message"]
    world.missing.clear()
    settle(world)
    assert ready(world) == ALL_READY


def test_a_device_node_that_goes_takes_the_label() -> None:
    """The driver is loaded again, as after any loss, until the node is back."""
    world = fleet(validation=DEVICES)
    settle(world)
    before = driver_pods(world)
    world.missing.add("b")
    world.remove_module("b", "DeviceNodeMissing")
    world.reconcile()
    assert ready(world) == without("b")
    world.settle()
    assert {name for name, uid in driver_pods(world).items() if uid != before[name]} == {"b"}
    world.missing.clear()
    world.settle()
    assert ready(world) == ALL_READY


def test_a_driver_pod_of_before_checks_device_nodes_after_the_next_boot() -> None:
    """It is replaced then: the node has no label, and nothing is lost."""
    world = fleet()
    settle(world)
    before = driver_pods(world)
    edit(world, validation=DEVICES)
    settle(world)
    world.missing.add("b")
    world.reboot("b", KERNEL)
    world.settle()
    assert ready(world) == without("b")
    assert {name for name, uid in driver_pods(world).items() if uid != before[name]} == {"b"}
    world.missing.clear()
    settle(world)
    assert ready(world) == ALL_READY


def test_without_a_validation_nothing_of_it_stays() -> None:
    """Records and pods go, labels and driver pods stay."""
    world = fleet(validation={**COMMAND, "retries": 0})
    world.invalid["b"] = 1
    settle(world)
    before = driver_pods(world)
    edit(world, validation=None)
    settle(world)
    assert (ready(world), driver_pods(world), pods(world)) == (ALL_READY, before, [])
    assert set(records(world).values()) == {None}


def test_a_driver_that_is_deleted_leaves_no_pod_and_no_record() -> None:
    """A command that still runs would keep the modules in use."""
    world = fleet(validation=COMMAND)
    settle(world)
    world.dead.add("b")
    world.reboot("b", KERNEL)
    for _ in range(4):
        world.reconcile()
        world.turn()
    assert len(pods(world)) == 1
    world.dead.clear()
    world.delete_driver("edu")
    world.settle()
    assert pods(world) == []
    assert set(records(world).values()) == {None}
    assert DRIVER_CONTAINERS.path(namespace=NAMESPACE, name="edu") not in world.client.objects


def test_a_command_without_an_image_is_not_acted_on() -> None:
    """As when it was reserved."""
    world = fleet(validation={"command": ["/test"]})
    settle(world)
    assert (ready(world), world.validations) == (ALL_READY, [])
    assert world.status()["unusedFields"] == ["spec.validation.command"]


@pytest.mark.parametrize("fails", [1, 2], ids=["fails once", "fails for good"])
def test_killed_after_any_action_it_runs_once_for_each_try(fails: int) -> None:
    """For each action on the way: kill the controller right after it; the end and the number of runs are the same."""

    def end(killed_after: int) -> tuple[World, int]:
        world, seen = World(), 0
        world.add_node("a", KERNEL)
        world.add_node("b", KERNEL)
        world.add_driver(validation={**COMMAND, **DEVICES, "retries": 1})
        world.invalid["b"] = fails

        def kill_here(_action: Change) -> bool:
            nonlocal seen
            seen += 1
            return seen == killed_after

        for _ in range(12):
            if not world.kills:
                world.reconcile(kill_here)
                world.finish_builds()
                world.turn()
                world.now += 31
        return world, seen

    straight, actions = end(0)
    assert ready(straight) == {"a": "1.0.0", "b": "1.0.0" if fails == 1 else None}
    assert len(straight.validations) == 3
    for number in range(1, actions + 1):
        world, _ = end(number)
        settle(world)
        assert ready(world) == ready(straight)
        assert sorted(world.validations) == sorted(straight.validations)


def test_the_daemon_set_says_which_device_nodes_it_checks() -> None:
    """Only where they are set do its pods see the node's /dev."""
    world = fleet(validation=DEVICES)
    settle(world)
    (obj,) = [obj for _, obj in world._objects("daemonsets")]
    spec = obj["spec"]["template"]["spec"]
    for container in (spec["initContainers"][-1], *spec["containers"]):
        assert {"name": manifests.DEVICE_NODES, "value": "/dev/edu0"} in container["env"]
        assert {"name": "dev", "mountPath": "/host/dev", "readOnly": True} in container["volumeMounts"]
    assert {"name": "dev", "hostPath": {"path": "/dev"}} in spec["volumes"]
