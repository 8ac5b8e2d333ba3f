"""A driver goes from a node for good: label, DaemonSet, modules, in this order; what stays is said, not waited for."""

import json
from collections.abc import Callable
from dataclasses import replace

import pytest

from driver_builder.objects import loaded, manifests, unload_pod
from driver_builder.planning.actions import Action
from driver_builder.planning.plan_view import DriverView
from driver_builder.removal import unload_step
from driver_builder.removal.removal import OUTSIDE_SECONDS
from driver_builder.status.status import timestamp
from kube_api import names
from kube_api.client import Object
from kube_api.errors import Forbidden
from kube_api.resources import DRIVER_CONTAINERS, NAMESPACES, NODES, PODS
from tests.support.driver_builder.factories import KERNEL, NAMESPACE, OTHER_KERNEL, target
from tests.support.driver_builder.model_world import World
from tests.support.driver_builder.worlds import DRIVER_PATH

MEMORY = loaded.annotation(f"{NAMESPACE}/edu")
READY = f"driverwright.io/{NAMESPACE}.edu.ready"


def fleet(*kernels: str) -> World:
    """Make a world of a node for each kernel, with a driver that is loaded on all."""
    world = World()
    for number, kernel in enumerate(kernels or (KERNEL,)):
        world.add_node(f"node-{number}", kernel)
    world.add_driver()
    world.settle()
    assert all(world.live.values())
    return world


def memory(world: World, node: str = "node-0") -> loaded.Loaded | None:
    """Read what a node remembers."""
    return loaded.parse(world.client.get(NODES.path(name=node))["metadata"]["annotations"].get(MEMORY))


def unload_pods(world: World) -> list[Object]:
    """Give the unload pods."""
    return world.client.list(PODS.path(namespace=NAMESPACE), label_selector=unload_pod.UNLOAD_LABEL).items


def condition(world: World) -> Object:
    """Give the condition ``Unloading``, empty where there is none."""
    return next((item for item in world.status()["conditions"] if item["type"] == "Unloading"), {})


def events(world: World) -> dict[str, str]:
    """Give the last message of each reason."""
    return {obj["reason"]: obj["message"] for path, obj in world.client.objects.items() if "/events/" in path}


def is_gone(world: World) -> bool:
    """Tell whether the DriverContainer is gone."""
    return DRIVER_PATH not in world.client.objects


def rounds(world: World, seconds: float, step: float = 5.0) -> None:
    """Let time pass, with a pass of the controller at each step."""
    until = world.now + seconds
    while world.now < until and not is_gone(world):
        world.reconcile()
        world.finish_builds()
        world.turn()
        world.now += step


def test_what_is_loaded_is_remembered_with_the_ready_label() -> None:
    """One patch of the Node says both; nothing of it changes afterwards."""
    world = fleet()
    known = memory(world)
    assert known is not None
    (load,) = known.loads
    assert (load.kernel, load.boot_id, dict(load.modules)) == (KERNEL, world.boots["node-0"], world.live["node-0"])
    assert world.client.writes.count(NODES.path(name="node-0")) == 2, "when it was made, and once"
    assert world.decide().actions == ()


def test_a_replaced_pod_moves_no_label() -> None:
    """The module lives on; only what is remembered changes with a new build."""
    world = fleet()
    before = memory(world)
    world.change_source("int y;")
    world.settle()
    after = memory(world)
    assert after is not None
    assert before != after
    assert dict(after.loads[0].modules) == world.live["node-0"]


def test_removal_goes_in_order() -> None:
    """Label with the beginning in one patch, DaemonSet, unload pod, annotation, unload pod; then the finalizer."""
    world = fleet()
    world.delete_driver("edu")
    done: list[str] = []

    def note(action: Action) -> bool:
        done.append(type(action).__name__)
        return False

    for _ in range(12):
        if not is_gone(world):
            world.reconcile(note)
            world.turn()
            world.now += 1
    order = ["LabelNode", "DeleteDaemonSet", "StartUnload", "RememberLoaded", "DeleteUnloadPod", "SetFinalizer"]
    assert done == order
    assert is_gone(world)
    assert world.live == {"node-0": {}}
    assert memory(world) is None


def test_the_unload_pod_is_bound_to_its_node_and_says_what_to_take() -> None:
    """It runs the loader's image, wherever nothing else may run, and names modules in unloading order."""
    world = fleet()
    world.add_driver("two", module={"names": ["edu_a", "edu_b"]})
    world.settle()
    world.delete_driver("two")
    for _ in range(2):
        world.reconcile()
        world.turn()
    world.reconcile()
    (pod,) = unload_pods(world)
    (container,) = pod["spec"]["containers"]
    environment = {item["name"]: item["value"] for item in container["env"]}
    assert pod["spec"]["nodeName"] == "node-0"
    assert pod["spec"]["tolerations"] == [{"operator": "Exists"}]
    assert container["image"] == world.settings.loader_image
    assert [word.partition(":")[0] for word in environment["UNLOAD"].split()] == ["edu_b", "edu_a"]
    assert environment["DRIVER"].startswith(f"{NAMESPACE}.two-")
    assert environment["BOOT_ID"] == world.boots["node-0"]
    assert pod["metadata"]["ownerReferences"][0]["uid"] == "uid-two"
    assert manifests.TARGET_LABEL not in pod["metadata"]["labels"], "no DaemonSet may take it for its own"


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
    rounds(world, 1000)
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


def test_files_are_taken_after_a_boot_as_well() -> None:
    """No module is left then, but the blacklist is: a pod takes it before the finalizer goes."""
    world = World()
    world.add_node("node-0", KERNEL)
    world.add_driver(module={"names": ["edudrv"], "blacklist": ["other"]})
    world.settle()
    known = memory(world)
    assert known is not None
    assert (known.loads[0].blacklist, known.loads[0].firmware) == (True, False)
    world.in_use.add("node-0")
    world.delete_driver("edu")
    rounds(world, 60)
    world.reboot("node-0", OTHER_KERNEL)
    starts: list[Object] = []
    for _ in range(20):
        if not is_gone(world):
            world.reconcile()
            starts += unload_pods(world)
            world.turn()
            world.now += 5
    environment = {item["name"]: item["value"] for item in starts[-1]["spec"]["containers"][0]["env"]}
    assert environment["UNLOAD"] == ""
    assert [mount["mountPath"] for mount in starts[-1]["spec"]["containers"][0]["volumeMounts"]] == [
        "/host/lib/modules",
        "/host/run/driverwright",
        "/host/etc/modprobe.d",
    ]
    assert is_gone(world)
    assert memory(world) is None


def test_files_of_a_kernel_that_a_node_has_left_are_taken() -> None:
    """The driver stays, on another kernel: the old kernel's blacklist would keep a module away for ever."""
    world = World()
    world.add_node("node-0", KERNEL)
    world.add_driver(module={"names": ["edudrv"], "blacklist": ["other"]})
    world.settle()
    world.reboot("node-0", OTHER_KERNEL)
    taken: set[str] = set()
    for _ in range(25):
        world.reconcile()
        world.finish_builds()
        taken |= {pod["metadata"]["labels"][unload_pod.UNLOAD_LABEL] for pod in unload_pods(world)}
        world.turn()
        world.now += 5
    assert taken == {target(KERNEL).short_hash}
    known = memory(world)
    assert known is not None
    assert [load.kernel for load in known.loads] == [OTHER_KERNEL]
    assert world.nodes()["node-0"] == {READY: "1.0.0"}
    assert unload_pods(world) == []
    assert world.decide().actions == ()


def skip(world: World) -> None:
    """Let the admin skip the kernel."""
    world.client.patch(DRIVER_PATH, {"spec": {"kernelMappings": [{"regexp": ".*", "skip": True}]}})


def test_a_skipped_kernel_gives_the_driver_back() -> None:
    """Its nodes lose label, DaemonSet and modules, and nothing is left to do."""
    world = fleet()
    skip(world)
    world.settle()
    assert (world.nodes()["node-0"], world.daemon_sets(), world.live) == ({}, [], {"node-0": {}})
    assert memory(world) is None
    assert condition(world) == {}


def test_a_skipped_kernel_in_use_stays_loaded_and_says_so_until_it_boots() -> None:
    """Nothing is tried after the deadline; a boot ends it."""
    world = fleet()
    world.in_use.add("node-0")
    skip(world)
    rounds(world, 800)
    assert (condition(world)["status"], condition(world)["reason"]) == ("False", "StaysLoaded")
    assert world.decide().actions == ()
    world.reboot("node-0", KERNEL)
    annotations = {names.BOOT_ID_ANNOTATION: "another-boot"}
    world.client.patch(NODES.path(name="node-0"), {"metadata": {"annotations": annotations}})
    world.settle()
    assert condition(world) == {}
    assert memory(world) is None


def test_a_kernel_that_is_wanted_again_keeps_its_driver() -> None:
    """What was begun is forgotten."""
    world = fleet()
    world.in_use.add("node-0")
    skip(world)
    rounds(world, 60)
    world.client.patch(DRIVER_PATH, {"spec": {"kernelMappings": []}})
    world.settle()
    assert world.nodes()["node-0"] == {READY: "1.0.0"}
    known = memory(world)
    assert known is not None
    assert (known.unload_since, known.given_up, unload_pods(world)) == (None, "", [])


def test_a_node_outside_the_selector_keeps_module_and_label_for_ten_minutes() -> None:
    """Labels come back: only then is it a removal."""
    world = fleet()
    world.move_node("node-0", "web")
    rounds(world, OUTSIDE_SECONDS - 30)
    assert world.nodes()["node-0"] == {READY: "1.0.0"}
    assert world.live["node-0"]
    world.kill()
    rounds(world, 120)
    assert world.nodes()["node-0"] == {}
    assert world.live == {"node-0": {}}
    assert memory(world) is None


def test_a_node_that_comes_back_in_time_loses_nothing() -> None:
    """Since when it was outside is forgotten."""
    world = fleet()
    world.move_node("node-0", "web")
    rounds(world, 300)
    world.move_node("node-0", "edu")
    rounds(world, 600)
    assert world.nodes()["node-0"] == {READY: "1.0.0"}
    known = memory(world)
    assert known is not None
    assert known.outside_since is None


def test_labels_that_vanished_are_no_removal() -> None:
    """Without nfd-worker's labels nobody knows what the node is: its module stays, however long it takes."""
    world = fleet()
    labels = {names.KERNEL_VERSION_LABEL: None, "pool": None}
    world.client.patch(NODES.path(name="node-0"), {"metadata": {"labels": labels}})
    rounds(world, 2 * OUTSIDE_SECONDS)
    assert world.live["node-0"]
    assert unload_pods(world) == []


LOST = {names.KERNEL_VERSION_LABEL: None}


def relabel(world: World, node: str, **labels: str | None) -> None:
    """Let the labels of a node change."""
    world.client.patch(NODES.path(name=node), {"metadata": {"labels": labels}})


@pytest.mark.parametrize("lost", [LOST, {**LOST, "pool": None}], ids=["selected", "not even selected"])
def test_a_daemon_set_and_its_status_outlive_labels_that_vanished(lost: dict[str, None]) -> None:
    """Version of the system and digest are as recorded when the labels come back; nothing was built or loaded anew."""
    world = fleet()
    before, known, pushed = world.observe().daemon_sets, world.status()["targets"][0], len(world.pushed)
    relabel(world, "node-0", **lost)
    rounds(world, 60)
    (entry,) = world.status()["targets"]
    assert (entry["nodes"], entry["imageDigest"]) == (0, known["imageDigest"])
    assert (world.status()["readyTargets"], world.status()["desiredNodes"]) == ("0/0", 0)
    relabel(world, "node-0", **{names.KERNEL_VERSION_LABEL: KERNEL, "pool": "edu"})
    world.settle()
    assert world.observe().daemon_sets == before
    assert len(world.pushed) == pushed
    assert world.status()["targets"][0]["state"] == "Ready"


def test_a_daemon_set_goes_once_its_nodes_are_known_to_be_elsewhere() -> None:
    """The other node's kernel is served all the while."""
    world = fleet(KERNEL, OTHER_KERNEL)
    relabel(world, "node-0", **LOST)
    rounds(world, 60)
    assert world.daemon_sets() == sorted([KERNEL, OTHER_KERNEL])
    world.reboot("node-0", OTHER_KERNEL)
    world.settle()
    assert world.daemon_sets() == [OTHER_KERNEL]
    assert [entry["kernel"] for entry in world.status()["targets"]] == [OTHER_KERNEL]


def test_a_daemon_set_on_nodes_that_are_not_selected_goes_whatever_others_have_lost() -> None:
    """What its pods stand on is known, and not to have the driver any more."""
    world = fleet()
    world.add_node("node-1", KERNEL, pool="web")
    relabel(world, "node-1", **LOST)
    world.client.patch(DRIVER_PATH, {"spec": {"nodeSelector": {"pool": "web"}}})
    rounds(world, 10)
    assert world.daemon_sets() == []


def test_a_node_that_cannot_be_told_apart_from_the_future_waits_no_longer() -> None:
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


def share(world: World, **changes: object) -> None:
    """Let another driver have loaded the same modules on the node."""
    known = memory(world)
    assert known is not None
    other = {loaded.annotation(f"{NAMESPACE}/other"): loaded.render(replace(known, **changes))}  # type: ignore[arg-type]
    world.client.patch(NODES.path(name="node-0"), {"metadata": {"annotations": other}})


def test_a_module_that_another_driver_has_too_stays() -> None:
    """It works for the other one: only what is of this driver alone is taken."""
    world = fleet()
    share(world)
    before = dict(world.live["node-0"])
    world.delete_driver("edu")
    rounds(world, 60)
    assert is_gone(world)
    assert before
    assert world.live["node-0"] == before


@pytest.mark.parametrize("has_firmware", [True, False])
def test_firmware_of_shared_modules_stays_where_both_have_some(has_firmware: bool) -> None:
    """The other driver may have found its files there, and written none."""
    world = fleet()
    known = memory(world)
    assert known is not None
    share(world, loads=(replace(known.loads[0], firmware=has_firmware),))
    view = DriverView.of(world.observe(), world.read_driver(), world.settings)
    pod = unload_step.start(view, view.nodes["node-0"], replace(known.loads[0], firmware=True)).manifest
    has_folder = "firmware" in [volume["name"] for volume in pod["spec"]["volumes"]]
    assert has_folder is not has_firmware


def test_a_module_of_two_drivers_that_both_go_is_unloaded() -> None:
    """The other one keeps nothing that it leaves itself."""
    world = fleet()
    share(world, unload_since=1)
    world.delete_driver("edu")
    rounds(world, 60)
    assert is_gone(world)
    assert world.live["node-0"] == {}


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
    rounds(world, 500)
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


def test_pods_of_older_versions_unload_by_themselves() -> None:
    """A driver pod without the loader's container needs no unload pod."""
    world = World()
    world.leaves_modules = False
    world.add_node("node-0", KERNEL)
    world.add_driver()
    world.settle()
    assert memory(world) is None
    world.delete_driver("edu")
    rounds(world, 60)
    assert is_gone(world)
    assert memory(world) is None


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
    rounds(world, 1000)
    assert is_gone(world)
    assert "no unload pod ran before the deadline" in events(world)["StaysLoaded"]


@pytest.mark.parametrize("happens", [skip, lambda world: world.delete_driver("edu")], ids=["skipped", "deleted"])
def test_killed_after_any_action_the_end_is_the_same(happens: Callable[[World], None]) -> None:
    """For each action of a removal: kill the controller right after it; nothing is left anywhere."""
    count = 0
    for number in range(40):
        world = fleet(KERNEL, OTHER_KERNEL)
        happens(world)
        seen = 0

        def kill_here(_action: Action, number: int = number) -> bool:
            nonlocal seen
            seen += 1
            return seen == number + 1

        for _ in range(15):
            if not is_gone(world):
                world.reconcile(kill_here)
                world.turn()
                world.now += 5
        assert world.live == {"node-0": {}, "node-1": {}}
        assert (memory(world), memory(world, "node-1"), unload_pods(world), world.daemon_sets()) == (None, None, [], [])
        assert world.nodes() == {"node-0": {}, "node-1": {}}
        assert is_gone(world) == ("deletionTimestamp" in world.client.objects.get(
            DRIVER_CONTAINERS.path(namespace=NAMESPACE, name="edu"), {"metadata": {"deletionTimestamp": ""}}
        )["metadata"])  # fmt: skip
        count = max(count, seen)
        if number >= seen:
            break
    assert count > 8
