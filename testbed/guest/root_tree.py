"""The root file system of the guests: unpacked Debian packages, kubelet, and the modules of the kernels.

No package script is run and nothing is installed: a node that only runs kubelet and containerd needs neither.
"""

from __future__ import annotations

import re
import subprocess
from collections.abc import Iterable, Mapping, Sequence
from pathlib import Path

from testbed.command import run
from testbed.errors import CommandError
from testbed.kernels import KernelPackage
from testbed.packages import PrivateApt
from testbed.progress import Step

# From Debian 13 on kmod opens liblzma by itself and does not depend on it; every installation has it.
_PACKAGES = ("base-files", "netbase", "kmod", "liblzma5", "containerd", "crun", "busybox-static", "socat")
_RUNTIME = "runc"
"""Below a containerd that is not the release's; crun starts sooner, and not each containerd's containers."""
_NOT_NEEDED = ("doc", "man", "locale", "perl5", "bash-completion", "info", "lintian")
_KMOD_TOOLS = ("depmod", "insmod", "lsmod", "modinfo", "modprobe", "rmmod")
_CNI = '{"cniVersion":"0.3.1","name":"lo","plugins":[{"type":"loopback"}]}'
# Where workers look for feature files, and what kubelet and containerd expect to find.
_FOLDERS = (
    *("proc", "sys", "dev", "run", "tmp", "root", "boot", "usr/lib/modules", "usr/local/bin"),
    *("etc/cni/net.d", "etc/ssl/certs", "var/lib/kubelet", "var/lib/containerd", "var/log/pods"),
    *("etc/kubernetes/node-feature-discovery/features.d", "etc/kubernetes/node-feature-discovery/source.d"),
)
_FILES = {
    "etc/passwd": "root:x:0:0:root:/root:/bin/sh\nnobody:x:65534:65534:nobody:/nonexistent:/bin/false\n",
    "etc/group": "root:x:0:\nnogroup:x:65534:\n",
    "etc/hosts": "127.0.0.1 localhost\n",
    "etc/resolv.conf": "nameserver 10.0.2.3\n",
    # containerd calls a node without network configuration not ready, even when all pods use the host's network.
    "etc/cni/net.d/99-loopback.conflist": _CNI,
}


def library_closure(depends: Mapping[str, Iterable[str]], roots: Sequence[str]) -> list[str]:
    """Return the roots with all libraries they need, directly or not.

    Only libraries are followed: what else Debian makes a package depend on (debconf, another runtime, documentation)
    serves scripts that are not run here.
    """
    found: list[str] = []
    waiting = list(roots)
    while waiting:
        package = waiting.pop(0)
        if package in found:
            continue
        found.append(package)
        waiting += [need for need in depends.get(package, ()) if need.startswith(("lib", "zlib"))]
    return found


def parse_depends(text: str) -> dict[str, list[str]]:
    """Return package -> its dependencies from what `apt-cache depends --recurse` prints."""
    depends: dict[str, list[str]] = {}
    needs: list[str] = []
    for line in text.splitlines():
        if not line.startswith((" ", "|", "<")):
            needs = depends.setdefault(line.strip(), [])
        elif match := re.match(r"[ |]*(?:Pre)?Depends: ([^<\s]+)", line):
            needs.append(match[1])
    return depends


def packages_with_versions(apt: PrivateApt, *, own_containerd: bool = False) -> dict[str, str]:
    """Return the packages of the root file system with the versions that will be unpacked."""
    roots = (*_PACKAGES, _RUNTIME) if own_containerd else _PACKAGES
    options = [f"--no-{kind}" for kind in ("recommends", "suggests", "conflicts", "breaks", "replaces", "enhances")]
    depends = parse_depends(apt.cache("depends", "--recurse", *options, *roots))
    names = library_closure(depends, roots)
    output = apt.cache("show", "--no-all-versions", *names)
    return dict(re.findall(r"^Package: (\S+)\n(?:.+\n)*?Version: (\S+)$", output, re.MULTILINE))


def make_root_tree(
    root: Path,
    *,
    apt: PrivateApt,
    packages: Sequence[str],
    programs: Sequence[Path],
    kernels: Sequence[KernelPackage],
    step: Step,
) -> None:
    """Fill the folder `root`; `programs` come into it beside the packages', or in the place of theirs."""
    for name in ("bin", "sbin", "lib", "lib64"):
        (root / "usr" / name).mkdir(parents=True)
        (root / name).symlink_to(f"usr/{name}")
    step.detail("unpacking packages")
    for deb in apt.download(packages, root.parent / "debs"):
        _unpack_merged(deb, root)
    for name in _NOT_NEEDED:
        run(["rm", "-rf", root / "usr/share" / name])
    for folder in _FOLDERS:
        (root / folder).mkdir(parents=True, exist_ok=True)
    for name, text in _FILES.items():
        (root / name).write_text(text)
    _link_tools(root)
    run(["cp", "--reflink=auto", *programs, root / "usr/bin"])
    for kernel in kernels:
        step.detail(f"copying the modules of {kernel.release}")
        run(["cp", "-a", kernel.modules, root / "usr/lib/modules/"], timeout=120)
        run(["cp", kernel.config, root / "boot/"])


def _unpack_merged(deb: Path, root: Path) -> None:
    # dpkg-deb --extract would replace the link /lib by a folder, and the loader would be gone.
    with subprocess.Popen(["dpkg-deb", "--fsys-tarfile", deb], stdout=subprocess.PIPE) as unpacked:
        run(["tar", "-x", "-C", root, "--keep-directory-symlink"], stdin=unpacked.stdout, timeout=120)
    if unpacked.returncode != 0:
        raise CommandError(["dpkg-deb", "--fsys-tarfile", str(deb)], f"ended with status {unpacked.returncode}", "")


def _link_tools(root: Path) -> None:
    binaries = root / "usr/bin"
    for tool in _KMOD_TOOLS:
        link = root / "usr/sbin" / tool
        link.unlink(missing_ok=True)
        link.symlink_to("../bin/kmod")
    for applet in run([binaries / "busybox", "--list"]).split():
        if not any(
            (root / "usr" / folder / applet).is_symlink() or (root / "usr" / folder / applet).exists()
            for folder in ("bin", "sbin")
        ):
            (binaries / applet).symlink_to("busybox")
