"""The loader of the driver image against a made-up /sys, /proc and image, with insmod, rmmod and dmesg of our own."""

import json
import os
import shutil
import signal
import subprocess
import sys
import time
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import pytest

LOADER = Path(__file__).parents[3] / "driver_builder" / "driver_image" / "loader.sh"
SHELLS = [words for words in (["busybox", "sh"], ["dash"]) if shutil.which(words[0])]
KERNEL = "6.1.0-56-cloud-amd64"
SRCVERSION = "706CD6907A4F128854CD0ED"
BUILD_ID = "00ff0a" * 6 + "2030"
DEVICE = "0000:00:04.0"

pytestmark = pytest.mark.skipif(not SHELLS, reason="neither busybox nor dash is here: apt-get install busybox-static")

# insmod takes sysfs/module/NAME from modules-to-be/, where the test left it, or fails with the lines in refused/.
INSMOD = """#!/bin/sh
echo "insmod $*" >>"$WORLD/calls"
name=$(basename "$1" .ko | tr - _)
if [ -e "$WORLD/refused/$name" ]; then
    cat "$WORLD/refused/$name" >>"$WORLD/dmesg"
    echo "insmod: can't insert '$1': invalid module format" >&2
    exit 1
fi
mkdir -p "$SYSFS/module"
cp -a "$WORLD/modules-to-be/$name" "$SYSFS/module/$name"
"""
RMMOD = """#!/bin/sh
echo "rmmod $*" >>"$WORLD/calls"
if [ "$(cat "$SYSFS/module/$1/refcnt")" != 0 ]; then
    echo "rmmod: can't unload module '$1': Resource temporarily unavailable" >&2
    exit 1
fi
rm -r "$SYSFS/module/$1"
"""
DMESG = """#!/bin/sh
cat "$WORLD/dmesg"
"""


@dataclass(frozen=True)
class Ran:
    """What one run of the loader left behind."""

    code: int
    output: str
    termination: str

    @property
    def verdict(self) -> Any:
        """The termination message, which must always be JSON."""
        return json.loads(self.termination)


class World:
    """A node, an image, and the loader between them."""

    def __init__(self, root: Path, shell: list[str]) -> None:
        self.root = root
        self.shell = shell
        self.sys = root / "sys"
        self.environment = {
            "PATH": os.environ["PATH"],
            "INSMOD": f"{root}/insmod",
            "RMMOD": f"{root}/rmmod",
            "DMESG": f"{root}/show-dmesg",
            "WORLD": str(root),
            "SYSFS": str(self.sys),
            "PROC": str(root / "proc"),
            "DRIVER_ROOT": str(root / "image"),
            "HOST_MODULES": str(root / "host"),
            "TERMINATION_LOG": str(root / "termination-log"),
            "DEVICE_TIMEOUT": "0",
        }
        for name, text in (("insmod", INSMOD), ("rmmod", RMMOD), ("show-dmesg", DMESG)):
            write(root / name, text).chmod(0o755)
        write(root / "dmesg", "[    0.000000] Linux version 6.1\n")
        write(root / "proc/sys/kernel/osrelease", f"{KERNEL}\n")
        write(root / "proc/sys/kernel/random/boot_id", "3f0b\n")
        self.image(["edudrv use_irq=1"])

    def image(self, modules: list[str], *, kernel: str = KERNEL, needs_device: bool = True) -> None:
        """Lay out an image with these lines of /driver/modules; each module is in updates/."""
        names = [line.split()[0] for line in modules]
        driver = self.root / "image/driver"
        write(driver / "kernel", f"{kernel}\n")
        write(driver / "modules", "".join(f"{line}\n" for line in modules))
        write(driver / "identities", "".join(f"{name} srcversion {SRCVERSION}\n" for name in names))
        write(driver / "needs-device", f"{names[-1]}\n" if needs_device else "")
        write(driver / "depends", "".join(f"{name}\n" for name in names))
        dep = "".join(f"updates/{name}.ko:\n" for name in names)
        write(self.root / "image/lib/modules" / kernel / "modules.dep", dep)
        for name in names:
            self.will_load(name, devices=[DEVICE] if name == names[-1] else [])

    def host_modules(self, text: str) -> None:
        """Give the node a modules.dep of its own."""
        write(self.root / "host" / KERNEL / "modules.dep", text)

    def will_load(self, name: str, *, srcversion: str = SRCVERSION, devices: list[str] | None = None) -> Path:
        """Say what insmod of this module makes of sysfs."""
        return self._module(self.root / "modules-to-be", name, srcversion, devices or [])

    def is_live(self, name: str, *, srcversion: str = SRCVERSION, refcnt: int = 0) -> Path:
        """Let a module be live before the loader comes."""
        folder = self._module(self.sys / "module", name, srcversion, [DEVICE])
        write(folder / "refcnt", f"{refcnt}\n")
        return folder

    def _module(self, parent: Path, name: str, srcversion: str, devices: list[str]) -> Path:
        folder = parent / name.replace("-", "_")
        shutil.rmtree(folder, ignore_errors=True)
        write(folder / "initstate", "live\n")
        write(folder / "srcversion", f"{srcversion}\n")
        write(folder / "refcnt", "0\n")
        driver = self.root / "drivers" / name
        write(driver / "bind", "")
        (folder / "drivers").mkdir()
        (folder / f"drivers/pci:{name}").symlink_to(driver)
        for link in [*driver.glob("0000*"), driver / "module"]:
            link.unlink(missing_ok=True)
        (driver / "module").symlink_to(folder)
        for device in devices:
            self.bind(name, device)
        return folder

    def bind(self, name: str, device: str) -> None:
        """Let a device be bound to the driver of a module."""
        driver, place = self.root / "drivers" / name, self.root / "devices" / device
        place.mkdir(parents=True, exist_ok=True)
        (place / "driver").unlink(missing_ok=True)
        (place / "driver").symlink_to(driver)
        (driver / device).symlink_to(place)

    def refuses(self, name: str, *kernel_lines: str) -> None:
        """Let insmod of this module fail, with these lines in the kernel's log."""
        lines = "".join(f"[   12.345678] {line}\n" for line in kernel_lines)
        write(self.root / "refused" / name, lines)

    def start(self, *words: str) -> subprocess.Popen[str]:
        """Start the loader and leave it running."""
        argv = [*self.shell, str(LOADER), *words]
        return subprocess.Popen(argv, env=self.environment, text=True, stdout=subprocess.PIPE, stderr=subprocess.STDOUT)

    def run(self, *words: str) -> Ran:
        """Run the loader to its end."""
        process = self.start(*words)
        output, _ = process.communicate(timeout=60)
        log = self.root / "termination-log"
        return Ran(process.returncode, output, log.read_text() if log.exists() else "")

    def hold_and_stop(self) -> Ran:
        """Run `hold`, wait for its first line, end it as the kubelet does."""
        process = self.start("hold")
        assert process.stdout is not None
        first = process.stdout.readline()
        process.send_signal(signal.SIGTERM)
        rest, _ = process.communicate(timeout=20)
        return Ran(process.returncode, first + rest, "")

    @property
    def calls(self) -> list[str]:
        """The insmod and rmmod calls so far, with file names only."""
        log = self.root / "calls"
        lines = log.read_text().splitlines() if log.exists() else []
        return [" ".join(word.rsplit("/", 1)[-1] for word in line.split(" ")) for line in lines]


def write(path: Path, text: str) -> Path:
    """Write a file and the folders above it."""
    path.parent.mkdir(parents=True, exist_ok=True)
    path.write_text(text)
    return path


@pytest.fixture(params=SHELLS, ids=lambda words: str(words[0]))
def world(request: pytest.FixtureRequest, tmp_path: Path) -> World:
    """Return a node without the driver and an image with edudrv for its kernel."""
    return World(tmp_path, request.param)


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


def test_load_says_who_uses_another_build(world: World) -> None:
    """A live module that cannot be replaced is a failure that says how many users it has."""
    folder = world.is_live("edudrv", srcversion="AAAA", refcnt=2)
    write(folder / "holders" / "edu_net", "")
    ran = world.run("load")
    assert (ran.code, ran.verdict["result"], ran.verdict["module"]) == (1, "LoadFailed", "edudrv")
    assert "is in use (refcnt 2, used by edu_net)" in ran.verdict["message"]
    assert world.calls == ["rmmod edudrv"]


def test_load_clears_what_stands_on_another_build(world: World) -> None:
    """To replace the first of two modules, the second goes first, although it is ours."""
    world.image(["edu_core", "edudrv"])
    world.is_live("edu_core", srcversion="AAAA")
    world.is_live("edudrv")
    ran = world.run("load")
    assert ran.verdict["result"] == "Loaded"
    assert world.calls == ["rmmod edudrv", "rmmod edu_core", "insmod edu_core.ko", "insmod edudrv.ko"]


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
    world.environment["DEVICE_TIMEOUT"] = "10"
    process = world.start("load")
    deadline = time.monotonic() + 10
    while not (world.sys / "module/edudrv").exists() and time.monotonic() < deadline:
        time.sleep(0.02)
    world.bind("edudrv", DEVICE)
    process.communicate(timeout=20)
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
    assert ran.verdict["message"] == f"module edudrv is live with srcversion BBBB, the image's has {SRCVERSION}"


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
        world.will_load(name, devices=[f"0000:{name[-2:]}:{slot:02x}.0" for slot in range(32)])
    ran = world.run("load")
    assert len(ran.termination) <= 4096
    assert [module["name"] for module in ran.verdict["modules"]] == names


def test_probe_is_ready_after_load(world: World) -> None:
    """What was just proven is ready, without a word."""
    world.run("load")
    ran = world.run("probe")
    assert (ran.code, ran.output) == (0, "")


@pytest.mark.parametrize(
    ("spoil", "reason"),
    [
        pytest.param(lambda world: shutil.rmtree(world.sys / "module/edudrv"), "is not loaded", id="unloaded"),
        pytest.param(lambda world: world.is_live("edudrv", srcversion="AAAA"), "another build", id="replaced"),
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


def test_hold_unloads_in_reverse_order(world: World) -> None:
    """At the pod's end our modules go, the last loaded first."""
    world.image(["edu_core", "edudrv"])
    world.run("load")
    ran = world.hold_and_stop()
    assert ran.code == 0
    assert world.calls[-2:] == ["rmmod edudrv", "rmmod edu_core"]


def test_hold_leaves_a_module_in_use(world: World) -> None:
    """A module in use stays, which is said; the pod ends all the same."""
    world.is_live("edudrv", refcnt=1)
    ran = world.hold_and_stop()
    assert ran.code == 0
    assert "module edudrv is in use (refcnt 1)" in ran.output


def test_hold_leaves_what_is_not_ours(world: World) -> None:
    """A module that somebody else loaded meanwhile is none of our business."""
    world.is_live("edudrv", srcversion="AAAA")
    assert world.hold_and_stop().code == 0
    assert world.calls == []


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
        pytest.param([], "say what to do", id="no command"),
        pytest.param(["unload"], "say what to do", id="unknown command"),
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
