"""Model worlds in which a driver leaves nodes, and what the tests read of them."""

from driver_builder.objects import loaded
from driver_builder.tasks import unload_pod
from kube_api.client import Object
from kube_api.resources import NODES, PODS
from tests.support.driver_builder.factories import KERNEL, NAMESPACE
from tests.support.driver_builder.model_world import World
from tests.support.driver_builder.worlds import DRIVER_PATH

MEMORY = loaded.annotation(f"{NAMESPACE}/edu")
READY = f"driverwright.io/{NAMESPACE}.edu.ready"


def fleet(*kernels: str) -> World:
    """Make a world with a node for each kernel, and a driver that is loaded on all of them."""
    world = World()
    for number, kernel in enumerate(kernels or (KERNEL,)):
        world.add_node(f"node-{number}", kernel)
    world.add_driver()
    world.settle()
    assert all(world.live.values())
    return world


def memory(world: World, node: str = "node-0") -> loaded.Loaded | None:
    """Read a Node's record of the driver."""
    return loaded.parse(world.client.get(NODES.path(name=node))["metadata"]["annotations"].get(MEMORY))


def unload_pods(world: World) -> list[Object]:
    """Return the unload pods."""
    return world.client.list(PODS.path(namespace=NAMESPACE), label_selector=unload_pod.UNLOAD.label).items


def condition(world: World) -> Object:
    """Return the condition ``Unloading``, empty without one."""
    return next((item for item in world.status()["conditions"] if item["type"] == "Unloading"), {})


def events(world: World) -> dict[str, str]:
    """Return the last message of each reason."""
    return {obj["reason"]: obj["message"] for path, obj in world.client.objects.items() if "/events/" in path}


def is_gone(world: World) -> bool:
    """Return whether the DriverContainer is gone."""
    return DRIVER_PATH not in world.client.objects


def rounds(world: World, seconds: float, step: float = 5.0) -> None:
    """Let time pass, with a reconcile at each step."""
    until = world.now + seconds
    while world.now < until and not is_gone(world):
        world.reconcile()
        world.finish_builds()
        world.turn()
        world.now += step


def skip(world: World) -> None:
    """Let the admin skip the kernel."""
    world.client.patch(DRIVER_PATH, {"spec": {"kernelMappings": [{"regexp": ".*", "skip": True}]}})
