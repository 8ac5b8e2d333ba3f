"""The initial root file system of a guest: busybox, and the modules by which one kernel reaches its disk."""

from __future__ import annotations

import lzma
from collections.abc import Mapping, Sequence
from pathlib import Path

from testbed.guest import cpio
from testbed.kernels import KernelPackage

# On cloud kernels ext4 is built in and virtio is not; on others it may be the other way round. ext4 asks for the
# checksum's module by modprobe, which an initial root file system does not have.
_DISK_MODULES = ("virtio_pci", "virtio_blk", "crc32c_generic", "ext4")
_APPLETS = ("sh", "cat", "cp", "insmod", "mkdir", "mount", "poweroff", "sleep", "switch_root", "umount")
_BUSYBOX = Path("/bin/busybox")
_INIT = Path(__file__).with_name("initramfs-init.sh")


def parse_modules_dep(text: str) -> dict[str, list[str]]:
    """Return module file -> the files it needs, from modules.dep."""
    pairs = (line.split(":", 1) for line in text.splitlines() if ":" in line)
    return {module: needs.split() for module, needs in pairs}


def module_name(path: str) -> str:
    """Return the name of a module from its file: the kernel treats - and _ alike, and files may be compressed."""
    return Path(path).name.split(".ko")[0].replace("-", "_")


def load_order(dependencies: Mapping[str, Sequence[str]], wanted: Sequence[str]) -> list[str]:
    """Return the files to be inserted for the wanted modules, each after everything it needs.

    ImageTarget modules that are not there are built into the kernel. busybox's insmod resolves no dependencies.
    """
    by_name = {module_name(path): path for path in dependencies}
    order: list[str] = []

    def add(path: str) -> None:
        for need in dependencies.get(path, ()):
            add(need)
        if path not in order:
            order.append(path)

    for name in wanted:
        if name in by_name:
            add(by_name[name])
    return order


def initramfs(kernel: KernelPackage) -> bytes:
    """Return the archive for one kernel; a guest's own files are appended to it (`guest_files`)."""
    dependencies = parse_modules_dep((kernel.modules / "modules.dep").read_text())
    order = load_order(dependencies, _DISK_MODULES)
    names = [f"{module_name(path)}.ko" for path in order]
    return cpio.archive(
        [
            cpio.program("bin/busybox", _BUSYBOX.read_bytes()),
            *(cpio.link(f"bin/{applet}", "busybox") for applet in _APPLETS),
            *(cpio.folder(name) for name in ("dev", "proc", "root", "guest")),
            cpio.character_device("dev/console", 5, 1),
            cpio.character_device("dev/null", 1, 3),
            *(
                cpio.file(f"modules/{name}", read_module(kernel.modules / path))
                for name, path in zip(names, order, strict=True)
            ),
            cpio.file("modules/order", "".join(f"{name}\n" for name in names)),
            cpio.program("init", _INIT.read_bytes()),
        ]
    )


def read_module(path: Path) -> bytes:
    """Return a module of a kernel's tree, unpacked."""
    content = path.read_bytes()
    return lzma.decompress(content) if path.suffix == ".xz" else content
