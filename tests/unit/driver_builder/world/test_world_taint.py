"""``spec.validation.taint`` in any history of a fleet: which nodes other pods are kept away from, and until when."""

from typing import Any

import pytest
from hypothesis import given
from hypothesis import strategies as st

from driver_builder.nodes.changes import Change
from kube_api import names
from kube_api.client import Object
from kube_api.resources import DRIVER_CONTAINERS, NODES
from tests.support.driver_builder.changes import patches
from tests.support.driver_builder.factories import KERNEL, NAMESPACE, OTHER_KERNEL
from tests.support.examples import few
from tests.unit.driver_builder.world import test_world_rollout as waves
from tests.unit.driver_builder.world.test_world_rollout import (
    DRIVERS,
    NODE_NAMES,
    Step,
    WaveWorld,
    driver_of,
    live_through,
)

COMMAND = {"image": "registry.example.com/edu-test:1", "command": ["/test"]}


class TaintWorld(WaveWorld):
    """A world that remembers on which boots a driver was proven, and checks where it is tainted."""

    def __init__(self) -> None:
        super().__init__()
        self.proven: set[tuple[str, str]] = set()
        """Drivers and boots."""
        self.tainted: list[tuple[str, str]] = []
        """Drivers and boots for which a taint was added, in this order."""

    def turn(self) -> None:
        """Let the cluster follow, and see what is proven."""
        super().turn()
        for pod in self._pods():
            if self.works(pod) and "deletionTimestamp" not in pod["metadata"]:
                self.proven.add((driver_of(pod), self.boots[pod["spec"]["nodeName"]]))

    def look(self, action: Change) -> bool:
        """Check each taint that is added."""
        for part in patches([action], "taint Node"):
            if None in part.taints.values():
                continue
            place = (part.driver.partition("/")[2], self.boots[part.node])
            assert place not in self.proven, f"{part.node} is tainted, and {place[0]} has worked on this boot"
            assert place not in self.tainted, f"{part.node} is tainted twice in one boot"
            self.tainted.append(place)
        return super().look(action)

    def taints(self) -> dict[str, list[str]]:
        """Return the nodes with taints of ours, and which."""
        every = {obj["metadata"]["name"]: taints_of(obj) for _, obj in self._objects("nodes")}
        return {name: found for name, found in every.items() if found}

    def records(self) -> list[str]:
        """Name the nodes that record a taint."""
        return [
            obj["metadata"]["name"]
            for _, obj in self._objects("nodes")
            if any(key.startswith(names.PENDING_PREFIX) for key in obj["metadata"]["annotations"])
        ]

    def remove_taints(self, name: str) -> None:
        """Let an admin remove all taints of a node."""
        self.patch_node(name, {"spec": {"taints": None}})


def taints_of(node: Object) -> list[str]:
    """Return the taints of ours on a node."""
    every = (node.get("spec") or {}).get("taints") or ()
    return [f"{item['key']}={item['value']}:{item['effect']}" for item in every if item.get("value") == names.PENDING]


def fleet(*kernels: str, **validation: Any) -> TaintWorld:
    """Make a world of one driver with the taint, before anything has happened."""
    world = TaintWorld()
    for name, kernel in zip(NODE_NAMES, kernels or (KERNEL, OTHER_KERNEL), strict=False):
        world.add_node(name, kernel)
    world.add_driver("edu", validation={"taint": True, **validation})
    return world


def edit(world: TaintWorld, **spec: Any) -> None:
    """Let somebody edit the driver."""
    world.client.patch(DRIVER_CONTAINERS.path(namespace=NAMESPACE, name="edu"), {"spec": spec})


TAINT = f"driverwright.io/{NAMESPACE}.edu=pending:NoSchedule"


def test_a_node_is_tainted_until_its_driver_is_proven() -> None:
    """While the image is built, too; then nothing is left but the record, and other taints stay."""
    world = fleet()
    other = {"key": "example.com/x", "effect": "NoSchedule"}
    world.patch_node("node-0", {"spec": {"taints": [other]}})
    world.reconcile(world.look)
    assert world.taints() == {"node-0": [TAINT], "node-1": [TAINT]}
    assert sorted(world.tainted) == [("edu", "1-boot-node-0"), ("edu", "1-boot-node-1")]
    world.arrive()
    assert world.taints() == {}
    assert world.client.objects[NODES.path(name="node-0")]["spec"]["taints"] == [other]
    assert world.working() == {"node-0", "node-1"}


def test_a_driver_that_is_loaded_and_not_validated_is_not_proven() -> None:
    """The taint goes with the ready label."""
    world = fleet(**COMMAND)
    world.invalid["node-0"] = 100
    world.arrive()
    assert world.taints() == {"node-0": [TAINT]}


def test_a_reboot_taints_a_node_again() -> None:
    """With the same kernel or another one."""
    world = fleet()
    world.arrive()
    for name, kernel in (("node-0", KERNEL), ("node-1", KERNEL)):
        world.reboot(name, kernel)
    world.reconcile(world.look)
    assert world.taints() == {"node-0": [TAINT], "node-1": [TAINT]}
    world.arrive()
    assert world.taints() == {}


def test_a_taint_that_an_admin_removes_stays_away_until_the_next_boot() -> None:
    """The Node records for which boot it was; so it does where the controller is killed."""
    world = fleet()
    world.dead_devices.add("node-0")
    world.arrive()
    assert world.taints() == {"node-0": [TAINT]}
    world.remove_taints("node-0")
    world.kill()
    world.arrive()
    assert world.taints() == {}
    world.reboot("node-0", KERNEL)
    world.arrive()
    assert world.taints() == {"node-0": [TAINT]}


def test_a_taint_that_the_node_registered_with_goes_as_well() -> None:
    """A kubelet with --register-with-taints leaves no gap before our first reconcile."""
    world = fleet()
    taint = {"key": f"driverwright.io/{NAMESPACE}.edu", "value": "pending", "effect": "NoSchedule"}
    world.patch_node("node-0", {"spec": {"taints": [taint]}})
    world.arrive()
    assert world.taints() == {}


@pytest.mark.parametrize("what", ["module removed", "device lost", "option set"])
def test_a_node_where_the_driver_has_worked_is_never_tainted(what: str) -> None:
    """Whatever happens to the driver in this boot."""
    world = fleet()
    edit(world, validation=None)
    world.arrive()
    edit(world, validation={"taint": True})
    match what:
        case "module removed":
            world.remove_module("node-0")
        case "device lost":
            world.arrive()
            world.dead_devices.add("node-0")
            world.remove_module("node-0")
        case _:
            pass
    for _ in range(20):
        world.one_round()
    assert (world.tainted, world.records()) == ([], [])


@pytest.mark.parametrize("what", ["option goes", "deleted", "leaves the selector", "skipped"])
def test_no_taint_is_left_where_none_is_wanted(what: str) -> None:
    """Nor a record of one."""
    world = fleet(KERNEL)
    world.dead_devices.add("node-0")
    world.arrive()
    assert world.taints() == {"node-0": [TAINT]}
    match what:
        case "option goes":
            edit(world, validation=None)
        case "deleted":
            world.delete_driver("edu")
        case "leaves the selector":
            world.move_node("node-0", "web")
        case _:
            edit(world, kernelMappings=[{"regexp": ".*", "skip": True}])
    world.arrive()
    assert (world.taints(), world.records()) == ({}, [])


def test_a_record_goes_with_the_option_where_the_driver_works() -> None:
    """Such a node is looked at no more otherwise."""
    world = fleet()
    world.arrive()
    assert world.records() == ["node-0", "node-1"]
    edit(world, validation=None)
    world.arrive()
    assert world.records() == []


@pytest.mark.parametrize("writes", range(5))
def test_a_controller_that_is_killed_after_any_write_leaves_no_taint(writes: int) -> None:
    """All that is known is on the Node."""
    world = fleet(KERNEL)
    world.rounds_with_a_kill(writes, 10)
    world.arrive()
    assert world.taints() == {}


def _untaint(world: WaveWorld, node: str) -> None:
    assert isinstance(world, TaintWorld)
    world.remove_taints(node)


steps = st.one_of(waves.steps, waves._step("an admin removes the taints", _untaint, waves.nodes))


@pytest.mark.costly
@few(5)
@given(st.lists(waves.kernels, min_size=2, max_size=3), st.lists(steps, max_size=8))
def test_no_history_taints_a_working_driver_or_leaves_a_taint(first: list[str], history: list[Step]) -> None:
    """Of two drivers, each for itself."""
    world = TaintWorld()
    for name, kernel in zip(NODE_NAMES, first, strict=False):
        world.add_node(name, kernel)
    for driver in DRIVERS:
        world.add_driver(driver, validation={"taint": True})
    world.arrive()
    live_through(world, history)
    assert world.taints() == {}
