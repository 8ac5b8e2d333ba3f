"""Waves in any history of a fleet, made by Hypothesis: what a roll-out takes away, and that it always ends."""

import json
from collections.abc import Callable
from dataclasses import dataclass
from typing import Any

import pytest
from hypothesis import event, given
from hypothesis import strategies as st

from driver_builder.model.images import MODULES_LABEL
from driver_builder.nodes.changes import Change
from driver_builder.objects import manifests
from driver_builder.snapshot.inventory import read_node
from driver_builder.tasks import pull_pod
from kube_api import names
from kube_api.client import Object
from kube_api.node_lock import render_lock
from kube_api.resources import DRIVER_CONTAINERS, NODES, PODS
from tests.support.driver_builder.factories import KERNEL, NAMESPACE, OTHER_KERNEL
from tests.support.driver_builder.journal import holder_of, is_ready, said
from tests.support.driver_builder.memory_client import copied
from tests.support.driver_builder.model_world import World, pod_status
from tests.support.driver_builder.recorder import Recorder
from tests.support.examples import few
from tests.unit.driver_builder.world.hostile_histories import pass_round

NODE_NAMES = ("node-0", "node-1", "node-2", "node-3")
DRIVERS = ("edu", "other")
BOUND = 120
SOAK_SECONDS = 50.0
FIRST_SOURCE = "int x;"
AGENT = "gpu-partitioner"
GOOD, BAD = ("int a;", "int b;", "int c;"), ("bad d;", "bad e;")


class WaveWorld(World):
    """A world in which images may be bad and nodes dead, with a journal; whenever it arrives, all invariants hold."""

    def __init__(self) -> None:
        super().__init__()
        self.bad: set[str] = set()
        """Identities of modules that no kernel takes."""
        self.dead_devices: set[str] = set()
        """Nodes on which no module works."""
        self.source = GOOD[0]
        self.recorder = Recorder(self)

    def roll(self, rollout: Object) -> None:
        """Edit ``spec.rollout`` of all drivers."""
        for driver in DRIVERS:
            path = DRIVER_CONTAINERS.path(namespace=NAMESPACE, name=driver)
            if path in self.client.objects:
                self.client.patch(path, {"spec": {"rollout": rollout}})

    def edit_source(self, text: str) -> None:
        """Upgrade all drivers."""
        self.source = text
        self.change_source(text)

    def patch_node(self, name: str, body: Object) -> None:
        """Edit a Node, if there is one."""
        if name in self.kernels:
            self.client.patch(NODES.path(name=name), body)

    def finish_builds(self) -> None:
        """Let builds end; their modules are bad where the source is."""
        known = set(self.registries.images)
        super().finish_builds()
        if self.source in BAD:
            for image in self.registries.images.keys() - known:
                modules = json.loads(self.registries.images[image][MODULES_LABEL])
                self.bad |= {module["identity"] for module in modules}

    def _load(self) -> None:
        for pod in self._pods():
            if result_of(pod) == "LoadFailed" and not self._fails(pod):
                pod["status"] = {}
        super()._load()
        for pod in self._pods():
            if result_of(pod) == "Loaded" and is_ready(pod) and self._fails(pod) and "checked" not in pod:
                node = pod["spec"]["nodeName"]
                verdict = {"result": "LoadFailed", "kernel": self.kernels[node], "bootID": self.boots[node],
                           "message": "Invalid module format"}  # fmt: skip
                pod["status"] = pod_status(verdict, ready=False)
            elif result_of(pod) == "Loaded":
                # A device that dies later is found by ``hold``, which is another story.
                pod["checked"] = True

    def _fails(self, pod: Object) -> bool:
        modules = json.loads(pod["metadata"]["annotations"][manifests.MODULES_ANNOTATION])
        return pod["spec"]["nodeName"] in self.dead_devices or not self.bad.isdisjoint(modules.values())

    def _pods(self) -> list[Object]:
        return [pod for _, pod in self._objects("pods") if manifests.TARGET_LABEL in pod["metadata"]["labels"]]

    def works(self, pod: Object) -> bool:
        """Return whether a pod proves its driver on the boot of its node."""
        node = pod["spec"]["nodeName"]
        return is_ready(pod) and result_of(pod) == "Loaded" and boot_of(pod) == self.boots.get(node)

    def wave_labels(self) -> list[str]:
        """Name the nodes with the label of a wave."""
        return [
            obj["metadata"]["name"]
            for _, obj in self._objects("nodes")
            if any(key.endswith(".wave") for key in obj["metadata"]["labels"])
        ]

    def one_round(self) -> None:
        """Let the controller reconcile once, and the cluster follow."""
        self.reconcile(self.look)
        self.finish_builds()
        self.turn()
        self.now += 1.0

    def arrive(self) -> None:
        """Let rounds pass until nothing moves any more."""
        for _ in range(BOUND):
            before = copied(self.client.objects)
            decided = self.reconcile(self.look)
            moves = bool(decided.actions or self.builds.running)
            self.finish_builds()
            self.turn()
            if not moves and before == self.client.objects:
                if decided.requeue_at is None:
                    self.recorder.rest()
                    return
                self.now = max(self.now + 1.0, decided.requeue_at)
            self.now += 1.0
        raise AssertionError(f"still moving: {[str(action) for action in self.decide().actions]}")

    def rounds_with_a_kill(self, writes: int, number: int) -> None:
        """Let rounds pass; after so many writes the next one is the controller's last, and it starts anew."""
        done = 0

        def look(action: Change) -> bool:
            nonlocal done
            self.look(action)
            done += 1
            return done == writes + 1

        for _ in range(number):
            self.reconcile(look)
            self.finish_builds()
            self.turn()
            self.now += 5.0
        assert done > writes

    def heal(self) -> None:
        """Let everything be in order, with another source that is good."""
        self.dead_devices.clear()
        self.without_images.clear()
        for name in self.kernels:
            self.hear(name)
            _unlock(self, name)
            annotations = {names.SKIP_ROLLOUT_ANNOTATION: None}
            self.patch_node(name, {"metadata": {"annotations": annotations}, "spec": {"unschedulable": None}})
            self.client.objects[NODES.path(name=name)]["status"] = {}
        self.edit_source("int z;")


def result_of(pod: Object) -> str:
    """Return the result of a pod's loader."""
    return str(said(pod).get("result", ""))


def boot_of(pod: Object) -> str:
    """Return the boot on which a pod's loader reported."""
    return str(said(pod).get("bootID", ""))


def is_pulled(pod: Object) -> bool:
    """Return whether a pod is one that has brought an image."""
    return pull_pod.PULL.label in pod["metadata"]["labels"] and pod.get("status", {}).get("phase") == "Succeeded"


def driver_of(pod: Object) -> str:
    """Return the driver of a pod."""
    return str(pod["metadata"]["labels"][manifests.DRIVER_LABEL])


# ---------------------------------------------------------------- events


def _reboot(world: WaveWorld, node: str) -> None:
    if node in world.kernels:
        world.reboot(node, world.kernels[node])
        for pod in world.pods_on(node):
            pod.pop("checked", None)


def _boot_another(world: WaveWorld, node: str, kernel: str) -> None:
    if node in world.kernels:
        world.reboot(node, kernel)
    else:
        world.add_node(node, kernel)


def _cordon(world: WaveWorld, node: str, yes: bool) -> None:
    world.patch_node(node, {"spec": {"unschedulable": yes or None}})


def _skip(world: WaveWorld, node: str, yes: bool) -> None:
    world.patch_node(node, {"metadata": {"annotations": {names.SKIP_ROLLOUT_ANNOTATION: "true" if yes else None}}})


def _silence(world: WaveWorld, node: str, yes: bool) -> None:
    if node in world.kernels:
        (world.silence if yes else world.hear)(node)
        ready = "False" if yes else "True"
        world.client.objects[NODES.path(name=node)]["status"] = {"conditions": [{"type": "Ready", "status": ready}]}


def _die(world: WaveWorld, node: str) -> None:
    world.dead_devices.add(node)


def _refuse_images(world: WaveWorld, node: str, yes: bool) -> None:
    (world.without_images.add if yes else world.without_images.discard)(node)


def _ask(world: WaveWorld, node: str, value: str) -> None:
    if node in world.kernels:
        world.patch_node(node, {"metadata": {"annotations": {names.REBUILD_ANNOTATION: value}}})


def _undo(world: WaveWorld) -> None:
    for path in [path for path, _ in world._objects("drivercontainers")]:
        targets = (world.client.objects[path].get("status") or {}).get("rollout", {}).get("targets", {})
        if targets:
            words = ",".join(targets.values())
            world.client.patch(path, {"metadata": {"annotations": {names.UNDO_ROLLOUT_ANNOTATION: words}}})


def _delete_pods(world: WaveWorld, node: str) -> None:
    for pod in world.pods_on(node):
        world.client.delete(PODS.path(namespace=NAMESPACE, name=pod["metadata"]["name"]))


def _lock(world: WaveWorld, node: str) -> None:
    """Let another program lock a node, as the contract has it: not while somebody else does."""
    obj = world.client.objects.get(NODES.path(name=node))
    if obj is not None and holder_of(obj) in ("", AGENT):
        lock = render_lock(AGENT, read_node(obj).boot_id or "", world.now)
        world.patch_node(node, {"metadata": {"annotations": {names.LOCK_ANNOTATION: lock}}})


def _unlock(world: WaveWorld, node: str) -> None:
    obj = world.client.objects.get(NODES.path(name=node))
    if obj is not None and holder_of(obj) == AGENT:
        world.patch_node(node, {"metadata": {"annotations": {names.LOCK_ANNOTATION: None}}})


def _kill(world: WaveWorld) -> None:
    world.kill()


@dataclass(frozen=True)
class Step:
    """One event, and the rounds after it: each with the action after which the controller is killed, if any."""

    name: str
    do: Callable[[WaveWorld], None]
    rounds: tuple[int | None, ...]

    def __repr__(self) -> str:
        return f"{self.name}, rounds {self.rounds}"


def _step(name: str, function: Callable[..., None], *arguments: st.SearchStrategy[Any]) -> st.SearchStrategy[Step]:
    def make(values: tuple[Any, ...], rounds: list[int | None]) -> Step:
        words = ", ".join(str(value) for value in values)
        return Step(f"{name} {words}".strip(), lambda world: function(world, *values), tuple(rounds))

    return st.builds(make, st.tuples(*arguments), st.lists(st.none() | st.integers(0, 3), min_size=1, max_size=5))


nodes, kernels = st.sampled_from(NODE_NAMES), st.sampled_from((KERNEL, OTHER_KERNEL))
steps = st.one_of(
    _step("edit the source", WaveWorld.edit_source, st.sampled_from([*GOOD, *BAD])),
    _step("reboot", _reboot, nodes),
    _step("boot", _boot_another, nodes, kernels),
    _step("cordon", _cordon, nodes, st.booleans()),
    _step("skip", _skip, nodes, st.booleans()),
    _step("silence", _silence, nodes, st.booleans()),
    _step("a device dies", _die, nodes),
    _step("no image can be pulled", _refuse_images, nodes, st.booleans()),
    _step("another program locks", _lock, nodes),
    _step("another program releases", _unlock, nodes),
    _step("rebuild for the node", _ask, nodes, st.sampled_from("12")),
    _step("undo", _undo),
    _step("delete the pods", _delete_pods, nodes),
    _step("the controller is killed", _kill),
)


def two_nodes(**rollout: Any) -> WaveWorld:
    """Make a world of one driver, which works on two nodes with two kernels."""
    world = WaveWorld()
    for name, kernel in zip(NODE_NAMES, (KERNEL, OTHER_KERNEL), strict=False):
        world.add_node(name, kernel)
    world.add_driver("edu", rollout=rollout)
    world.arrive()
    return world


def until_it_soaks(world: WaveWorld) -> None:
    """Let rounds pass until the canary of the driver's wave is proven."""
    while status_of(world).get("rollout", {}).get("phase") != "Soaking":
        world.one_round()


def status_of(world: WaveWorld) -> Object:
    """Return the status of the driver."""
    found: Object = world.client.objects[DRIVER_CONTAINERS.path(namespace=NAMESPACE, name="edu")]["status"]
    return found


def test_a_bad_image_halts_on_its_first_node_and_is_repaired() -> None:
    """The node that failed has the image of before again, and nothing moves until another image is wanted."""
    world = two_nodes()
    world.edit_source(BAD[0])
    world.arrive()
    status = status_of(world)
    assert (status["rollout"]["phase"], status["rollout"]["failedNodes"]) == ("Halted", 1)
    assert {target["reason"] for target in status["targets"]} == {"RolloutHalted"}
    assert (status["readyNodes"], status["rollout"]["returned"]) == (2, ["node-0"])
    world.now += 60.0
    world.reconcile(world.look)
    assert status_of(world) == status
    world.edit_source(GOOD[1])
    world.arrive()
    assert "rollout" not in status_of(world)
    assert status_of(world)["readyNodes"] == 2
    assert not world.wave_labels()


def test_a_pod_that_is_deleted_in_a_wave_comes_back_with_the_image_of_before() -> None:
    """On nodes that the wave has reached it has the new one."""
    world = two_nodes(canary=1, soak="1h")
    before = {name: image_on(world, name) for name in world.kernels}
    world.edit_source(GOOD[1])
    until_it_soaks(world)
    for _, pod in world._objects("pods"):
        world.client.delete(PODS.path(namespace=NAMESPACE, name=pod["metadata"]["name"]))
    for _ in range(4):
        world.one_round()
    assert {name: image_on(world, name) != before[name] for name in world.kernels} == {"node-0": True, "node-1": False}
    assert status_of(world)["readyNodes"] == 2


def test_a_new_node_gets_the_image_of_before_until_the_canary_has_soaked() -> None:
    """It loads at once, and is a node of the wave like any other."""
    world = two_nodes(canary=1, soak="1h")
    before = image_on(world, "node-1")
    world.edit_source(GOOD[1])
    until_it_soaks(world)
    world.add_node("node-2", OTHER_KERNEL)
    for _ in range(4):
        world.one_round()
    assert image_on(world, "node-2") == before
    assert status_of(world)["readyNodes"] == 3
    world.arrive()
    assert image_on(world, "node-2") == image_on(world, "node-1") != before
    assert not world.wave_labels()


def test_an_undone_wave_gives_all_nodes_the_image_of_before() -> None:
    """One node at a time; it stays so until the spec changes or a rebuild is requested."""
    world = two_nodes(canary=1, soak="1h")
    before = {name: image_on(world, name) for name in world.kernels}
    world.edit_source(GOOD[1])
    until_it_soaks(world)
    _undo(world)
    world.arrive()
    assert {name: image_on(world, name) for name in world.kernels} == before
    assert status_of(world)["rollout"]["phase"] == "Halted"
    world.annotate_driver("edu", "again")
    world.arrive()
    assert "rollout" not in status_of(world)
    assert not world.wave_labels()


def test_an_undone_wave_takes_a_node_whose_pod_was_deleted_only_with_its_lock() -> None:
    """The modules stay loaded, and the pod comes back by itself; then it is the node's turn, as that of any other."""
    world = two_nodes(canary=1, soak="1h")
    before = {name: image_on(world, name) for name in world.kernels}
    world.edit_source(GOOD[1])
    until_it_soaks(world)
    new = image_on(world, "node-0")
    _lock(world, "node-0")
    _undo(world)
    for _ in range(3):
        _delete_pods(world, "node-0")
        world.one_round()
        # A pod that has not reported yet says nothing either.
        world.pods_on("node-0")[0]["status"] = {}
        world.reconcile(world.look)
        assert image_on(world, "node-0") == new != before["node-0"]
        assert world.wave_labels() == ["node-0"]
    _unlock(world, "node-0")
    _delete_pods(world, "node-0")
    world.arrive()
    assert {name: image_on(world, name) for name in world.kernels} == before
    assert status_of(world)["readyNodes"] == 2


def test_an_undone_wave_takes_nodes_whose_pods_do_not_come_back_one_after_the_other() -> None:
    """None of them waits for the other one to be proven."""
    world = WaveWorld()
    for name in NODE_NAMES[:3]:
        world.add_node(name, KERNEL)
    world.add_driver("edu", rollout={"canary": 2, "soak": "1h", "maxUnavailable": 1})
    world.arrive()
    before = {name: image_on(world, name) for name in world.kernels}
    world.edit_source(GOOD[1])
    until_it_soaks(world)
    moved = world.wave_labels()
    assert len(moved) == 2
    _undo(world)
    for _ in range(20):
        for pod in (pod for name in moved for pod in world.pods_on(name)):
            if pod["spec"]["containers"][0]["image"] not in before.values():
                pod["status"] = {}
        world.one_round()
    assert not world.wave_labels()
    world.arrive()
    assert {name: image_on(world, name) for name in world.kernels} == before


def test_a_spec_that_is_set_back_in_a_wave_takes_back_the_nodes_that_have_moved() -> None:
    """The others keep their pods."""
    world = two_nodes(canary=1, soak="1h")
    uids = {name: [pod["metadata"]["uid"] for pod in world.pods_on(name)] for name in world.kernels}
    before = {name: image_on(world, name) for name in world.kernels}
    source = world.source
    world.edit_source(GOOD[1])
    until_it_soaks(world)
    world.edit_source(FIRST_SOURCE if source == GOOD[0] else source)
    world.arrive()
    assert {name: image_on(world, name) for name in world.kernels} == before
    assert [pod["metadata"]["uid"] for pod in world.pods_on("node-1")] == uids["node-1"]
    assert not world.wave_labels()
    assert len(world.daemon_sets()) == 2


def image_on(world: WaveWorld, node: str) -> str:
    """Return the image of the only driver pod on a node."""
    (pod,) = world.pods_on(node)
    image: str = pod["spec"]["containers"][0]["image"]
    return image


def test_the_others_wait_for_the_end_of_the_soak() -> None:
    """The reconcile that goes on comes by itself."""
    world = two_nodes(canary=1, soak="1h", maxUnavailable=2)
    world.edit_source(GOOD[1])
    began = world.now
    until_it_soaks(world)
    proven = status_of(world)["rollout"]["updatedNodes"]
    world.arrive()
    assert (proven, status_of(world)["readyNodes"]) == (1, 2)
    assert world.now - began > 3600.0


@pytest.mark.costly
@few(5)
@given(
    st.lists(kernels, min_size=2, max_size=4),
    st.sampled_from((*DRIVERS[:1], None)),
    st.tuples(st.sampled_from([1, 2]), st.sampled_from([0, 1, 2])),
    st.sampled_from([None, 1, "50%"]),
    st.lists(steps, max_size=10),
)
def test_in_every_history_all_invariants_hold(
    first: list[str], only: str | None, limits: tuple[int, int], canary: int | str | None, history: list[Step]
) -> None:
    """All invariants hold."""
    world = WaveWorld()
    for name, kernel in zip(NODE_NAMES, first, strict=False):
        world.add_node(name, kernel)
    for driver in [only] if only else DRIVERS:
        world.add_driver(driver)
    first_ones = {"canary": canary, "soak": "50s"} if canary else {}
    world.roll({"maxUnavailable": limits[0], "maxFailed": limits[1], **first_ones})
    world.arrive()
    live_through(world, history)


def live_through(world: WaveWorld, history: list[Step]) -> None:
    """Let a wave begin, and everything of a history happen in it; then all is in order again, and time passes."""
    world.edit_source(GOOD[1])
    for step in history:
        event(step.name.partition(" ")[0])
        step.do(world)
        live(world, step)
    world.heal()
    world.arrive()
    world.recorder.ended()


def live(world: WaveWorld, step: Step) -> None:
    """Let rounds follow an event, reconciles cut off where the step says so."""
    for killed_after in step.rounds:
        pass_round(world, killed_after)
