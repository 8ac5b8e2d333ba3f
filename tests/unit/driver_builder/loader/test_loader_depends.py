"""The order of drivers on a node: a driver that depends on another one loads once that one has."""

import shutil
import threading

import pytest

from tests.support.real_parts.loader_world import SRCVERSION, World, write

FIRST, SECOND = "team.ofed", "team.peermem"


@pytest.fixture
def world(world: World) -> World:
    """The pod of the second driver, on a node that remembers."""
    (world.root / "run/owners").mkdir(parents=True)
    world.environment |= {"DRIVER": f"{SECOND}-0a1b2c3d", "DEPENDS": f"{FIRST}:mlx-core,ib_core"}
    return world


def has_loaded(world: World, *names: str, driver: str = FIRST, state: str = "live", boot: str = "3f0b") -> None:
    """Let a driver have loaded modules."""
    for name in names:
        world.is_live(name)
        write(world.root / "run/owners" / name, f"{boot} {driver} {state}\n")


def test_nothing_is_loaded_before_what_it_depends_on(world: World) -> None:
    """The verdict names the driver and its module; nothing was touched and nothing is claimed."""
    has_loaded(world, "mlx_core")
    world.environment["BLACKLIST"] = "nouveau"
    (world.root / "modprobe.d").mkdir()
    ran = world.run("load")
    assert (ran.code, ran.verdict["result"], ran.verdict["module"]) == (1, "WaitingForDependency", "ib_core")
    assert ran.verdict["message"] == "driver team/ofed has not loaded module ib_core on this node (waited 0 s)"
    assert world.calls == []
    assert list((world.root / "modprobe.d").iterdir()) == []
    assert [file.name for file in (world.root / "run/owners").iterdir()] == ["mlx_core"]


def test_it_loads_once_the_others_have(world: World) -> None:
    """Also where their names are written with a dash, as the spec has them."""
    has_loaded(world, "mlx_core", "ib_core")
    assert world.run("load").verdict["result"] == "Loaded"


def test_it_loads_when_the_others_come_while_it_waits(world: World) -> None:
    """Without the kubelet's next start of the pod."""
    has_loaded(world, "mlx_core", "ib_core")
    hidden = world.root / "later"
    shutil.move(world.sys / "module/ib_core", hidden)
    world.environment["DEPENDS_TIMEOUT"] = "600"
    comes = threading.Timer(0.5, shutil.move, (hidden, world.sys / "module/ib_core"))
    comes.start()
    assert world.run("load").verdict["result"] == "Loaded"
    comes.join()


@pytest.mark.parametrize(
    "other",
    [
        pytest.param({"driver": "team.other"}, id="another driver's build"),
        pytest.param({"state": "990"}, id="it is being reloaded"),
        pytest.param({"boot": "0000"}, id="a record of an earlier boot"),
    ],
)
def test_a_module_that_only_has_the_name_does_not_count(world: World, other: dict[str, str]) -> None:
    """Such as the kernel's own build, which the other driver is about to replace."""
    has_loaded(world, "mlx_core")
    has_loaded(world, "ib_core", **other)
    assert world.run("load").verdict["result"] == "WaitingForDependency"


def test_the_kernels_own_build_does_not_count(world: World) -> None:
    """It is live, and no driver has loaded it."""
    has_loaded(world, "mlx_core")
    world.is_live("ib_core")
    assert world.run("load").verdict["result"] == "WaitingForDependency"


def test_what_is_loaded_stays_without_the_others(world: World) -> None:
    """A restarted pod does not wait for what its modules no longer need."""
    world.is_live("edudrv")
    world.shows("edudrv", use_irq="1")
    assert world.run("load").verdict["result"] == "Loaded"
    assert world.calls == []


def test_an_earlier_build_stays_until_the_others_are_there(world: World) -> None:
    """It makes room only when the new one can be loaded."""
    world.is_live("edudrv", srcversion="AAAA")
    assert world.run("load").verdict["result"] == "WaitingForDependency"
    assert (world.sys / "module/edudrv/srcversion").read_text() == "AAAA\n"
    has_loaded(world, "mlx_core", "ib_core")
    assert world.run("load").verdict["result"] == "Loaded"
    assert (world.sys / "module/edudrv/srcversion").read_text() == f"{SRCVERSION}\n"


def test_a_first_driver_that_its_dependent_uses_stays(world: World) -> None:
    """The new build of the first driver waits, and the verdict names the module that holds the old one."""
    world.environment["DRIVER"] = f"{FIRST}-0a1b2c3d"
    del world.environment["DEPENDS"]
    world.is_live("edudrv", srcversion="AAAA")
    world.is_live("peermem")
    world.holds("peermem", "edudrv")
    ran = world.run("load")
    assert ran.verdict["result"] == "LoadFailed"
    assert "used by modules peermem" in ran.verdict["message"]
    assert world.calls == []
