"""A folder in place of a node: processes, logs of pods and cards, as the kernel and the kubelet show them."""

import os
from collections.abc import Mapping
from pathlib import Path

UID = "11e5bd56-3c42-4dbf-a1c1-7b1c0dbb3d6e"
OTHER_UID = "22222222-3c42-4dbf-a1c1-7b1c0dbb3d6e"
POD, OTHER_POD = "team-a/train-0", "team-b/infer-0"


def plain(uid: str) -> str:
    """Write a UID as values have it."""
    return uid.replace("-", "")


def stat(pid: int, start: int, name: str = "python3 (a) b)") -> str:
    """Write /proc/PID/stat; the name may hold blanks and parentheses."""
    return (
        f"{pid} ({name}) S 1 {pid} {pid} 0 -1 4194560 1 2 3 4 5 6 7 8 20 0 1 0 {start} 1234 567 18446744073709551615\n"
    )


def cgroup(uid: str) -> str:
    """Write /proc/PID/cgroup; without a UID, of a service."""
    folder = f"/kubepods/burstable/pod{uid}/4f1d2a3b" if uid else "/system.slice/sshd.service"
    return f"0::{folder}\n"


class NodeFolder:
    """A node's files below a root."""

    def __init__(self, root: Path) -> None:
        self.root = root
        self.proc = root / "proc"
        self.process(1, "", start=2)
        (self.proc / "1/cgroup").write_text("0::/init.scope\n")
        (root / "var/log/pods").mkdir(parents=True)

    def process(self, pid: int, uid: str, *, start: int = 100) -> Path:
        """Have a process of a pod, or of none."""
        folder = self.proc / str(pid)
        folder.mkdir(parents=True, exist_ok=True)
        (folder / "stat").write_text(stat(pid, start))
        (folder / "cgroup").write_text(cgroup(uid))
        return folder

    def pod(self, name: str, uid: str) -> None:
        """Have a pod, by NAMESPACE/NAME."""
        (self.root / "var/log/pods" / f"{name.replace('/', '_')}_{uid}").mkdir()

    def card(self, index: int, pci: str, driver: str, files: Mapping[str, str] = {}) -> Path:
        """Have a card of a driver, with files of its PCI device."""
        device = self.root / "sys/devices/pci0000:00" / pci
        (device / "drm" / f"card{index}").mkdir(parents=True)
        (self.root / "sys/bus/pci/drivers" / driver).mkdir(parents=True, exist_ok=True)
        (device / "driver").symlink_to(f"../../../bus/pci/drivers/{driver}")
        (device / f"drm/card{index}/device").symlink_to(f"../../../{pci}")
        for name, content in files.items():
            (device / name).parent.mkdir(exist_ok=True)
            (device / name).write_text(content)
        names = self.root / "sys/class/drm"
        names.mkdir(parents=True, exist_ok=True)
        (names / f"card{index}").symlink_to(f"../../devices/pci0000:00/{pci}/drm/card{index}")
        return device

    def opened(self, pid: int, descriptor: int, fdinfo: str, path: str = "/dev/dri/renderD128") -> None:
        """Have a process have something open."""
        for name in ("fd", "fdinfo"):
            (self.proc / str(pid) / name).mkdir(exist_ok=True)
        link = self.proc / str(pid) / "fd" / str(descriptor)
        if not os.path.lexists(link):
            link.symlink_to(path)
        (self.proc / str(pid) / "fdinfo" / str(descriptor)).write_text(fdinfo)


def two_pods(root: Path) -> NodeFolder:
    """Make a node with two pods, each with a process, 10 and 20; 30 is of no pod."""
    node = NodeFolder(root)
    node.pod(POD, UID)
    node.pod(OTHER_POD, OTHER_UID)
    for pid, uid in ((10, UID), (20, OTHER_UID), (30, "")):
        node.process(pid, uid)
    return node
