"""Machines of different kinds, emulated: each boots a stock kernel on the worker's own image and runs the worker.

The image's root file system is the machine's, on a virtio disk; beside it every machine has an NVMe disk with nothing
on it. Not the other way round: QEMU 7.2's NVMe sometimes loses a request while the machine below is busy.
"""

import contextlib
import json
import shutil
from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any

import docker

from testbed.command import run
from testbed.guest import cpio, emulation
from testbed.guest import disk as disks
from testbed.guest.emulation import KERNEL_PARAMETERS, QEMU
from testbed.guest.initramfs import load_order, parse_modules_dep
from testbed.kernels import KernelPackage, choose_kernels
from testbed.packages import ensure_packages
from testbed.progress import PlainLines
from testbed.testbed import Testbed
from tools import product_images

BOOT_SECONDS = 900.0
QUIET = "quiet loglevel=0"
"""Kernel parameters without which its messages would stand between the worker's."""

_BEGIN, _END = "[[document", "document]]"

# What kernel and container runtime would have set up, then what this machine's administrator did, then the worker.
INIT = """#!/bin/busybox sh
mount -t proc proc /proc
mount -t sysfs sys /sys
mount -t devtmpfs dev /dev
mount -t tmpfs tmp /tmp
mount -t selinuxfs selinux /sys/fs/selinux 2>/dev/null
for module in $(cat /modules/order); do insmod /modules/$module || echo "cannot insert $module"; done
sleep 1
{prepare}
export PATH=/opt/driverwright/bin:$PATH PYTHONDONTWRITEBYTECODE=1
{command}
poweroff -f
"""


def printing(command: str) -> str:
    """Give the shell that runs a command which prints the document of :func:`scan`."""
    return f"\necho '{_BEGIN}'\n{command}\necho\necho '{_END}'\n"


SCAN = printing("nfd-worker scan --root / --config /nfd-worker.conf --features -o json")

_BOOT_MODULES = ("virtio_pci", "virtio_blk", "nvme", "crc32c_generic", "ext4")
_BOOT_INIT = """#!/bin/busybox sh
/bin/busybox mount -t devtmpfs dev /dev
for module in $(/bin/busybox cat /modules/order); do /bin/busybox insmod /modules/$module; done
while [ ! -e /dev/vda ] || [ ! -e /dev/nvme0n1 ]; do /bin/busybox sleep 0.1; done
/bin/busybox mount -t ext4 /dev/vda /root
exec /bin/busybox switch_root /root /init
"""


@dataclass(frozen=True, slots=True, kw_only=True)
class Machine:
    """One emulated machine: QEMU's arguments, the kernel's, modules to insert, and shell to run.

    ``prepare`` comes first; ``command`` runs the worker; ``files`` are written to the disk, path to content.
    """

    arguments: Sequence[str]
    parameters: str = QUIET
    modules: Sequence[str] = ()
    prepare: str = ""
    command: str = SCAN
    files: Mapping[str, str | bytes] = field(default_factory=dict)


class WorkerDisk:
    """Makes root disks of the worker's image."""

    def __init__(self, engine: docker.APIClient, image: str, folder: Path) -> None:
        self._folder = folder
        self._tree = folder / "image"
        with _container(engine, image) as container:
            archive = folder / "image.tar"
            with archive.open("wb") as file:
                for chunk in engine.export(container):
                    file.write(chunk)
        self._tree.mkdir()
        run(["tar", "--extract", "--file", archive, "--directory", self._tree])
        archive.unlink()
        shutil.copy("/bin/busybox", self._tree / "bin/busybox")
        for applet in ("mount", "insmod", "poweroff", "sleep"):
            self._link(f"usr/local/bin/{applet}", "/bin/busybox")

    def make(self, kernel: KernelPackage, machine: Machine, worker_config: str) -> Path:
        """Make the disk for one boot."""
        tree = self._tree
        (tree / "init").write_text(INIT.format(prepare=machine.prepare, command=machine.command))
        (tree / "init").chmod(0o755)
        for path, content in {"nfd-worker.conf": worker_config, **machine.files}.items():
            # A link of the image could lead out of it, to this machine's own files.
            assert (tree / path).parent.resolve().is_relative_to(tree.resolve()), path
            (tree / path).parent.mkdir(parents=True, exist_ok=True)
            (tree / path).write_bytes(content.encode() if isinstance(content, str) else content)
        shutil.copy(kernel.config, tree / "boot" / kernel.config.name)
        modules = tree / "lib/modules" / kernel.release
        modules.mkdir(parents=True, exist_ok=True)
        shutil.copy(kernel.modules / "modules.builtin", modules)
        self._add_modules(kernel, machine.modules)
        disk = self._folder / "disk.img"
        disk.unlink(missing_ok=True)
        disks.make_file_system(tree, disk, free_mib=16)
        return disk

    def _add_modules(self, kernel: KernelPackage, names: Sequence[str]) -> None:
        folder = self._tree / "modules"
        shutil.rmtree(folder, ignore_errors=True)
        folder.mkdir()
        order = load_order(parse_modules_dep((kernel.modules / "modules.dep").read_text()), names)
        for path in order:
            shutil.copy(kernel.modules / path, folder)
        (folder / "order").write_text("".join(f"{Path(path).name}\n" for path in order))

    def _link(self, path: str, target: str) -> None:
        link = self._tree / path
        link.parent.mkdir(parents=True, exist_ok=True)
        link.unlink(missing_ok=True)
        link.symlink_to(target)


def worker_disk(ground: Testbed, folder: Path, program: str = "nfd-worker") -> WorkerDisk:
    """Build a program's image, unless it is kept, and take it apart."""
    with contextlib.closing(ground.engine.client(timeout=600)) as engine:
        images = product_images.build_all(
            engine,
            ground.registry.host,
            base_image=ground.base_image,
            say=lambda _: None,
            names=(program,),
            keep=True,
        )
        return WorkerDisk(engine, images[program], folder)


def stock_kernel() -> KernelPackage:
    """Return a cloud kernel of the distribution's own series, which is the quickest to boot."""
    ensure_packages((*disks.PACKAGES, *emulation.PACKAGES))
    return choose_kernels(2, PlainLines())[0]


@contextlib.contextmanager
def _container(engine: docker.APIClient, image: str) -> Iterator[str]:
    container = engine.create_container(image)["Id"]
    try:
        yield container
    finally:
        engine.remove_container(container)


def boot_archive(kernel: KernelPackage) -> bytes:
    """Give the initial file system with the modules that the kernel needs to reach its disk; there may be none."""
    order = load_order(parse_modules_dep((kernel.modules / "modules.dep").read_text()), _BOOT_MODULES)
    return cpio.archive(
        [
            cpio.program("bin/busybox", Path("/bin/busybox").read_bytes()),
            *(cpio.folder(name) for name in ("dev", "root")),
            cpio.character_device("dev/console", 5, 1),
            *(cpio.file(f"modules/{Path(path).name}", (kernel.modules / path).read_bytes()) for path in order),
            cpio.file("modules/order", "".join(f"{Path(path).name}\n" for path in order)),
            cpio.program("init", _BOOT_INIT),
        ]
    )


def command_line(disk: Path, kernel: KernelPackage, machine: Machine) -> list[str]:
    """Give the command that boots a machine, with its console on standard output."""
    archive = disk.with_name("boot.cpio")
    archive.write_bytes(boot_archive(kernel))
    return [
        *QEMU,
        *("-serial", "stdio", "-monitor", "none", "-kernel", str(kernel.vmlinuz), "-initrd", str(archive)),
        *("-append", f"{KERNEL_PARAMETERS} {machine.parameters}"),
        *("-drive", f"file={disk},if=none,id=root,format=raw,snapshot=on"),
        *("-device", "virtio-blk-pci,drive=root"),
        *("-drive", "driver=null-co,if=none,id=empty,size=1M,read-zeroes=on"),
        *("-device", "nvme,drive=empty,serial=empty"),
        *machine.arguments,
    ]


def scan(disk: Path, kernel: KernelPackage, machine: Machine) -> Any:
    """Boot a machine and return the JSON document that ``nfd-worker scan``, or another command, printed on it.

    The exit status of QEMU says nothing about the guest, so the document's marks on the console are what counts.
    """
    console = run(command_line(disk, kernel, machine), timeout=BOOT_SECONDS).replace("\r", "")
    _, begun, rest = console.partition(_BEGIN)
    document, ended, _ = rest.partition(_END)
    assert begun, console[-3000:]
    assert ended, console[-3000:]
    return json.loads(document)
