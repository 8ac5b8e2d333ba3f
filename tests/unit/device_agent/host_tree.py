"""A host in a folder: device nodes, sysfs and files, as the agent sees them below its root."""

import os
from pathlib import Path

import pytest

from device_resources.resource import Resource
from device_resources.resource_parser import parse_resource

needs_root = pytest.mark.skipif(os.geteuid() != 0, reason="only root makes device nodes")


def resource(*paths: str | dict[str, object], count: int = 1, **fields: object) -> Resource:
    """Describe a resource of one group."""
    described = [{"path": path} if isinstance(path, str) else path for path in paths]
    return parse_resource({"name": "example.com/card", "groups": [{"count": count, "paths": described}], **fields})


class HostTree:
    """Makes files below a root."""

    def __init__(self, root: Path) -> None:
        self.root = root

    @property
    def path(self) -> str:
        """The root as text."""
        return str(self.root)

    def file(self, path: str, text: str = "") -> None:
        """Make a file."""
        target = self.root / path.lstrip("/")
        target.parent.mkdir(parents=True, exist_ok=True)
        target.write_text(text)

    def node(self, path: str, major: int = 1, minor: int = 3) -> None:
        """Make a character device."""
        target = self.root / path.lstrip("/")
        target.parent.mkdir(parents=True, exist_ok=True)
        os.mknod(target, 0o020600, os.makedev(major, minor))

    def remove(self, path: str) -> None:
        """Remove a file."""
        (self.root / path.lstrip("/")).unlink()

    def link(self, path: str, to: str) -> None:
        """Make a link to another path of the host."""
        target = self.root / path.lstrip("/")
        target.parent.mkdir(parents=True, exist_ok=True)
        target.symlink_to(os.path.relpath(self.root / to.lstrip("/"), target.parent))

    def sysfs(self, number: str, device: str, *, driver: str = "", numa: str = "") -> None:
        """Make what sysfs has of a character device whose parent is a device on a bus."""
        parent = f"/sys/devices/{device}"
        self.file(f"{parent}/misc/x{number}/dev", number)
        self.link(f"/sys/dev/char/{number}", f"{parent}/misc/x{number}")
        if numa:
            self.file(f"{parent}/numa_node", f"{numa}\n")
        if driver:
            self.bind(device, driver)

    def bind(self, device: str, driver: str) -> None:
        """Bind a driver to a device."""
        folder = f"/sys/bus/pci/drivers/{driver}"
        (self.root / folder.lstrip("/")).mkdir(parents=True, exist_ok=True)
        self.link(f"/sys/devices/{device}/driver", folder)
        self.link(f"{folder}/{device.rpartition('/')[2]}", f"/sys/devices/{device}")
