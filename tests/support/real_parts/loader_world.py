"""A made-up node and image for the loader: its /sys, /proc and folders, with insmod, rmmod and dmesg of our own."""

import gzip
import json
import os
import shutil
import signal
import subprocess
from contextlib import suppress
from dataclasses import dataclass
from pathlib import Path
from typing import Any

LOADER = Path(__file__).parents[3] / "driver_builder" / "loader" / "loader.sh"
SHELLS = [words for words in (["busybox", "sh"], ["dash"]) if shutil.which(words[0])]
KERNEL = "6.1.0-56-cloud-amd64"
SRCVERSION = "706CD6907A4F128854CD0ED"
BUILD_ID = "00ff0a" * 6 + "2030"
DEVICE = "0000:00:04.0"
PATIENCE = 300.0
"""Seconds: a shell on a busy machine takes its time."""

# insmod takes sysfs/module/NAME from modules-to-be/, where the test left it, or fails with the lines in refused/.
INSMOD = """#!/bin/sh
echo "insmod $*" >>"$WORLD/calls"
name=$(basename "${1%%.ko*}" | tr - _)
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
# The kernel gives the references back that the module held.
for held in "$SYSFS"/module/*/holders/"$1"; do
    [ -e "$held" ] || continue
    rm "$held"
    count=${held%/holders/*}/refcnt
    echo $(($(cat "$count") - 1)) >"$count"
done
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
        self.loader = LOADER
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
            "HOST_FIRMWARE": str(root / "firmware"),
            "HOST_MODPROBE": str(root / "modprobe.d"),
            "HOST_RUN": str(root / "run"),
            "TERMINATION_LOG": str(root / "termination-log"),
            "DEVICE_TIMEOUT": "0",
            "DEPENDS_TIMEOUT": "0",
            "HOLD_SECONDS": "0.05",
        }
        for name, text in (("insmod", INSMOD), ("rmmod", RMMOD), ("show-dmesg", DMESG)):
            write(root / name, text).chmod(0o755)
        write(root / "dmesg", "[    0.000000] Linux version 6.1\n")
        write(root / "proc/sys/kernel/osrelease", f"{KERNEL}\n")
        write(root / "proc/sys/kernel/random/boot_id", "3f0b\n")
        write(root / "proc/uptime", "1000.31 1900.02\n")
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
        """Write a modules.dep of the node itself."""
        write(self.root / "host" / KERNEL / "modules.dep", text)

    def will_load(self, name: str, *, srcversion: str = SRCVERSION, devices: list[str] | None = None) -> Path:
        """Return what insmod of this module makes of sysfs."""
        return self._module(self.root / "modules-to-be", name, srcversion, devices or [])

    def is_live(self, name: str, *, srcversion: str = SRCVERSION, refcnt: int = 0) -> Path:
        """Let a module be live before the loader comes."""
        folder = self._module(self.sys / "module", name, srcversion, [DEVICE])
        write(folder / "refcnt", f"{refcnt}\n")
        return folder

    def becomes(self, name: str, *, srcversion: str) -> None:
        """Let another build take a live module's place at once: whoever looks meanwhile sees one of both."""
        write(self.root / "other", f"{srcversion}\n").replace(self.sys / "module" / name / "srcversion")

    def goes(self, name: str) -> None:
        """Let a live module go at once: whoever looks meanwhile sees all of it, or nothing."""
        (self.sys / "module" / name).rename(self.root / f"gone-{name}")

    def holds(self, holder: str, *names: str) -> None:
        """Let a live module stand on others."""
        for name in names:
            folder = self.sys / "module" / name
            write(folder / "holders" / holder, "")
            write(folder / "refcnt", f"{int((folder / 'refcnt').read_text()) + 1}\n")

    def shows(self, name: str, **parameters: str) -> None:
        """Let a live module show parameters."""
        for parameter, value in parameters.items():
            write(self.sys / "module" / name / "parameters" / parameter, f"{value}\n")

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

    def ends_with(self, program: str) -> None:
        """Let the loader's file end with the program that decompresses zstd, as in its image."""
        packed = gzip.compress(program.encode())
        self.loader = self.root / "loader.sh"
        self.loader.write_bytes(LOADER.read_bytes() + packed + f"{len(packed):10}\n".encode())

    def start(self, *words: str) -> subprocess.Popen[str]:
        """Start the loader and leave it running."""
        argv = [*self.shell, str(self.loader), *words]
        return subprocess.Popen(
            argv,
            env=self.environment,
            text=True,
            stdout=subprocess.PIPE,
            stderr=subprocess.STDOUT,
            process_group=0,
        )

    def stop(self, process: subprocess.Popen[str]) -> int:
        """End the loader as the kubelet does, and all that it has started with it; returns its exit status.

        A child that a shell has just forked may miss its signal: outside of a container nothing else ends it.
        """
        process.send_signal(signal.SIGTERM)
        status = process.wait(timeout=PATIENCE)
        with suppress(ProcessLookupError):
            os.killpg(process.pid, signal.SIGKILL)
        return status

    def run(self, *words: str) -> Ran:
        """Run the loader to its end."""
        process = self.start(*words)
        output, _ = process.communicate(timeout=PATIENCE)
        log = self.root / "termination-log"
        return Ran(process.returncode, output, log.read_text() if log.exists() else "")

    def hold_and_stop(self) -> Ran:
        """Run `hold`, wait for its first line, end it as the kubelet does."""
        process = self.start("hold")
        assert process.stdout is not None
        first = process.stdout.readline()
        process.send_signal(signal.SIGTERM)
        rest, _ = process.communicate(timeout=PATIENCE)
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
