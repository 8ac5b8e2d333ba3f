"""While a driver's status cannot be written, no reconcile repeats what the status would have recorded."""

from collections.abc import Callable
from itertools import pairwise

import pytest

from driver_builder.plan.drift import RETRY
from kube_api.client import JsonPatch, Object
from kube_api.errors import Invalid, Unreachable
from kube_api.names import REBUILD_ANNOTATION
from kube_api.resources import NODES
from tests.support.driver_builder.factories import KERNEL
from tests.support.driver_builder.memory_client import MemoryClient
from tests.support.driver_builder.model_world import World
from tests.support.driver_builder.passes import reconciler
from tests.support.driver_builder.worlds import DRIVER_PATH

PASSES = 12


class NoStatus(MemoryClient):
    """An API server that takes no status while it ``refuses``, and has no answer to the next ``unanswered`` ones."""

    refuses = False
    unanswered = 0

    def patch(
        self, path: str, body: Object | JsonPatch, *, content_type: str = "application/merge-patch+json"
    ) -> Object:
        """Refuse statuses."""
        if self.unanswered and path.endswith("/status"):
            self.unanswered -= 1
            raise Unreachable("PATCH: no answer")
        if self.refuses and path.endswith("/status"):
            raise Invalid("PATCH: 422 Invalid: status is too large", status=422)
        return super().patch(path, body, content_type=content_type)


def fleet() -> World:
    """Make a world of three nodes on which a driver works, and an API server that from now on takes no status."""
    world = World()
    client = world.client = NoStatus()
    client.clock = lambda: world.now
    for name in ("a", "b", "c"):
        world.add_node(name, KERNEL)
    world.add_driver()
    world.settle()
    client.refuses = True
    return world


def pods(world: World) -> dict[str, str]:
    """Return the uid of each node's pod."""
    return {pod["spec"]["nodeName"]: pod["metadata"]["uid"] for name in "abc" for pod in world.pods_on(name)}


def pods_over(world: World, passes: int = PASSES, between: Callable[[World], None] = lambda _world: None) -> set[str]:
    """Do passes, and name all pods that node b had after each."""
    seen: set[str] = set()
    for _ in range(passes):
        between(world)
        reconciler(world, world.builds).reconcile()
        world.finish_builds()
        world.turn()
        world.turn()
        seen.add(pods(world)["b"])
        world.now += 1
    return seen


def ask(world: World) -> None:
    """Let somebody ask for a rebuild on node b."""
    world.client.patch(NODES.path(name="b"), {"metadata": {"annotations": {REBUILD_ANNOTATION: "1"}}})


@pytest.mark.parametrize("identity", ["A1B2C3", ""], ids=["same modules", "other modules"])
def test_a_nodes_request_for_a_rebuild_replaces_its_pod_at_most_once(identity: str) -> None:
    """The request is acknowledged in the status alone."""
    world = fleet()
    world.identity = identity
    before = pods(world)
    ask(world)
    assert len(pods_over(world) | {before["b"]}) <= 2
    assert {name for name, uid in pods(world).items() if uid != before[name]} <= {"b"}


def test_a_request_that_could_not_be_acknowledged_is_served_when_it_can() -> None:
    """Once, as soon as a status can be written again."""
    world = fleet()
    before = pods(world)
    ask(world)
    pods_over(world)
    assert isinstance(world.client, NoStatus)
    world.client.refuses = False
    pods_over(world)
    after = pods(world)
    assert {name for name, uid in after.items() if uid != before[name]} == {"b"}
    assert world.status()["rebuild"]["pending"] == {}


def test_a_module_that_is_removed_again_and_again_is_not_loaded_in_each_pass() -> None:
    """How often that was done is counted in the status alone."""
    world = fleet()
    before = pods(world)
    assert len(pods_over(world, between=lambda world: world.remove_module("b")) | {before["b"]}) <= 2


def test_a_module_that_was_removed_is_loaded_when_the_status_can_be_written() -> None:
    """In the next reconcile, and not again before its time."""
    world = fleet()
    before = pods(world)
    pods_over(world, between=lambda world: world.remove_module("b"))
    assert isinstance(world.client, NoStatus)
    world.client.refuses = False
    world.now += RETRY.first
    seen = pods_over(world, between=lambda world: world.remove_module("b"))
    assert len(seen - {before["b"]}) == 1
    assert world.status()["nodes"][0]["reloads"] == 1


def test_what_was_not_done_is_not_in_the_status() -> None:
    """The pass fails, so the next one comes soon, and loads the module: once, and counted once."""
    world = fleet()
    before = pods(world)
    world.remove_module("b")
    world.turn()
    assert isinstance(world.client, NoStatus)
    world.client.refuses, world.client.unanswered = False, 1
    with pytest.raises(Unreachable):
        reconciler(world, world.builds).reconcile()
    assert not world.status().get("nodes")
    world.now += 1
    reconciler(world, world.builds).reconcile()
    world.turn()
    world.turn()
    assert pods(world)["b"] != before["b"]
    assert world.status()["nodes"][0]["reloads"] == 1


def test_builds_that_fail_while_no_status_can_be_written_are_tried_less_and_less_often() -> None:
    """Their number is in the status alone, or else in the controller's memory; nothing is counted twice in the end."""
    world = fleet()
    world.change_source("int y;")
    world.fail_builds = 10**6
    started: list[float] = []
    end = world.now + 3600
    while world.now < end:
        running = set(world.builds.running)
        reconciler(world, world.builds).reconcile()
        started += [world.now for key in world.builds.running if key not in running]
        world.finish_builds()
        world.now += 30
    waits = [after - before for before, after in pairwise(started)]
    assert waits == sorted(waits)
    assert len(started) < 10
    assert isinstance(world.client, NoStatus)
    world.client.refuses = False
    reconciler(world, world.builds).reconcile()
    assert world.status()["targets"][0]["failures"] == len(started)
    assert world.builds.failed == {}


def test_the_failures_of_a_driver_that_is_gone_are_forgotten() -> None:
    """One of the same name begins anew."""
    world = fleet()
    world.change_source("int y;")
    world.fail_builds = 1
    reconciler(world, world.builds).reconcile()
    world.finish_builds()
    reconciler(world, world.builds).reconcile()
    assert world.builds.failed
    del world.client.objects[DRIVER_PATH]
    reconciler(world, world.builds).reconcile()
    assert world.builds.failed == {}


def test_nobody_waits_behind_a_request_that_cannot_be_acknowledged() -> None:
    """The nodes that nobody asked for get the new source."""
    world = fleet()
    before = pods(world)
    ask(world)
    pods_over(world)
    world.change_source("int y;")
    pods_over(world, passes=30)
    assert {name for name, uid in pods(world).items() if uid != before[name]} >= {"a", "c"}
