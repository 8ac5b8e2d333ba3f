"""What a removal leaves to another driver that has loaded the same modules."""

from dataclasses import replace

import pytest

from driver_builder.nodes.plan_view import DriverView
from driver_builder.objects import loaded
from driver_builder.objects.loaded import Load
from driver_builder.plan import unload_step
from kube_api.resources import NODES
from tests.support.driver_builder.factories import NAMESPACE
from tests.support.driver_builder.model_world import World
from tests.support.driver_builder.removals import fleet, is_gone, memory, rounds


def share(world: World, **changes: object) -> None:
    """Let another driver have loaded the same modules on the node."""
    known = memory(world)
    assert known is not None
    other = {loaded.annotation(f"{NAMESPACE}/other"): loaded.render(replace(known, **changes))}  # type: ignore[arg-type]
    world.client.patch(NODES.path(name="node-0"), {"metadata": {"annotations": other}})


def test_a_module_that_another_driver_has_too_stays() -> None:
    """It works for the other one: only what is of this driver alone is taken."""
    world = fleet()
    share(world)
    before = dict(world.live["node-0"])
    world.delete_driver("edu")
    rounds(world, 60)
    assert is_gone(world)
    assert before
    assert world.live["node-0"] == before


def with_firmware(load: Load, place: str, there: bool) -> Load:
    """Return a load that has firmware in one of the two places, or not."""
    return replace(load, firmware=there) if place == "firmware" else replace(load, var_firmware=there)


@pytest.mark.parametrize("place", ["firmware", "var_firmware"])
@pytest.mark.parametrize("has_firmware", [True, False])
def test_firmware_of_shared_modules_stays_where_both_have_some(has_firmware: bool, place: str) -> None:
    """The other driver may have found its files there, and written none."""
    world = fleet()
    known = memory(world)
    assert known is not None
    share(world, loads=(with_firmware(known.loads[0], place, has_firmware),))
    view = DriverView.of(world.observe(), world.read_driver(), world.settings)
    pod = unload_step.start(view, view.nodes["node-0"], with_firmware(known.loads[0], place, True)).manifest
    has_folder = place.replace("_", "-") in [volume["name"] for volume in pod["spec"]["volumes"]]
    assert has_folder is not has_firmware


def test_a_module_of_two_drivers_that_both_go_is_unloaded() -> None:
    """The other one keeps nothing that it leaves itself."""
    world = fleet()
    share(world, unload_since=1)
    world.delete_driver("edu")
    rounds(world, 60)
    assert is_gone(world)
    assert world.live["node-0"] == {}
