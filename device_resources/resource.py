"""An extended resource and the devices that it is made of, as an admin describes them."""

from collections.abc import Mapping
from dataclasses import dataclass, field
from enum import StrEnum

NVIDIA_DOMAIN = "nvidia.com/"
"""What begins the name of each resource that ``nvidia:`` may offer: which ones depends on the cards."""


class PathType(StrEnum):
    """How a file comes into a container: as a device node, or as a bind mount."""

    DEVICE = "Device"
    MOUNT = "Mount"


@dataclass(frozen=True, slots=True, kw_only=True)
class DevicePath:
    """Files of the host, one for each device.

    ``path``: a glob. ``mount_path``: the path in the container; None for that of the host.
    ``permissions``: of a device node, letters of ``mrw``. ``read_only``: of a bind mount.
    ``limit``: how many devices of a group may share one file.
    ``optional``: a device works without this file.
    """

    path: str
    mount_path: str | None = None
    permissions: str = "mrw"
    read_only: bool = False
    type: PathType = PathType.DEVICE
    limit: int = 1
    optional: bool = False


@dataclass(frozen=True, slots=True, kw_only=True)
class DeviceGroup:
    """Devices of the same files: the i-th device has the i-th match of each path.

    ``count``: how many containers may have the same device at once.
    """

    paths: tuple[DevicePath, ...]
    count: int = 1


@dataclass(frozen=True, slots=True, kw_only=True)
class Health:
    """When a device is healthy, besides that its files exist.

    ``driver``: the driver that has to be bound to it in sysfs; None for any.
    ``pci``: its PCI device has to answer.
    ``command``: has to end with status 0; empty for none.
    """

    driver: str | None = None
    pci: bool = False
    command: tuple[str, ...] = ()
    timeout_seconds: int = 10
    period_seconds: int = 60


@dataclass(frozen=True, slots=True, kw_only=True)
class Resource:
    """An extended resource. ``environment``: variables of each container that has such a device."""

    name: str
    groups: tuple[DeviceGroup, ...]
    health: Health = Health()
    environment: Mapping[str, str] = field(default_factory=dict)
