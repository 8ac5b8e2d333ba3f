"""Situations in which a wave with two DaemonSets did harm, stayed for ever, or said what was not so."""

from typing import Any

from driver_builder.nodes.changes import Change, DeleteObject
from driver_builder.objects import manifests
from kube_api import names
from kube_api.client import Object
from kube_api.resources import CONFIG_MAPS, DAEMON_SETS, DRIVER_CONTAINERS, NODES, PODS
from tests.support.driver_builder.factories import KERNEL, NAMESPACE, OTHER_KERNEL
from tests.unit.driver_builder.world.test_world_rollout import BAD, GOOD, WaveWorld, image_on, status_of, until_it_soaks

DRIVER = DRIVER_CONTAINERS.path(namespace=NAMESPACE, name="edu")


def fleet(count: int, **rollout: Any) -> WaveWorld:
    """Make a world of one driver, which works on nodes with one kernel."""
    world = WaveWorld()
    for number in range(count):
        world.add_node(f"node-{number}", KERNEL)
    world.add_driver("edu", rollout=rollout)
    world.arrive()
    return world


def soaking(count: int) -> WaveWorld:
    """Make one whose first node is the proven canary of a wave."""
    world = fleet(count, canary=1, soak="1h")
    world.edit_source(GOOD[1])
    until_it_soaks(world)
    return world


def rounds(world: WaveWorld, number: int, seconds: float = 0.0) -> None:
    """Let rounds pass."""
    for _ in range(number):
        world.one_round()
        world.now += seconds


def annotate(world: WaveWorld, value: str | None) -> None:
    """Undo the wave, or withdraw that."""
    world.client.patch(DRIVER, {"metadata": {"annotations": {names.UNDO_ROLLOUT_ANNOTATION: value}}})


def undo(world: WaveWorld) -> None:
    """Do what ``driver-builder rollout undo`` does."""
    annotate(world, ",".join(sorted(status_of(world)["rollout"]["targets"].values())))


def select(world: WaveWorld, selector: Object | None) -> None:
    """Edit ``spec.nodeSelector``."""
    spec: Object = world.client.objects[DRIVER]["spec"]
    before = dict.fromkeys(spec.get("nodeSelector") or {})
    world.client.patch(DRIVER, {"spec": {"nodeSelector": None if selector is None else {**before, **selector}}})


def works_on(world: WaveWorld, node: str) -> bool:
    """Return whether a pod proves the driver on a node."""
    return any(world.works(pod) for pod in world.pods_on(node) if "deletionTimestamp" not in pod["metadata"])


def canary_fails() -> WaveWorld:
    """Make a world in which a bad image has just failed on the canary; no build works any more."""
    world = fleet(3, canary=1)
    world.edit_source(BAD[0])
    while not world.wave_labels():
        world.reconcile(world.look)
        world.finish_builds()
        if not world.wave_labels():
            world.turn()
        world.now += 1.0
    world.turn()
    assert not works_on(world, "node-0")
    world.fail_builds = 1000
    return world


def test_a_failed_node_returns_although_the_new_image_is_gone_from_the_registry() -> None:
    """What it needs is a label removed: the image of before has its DaemonSet, and is on the node."""
    world = canary_fails()
    world.registries.images.clear()
    rounds(world, 30, seconds=60.0)
    assert works_on(world, "node-0")


def test_a_failed_node_returns_although_the_source_is_gone() -> None:
    """So it is when nothing is known to be wanted."""
    world = canary_fails()
    world.client.delete(CONFIG_MAPS.path(namespace=NAMESPACE, name="edu-source"))
    rounds(world, 30, seconds=60.0)
    assert works_on(world, "node-0")


def test_an_undo_does_not_wait_for_a_registry() -> None:
    """The canary works, but the admin does not want it; the image is gone."""
    world = soaking(3)
    before = image_on(world, "node-2")
    world.fail_builds = 1000
    world.registries.images.clear()
    undo(world)
    rounds(world, 30, seconds=60.0)
    assert image_on(world, "node-0") == before


def test_nodes_that_the_spec_selects_in_a_wave_get_a_driver() -> None:
    """The DaemonSet of before has the selector of before."""
    world = soaking(2)
    world.add_node("node-9", KERNEL, pool="new")
    select(world, None)
    rounds(world, 6)
    assert works_on(world, "node-9")


def test_a_wave_ends_whatever_the_spec_selects_meanwhile() -> None:
    """A node without a pod of either DaemonSet is moved by nothing: label, DaemonSets stay for ever."""
    world = soaking(2)
    world.add_node("node-9", KERNEL, pool="new")
    select(world, None)
    world.arrive()
    assert works_on(world, "node-9")
    assert not world.wave_labels()


def test_nodes_that_change_their_pool_with_the_spec_get_driver_pods_again() -> None:
    """Without a wave the DaemonSet follows the spec at once."""
    world = soaking(3)
    for name in world.kernels:
        world.move_node(name, "next")
    select(world, {"pool": "next"})
    world.arrive()
    assert all(works_on(world, name) for name in world.kernels)


def test_a_node_that_the_spec_no_longer_selects_loses_its_driver_in_a_wave() -> None:
    """Its modules are unloaded; the DaemonSet of before still wants its pod there."""
    world = soaking(3)
    for name in ("node-0", "node-1"):
        world.client.patch(NODES.path(name=name), {"metadata": {"labels": {"tier": "x"}}})
    select(world, {"pool": None, "tier": "x"})
    rounds(world, 30, seconds=60.0)
    assert not world.pods_on("node-2")
    assert not world.live["node-2"]


def test_a_node_that_was_silent_when_the_image_came_can_return() -> None:
    """A pod that is not ready proves nothing against its driver: there is something to lose."""
    world = fleet(1)
    world.silence("node-0")
    world.one_round()
    world.edit_source(BAD[0])
    rounds(world, 8)
    world.arrive()
    assert works_on(world, "node-0")


def test_a_node_that_rebooted_when_the_image_came_can_return() -> None:
    """It loads the image that its pod has a moment later."""
    world = fleet(1)
    world.edit_source(BAD[0])
    world.reconcile(world.look)
    world.finish_builds()
    world.reboot("node-0", KERNEL)
    world.reconcile(world.look)
    world.turn()
    rounds(world, 8)
    assert works_on(world, "node-0")


def test_an_undo_that_is_withdrawn_lets_the_wave_go_on() -> None:
    """``rollout resume`` says so."""
    world = soaking(2)
    undo(world)
    world.arrive()
    annotate(world, None)
    world.arrive()
    assert "rollout" not in status_of(world)


def test_an_undo_takes_back_nodes_with_an_earlier_image_of_the_same_wave() -> None:
    """The third image has not reached them."""
    world = fleet(3, canary=2, soak="1h")
    before = image_on(world, "node-2")
    world.edit_source(GOOD[1])
    until_it_soaks(world)
    world.edit_source(GOOD[2])
    rounds(world, 3)
    undo(world)
    world.arrive()
    assert {image_on(world, name) for name in world.kernels} == {before}


def test_an_undo_stops_an_immediate_wave() -> None:
    """There is no image to return to, but the others keep it."""
    world = soaking(3)
    before = image_on(world, "node-2")
    undo(world)
    world.roll({"strategy": "immediate"})
    world.arrive()
    assert image_on(world, "node-2") == before


def test_a_node_that_no_image_works_on_does_not_halt_the_wave() -> None:
    """It joined in the wave and did not work with the image of before."""
    world = soaking(2)
    world.add_node("node-9", KERNEL)
    world.dead_devices.add("node-9")
    world.arrive()
    world.remove_node("node-9")
    world.arrive()
    assert "rollout" not in status_of(world)


def test_a_node_gets_a_driver_at_the_end_of_a_wave_whatever_is_wanted_next() -> None:
    """The DaemonSet of before is deleted, the other one is for moved nodes alone; the next image fails."""
    world = fleet(2)
    world.edit_source(GOOD[1])
    done: list[bool] = []

    def look(change: Change) -> bool:
        done.append(isinstance(change, DeleteObject) and change.resource is DAEMON_SETS)
        return done[-1]

    while not any(done):
        world.reconcile(look)
        world.finish_builds()
        world.turn()
        world.now += 1.0
    world.fail_builds = 1000
    world.edit_source(GOOD[2])
    world.add_node("node-9", KERNEL)
    rounds(world, 20, seconds=60.0)
    assert works_on(world, "node-9")


def test_pods_of_an_older_version_do_not_unload_what_a_moved_pod_has_loaded() -> None:
    """The DaemonSet has a fingerprint of today's form, its pods do not: they unload when they end."""
    world = WaveWorld()
    world.leaves_modules = False
    for name in ("node-0", "node-1"):
        world.add_node(name, KERNEL)
    world.add_driver("edu")
    world.arrive()
    older = {manifests.FINGERPRINT_ANNOTATION: "0123456789abcdef"}
    for path, obj in world.client.objects.items():
        if path.split("/")[-2] in ("pods", "daemonsets"):
            obj["metadata"]["annotations"] |= older
        if path.split("/")[-2] == "daemonsets":
            obj["metadata"]["annotations"][manifests.TEMPLATE_ANNOTATION] = "older"
    world.leaves_modules = True
    world.arrive()
    assert len([path for path in world.client.objects if path.startswith(PODS.path(namespace=NAMESPACE))]) == 2
    world.edit_source(GOOD[1])
    rounds(world, 12)
    assert all(world.live.values())


class SlowWorld(WaveWorld):
    """A world in which the builds for some kernels take their time."""

    slow: frozenset[str] = frozenset()

    def finish_builds(self) -> None:
        """Let the others end."""
        every = self.builds.running
        held = {key: build for key, build in every.items() if build.request.target.kernel_version in self.slow}
        for key in held:
            del every[key]
        super().finish_builds()
        every.update(held)


def test_an_image_that_comes_late_waits_for_the_soak() -> None:
    """The canary is the only node of its kernel: it has what is wanted before the other kernel's image is there."""
    world = SlowWorld()
    for name, kernel in (("node-0", KERNEL), ("node-1", OTHER_KERNEL)):
        world.add_node(name, kernel)
    world.add_driver("edu", rollout={"canary": 1, "soak": "1h"})
    world.arrive()
    before = {name: image_on(world, name) for name in world.kernels}
    world.slow = frozenset({OTHER_KERNEL})
    world.edit_source(GOOD[1])
    rounds(world, 20)
    assert status_of(world)["rollout"]["phase"] == "Soaking"
    world.slow = frozenset()
    rounds(world, 20)
    assert (image_on(world, "node-0") != before["node-0"], image_on(world, "node-1")) == (True, before["node-1"])
    assert (status_of(world)["rollout"]["phase"], status_of(world)["rollout"]["nodes"]) == ("Soaking", 2)
    world.arrive()
    assert image_on(world, "node-1") != before["node-1"]
    assert "rollout" not in status_of(world)
    assert not world.wave_labels()


class IdleWorld(WaveWorld):
    """A world in which pods load nothing for a while."""

    is_idle = False

    def _load(self) -> None:
        if not self.is_idle:
            super()._load()


def test_a_target_is_not_ready_while_its_last_node_has_not_proven_the_new_image() -> None:
    """The node keeps the ready label of before meanwhile."""
    world = IdleWorld()
    world.add_node("node-0", KERNEL)
    world.add_driver("edu")
    world.arrive()
    world.is_idle = True
    world.edit_source(GOOD[1])
    rounds(world, 10)
    (target,) = status_of(world)["targets"]
    assert (target["state"], target["reason"]) == ("RollingOut", "WaitingForNodes")
    world.is_idle = False
    world.arrive()
    assert {target["state"] for target in status_of(world)["targets"]} == {"Ready"}
