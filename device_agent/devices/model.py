"""What all parts speak of: files, units and the devices that the kubelet knows. Pure."""

import zlib
from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass

from device_resources.resource import DevicePath, Resource

MAX_DEVICES = 4096
"""Of one resource. The kubelet reads messages of at most 4 MiB; the longest ids make 1.8 of that."""

Matches = Mapping[str, Sequence[str]]
"""Glob -> the paths of the host that match it, sorted."""


@dataclass(frozen=True, slots=True, kw_only=True)
class DeviceFile:
    """A file of a unit: its path on the host, and how it comes into a container."""

    path: str
    described: DevicePath

    @property
    def mount_path(self) -> str:
        """Return the path in the container."""
        return self.described.mount_path or self.path


@dataclass(frozen=True, slots=True, kw_only=True)
class Unit:
    """What is given as a whole: files of the host. One unit is ``count`` devices.

    ``group``, ``ordinal``: which one it is in the description.
    ``required``: the paths that make it what it is; they stay when files vanish.
    ``files``: those that exist now.
    """

    group: int
    ordinal: int
    required: tuple[str, ...]
    files: tuple[DeviceFile, ...]

    @property
    def id(self) -> str:
        """Return a name for people that no other unit has: of the first file, and a digest of all."""
        key = "\0".join((str(self.group), *self.required) if self.required else (str(self.group), str(self.ordinal)))
        stem = self.required[0].removeprefix("/dev/").strip("/").replace("/", "-") if self.required else "device"
        # hashlib would cost the resident process OpenSSL.
        return f"{stem[:100]}-{zlib.crc32(key.encode()):08x}"


@dataclass(frozen=True, slots=True, kw_only=True)
class UnitState:
    """A unit and what is known of it now. ``why``: empty if it is healthy. ``numa_nodes``: where it is."""

    unit: Unit
    why: str = ""
    numa_nodes: tuple[int, ...] = ()

    @property
    def is_healthy(self) -> bool:
        """Return whether it may be given to a container."""
        return not self.why


@dataclass(frozen=True, slots=True, kw_only=True)
class OfferedDevice:
    """What the kubelet counts: a share of a unit."""

    id: str
    state: UnitState


def offered(resource: Resource, states: Sequence[UnitState]) -> dict[str, OfferedDevice]:
    """List the devices of a resource by id: each unit as often as its group says, while there is room for the next."""
    devices: dict[str, OfferedDevice] = {}
    for state in states:
        count = resource.groups[state.unit.group].count
        if len(devices) + count > MAX_DEVICES:
            break
        devices |= {device.id: device for device in _shares(state, count)}
    return devices


def is_too_much(resource: Resource, states: Sequence[UnitState]) -> bool:
    """Return whether there are more devices than :func:`offered` lists."""
    return sum(resource.groups[state.unit.group].count for state in states) > MAX_DEVICES


def _shares(state: UnitState, count: int) -> Iterator[OfferedDevice]:
    name = state.unit.id
    for share in range(count):
        yield OfferedDevice(id=name if count == 1 else f"{name}::{share}", state=state)
