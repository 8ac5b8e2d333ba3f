"""The device nodes of ``spec.validation.deviceNodes``: ``load`` waits for them, ``hold`` and ``probe`` see them go."""

import json
import os
import time

import pytest

from tests.support.real_parts.loader_world import DEVICE, KERNEL, PATIENCE, World

MISSING = "device node /dev/dri/edu0 is missing"


@pytest.fixture
def nodes(world: World) -> World:
    """Return a node on which ``/dev/null`` is there, and a driver that expects another one as well."""
    world.environment["HOST_DEV"] = str(world.root / "dev")
    world.environment["DEVICE_NODES"] = "/dev/null /dev/dri/edu0"
    (world.root / "dev/dri").mkdir(parents=True)
    (world.root / "dev/null").symlink_to("/dev/null")
    return world


def make(world: World) -> None:
    """Let the expected device node be there: a link to one is as good."""
    (world.root / "dev/dri/edu0").symlink_to(os.devnull)


def remove(world: World) -> None:
    """Let it go."""
    (world.root / "dev/dri/edu0").unlink()


def test_load_proves_the_driver_where_they_are_there(nodes: World) -> None:
    """The load report is as without them."""
    make(nodes)
    ran = nodes.run("load")
    assert (ran.code, ran.verdict["result"], ran.verdict["modules"][0]["devices"]) == (0, "Loaded", [DEVICE])
    assert nodes.run("probe").code == 0


@pytest.mark.parametrize("is_file", [False, True], ids=["nothing", "no device"])
def test_load_without_one_is_no_success(nodes: World, is_file: bool) -> None:
    """It names the device node, and leaves the modules loaded."""
    if is_file:
        (nodes.root / "dev/dri/edu0").write_text("")
    ran = nodes.run("load")
    assert (ran.code, ran.verdict["result"], ran.verdict["module"]) == (1, "DeviceNodeMissing", "edudrv")
    assert ran.verdict["message"] == (
        "the modules are loaded, but device node /dev/dri/edu0 of spec.validation.deviceNodes is missing (waited 0 s)"
    )
    assert (nodes.sys / "module/edudrv").exists()


def test_load_waits_for_a_late_one(nodes: World) -> None:
    """As for a device that binds a moment later."""
    nodes.environment["DEVICE_TIMEOUT"] = "600"
    process = nodes.start("load")
    while not (nodes.sys / "module/edudrv").exists() and process.poll() is None:
        time.sleep(0.02)
    make(nodes)
    process.communicate(timeout=PATIENCE)
    assert process.returncode == 0


def test_hold_and_probe_report_that_one_is_gone(nodes: World) -> None:
    """It is evidence from the node."""
    make(nodes)
    nodes.run("load")
    process = nodes.start("hold")
    assert process.stdout is not None
    process.stdout.readline()
    remove(nodes)
    rest, _ = process.communicate(timeout=PATIENCE)
    assert (process.returncode, rest) == (1, f"driverwright: DeviceNodeMissing: {MISSING}\n")
    verdict = json.loads((nodes.root / "termination-log").read_text())
    expected = {"result": "DeviceNodeMissing", "kernel": KERNEL, "bootID": "3f0b", "module": "edudrv"}
    assert verdict == {**expected, "message": MISSING}
    ran = nodes.run("probe")
    assert (ran.code, ran.output) == (1, f"driverwright: {MISSING}\n")
