"""Any history of a fleet, made by Hypothesis: the controller always arrives, and only does what it may.

A history is a list of events between reconciles that may be cut off after any action: several drivers with mappings of
every kind, nodes that join, leave and boot other kernels, sources and versions that change, builds that fail once or
for good, registries that give no answer, prebuilt images that come late, validations, pauses, deletions, killed
controllers.
"""

import json
from collections.abc import Callable
from dataclasses import dataclass
from typing import Any

import pytest
from hypothesis import event, given
from hypothesis import strategies as st

from driver_builder.api.driver_spec import DriverSpec, RegistrySettings
from driver_builder.base.reasons import TargetState
from driver_builder.model.image_state import ImageState, Invalid, Present, Unauthorized, Unreachable
from driver_builder.model.images import MODULES_LABEL, ImageRef
from driver_builder.model.kernels import KernelVersion
from driver_builder.nodes.changes import Change
from driver_builder.snapshot.snapshot import FailedBuild
from driver_builder.targets.resolve_target import mapping_for
from kube_api import names
from kube_api.client import Object
from kube_api.errors import NotFound
from kube_api.resources import DRIVER_CONTAINERS, NODES
from tests.support.driver_builder.factories import KERNEL, NAMESPACE, OTHER_KERNEL
from tests.support.driver_builder.memory_client import copied
from tests.support.driver_builder.model_parts import ModelRegistries
from tests.support.driver_builder.model_world import World
from tests.support.driver_builder.recorder import Recorder
from tests.support.examples import few

NEW_KERNEL = "6.12.107-cloud-amd64"
KERNELS = (KERNEL, OTHER_KERNEL, NEW_KERNEL)
DRIVERS = ("edu", "other")
NODE_NAMES = ("node-0", "node-1", "node-2")
PREBUILT = {driver: ImageRef("r.io", f"vendor/{driver}", "1") for driver in DRIVERS}
BOUND = 80
"""Rounds within which every history is at its end. The longest wait is for a build that fails several times."""

MAPPINGS: dict[str, Callable[[str], list[Object] | None]] = {
    "none": lambda _driver: None,
    "all": lambda _driver: [{"regexp": ".*"}],
    "one kernel": lambda _driver: [{"literal": KERNEL}],
    "one is skipped": lambda _driver: [{"literal": OTHER_KERNEL, "skip": True}, {"regexp": ".*"}],
    "one is prebuilt": lambda driver: [
        {"literal": NEW_KERNEL, "image": str(PREBUILT[driver])},
        {"regexp": "6[.]1[.].*"},
    ],
}
VALIDATIONS: dict[str, Object | None] = {
    "nothing": None,
    "a command": {"image": "r.io/test", "command": ["/test"], "deviceNodes": None},
    "device nodes": {"image": None, "command": None, "deviceNodes": ["/dev/edu0"]},
    "both": {"image": "r.io/test", "command": ["/other"], "deviceNodes": ["/dev/edu0"]},
}
OUTAGES: tuple[ImageState, ...] = (Unreachable(message="m"), Unauthorized(message="m"), Invalid(message="m"))


class MoodyRegistries(ModelRegistries):
    """Registries that give one answer to everything while they are away."""

    outage: ImageState | None = None

    def inspect(
        self,
        namespace: str,
        settings: RegistrySettings,
        image: ImageRef,
        architecture: str = "",
        *,
        signed_by: str | None = None,
    ) -> ImageState:
        """Return what the mood is, else whether the image was pushed."""
        return self.outage or super().inspect(namespace, settings, image, architecture, signed_by=signed_by)


class StoryWorld(World):
    """A world whose builds for some kernels fail for good, with a journal."""

    def __init__(self) -> None:
        super().__init__()
        self.registries = MoodyRegistries()
        self.broken: frozenset[str] = frozenset()
        self.versions = dict.fromkeys(DRIVERS, 0)
        self.add_node("outside", KERNEL, pool="web")
        self.recorder = Recorder(self)

    def finish_builds(self) -> None:
        """Let builds end: those for broken kernels badly, the others as the model has it."""
        for key, action in list(self.builds.running.items()):
            if action.request.target.kernel_version in self.broken:
                del self.builds.running[key]
                self.builds.fail(key, FailedBuild(reason="CompileError", message="error: x", at=self.now))
        super().finish_builds()

    def patch_driver(self, name: str, body: Object) -> None:
        """Let somebody edit a driver, if there is one."""
        try:
            self.client.patch(DRIVER_CONTAINERS.path(namespace=NAMESPACE, name=name), body)
        except NotFound:
            return

    def drivers(self) -> dict[str, Object]:
        """Return the drivers that exist."""
        return {obj["metadata"]["name"]: obj for _, obj in self._objects("drivercontainers")}

    def failed_kernels(self) -> set[str]:
        """Name the kernels of targets whose builds fail and are tried again: not those of a driver that is paused."""
        acted_on = [obj for name, obj in self.drivers().items() if not self.read_driver(name).paused]
        targets = [item for obj in acted_on for item in (obj.get("status") or {}).get("targets") or ()]
        return {str(item["kernel"]) for item in targets if item["state"] == TargetState.FAILED and "failures" in item}

    def arrive(self) -> int:
        """Let rounds pass until nothing is left to do but to try again what fails for good; count them."""
        for number in range(BOUND):
            before = copied(self.client.objects)
            decided = self.reconcile()
            moves = bool(decided.actions or self.builds.running)
            self.finish_builds()
            self.finish_discoveries()
            self.turn()
            quiet = not moves and before == self.client.objects
            if quiet and self.failed_kernels() <= self.broken:
                return number
            # While anything moves no wait is cut short: a build that fails for good would begin in every round.
            self.now = max(self.now + 1.0, decided.requeue_at or 0.0) if quiet else self.now + 1.0
        raise AssertionError(f"still moving after {BOUND} rounds: {[str(action) for action in self.decide().actions]}")


# ---------------------------------------------------------------- events


def _apply(world: StoryWorld, driver: str, mapping: str) -> None:
    if driver not in world.drivers():
        world.add_driver(driver, version=f"1.0.{world.versions[driver]}", kernelMappings=MAPPINGS[mapping](driver))
    else:
        world.patch_driver(driver, {"spec": {"kernelMappings": MAPPINGS[mapping](driver)}})


def _validate(world: StoryWorld, driver: str, what: str) -> None:
    world.patch_driver(driver, {"spec": {"validation": VALIDATIONS[what]}})


def _upgrade(world: StoryWorld, driver: str) -> None:
    world.versions[driver] += 1
    world.patch_driver(driver, {"spec": {"version": f"1.0.{world.versions[driver]}"}})


def _delete(world: StoryWorld, driver: str) -> None:
    if driver in world.drivers():
        world.delete_driver(driver)


def _join_or_boot(world: StoryWorld, node: str, kernel: str) -> None:
    if node in world.kernels:
        world.reboot(node, kernel)
    else:
        world.add_node(node, kernel)


def _leave(world: StoryWorld, node: str) -> None:
    if node in world.kernels:
        world.remove_node(node)


def _ask_node(world: StoryWorld, node: str, value: str) -> None:
    if node in world.kernels:
        body = {"metadata": {"annotations": {names.REBUILD_ANNOTATION: value}}}
        world.client.patch(NODES.path(name=node), body)


def _forge(world: StoryWorld, node: str, driver: str) -> None:
    # A label of a driver that the controller has never seen is nobody's to take away.
    known = world.drivers().get(driver)
    if node in world.kernels and known is not None and known["metadata"].get("finalizers"):
        body = {"metadata": {"labels": {names.ready_label(NAMESPACE, driver): "forged"}}}
        world.client.patch(NODES.path(name=node), body)


def _publish(world: StoryWorld) -> None:
    for driver, image in PREBUILT.items():
        facts = [{"name": f"{driver}drv", "identity": "V"}]
        world.registries.images[image] = {MODULES_LABEL: json.dumps(facts)}


def _edit_source(world: StoryWorld, text: str) -> None:
    if world.drivers():
        world.change_source(text)


def _pause(world: StoryWorld, driver: str, value: str | None) -> None:
    world.patch_driver(driver, {"metadata": {"annotations": {names.PAUSE_ANNOTATION: value}}})


def _annotate(world: StoryWorld, driver: str, value: str) -> None:
    world.patch_driver(driver, {"metadata": {"annotations": {names.REBUILD_ANNOTATION: value}}})


def _set_outage(world: StoryWorld, state: ImageState | None) -> None:
    assert isinstance(world.registries, MoodyRegistries)
    world.registries.outage = state


def _fail(world: StoryWorld, count: int) -> None:
    world.fail_builds = count


def _break(world: StoryWorld, kernels: frozenset[str]) -> None:
    world.broken = kernels


def _kill(world: StoryWorld) -> None:
    world.kill()


@dataclass(frozen=True)
class Step:
    """One event, and the reconciles after it: each with the action after which the controller is killed, if any."""

    name: str
    do: Callable[[StoryWorld], None]
    passes: tuple[int | None, ...]
    moves: int

    def __repr__(self) -> str:
        return f"{self.name}, passes {self.passes}, {self.moves} moves"


def _step(name: str, function: Callable[..., None], *arguments: st.SearchStrategy[Any]) -> st.SearchStrategy[Step]:
    def make(values: tuple[Any, ...], passes: list[int | None], moves: int) -> Step:
        words = ", ".join(str(value) for value in values)
        return Step(f"{name} {words}".strip(), lambda world: function(world, *values), tuple(passes), moves)

    passes = st.lists(st.none() | st.integers(0, 4), max_size=3)
    return st.builds(make, st.tuples(*arguments), passes, st.integers(0, 8))


drivers, nodes, kernels = st.sampled_from(DRIVERS), st.sampled_from(NODE_NAMES), st.sampled_from(KERNELS)
one_or_two = st.sampled_from(["1", "2"])
steps = st.one_of(
    _step("apply", _apply, drivers, st.sampled_from([*MAPPINGS])),
    _step("boot", _join_or_boot, nodes, kernels),
    _step("leave", _leave, nodes),
    _step("upgrade", _upgrade, drivers),
    _step("validate", _validate, drivers, st.sampled_from([*VALIDATIONS])),
    _step("edit the source", _edit_source, st.sampled_from(["int x;", "int y;"])),
    _step("rebuild", _annotate, drivers, one_or_two),
    _step("rebuild for the node", _ask_node, nodes, one_or_two),
    _step("pause", _pause, drivers, st.sampled_from(["true", None])),
    _step("delete", _delete, drivers),
    _step("forge a label", _forge, st.sampled_from([*NODE_NAMES, "outside"]), drivers),
    _step("publish the prebuilt image", _publish),
    _step("the registry says", _set_outage, st.none() | st.sampled_from(OUTAGES)),
    _step("builds fail", _fail, st.integers(0, 2)),
    _step("builds fail for good", _break, st.frozensets(kernels, max_size=2)),
    _step("the controller is killed", _kill),
)


@pytest.mark.costly
@few(15)
@given(
    st.lists(st.tuples(drivers, st.sampled_from([*MAPPINGS])), min_size=1, max_size=2),
    st.lists(kernels, min_size=1, max_size=3),
    st.lists(steps, max_size=8),
)
def test_every_history_ends_well(applied: list[tuple[str, str]], first: list[str], history: list[Step]) -> None:
    """Within a bound, as wanted, and all invariants hold."""
    world = StoryWorld()
    for name, kernel in zip(NODE_NAMES, first, strict=False):
        world.add_node(name, kernel)
    for driver, mapping in applied:
        _apply(world, driver, mapping)
    for step in history:
        event(step.name.partition(" ")[0])
        step.do(world)
        live(world, step)
    _set_outage(world, None)
    event(f"rounds: {world.arrive() // 10 * 10} and more")
    assert world.recorder.rest(again=True)["strangers_are_left_alone"]
    assert_as_wanted(world)


def test_a_successor_proves_the_driver_while_its_predecessor_leaves() -> None:
    """A wave's other DaemonSet makes its pod before the old one is gone: the label says what the new one proves."""
    world = StoryWorld()
    world.add_node("node-0", KERNEL)
    _apply(world, "edu", "none")
    live(world, Step("look", lambda _world: None, (None, None), moves=1))
    _upgrade(world, "edu")
    world.arrive()
    assert world.nodes()["node-0"][names.ready_label(NAMESPACE, "edu")] == "1.0.1"


def live(world: StoryWorld, step: Step) -> None:
    """Let passes follow an event, cut off where the step says so, with a few moves of the cluster between them."""
    cluster = (world.finish_builds, *world.steps())
    for number, killed_after in enumerate(step.passes or (None,)):
        done = 0

        def look(_action: Change, killed_after: int | None = killed_after) -> bool:
            nonlocal done
            done += 1
            return killed_after is not None and done > killed_after

        world.reconcile(look)
        for move in range(step.moves):
            cluster[(number + move) % len(cluster)]()
        world.now += 1


def assert_as_wanted(world: StoryWorld) -> None:
    """Every node has what its driver and its kernel ask for."""
    found = {name: world.read_driver(name) for name in world.drivers()}
    for name, labels in world.nodes().items():
        for driver, container in found.items() if name != "outside" else ():
            if container.paused:
                continue
            assert isinstance(container.spec, DriverSpec)
            rule = mapping_for(container.spec, KernelVersion(world.kernels[name]))
            ready = labels.get(names.ready_label(NAMESPACE, driver))
            if rule is None or rule.skip:
                assert ready is None
            elif PREBUILT[driver] in world.registries.images if rule.image else world.kernels[name] not in world.broken:
                # Where the image cannot come a node may have none, or keep an older one that works.
                assert ready == container.spec.version


def test_a_present_answer_is_a_presence() -> None:
    """The registries of the histories answer as the model's do when they are not away."""
    registries = MoodyRegistries()
    registries.images[PREBUILT["edu"]] = {}
    assert isinstance(registries.inspect("n", RegistrySettings(), PREBUILT["edu"], "amd64"), Present)
