"""What a removal cannot unload: it is reported, waits until the deadline, and stays loaded until the node boots."""

import json
from collections.abc import Callable
from dataclasses import replace

import pytest

from driver_builder.objects import loaded
from kube_api import names
from kube_api.client import Object
from kube_api.errors import Forbidden
from kube_api.resources import NAMESPACES, NODES, PODS
from kube_api.timestamps import timestamp
from tests.support.driver_builder.factories import KERNEL, NAMESPACE, OTHER_KERNEL
from tests.support.driver_builder.model_world import World
from tests.support.driver_builder.removals import (
    MEMORY,
    READY,
    condition,
    events,
    fleet,
    is_gone,
    memory,
    rounds,
    unload_pods,
)
from tests.support.driver_builder.worlds import DRIVER_PATH


def test_a_module_in_use_is_said_and_unloaded_when_its_user_ends() -> None:
    """Tried again until the deadline; the finalizer goes when it is done."""
    world = fleet()
    world.in_use.add("node-0")
    world.delete_driver("edu")
    rounds(world, 60)
    assert condition(world)["reason"] == "InUse"
    assert "node-0: module edudrv: refcnt 1" in condition(world)["message"]
    assert "InUse" in events(world)
    world.in_use.clear()
    rounds(world, 200)
    assert is_gone(world)
    assert world.live == {"node-0": {}}
    assert "StaysLoaded" not in events(world)


def test_a_module_in_use_beyond_the_deadline_stays_and_is_said() -> None:
    """The finalizer is not held any longer; the Node remembers what stayed."""
    world = fleet()
    world.in_use.add("node-0")
    world.delete_driver("edu")
    began = world.now
    rounds(world, 1000, 10)
    assert is_gone(world)
    assert world.settings.unload_deadline_seconds <= world.now - began < world.settings.unload_deadline_seconds + 60
    assert "until the node reboots: node-0: module edudrv: refcnt 1" in events(world)["StaysLoaded"]
    assert world.live["node-0"]
    known = memory(world)
    assert known is not None
    assert known.given_up
    assert unload_pods(world) == []


@pytest.mark.parametrize("began", [False, True], ids=["deleted a moment before", "begun a moment before"])
def test_what_held_the_modules_is_said_whatever_the_last_unload_pod_is_at(began: bool) -> None:
    """The deadline may come between two tries, or during one."""
    world = fleet()
    world.in_use.add("node-0")
    world.delete_driver("edu")
    rounds(world, 60)
    assert condition(world)["reason"] == "InUse"
    (pod,) = unload_pods(world)
    path = PODS.path(namespace=NAMESPACE, name=pod["metadata"]["name"])
    world.client.objects[path]["status"] = {"phase": "Running", "startTime": timestamp(world.now)}
    if not began:
        world.client.delete(path)
    world.now += world.settings.unload_deadline_seconds
    world.reconcile()
    rounds(world, 60)
    assert is_gone(world)
    assert "node-0: module edudrv: refcnt 1" in events(world)["StaysLoaded"]


def test_the_deadline_counts_from_the_beginning_whoever_runs() -> None:
    """A controller that is killed again and again waits no longer."""
    world = fleet()
    world.in_use.add("node-0")
    world.delete_driver("edu")
    for _ in range(200):
        if not is_gone(world):
            world.reconcile(lambda _action: True)
            world.reconcile()
            world.turn()
            world.now += 5
    assert is_gone(world)


def dead(world: World) -> None:
    """Let the node's kubelet do nothing for unload pods any more."""
    world.dead.add("node-0")


def terminating(world: World) -> None:
    """Delete the namespace: nothing can be made in it."""
    body = {"metadata": {"name": NAMESPACE, "deletionTimestamp": "2023-11-14T22:13:20Z"}}
    world.client.create(NAMESPACES.path(), body)


@pytest.mark.parametrize(
    ("happens", "why", "seconds"),
    [
        pytest.param(dead, "the node does not answer", 120, id="a node without kubelet"),
        pytest.param(terminating, "the namespace is being deleted", 30, id="a namespace that goes"),
    ],
)
def test_where_no_pod_can_run_it_is_said_and_not_waited_for(
    happens: Callable[[World], None], why: str, seconds: float
) -> None:
    """The modules stay until the node reboots."""
    world = fleet()
    happens(world)
    world.delete_driver("edu")
    rounds(world, seconds)
    assert is_gone(world)
    assert why in events(world)["StaysLoaded"]
    assert world.nodes()["node-0"] == {}


def test_a_node_that_is_gone_holds_nothing() -> None:
    """Its memory went with it."""
    world = fleet(KERNEL, OTHER_KERNEL)
    world.in_use.add("node-0")
    world.delete_driver("edu")
    rounds(world, 60)
    world.remove_node("node-0")
    rounds(world, 60)
    assert is_gone(world)


def test_a_boot_ends_the_waiting() -> None:
    """The module is gone with the boot that it was loaded in."""
    world = fleet()
    world.in_use.add("node-0")
    world.delete_driver("edu")
    rounds(world, 60)
    world.reboot("node-0", OTHER_KERNEL)
    rounds(world, 60)
    assert is_gone(world)
    assert memory(world) is None


def test_a_time_in_the_future_counts_as_now() -> None:
    """A forged time in the future is now."""
    world = fleet()
    forged = {"loads": [], "unloadSince": 1 << 32}
    path = NODES.path(name="node-0")
    world.in_use.add("node-0")
    world.delete_driver("edu")
    rounds(world, 20)
    world.client.patch(path, {"metadata": {"annotations": {MEMORY: json.dumps(forged)}}})
    rounds(world, 60)
    assert is_gone(world)


def test_a_value_that_cannot_be_read_is_said() -> None:
    """What was loaded is not known: nothing is unloaded by it, and nothing is waited for."""
    world = fleet()
    world.client.patch(NODES.path(name="node-0"), {"metadata": {"annotations": {MEMORY: "rm -rf"}}})
    path = NODES.path(name="node-0")
    world.client.patch(DRIVER_PATH, {"metadata": {"annotations": {names.PAUSE_ANNOTATION: "true"}}})
    for where, pod in list(world.client.objects.items()):
        if "/pods/" in where or "/daemonsets/" in where:
            del world.client.objects[where]
            assert pod
    world.delete_driver("edu")
    rounds(world, 60)
    assert is_gone(world)
    assert "cannot be read" in events(world)["StaysLoaded"]
    assert READY not in world.client.get(path)["metadata"]["labels"]


def orphan(world: World, *, is_remembered: bool) -> None:
    """Leave the driver's pod on its node, without its DaemonSet, and never let it end."""
    (path,) = [path for path in world.client.objects if "/daemonsets/" in path]
    del world.client.objects[path]
    plain_turn = world.turn
    kept = {path: pod for path, pod in world.client.objects.items() if "/pods/" in path}

    def turn() -> None:
        plain_turn()
        world.client.objects.update(kept)

    world.turn = turn  # type: ignore[method-assign]
    if not is_remembered:
        world.client.patch(NODES.path(name="node-0"), {"metadata": {"annotations": {MEMORY: None}}})


@pytest.mark.parametrize("is_remembered", [True, False])
def test_an_orphan_that_does_not_end_is_waited_for_until_the_deadline(is_remembered: bool) -> None:
    """Whether or not the node remembers the driver."""
    world = fleet()
    orphan(world, is_remembered=is_remembered)
    world.delete_driver("edu")
    rounds(world, 500, 20)
    assert not is_gone(world)
    rounds(world, 200)
    assert is_gone(world)
    assert "its driver pod does not terminate" in events(world)["StaysLoaded"]


def test_a_driver_pod_that_does_not_end_begins_no_new_removal() -> None:
    """Given up is given up for the boot, though a pod is there."""
    world = fleet()
    pod = next(path for path in world.client.objects if "/pods/" in path)
    given_up = replace(memory(world) or loaded.Loaded(), unload_since=1, given_up="its driver pod does not terminate")
    patch = {"metadata": {"annotations": {MEMORY: loaded.render(given_up)}}}
    world.client.patch(NODES.path(name="node-0"), patch)
    world.delete_driver("edu")
    world.reconcile()
    assert pod in world.client.objects
    assert memory(world) == given_up


def test_an_unload_pod_that_is_refused_is_said_and_not_waited_for() -> None:
    """An admission webhook or quota may refuse it: the deadline ends that, too."""
    world = fleet()
    plain = world.client.create

    def refusing(path: str, body: Object) -> Object:
        if path.endswith("/pods"):
            raise Forbidden("POST pods: 403: exceeded quota", status=403)
        return plain(path, body)

    world.client.create = refusing  # type: ignore[method-assign]
    world.refuses = True
    world.delete_driver("edu")
    rounds(world, 1000, 20)
    assert is_gone(world)
    assert "no unload pod ran before the deadline" in events(world)["StaysLoaded"]
