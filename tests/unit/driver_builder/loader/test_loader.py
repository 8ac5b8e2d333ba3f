"""The loader of the driver image against a made-up /sys, /proc and image, with insmod, rmmod and dmesg of our own."""

import errno
import json
import os
import shutil
import signal
import subprocess
import sys
import time
from collections.abc import Callable
from pathlib import Path
from typing import Any

import pytest

from tests.support.real_parts.loader_world import BUILD_ID, DEVICE, KERNEL, PATIENCE, SRCVERSION, World, write


def test_load_reports_modules_with_identity_and_devices(world: World) -> None:
    """A module that loads and binds ends in the verdict that `ready` rests on."""
    ran = world.run("load")
    assert (ran.code, ran.output) == (0, f"driverwright: Loaded: edudrv on {KERNEL}\n")
    assert ran.verdict == {
        "result": "Loaded",
        "kernel": KERNEL,
        "bootID": "3f0b",
        "modules": [{"name": "edudrv", "srcversion": SRCVERSION, "devices": [DEVICE]}],
    }
    assert world.calls == ["insmod edudrv.ko use_irq=1"]


def test_load_does_not_touch_another_kernel(world: World) -> None:
    """On another kernel the pod says so once and succeeds, so that it does not crash-loop while labels catch up."""
    world.image(["edudrv"], kernel="6.12.117+deb12-cloud-amd64")
    ran = world.run("load")
    assert ran.code == 0
    assert ran.output.count("\n") == 1
    assert ran.verdict == {
        "result": "WrongKernel",
        "kernel": KERNEL,
        "bootID": "3f0b",
        "builtFor": "6.12.117+deb12-cloud-amd64",
    }
    assert world.calls == []


def test_an_image_that_0_1_made_of_another_kernels_is_loaded(world: World) -> None:
    """Its modules lie below the other kernel's release, and its own is a link."""
    modules = world.root / "image/lib/modules"
    (modules / KERNEL).rename(modules / "6.1.0-54-amd64")
    (modules / KERNEL).symlink_to("6.1.0-54-amd64")
    assert world.run("load").verdict["result"] == "Loaded"
    assert world.calls == ["insmod edudrv.ko use_irq=1"]


def test_load_adopts_the_same_module(world: World) -> None:
    """A module that is live already, with the same identity, is not loaded again."""
    world.is_live("edudrv", refcnt=3)
    ran = world.run("load")
    assert ran.verdict["result"] == "Loaded"
    assert world.calls == []


def test_load_replaces_another_build(world: World) -> None:
    """A live module with another identity is unloaded before ours is loaded."""
    world.is_live("edudrv", srcversion="AAAA")
    ran = world.run("load")
    assert ran.verdict["modules"][0]["srcversion"] == SRCVERSION
    assert world.calls == ["rmmod edudrv", "insmod edudrv.ko use_irq=1"]


@pytest.mark.parametrize(
    ("lines", "message"),
    [
        pytest.param(
            ["edudrv: disagrees about version of symbol module_layout"],
            "edudrv: disagrees about version of symbol module_layout",
            id="the kernel names the module",
        ),
        pytest.param(
            ["Loading of unsigned module is rejected"],
            "Loading of unsigned module is rejected",
            id="the kernel does not name it",
        ),
        pytest.param(
            ["edudrv: version magic '6.1 \"\\\\' should be\t\x1b[31m6.2\xff"],
            "edudrv: version magic '6.1 \"\\\\' should be [31m6.2",
            id="quotes, backslashes, control characters and no ASCII",
        ),
        pytest.param(
            ["edudrv: Unknown symbol misc_register (err -22)", "edudrv: loading out-of-tree module taints kernel."],
            "edudrv: Unknown symbol misc_register (err -22)",
            id="the taint is not the reason",
        ),
        pytest.param(
            ["eth0: link is up"],
            "invalid module format",
            id="the kernel says nothing of it: what insmod said",
        ),
    ],
)
def test_load_failure_carries_the_kernels_own_sentence(world: World, lines: list[str], message: str) -> None:
    """What the kernel logged about the refusal is the message of a verdict that is always JSON."""
    write(world.root / "dmesg", "[    1.0] edudrv: an older sentence about it\n")
    world.refuses("edudrv", *lines)
    ran = world.run("load")
    assert (ran.code, ran.verdict["result"]) == (1, "LoadFailed")
    assert ran.verdict["message"].endswith(message)


def test_load_without_device_is_no_success(world: World) -> None:
    """A driver for a bus that announces its devices must have bound one."""
    world.will_load("edudrv", devices=[])
    ran = world.run("load")
    assert (ran.code, ran.verdict["result"], ran.verdict["module"]) == (1, "NoDevice", "edudrv")


def test_load_waits_for_a_late_device(world: World) -> None:
    """A device that binds a moment later is waited for."""
    world.will_load("edudrv", devices=[])
    world.environment["DEVICE_TIMEOUT"] = "600"
    process = world.start("load")
    while not (world.sys / "module/edudrv").exists() and process.poll() is None:
        time.sleep(0.02)
    world.bind("edudrv", DEVICE)
    process.communicate(timeout=PATIENCE)
    assert process.returncode == 0


def test_load_without_bus_needs_no_device(world: World) -> None:
    """A module that drives no bus is proven by being live."""
    world.image(["edudrv"], needs_device=False)
    world.will_load("edudrv", devices=[])
    assert world.run("load").verdict["modules"][0]["devices"] == []


def test_load_identifies_a_module_without_srcversion_by_its_build_id(world: World) -> None:
    """A module without MODULE_VERSION has no srcversion: its ELF note says which build it is."""
    write(world.root / "image/driver/identities", f"edudrv buildID {BUILD_ID}\n")
    folder = world.will_load("edudrv", devices=[DEVICE])
    (folder / "srcversion").unlink()
    (folder / "notes").mkdir()
    header = (4).to_bytes(4, sys.byteorder) + (20).to_bytes(4, sys.byteorder) + (3).to_bytes(4, sys.byteorder)
    (folder / "notes/.note.gnu.build-id").write_bytes(header + b"GNU\0" + bytes.fromhex(BUILD_ID))
    assert world.run("load").verdict["modules"] == [{"name": "edudrv", "buildID": BUILD_ID, "devices": [DEVICE]}]


def test_load_refuses_a_module_that_is_not_the_images(world: World) -> None:
    """What is live after insmod must be what the image says."""
    world.will_load("edudrv", srcversion="BBBB", devices=[DEVICE])
    ran = world.run("load")
    assert ran.verdict["message"] == f"module edudrv is loaded with srcversion BBBB; the image's has {SRCVERSION}"


def test_load_takes_dependencies_from_image_then_node(world: World) -> None:
    """Dependencies come first, the farthest first, from the image where it has them and else from the node."""
    write(world.root / "image/driver/depends", "edudrv edu-core videodev\n")
    dep = "updates/edu-core.ko:\nupdates/edudrv.ko: updates/edu-core.ko\n"
    write(world.root / "image/lib/modules" / KERNEL / "modules.dep", dep)
    world.host_modules(
        "kernel/media/videodev.ko: kernel/media/mc.ko kernel/i2c/i2c-core.ko\n"
        "kernel/media/mc.ko:\nkernel/i2c/i2c-core.ko:\n"
    )
    for name in ("edu_core", "videodev", "mc"):
        world.will_load(name)
    world.is_live("i2c_core")
    ran = world.run("load")
    assert ran.verdict["result"] == "Loaded"
    assert world.calls == ["insmod edu-core.ko", "insmod mc.ko", "insmod videodev.ko", "insmod edudrv.ko use_irq=1"]


def test_load_names_a_dependency_that_is_nowhere(world: World) -> None:
    """A missing dependency is named, instead of leaving it to an unknown symbol."""
    write(world.root / "image/driver/depends", "edudrv videodev\n")
    ran = world.run("load")
    assert ran.verdict["message"].startswith("module edudrv needs module videodev, which is not loaded")
    assert world.calls == []


def test_load_finds_names_with_hyphens(world: World) -> None:
    """A file may have hyphens where the kernel has underscores."""
    world.image(["edu-driver use_irq=0"])
    ran = world.run("load")
    assert ran.verdict["modules"][0]["name"] == "edu-driver"
    assert world.calls == ["insmod edu-driver.ko use_irq=0"]


def test_load_never_evaluates_values(world: World, tmp_path: Path) -> None:
    """Parameters are words: neither commands nor patterns of file names."""
    world.image([f"edudrv a=$(touch$IFS{tmp_path}/evil) b=`reboot` c=* d=[a-z]*"])
    world.run("load")
    assert not (tmp_path / "evil").exists()
    assert world.calls[0].endswith("b=`reboot` c=* d=[a-z]*")


def test_verdict_fits_into_a_termination_message(world: World) -> None:
    """The kubelet keeps 4096 bytes: with many devices the verdict names fewer of them, but every module."""
    names = [f"edu_driver_number_{number:02}" for number in range(20)]
    world.image(names)
    for name in names:
        world.will_load(name, devices=[f"0000:{name[-2:]}:{slot:02x}.0" for slot in range(16)])
    ran = world.run("load")
    assert len(ran.termination) <= 4096
    assert [module["name"] for module in ran.verdict["modules"]] == names
    assert all(0 < len(module["devices"]) < 16 for module in ran.verdict["modules"])


def test_probe_is_ready_after_load(world: World) -> None:
    """What was just proven is ready, without a word."""
    world.run("load")
    ran = world.run("probe")
    assert (ran.code, ran.output) == (0, "")


@pytest.mark.parametrize(
    ("spoil", "reason"),
    [
        pytest.param(lambda world: shutil.rmtree(world.sys / "module/edudrv"), "is not loaded", id="unloaded"),
        pytest.param(lambda world: world.is_live("edudrv", srcversion="AAAA"), "a different build", id="replaced"),
        pytest.param(
            lambda world: (world.root / "devices" / DEVICE / "driver").unlink(), "no device is bound", id="unbound"
        ),
        pytest.param(
            lambda world: write(world.sys / "module/edudrv/initstate", "going\n"), "is not loaded", id="going away"
        ),
        pytest.param(
            lambda world: write(world.root / "proc/sys/kernel/osrelease", "6.2\n"), "image is for", id="other kernel"
        ),
    ],
)
def test_probe_is_unready_with_a_reason(world: World, spoil: Any, reason: str) -> None:
    """Readiness follows the kernel's own state, with one line that says why."""
    world.run("load")
    spoil(world)
    ran = world.run("probe")
    assert ran.code == 1
    assert reason in ran.output
    assert ran.output.count("\n") == 1


def test_hold_leaves_everything_when_its_pod_ends(world: World) -> None:
    """A pod cannot tell a restart from a removal: the next one's `load` makes room, and `unload` takes modules away."""
    world.run("load")
    before = world.calls
    ran = world.hold_and_stop()
    assert (ran.code, ran.output) == (0, f"driverwright: holding edudrv on {KERNEL} until SIGTERM\n")
    assert world.calls == before


@pytest.mark.parametrize(
    ("spoil", "result", "message"),
    [
        pytest.param(lambda world: world.goes("edudrv"), "NotLive", "module edudrv is not loaded", id="unloaded"),
        pytest.param(
            lambda world: world.becomes("edudrv", srcversion="AAAA"),
            "OtherBuild",
            "module edudrv is a different build from this image's",
            id="replaced",
        ),
        pytest.param(
            lambda world: (world.root / "devices" / DEVICE / "driver").unlink(),
            "NoDevice",
            "no device is bound to module edudrv",
            id="unbound",
        ),
    ],
)
def test_hold_ends_with_a_verdict_when_the_driver_is_gone(world: World, spoil: Any, result: str, message: str) -> None:
    """It is evidence from the node, unlike a probe without an answer."""
    world.run("load")
    process = world.start("hold")
    assert process.stdout is not None
    process.stdout.readline()
    spoil(world)
    rest, _ = process.communicate(timeout=PATIENCE)
    assert (process.returncode, rest) == (1, f"driverwright: {result}: {message}\n")
    assert json.loads((world.root / "termination-log").read_text()) == {
        "result": result,
        "kernel": KERNEL,
        "bootID": "3f0b",
        "module": "edudrv",
        "message": message,
    }


def test_a_device_that_is_away_for_a_moment_is_no_evidence(world: World) -> None:
    """It is bound anew: what hold says was seen twice in a row."""
    world.run("load")
    bound = world.root / "devices" / DEVICE / "driver"
    driver = bound.readlink()
    process = world.start("hold")
    try:
        assert process.stdout is not None
        process.stdout.readline()
        shown = world.sys / "module/edudrv/srcversion"
        pipe(world).replace(shown)
        for act in (bound.unlink, lambda: bound.symlink_to(driver)) * 2:
            at_the_next_look(world, process, act, pipe(world))
        at_the_next_look(world, process, lambda: None, write(world.root / "as-it-was", f"{SRCVERSION}\n"))
        process.send_signal(signal.SIGTERM)
        process.communicate(timeout=PATIENCE)
    finally:
        process.kill()
    assert process.returncode == 0


def pipe(world: World) -> Path:
    """Make a pipe."""
    made = world.root / "pipe"
    os.mkfifo(made)
    return made


def at_the_next_look(world: World, process: subprocess.Popen[str], act: Callable[[], object], after: Path) -> None:
    """Act as soon as ``hold`` looks at the module: its identity is a pipe, and the device comes after it.

    For the looks ``after`` this one, another file has the identity.
    """
    shown = world.sys / "module/edudrv/srcversion"
    while True:
        assert process.poll() is None
        try:
            writer = os.open(shown, os.O_WRONLY | os.O_NONBLOCK)
            break
        except OSError as error:
            assert error.errno == errno.ENXIO  # noqa: PT017 - nobody reads it yet
        time.sleep(0.01)
    act()
    after.replace(shown)
    with os.fdopen(writer, "w") as identity:
        identity.write(f"{SRCVERSION}\n")


def test_hold_waits_on_another_kernel(world: World) -> None:
    """On another kernel the pod stays up and unready, and touches nothing when it ends."""
    world.image(["edudrv"], kernel="6.12.117+deb12-cloud-amd64")
    world.is_live("edudrv")
    ran = world.hold_and_stop()
    assert (ran.code, ran.output.count("\n")) == (0, 1)
    assert world.calls == []


@pytest.mark.parametrize(
    ("words", "message"),
    [
        pytest.param([], "usage: ", id="no command"),
        pytest.param(["leave"], "usage: ", id="unknown command"),
        pytest.param(["unload"], "unload needs DRIVER and BOOT_ID", id="without a driver"),
    ],
)
def test_wrong_usage_is_said(world: World, words: list[str], message: str) -> None:
    """A wrong call ends with 2."""
    ran = world.run(*words)
    assert ran.code == 2
    assert message in ran.output


def test_an_image_without_data_is_said(world: World) -> None:
    """An image that was not built by the template does not pass for one."""
    (world.root / "image/driver/kernel").unlink()
    ran = world.run("load")
    assert ran.code == 2
    assert "driver/kernel cannot be read" in ran.output


def test_a_verdict_that_cannot_be_left_is_said(world: World) -> None:
    """Run by hand there is no termination log: the verdict is on standard output then."""
    world.environment["TERMINATION_LOG"] = str(world.root / "no/such/folder/log")
    ran = world.run("load")
    assert ran.code == 0
    assert '{"result":"Loaded"' in ran.output
