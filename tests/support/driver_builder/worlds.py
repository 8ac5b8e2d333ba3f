"""A world of one node and one driver, and what was reported there."""

from kube_api.resources import DRIVER_CONTAINERS, EVENTS
from tests.support.driver_builder.factories import KERNEL, NAMESPACE
from tests.support.driver_builder.model_world import World

DRIVER_PATH = DRIVER_CONTAINERS.path(namespace=NAMESPACE, name="edu")


def small_world() -> World:
    """Make a world of one node and one driver."""
    made = World()
    made.add_node("node-a", KERNEL)
    made.add_driver()
    return made


def told(world: World, name: str = "edu") -> dict[str, int]:
    """Return the reason of each Warning on a driver, and how often it was posted."""
    where = EVENTS.path(namespace=NAMESPACE)
    return {
        obj["reason"]: obj["count"]
        for path, obj in world.client.objects.items()
        if path.startswith(where) and obj["involvedObject"]["name"] == name and obj["type"] == "Warning"
    }
