"""Prebuilds on a model of a cluster: whatever happens, labels say what the gate says, and nothing is built twice."""

from collections.abc import Callable

import pytest
from hypothesis import given
from hypothesis import strategies as st

from driver_builder.api.prebuild_status import CONDITION
from driver_builder.controller.report import Reporter
from driver_builder.model.image_state import Unreachable
from driver_builder.model.kernels import KernelTarget
from driver_builder.prebuild.gate import gate, with_kernel
from driver_builder.prebuild.newest_kernel import is_newer, newest, stream_of
from driver_builder.prebuild.upgrade_labels import ready_for_label
from driver_builder.snapshot.inventory import target_of
from kube_api.names import READY_FOR_PREFIX
from kube_api.resources import DRIVER_CONTAINERS, NODES
from tests.support.driver_builder.factories import KERNEL, NAMESPACE, OTHER_KERNEL
from tests.support.driver_builder.model_world import World
from tests.support.examples import few

OFFERED = "6.1.0-56-cloud-amd64"
LATER = "6.1.0-57-cloud-amd64"
OTHER_SERIES = "6.12.107+deb12-cloud-amd64"
REPOSITORY = (OTHER_KERNEL, KERNEL, OFFERED, OTHER_SERIES, "6.1.0-99-rt-amd64")
DAY = 86400.0


def fleet(*kernels: str, drivers: int = 1) -> World:
    """Make a world of one node for each kernel and one outside the pool, whose drivers follow the repository."""
    world = World()
    world.offered = REPOSITORY
    for number, kernel in enumerate(kernels):
        world.add_node(f"node-{number}", kernel)
    world.add_node("outside", KERNEL, pool="web")
    for name in ("edu", "other")[:drivers]:
        world.add_driver(name)
        world.follow_repository(name)
    return world


def ready_for(world: World) -> dict[str, set[str]]:
    """Return the kernels that each node is said to be ready for, as their labels write them."""
    return {
        name: {label.removeprefix(READY_FOR_PREFIX) for label in labels if label.startswith(READY_FOR_PREFIX)}
        for name, labels in world.nodes().items()
    }


def conditions(world: World, name: str = "edu") -> dict[str, tuple[str, str]]:
    """Return status and reason of each condition."""
    return {item["type"]: (item["status"], item["reason"]) for item in world.status(name)["conditions"]}


def may_move(world: World, name: str, kernel: str) -> bool:
    """Ask the gate as the command does: of the cluster as it would be, with a look into the registry."""
    seen = with_kernel(world.observe(), name, kernel)
    images = dict(world.images().read(seen).images)
    return gate(world.images().read(seen), name, kernel, world.settings.template_versions).is_open and bool(images)


def assert_labels_agree(world: World, *, follows: bool = True) -> None:
    """A node has a label exactly for the newest kernel of its stream that it does not run and the gate lets it boot."""
    for node in world.observe().nodes:
        target = target_of(node)
        assert isinstance(target, KernelTarget)
        stream = stream_of("debian", target.kernel_version)
        found = newest("debian", stream or "", world.offered)
        wanted = set()
        if follows and node.name in world.selected() and found is not None and is_newer(target, found):
            wanted = {found} if may_move(world, node.name, found) else set()
        assert ready_for(world)[node.name] == {
            ready_for_label(kernel).removeprefix(READY_FOR_PREFIX) for kernel in wanted
        }


def assert_settled(world: World, *, follows: bool = True) -> None:
    """Nothing is left to do, nothing was built twice, and labels say what the gate says."""
    assert world.decide().actions == ()
    assert world.built_present == []
    assert len(world.pushed) == len(set(world.pushed))
    assert_labels_agree(world, follows=follows)
    assert sum("/nodes/outside" in path for path in world.client.writes) == 1, "written once, when it was made"


def test_the_newest_kernel_is_built_before_a_node_runs_it() -> None:
    """One kernel discovery, one build more; the nodes are labelled; the first that boots it needs no build."""
    world = fleet(KERNEL, OTHER_KERNEL)
    world.settle()
    assert_settled(world)
    assert (world.asked, len(world.pushed)) == (1, 3)
    assert ready_for(world) == {"node-0": {OFFERED}, "node-1": {OFFERED}, "outside": set()}
    assert conditions(world)[CONDITION] == ("True", "BuiltAhead")
    (entry,) = world.status()["ahead"]
    assert (entry["kernel"], entry["state"], entry["nodes"]) == (OFFERED, "Ready", 2)

    world.reboot("node-0", OFFERED)
    world.settle()
    assert_settled(world)
    assert len(world.pushed) == 3
    assert ready_for(world) == {"node-0": set(), "node-1": {OFFERED}, "outside": set()}

    world.reboot("node-1", OFFERED)
    world.settle()
    assert_settled(world)
    assert conditions(world)[CONDITION] == ("True", "NewestKernelRuns")
    assert world.asked == 1


def test_what_nodes_wait_for_comes_first() -> None:
    """No node waits for a prebuild: it is queued behind all others."""
    world = fleet(KERNEL)
    world.reconcile()
    world.finish_discoveries()
    waiting = [action.waiting for action in world.reconcile().actions if hasattr(action, "waiting")]
    assert [*waiting, *(action.waiting for action in world.builds.running.values())] == [0, 1, 0]


def test_a_controller_that_is_restarted_does_not_ask_again_the_same_day() -> None:
    """What is in the status is enough; a day and an hour later it is asked once more."""
    world = fleet(KERNEL)
    world.settle()
    world.kill()
    world.settle()
    assert (world.asked, world.decide().actions) == (1, ())
    world.now += DAY - 10
    assert world.decide().actions == ()
    due = world.decide().requeue_at
    assert due is not None
    assert world.now < due <= world.now + 10 + 3600
    world.now = due
    world.offered = (*REPOSITORY, LATER)
    world.settle()
    assert_settled(world)
    assert world.asked == 2
    assert ready_for(world)["node-0"] == {LATER}


def test_a_prebuild_that_fails_is_reported_and_keeps_nodes_where_they_are() -> None:
    """No label, a condition with the compiler's words, an Event, and the gate repeats them; nodes keep their driver."""
    world = fleet(KERNEL)
    world.offered = (KERNEL,)
    world.settle()
    world.now += DAY * 2
    world.offered = REPOSITORY
    world.fail_builds = 1000
    for _ in range(6):
        world.reconcile()
        world.finish_builds()
        world.finish_discoveries()
        world.turn()
    assert ready_for(world)["node-0"] == set()
    assert conditions(world)[CONDITION] == ("False", "CompileError")
    assert conditions(world)["Ready"] == ("True", "AllNodesReady")
    assert conditions(world)["Degraded"][0] == "False", "no node lacks anything"
    seen = world.images().read(with_kernel(world.observe(), "node-0", OFFERED))
    answer = gate(seen, "node-0", OFFERED, world.settings.template_versions)
    assert answer.findings[0].message.startswith("Failed, CompileError: error: x")
    reasons = [obj["reason"] for path, obj in world.client.objects.items() if "/events/" in path]
    assert "CompileError" in reasons

    world.fail_builds = 0
    world.now += 3600
    world.settle()
    assert_settled(world)
    assert ready_for(world)["node-0"] == {OFFERED}


def test_a_driver_that_does_not_follow_holds_nodes_as_well() -> None:
    """The label is about all drivers of a node, as the gate is."""
    world = fleet(KERNEL)
    world.add_driver("other")
    world.settle()
    assert_settled(world)
    assert ready_for(world)["node-0"] == set()
    assert conditions(world)[CONDITION] == ("True", "BuiltAhead")
    assert CONDITION not in conditions(world, "other")
    world.follow_repository("other")
    world.settle()
    assert_settled(world)
    assert ready_for(world)["node-0"] == {OFFERED}
    assert world.asked == 1, "drivers that build in one base image share what was told"


def test_labels_go_when_nobody_follows_any_more() -> None:
    """Status and conditions are as if nobody ever had."""
    world = fleet(KERNEL)
    world.settle()
    world.follow_repository(follows=False)
    world.settle()
    assert_settled(world, follows=False)
    assert ready_for(world)["node-0"] == set()
    assert "ahead" not in world.status()
    assert CONDITION not in conditions(world)


def test_labels_go_though_the_api_server_refuses_once() -> None:
    """Until they are gone the status says that they are ours."""
    world = fleet(KERNEL)
    world.settle()
    world.follow_repository(follows=False)
    decided = world.decide()
    assert Reporter(world.client).report(decided, now=world.now) == {}
    assert ready_for(world)["node-0"] == {OFFERED}
    assert "ahead" in world.status()
    world.settle()
    assert ready_for(world)["node-0"] == set()
    assert "ahead" not in world.status()


def test_labels_of_another_controller_are_left_alone() -> None:
    """It may act for drivers of other namespaces, of which this one knows nothing."""
    world = World()
    world.add_node("node-0", KERNEL)
    world.add_driver()
    label = ready_for_label(OFFERED)
    world.client.patch(NODES.path(name="node-0"), {"metadata": {"labels": {label: "true"}}})
    world.settle()
    assert ready_for(world)["node-0"] == {OFFERED}


def test_labels_go_before_the_last_driver_is_gone() -> None:
    """Nothing of it is left on the nodes, not even where a controller dies in between."""
    world = fleet(KERNEL, OTHER_KERNEL)
    world.settle()
    world.delete_driver("edu")
    for _ in range(24):
        world.reconcile(lambda _action: True)
        world.turn()
    assert set(map(str, world.nodes().values())) == {"{}"}
    assert DRIVER_CONTAINERS.path(namespace=NAMESPACE, name="edu") not in world.client.objects


def test_a_paused_driver_sets_no_label_and_looks_nothing_up() -> None:
    """What does not hold any more goes all the same."""
    world = fleet(KERNEL)
    path = DRIVER_CONTAINERS.path(namespace=NAMESPACE, name="edu")
    world.settle()
    world.client.patch(path, {"metadata": {"annotations": {"driverwright.io/pause": "true"}}})
    world.now += 3 * DAY
    world.settle()
    assert world.asked == 1
    assert ready_for(world)["node-0"] == {OFFERED}
    image = next(image for image in world.registries.images if OFFERED in image.reference)
    world.registries.answers[image] = Unreachable(message="connection refused")
    world.settle()
    assert ready_for(world)["node-0"] == set()
    world.registries.answers.clear()
    world.settle()
    assert ready_for(world)["node-0"] == set()


EVENTS: dict[str, Callable[[World], None]] = {
    "node boots the newest": lambda world: world.reboot("node-0", OFFERED),
    "node boots the oldest": lambda world: world.reboot("node-0", OTHER_KERNEL),
    "node of another series": lambda world: world.add_node("node-8", "6.12.9+deb12-cloud-amd64".replace("+", "_")),
    "node joins": lambda world: world.add_node("node-9", KERNEL),
    "source changes": lambda world: world.change_source("int y;"),
    "rebuild asked": lambda world: world.annotate_driver("edu", "1"),
    "a newer kernel": lambda world: setattr(world, "offered", (*REPOSITORY, LATER)),
    "two days": lambda world: setattr(world, "now", world.now + 2 * DAY),
    "controller killed": lambda world: world.kill(),
    "builds fail": lambda world: setattr(world, "fail_builds", 2),
}


@pytest.mark.costly
@few(5)
@given(
    st.lists(st.sampled_from([KERNEL, OTHER_KERNEL, OFFERED]), min_size=1, max_size=3),
    st.integers(1, 2),
    st.lists(st.tuples(st.sampled_from([*EVENTS]), st.integers(0, 4)), max_size=4, unique_by=lambda event: event[0]),
)
def test_whatever_happens_the_end_is_settled(kernels: list[str], drivers: int, history: list[tuple[str, int]]) -> None:
    """Kernels, repository, source and controller may change at any moment between any two passes."""
    world = fleet(*kernels, drivers=drivers)
    for name, rounds in history:
        EVENTS[name](world)
        for _ in range(rounds):
            world.reconcile()
            world.finish_builds()
            world.finish_discoveries()
            world.turn()
            world.now += 1
    world.settle()
    world.now += 2 * DAY
    world.settle()
    assert_settled(world)
    wanted = {obj.kernel_version for obj in world.observe().nodes if obj.name in world.selected()}
    assert {entry["kernel"] for entry in world.status()["targets"] if entry["state"] == "Ready"} == wanted


@pytest.mark.parametrize(
    ("kernel", "label"),
    [
        pytest.param("6.1.0-56-cloud-amd64", "6.1.0-56-cloud-amd64", id="as it is"),
        pytest.param("6.12.107+deb12-amd64", "6.12.107_deb12-amd64", id="a plus"),
        pytest.param("6.12.8+", "6.12.8_-fa48b42b", id="an end that no label can have"),
        pytest.param("5.14.0-" + "1" * 60, "5.14.0-" + "1" * 37 + "-ce68c4aa", id="too long"),
    ],
)
def test_a_label_is_named_for_its_kernel(kernel: str, label: str) -> None:
    """It is read by people and selected by tools."""
    assert ready_for_label(kernel) == f"driverwright.io/ready-for.{label}"
