"""A driver leaves a node for good: label, DaemonSet, modules and files, in this order."""

from collections.abc import Callable

import pytest

from driver_builder.nodes.changes import Change
from driver_builder.objects import manifests
from driver_builder.tasks import unload_pod
from kube_api.client import Object
from kube_api.resources import DRIVER_CONTAINERS, NODES
from tests.support.driver_builder.changes import done
from tests.support.driver_builder.factories import KERNEL, NAMESPACE, OTHER_KERNEL, target
from tests.support.driver_builder.model_world import World
from tests.support.driver_builder.removals import READY, fleet, is_gone, memory, rounds, skip, unload_pods


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
    did: list[str] = []

    def note(action: Change) -> bool:
        did.extend(done([action]))
        return False

    for _ in range(12):
        if not is_gone(world):
            world.reconcile(note)
            world.turn()
            world.now += 1
    order = ["label Node", "delete DaemonSet", "run unload", "record loads", "delete Pod", "patch DriverContainer"]
    assert did == order
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


def test_a_user_space_at_nvidias_place_goes_with_its_driver() -> None:
    """The unload pod has that folder of the node; after a boot there is nothing of it."""
    world = World()
    world.add_node("node-0", KERNEL)
    packages = [{"name": "libcuda1", "version": "1.0-1"}]
    world.add_driver(userspace={"packages": packages, "hostPath": "/run/nvidia/driver"})
    world.settle()
    known = memory(world)
    assert known is not None
    assert (known.loads[0].nvidia, known.loads[0].has_files) == (True, False)
    world.delete_driver("edu")
    for _ in range(2):
        world.reconcile()
        world.turn()
    world.reconcile()
    (pod,) = unload_pods(world)
    assert [mount["mountPath"] for mount in pod["spec"]["containers"][0]["volumeMounts"]] == [
        "/host/lib/modules",
        "/host/run/driverwright",
        "/host/run/nvidia",
    ]


def test_firmware_in_another_place_goes_with_its_driver() -> None:
    """The unload pod has that folder of the node, also after a boot."""
    world = World()
    world.add_node("node-0", KERNEL)
    module = {"names": ["edudrv"], "firmwarePath": "/source/fw", "firmwareHostPath": "/var/lib/firmware"}
    world.add_driver(module=module)
    world.settle()
    known = memory(world)
    assert known is not None
    assert (known.loads[0].firmware, known.loads[0].var_firmware, known.loads[0].has_files) == (False, True, True)
    world.delete_driver("edu")
    for _ in range(2):
        world.reconcile()
        world.turn()
    world.reconcile()
    (pod,) = unload_pods(world)
    assert [mount["mountPath"] for mount in pod["spec"]["containers"][0]["volumeMounts"]] == [
        "/host/lib/modules",
        "/host/run/driverwright",
        "/host/var/lib/firmware",
    ]


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
        taken |= {pod["metadata"]["labels"][unload_pod.UNLOAD.label] for pod in unload_pods(world)}
        world.turn()
        world.now += 5
    assert taken == {target(KERNEL).short_hash}
    known = memory(world)
    assert known is not None
    assert [load.kernel for load in known.loads] == [OTHER_KERNEL]
    assert world.nodes()["node-0"] == {READY: "1.0.0"}
    assert unload_pods(world) == []
    assert world.decide().actions == ()


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


@pytest.mark.parametrize("happens", [skip, lambda world: world.delete_driver("edu")], ids=["skipped", "deleted"])
def test_killed_after_any_action_the_end_is_the_same(happens: Callable[[World], None]) -> None:
    """For each action of a removal: kill the controller right after it; nothing is left anywhere."""
    count = 0
    for number in range(40):
        world = fleet(KERNEL, OTHER_KERNEL)
        happens(world)
        seen = 0

        def kill_here(_action: Change, number: int = number) -> bool:
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
