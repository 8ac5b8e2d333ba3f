"""What a pass tells: statuses and Events."""

import pytest

from driver_builder.cluster.report import Reporter
from kube_api.errors import Forbidden
from kube_api.names import REBUILD_ANNOTATION
from kube_api.resources import EVENTS, NODES
from tests.unit.driver_builder.factories import KERNEL, NAMESPACE, NOW
from tests.unit.driver_builder.model_world import World
from tests.unit.driver_builder.worlds import DRIVER_PATH, small_world, told


@pytest.fixture
def world() -> World:
    """Make a world of one node and one driver."""
    return small_world()


def test_events_are_counted_when_they_repeat(world: World) -> None:
    """The same news a second time is the same Event with a higher count."""
    decided = world.decide()
    for _ in range(2):
        assert Reporter(world.client).report(decided, now=NOW) == {}
    (event,) = [obj for path, obj in world.client.objects.items() if path.startswith(EVENTS.path(namespace=NAMESPACE))]
    assert (event["reason"], event["count"], event["type"]) == ("BuildStarted", 2, "Normal")


def test_an_old_shape_of_status_is_replaced_whole(world: World) -> None:
    """Fields and rebuild entries that are no more are removed, not merged with."""
    old = {"phase": "Old", "rebuild": {"requests": {}, "tokens": {"gone": "x"}}}
    world.client.patch(DRIVER_PATH, {"status": old})
    decided = world.decide()
    decided.drivers[0].rebuilds.tokens.pop("gone")  # type: ignore[attr-defined]
    assert Reporter(world.client).report(decided, now=NOW) == {}
    status = world.client.get(DRIVER_PATH)["status"]
    assert "phase" not in status
    assert status["rebuild"]["tokens"] == {}


def test_one_status_that_cannot_be_written_does_not_keep_the_others_from_theirs(world: World) -> None:
    """Errors are gathered, a driver that is gone is none."""
    world.add_driver("other")
    decided = world.decide()
    error = Forbidden("403", status=403)
    world.client.faults = [error]
    assert Reporter(world.client).report(decided, now=NOW) == {"driverwright/edu": error}
    assert world.status("other")["targets"]
    del world.client.objects[DRIVER_PATH]
    assert Reporter(world.client).report(decided, now=NOW) == {}


def test_the_wish_of_a_node_that_is_gone_leaves_the_status(world: World) -> None:
    """The entry is removed by the patch; the token stays, and with it the image."""
    world.add_node("node-b", KERNEL)
    world.client.patch(NODES.path(name="node-b"), {"metadata": {"annotations": {REBUILD_ANNOTATION: "1"}}})
    world.settle()
    tokens, images = world.status()["rebuild"]["tokens"], dict(world.registries.images)
    assert world.status()["rebuild"]["requests"] == {"Node/node-b": "1"}
    world.remove_node("node-b")
    world.settle()
    assert world.status()["rebuild"] == {"requests": {}, "tokens": tokens}
    assert world.registries.images == images


def test_a_wrong_spec_is_told_once(world: World) -> None:
    """One Warning, not one for each pass."""
    world.client.patch(DRIVER_PATH, {"spec": {"image": "nonsense"}})
    for _ in range(3):
        world.reconcile()
    assert told(world) == {"InvalidSpec": 1}
