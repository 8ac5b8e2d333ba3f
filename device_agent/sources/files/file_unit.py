"""Units of files: which files make one, and its name. Pure."""

import zlib
from collections.abc import Mapping, Sequence
from dataclasses import dataclass

from device_agent.devices.model import BindMount, DeviceNode, Unit, UnitFile
from device_resources.resource import DevicePath, PathType, Resource

Matches = Mapping[str, Sequence[str]]
"""Glob -> the paths of the host that match it, sorted."""


@dataclass(frozen=True, slots=True, kw_only=True)
class FileUnit:
    """Files of the host that are given as a whole.

    ``group``, ``ordinal``: which one it is in the description.
    ``required``: the paths that make it what it is; they stay when files vanish.
    ``files``: those that exist now.
    """

    group: int
    ordinal: int
    required: tuple[str, ...]
    files: tuple[UnitFile, ...]

    @property
    def id(self) -> str:
        """Return a name for people that no other unit has: of the first file, and a digest of all."""
        key = "\0".join((str(self.group), *self.required) if self.required else (str(self.group), str(self.ordinal)))
        stem = self.required[0].removeprefix("/dev/").strip("/").replace("/", "-") if self.required else "device"
        # hashlib would cost the resident process OpenSSL.
        return f"{stem[:100]}-{zlib.crc32(key.encode()):08x}"


@dataclass(frozen=True, slots=True, kw_only=True)
class UnitState:
    """What was found of a unit. ``why``: empty if it is healthy. ``numa_nodes``: where it is."""

    unit: FileUnit
    why: str = ""
    numa_nodes: tuple[int, ...] = ()


def unit_file(path: str, described: DevicePath) -> UnitFile:
    """Return how a file comes into a container."""
    mount_path = described.mount_path or path
    if described.type is PathType.DEVICE:
        return DeviceNode(path=path, mount_path=mount_path, permissions=described.permissions)
    return BindMount(path=path, mount_path=mount_path, read_only=described.read_only)


def units_of(resource: Resource, states: Sequence[UnitState]) -> tuple[Unit, ...]:
    """Make what the kubelet's side knows of what was found."""
    return tuple(
        Unit(
            id=state.unit.id,
            shares=resource.groups[state.unit.group].count,
            why=state.why,
            numa_nodes=state.numa_nodes,
            files=state.unit.files,
            environment=resource.environment,
        )
        for state in states
    )
