"""Disk images: a template with a Debian release's root file system, cached, and sparse copies of it."""

from __future__ import annotations

import hashlib
from collections.abc import Sequence
from pathlib import Path

from testbed import containerd
from testbed.cache import cached_folder, forget_old
from testbed.command import run
from testbed.guest import root_tree
from testbed.kernels import KernelPackage
from testbed.kube_binaries import KubeBinaries
from testbed.kube_release import DOCKERSHIM_UNTIL
from testbed.packages import refreshed_apt
from testbed.progress import Progress, Step

PACKAGES = ("e2fsprogs", "kmod", "busybox-static")
_FREE_MIB = 768
_RECIPE = Path(root_tree.__file__).read_bytes()
_TEMPLATES_KEPT = 6


def ensure_root_disk(binaries: KubeBinaries, kernels: Sequence[KernelPackage], progress: Progress) -> Path:
    """Return the template of guests' first disk: the system that the kernels are of, which can boot each of them."""
    (codename,) = {kernel.codename for kernel in kernels}
    with progress.step(f"Provide the disk of guests with {codename} ({len(kernels)} kernels)") as step:
        apt = refreshed_apt(codename)
        programs = _programs(binaries, step)
        packages = root_tree.packages_with_versions(apt, own_containerd=len(programs) > 1)
        trees = sorted(kernel.tree.name for kernel in kernels)
        inputs = (sorted(packages.items()), binaries.release, sorted(map(str, programs)), trees, _RECIPE)
        name = f"guest-disks/{hashlib.sha256(repr(inputs).encode()).hexdigest()[:16]}"

        def make(folder: Path) -> None:
            root_tree.make_root_tree(
                folder / "root", apt=apt, packages=list(packages), programs=programs, kernels=kernels, step=step
            )
            step.detail("writing the file system")
            make_file_system(folder / "root", folder / "disk.img", free_mib=_FREE_MIB)
            run(["rm", "-rf", folder / "root", folder / "debs"])

        template = cached_folder(name, make, step)
        # Kernels roll, and each template takes half a gigabyte.
        forget_old(template, _TEMPLATES_KEPT)
    return template / "disk.img"


def _programs(binaries: KubeBinaries, step: Step) -> list[Path]:
    """Return the kubelet and, where it needs one that Debian's releases do not have yet, its containerd."""
    found = [binaries.path("kubelet")]
    if binaries.minor >= DOCKERSHIM_UNTIL:
        folder = containerd.ensure_containerd(step)
        found += [folder / name for name in containerd.PROGRAMS]
    return found


def make_file_system(tree: Path, image: Path, *, free_mib: int) -> None:
    """Make an ext4 image of a folder; the image is sparse, so the free space costs nothing."""
    used_mib = int(run(["du", "--summarize", "--block-size=1M", tree]).split()[0])
    # A tenth for the file system's own tables, and for small files that round up.
    size = f"{int(used_mib * 1.1) + 64 + free_mib}M"
    run(["mke2fs", "-q", "-t", "ext4", "-d", tree, "-E", "lazy_itable_init=1,root_owner=0:0", image, size], timeout=300)


def copy_image(template: Path, copy: Path) -> None:
    """Copy an image, holes and all."""
    run(["cp", "--sparse=always", "--reflink=auto", template, copy], timeout=300)
