"""The controller on a model of a cluster: whatever happens and whenever it is killed, it reaches the same end."""

from collections.abc import Callable
from dataclasses import replace
from typing import Any

import pytest
from hypothesis import given
from hypothesis import strategies as st

from driver_builder.model import permissions
from driver_builder.model.image_state import Present, Unreachable
from driver_builder.model.loader_privileges import LoaderPrivileges, security_context
from driver_builder.nodes.changes import Change
from driver_builder.nodes.plan_view import PlanSettings
from driver_builder.plan.plan import plan
from kube_api.resources import DRIVER_CONTAINERS
from tests.support.driver_builder.factories import KERNEL, NAMESPACE, OTHER_KERNEL
from tests.support.driver_builder.model_world import World
from tests.support.examples import few

NEW_KERNEL = "6.12.107-cloud-amd64"
KERNELS = (KERNEL, OTHER_KERNEL, NEW_KERNEL)
EDU_READY = "driverwright.io/driverwright.edu.ready"


def fleet(*kernels: str) -> World:
    """Make a world of one node for each kernel, one node outside the pool, and one driver."""
    world = World()
    for number, kernel in enumerate(kernels):
        world.add_node(f"node-{number}", kernel)
    world.add_node("outside", KERNEL, pool="web")
    world.add_driver()
    return world


def assert_all_ready(world: World, version: str = "1.0.0") -> None:
    """Every selected node is ready, nothing was built twice, nobody else was touched, nothing is left to do."""
    expected = {name: {EDU_READY: version} if name in world.selected() else {} for name in world.nodes()}
    assert world.nodes() == expected
    assert world.built_present == []
    assert len(world.pushed) == len(set(world.pushed))
    assert sum("/nodes/outside" in path for path in world.client.writes) == 1, "written once, when it was made"
    assert world.decide().actions == ()
    assert world.status()["readyNodes"] == len(world.selected())


@pytest.mark.costly
@few(15)
@given(st.lists(st.sampled_from(KERNELS), max_size=4), st.integers(0, 3))
def test_every_fleet_becomes_ready(kernels: list[str], failures: int) -> None:
    """From nothing, with builds that fail at first, to every node proven, one build and one DaemonSet per kernel."""
    world = fleet(*kernels)
    world.fail_builds = failures
    world.settle()
    assert_all_ready(world)
    assert len(world.pushed) == len(set(kernels))
    assert world.daemon_sets() == sorted(set(kernels))


def test_a_second_pass_writes_nothing() -> None:
    """Where all is well a pass is a read."""
    world = fleet(KERNEL, OTHER_KERNEL)
    world.settle()
    before = len(world.client.writes)
    world.reconcile()
    assert world.client.writes[before:] == []


def reboot_all(world: World) -> None:
    """Boot every selected node into the new kernel."""
    for name in world.selected():
        world.reboot(name, NEW_KERNEL)


EVENTS: dict[str, Callable[[World], None]] = {
    "kernel changes": lambda world: world.reboot("node-0", NEW_KERNEL),
    "all kernels change": reboot_all,
    "kernel goes back": lambda world: world.reboot("node-0", OTHER_KERNEL),
    "node joins": lambda world: world.add_node("node-9", NEW_KERNEL),
    "node leaves": lambda world: world.remove_node("node-0"),
    "source changes": lambda world: world.change_source("int y;"),
    "rebuild asked": lambda world: world.annotate_driver("edu", "1"),
    "controller killed": lambda world: world.kill(),
}


@pytest.mark.costly
@few(15)
@given(
    st.lists(st.sampled_from(KERNELS), min_size=2, max_size=3),
    st.lists(st.tuples(st.sampled_from([*EVENTS]), st.integers(0, 4)), max_size=3),
)
def test_whatever_happens_on_the_way_the_end_is_the_same(kernels: list[str], history: list[tuple[str, int]]) -> None:
    """Kernels, nodes, source and controller may change at any moment between any two passes."""
    world = fleet(*kernels)
    told = dict(history)
    for name, rounds in told.items():
        if name.startswith("kernel") and "node leaves" in told:
            continue
        EVENTS[name](world)
        for _ in range(rounds):
            world.reconcile()
            world.finish_builds()
            world.turn()
            world.now += 1
    world.settle()
    assert_all_ready(world)


def run_to_the_end(world: World, after_each: Callable[[Change], bool]) -> None:
    """Let as many rounds pass as any start needs for its last action, or until the controller was killed."""
    for _ in range(15):
        if not world.kills:
            world.reconcile(after_each)
            world.finish_builds()
            world.turn()
            world.now += 5


STARTS: dict[str, Callable[[], World]] = {}


def start(function: Callable[[], World]) -> Callable[[], World]:
    """Register a state from which interruptions are replayed."""
    STARTS[function.__name__] = function
    return function


@start
def from_nothing() -> World:
    """Two kernels, nothing built."""
    return fleet(KERNEL, OTHER_KERNEL, KERNEL)


@start
def new_kernel() -> World:
    """A working fleet of which one node boots a new kernel."""
    world = fleet(KERNEL, KERNEL)
    world.settle()
    world.reboot("node-0", NEW_KERNEL)
    return world


@start
def new_source() -> World:
    """A working fleet whose driver changes."""
    world = fleet(KERNEL, KERNEL, KERNEL)
    world.settle()
    world.change_source("int y;")
    return world


@start
def rebuild_asked() -> World:
    """A working fleet whose driver is annotated."""
    world = fleet(KERNEL, OTHER_KERNEL)
    world.settle()
    world.annotate_driver("edu", "7")
    return world


@start
def failing_build() -> World:
    """A build that fails once."""
    world = fleet(KERNEL)
    world.fail_builds = 1
    world.now += 0.5
    return world


@pytest.mark.parametrize("every", [2, pytest.param(1, marks=pytest.mark.long)])
@pytest.mark.parametrize("make", STARTS.values(), ids=STARTS)
def test_killed_after_any_action_it_goes_on_to_the_same_end(make: Callable[[], World], every: int) -> None:
    """Kill the controller right after an action on the way; ``make test-long`` does so for each of them.

    The end is the same, and nothing is built twice.
    """
    straight = make()
    actions: list[Change] = []

    def note(action: Change) -> bool:
        actions.append(action)
        return False

    run_to_the_end(straight, note)
    straight.settle()
    assert_all_ready(straight)
    assert actions
    for number in range(0, len(actions), every):
        world = make()
        seen = 0

        def kill_here(_action: Change, number: int = number) -> bool:
            nonlocal seen
            seen += 1
            return seen == number + 1

        run_to_the_end(world, kill_here)
        world.settle()
        assert_all_ready(world)
        assert set(world.pushed) == set(straight.pushed)
        assert world.nodes() == straight.nodes()
        assert world.daemon_sets() == straight.daemon_sets()


def test_killed_after_every_action_it_still_arrives() -> None:
    """A controller that never lives longer than one action, its builds apart, brings the fleet up."""
    world = fleet(KERNEL, OTHER_KERNEL)
    for _ in range(60):
        builds = world.builds
        world.reconcile(lambda _action: True)
        # What the builder had begun is finished as if it had been its last deed.
        world.builds = builds
        world.finish_builds()
        world.kill()
        world.turn()
    world.settle()
    assert_all_ready(world)


@pytest.mark.costly
@few(5)
@given(st.integers(2, 3), st.lists(st.integers(0, 2), min_size=1, max_size=2))
def test_a_rollout_takes_one_working_driver_away_at_a_time(size: int, passes: list[int]) -> None:
    """While a new image rolls over a working fleet, never more than one node is without a working driver."""
    world = fleet(*[KERNEL] * size)
    world.settle()
    everybody = world.working()
    assert len(everybody) == size
    world.change_source("int y;")
    world.reconcile()
    world.finish_builds()
    for number in range(size * len(passes) + 1):
        for step in world.steps():
            step()
            for _ in range(passes[number % len(passes)]):
                world.reconcile()
            assert len(everybody - world.working()) <= 1
        world.now += 1
    world.settle()
    assert_all_ready(world)
    assert len(world.pushed) == 2


def test_two_drivers_do_not_meet() -> None:
    """Drivers of one pool are built, rolled out and labelled side by side."""
    world = fleet(KERNEL)
    world.add_driver("other")
    world.settle()
    labels = {EDU_READY: "1.0.0", EDU_READY.replace("edu", "other"): "1.0.0"}
    assert world.nodes()["node-0"] == labels
    assert len(world.pushed) == 2


def test_deletion_takes_everything_back() -> None:
    """After a driver is deleted no label, DaemonSet, pod or finalizer of it is left."""
    world = fleet(KERNEL, OTHER_KERNEL)
    world.settle()
    world.delete_driver("edu")
    world.settle()
    assert set(map(str, world.nodes().values())) == {"{}"}
    left = {path.split("/")[-2] for path in world.client.objects}
    assert left == {"nodes", "configmaps", "events"}


def test_deletion_and_creation_anew_reuses_the_image() -> None:
    """The image of a driver that comes back is still in the registry."""
    world = fleet(KERNEL)
    world.settle()
    world.delete_driver("edu")
    world.settle()
    world.add_driver()
    world.settle()
    assert_all_ready(world)
    assert len(world.pushed) == 1


def test_a_registry_that_goes_away_changes_nothing() -> None:
    """Working nodes keep their driver and label; when the registry is back, all is as it was."""
    world = fleet(KERNEL)
    world.settle()
    (image,) = world.registries.images
    world.registries.answers[image] = Unreachable(message="connection refused")
    world.settle()
    assert world.nodes()["node-0"] == {EDU_READY: "1.0.0"}
    assert world.status()["targets"][0]["state"] == "Blocked"
    world.registries.answers.clear()
    world.settle()
    assert_all_ready(world)


def test_a_rebuild_is_done_once() -> None:
    """One annotation, one build per target; further passes and restarts add none."""
    world = fleet(KERNEL, OTHER_KERNEL)
    world.settle()
    world.annotate_driver("edu", "1")
    world.settle()
    world.kill()
    world.settle()
    assert len(world.pushed) == 4
    assert_all_ready(world)


def test_a_failing_build_is_reported_and_tried_again_later() -> None:
    """Each failure is an Event and a count; the wait between tries grows."""
    world = fleet(KERNEL)
    world.fail_builds = 3
    began = world.now
    world.settle()
    assert_all_ready(world)
    assert world.now - began > 30 + 60 + 120
    reasons = [obj["reason"] for path, obj in world.client.objects.items() if "/events/" in path]
    assert "CompileError" in reasons


def test_a_pod_on_the_wrong_kernel_gets_no_label() -> None:
    """Between a reboot and the new labels the old pod says WrongKernel, and the node is not ready."""
    world = fleet(KERNEL)
    world.settle()
    world.kernels["node-0"] = NEW_KERNEL
    pod = next(obj for path, obj in world.client.objects.items() if "/pods/" in path)
    pod["status"] = {}
    world.turn()
    world.reconcile()
    assert world.nodes()["node-0"] == {}
    assert "WrongKernel" in world.status()["targets"][0]["message"]


def test_an_update_of_the_operating_system_without_a_reboot_changes_nothing() -> None:
    """The kernel is the one that runs: no pod, label or image is touched, at whatever moment a pass comes."""
    world = fleet(KERNEL, KERNEL, KERNEL)
    world.settle()
    pods = {path: obj["metadata"]["uid"] for path, obj in world.client.objects.items() if "/pods/" in path}
    for name in sorted(world.selected()):
        world.update_os(name, "12.9")
        world.turn()
        world.settle()
    assert {path: obj["metadata"]["uid"] for path, obj in world.client.objects.items() if "/pods/" in path} == pods
    assert_all_ready(world)
    assert len(world.pushed) == 1


def pods_of(world: World) -> set[str]:
    """Return the uids of the driver's pods."""
    return {pod["metadata"]["uid"] for name in world.selected() for pod in world.pods_on(name)}


def test_a_fixed_loader_rebuilds_no_driver() -> None:
    """Its image is in no build key: nothing is built, the DaemonSets name the new one, and every pod stays."""
    world = fleet(KERNEL, OTHER_KERNEL)
    world.settle()
    built, pods = list(world.pushed), pods_of(world)
    world.settings = replace(world.settings, loader_image="r.io/driverwright/loader:mended")
    world.settle()
    assert_all_ready(world)
    assert world.pushed == built
    assert pods_of(world) == pods
    sets = [item for path, item in world.client.objects.items() if "/daemonsets/" in path]
    brought = {item["spec"]["template"]["spec"]["initContainers"][0]["image"] for item in sets}
    assert brought == {"r.io/driverwright/loader:mended"}


def test_another_builder_rebuilds_no_driver() -> None:
    """Who builds is in no build key: a cluster that moves from an engine to Jobs, or back, builds and moves nothing."""
    world = fleet(KERNEL, OTHER_KERNEL)
    world.settle()
    built, pods = list(world.pushed), pods_of(world)
    for builder in ("job", "docker"):
        path = DRIVER_CONTAINERS.path(namespace=NAMESPACE, name="edu")
        world.client.patch(path, {"spec": {"build": {"builder": builder}}})
        world.settle()
        assert_all_ready(world)
        assert (world.pushed, pods_of(world)) == (built, pods)


def contexts(world: World) -> list[dict[str, Any]]:
    """Return the security context of what loads modules, of each DaemonSet."""
    sets = [item for path, item in world.client.objects.items() if "/daemonsets/" in path]
    return [item["spec"]["template"]["spec"]["initContainers"][1]["securityContext"] for item in sets]


def test_a_loader_with_less_privileges_reloads_no_driver() -> None:
    """The setting goes to the DaemonSets and back, and every pod stays; a pod that is new for its own sake has it."""
    world = fleet(KERNEL, OTHER_KERNEL)
    world.settle()
    before = world.settings
    pods = pods_of(world)
    for settings in (replace(before, loader_privileges=LoaderPrivileges.LEAST), before):
        world.settings = settings
        world.settle()
        assert_all_ready(world)
        assert pods_of(world) == pods
        assert contexts(world) == [security_context(settings.loader_privileges)] * 2


def with_permissions(world: World, **texts: str) -> PlanSettings:
    """Return the settings of a world with limits of what drivers may use."""
    versions = replace(world.settings.template_versions, permissions=permissions.read(texts))
    return replace(world.settings, template_versions=versions)


def test_a_driver_that_is_no_longer_allowed_stays_until_it_is_deleted() -> None:
    """Nothing is written but its status; a node that boots another kernel waits; deleting it works as ever."""
    world = fleet(KERNEL, OTHER_KERNEL)
    world.settle()
    built, pods, own = list(world.pushed), pods_of(world), world.settings
    world.settings = with_permissions(world, allowed_registries="r.io/*", allowed_node_labels="pool=gpu")
    world.settle()
    assert world.nodes() == {name: {EDU_READY: "1.0.0"} if name in world.selected() else {} for name in world.nodes()}
    assert pods_of(world) == pods
    assert {target["reason"] for target in world.status()["targets"]} == {"NotAllowed"}
    assert world.decide().actions == ()
    world.reboot("node-0", NEW_KERNEL)
    world.settle()
    assert world.pushed == built
    assert world.nodes()["node-0"] == {}
    world.settings = own
    world.settle()
    assert_all_ready(world)


def test_a_tag_that_moved_while_a_driver_was_not_allowed_is_not_believed() -> None:
    """The digest that was rolled out is kept, whatever the driver may do in the meantime."""
    world = fleet(KERNEL)
    world.settle()
    own = world.settings
    world.settings = with_permissions(world, allowed_registries="none")
    world.settle()
    world.settings = own
    seen = world.observe()
    moved = {image: replace(state, digest="sha256:" + "e" * 64) for image, state in seen.images.items()
             if isinstance(state, Present)}  # fmt: skip
    (part,) = plan(replace(seen, images=moved, pushed={}), own).drivers
    assert part.actions == ()
    assert [target.reason for target in part.targets] == ["TagMoved"]


@pytest.mark.parametrize("selector", [{"pool": "web"}, {}], ids=["other nodes", "every node"])
def test_a_selector_that_is_not_allowed_takes_no_driver_away(selector: dict[str, str]) -> None:
    """The nodes that the driver was rolled out to keep it, for as long as that takes."""
    world = fleet(KERNEL, OTHER_KERNEL)
    world.settle()
    before, pods, live = world.nodes(), pods_of(world), {node: dict(found) for node, found in world.live.items()}
    world.settings = with_permissions(world, allowed_node_labels="pool=edu")
    path = DRIVER_CONTAINERS.path(namespace=NAMESPACE, name="edu")
    world.client.patch(path, {"spec": {"nodeSelector": None}})
    world.client.patch(path, {"spec": {"nodeSelector": selector}})
    world.client.objects[path]["metadata"]["generation"] = 2
    for _ in range(20):
        world.reconcile()
        world.turn()
        world.now += 120.0
    assert (world.nodes(), pods_of(world), world.live) == (before, pods, live)
    assert {target["reason"] for target in world.status()["targets"]} == {"NotAllowed"}


def test_a_driver_that_was_never_allowed_can_be_deleted() -> None:
    """It got nothing, so it leaves nothing."""
    world = fleet(KERNEL)
    world.settings = with_permissions(world, allowed_node_labels="pool=gpu")
    world.settle()
    assert (world.pushed, world.daemon_sets()) == ([], [])
    world.delete_driver("edu")
    world.settle()
    assert not [path for path in world.client.objects if "/drivercontainers/" in path]
