"""What all parts speak of: the units that sources give, and the devices that the kubelet knows. Pure."""

from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field
from enum import StrEnum
from types import MappingProxyType

MAX_DEVICES = 4096
"""Of one resource. The kubelet reads messages of at most 4 MiB; the longest ids make 1.8 of that."""

_SHARE = "::"

_NONE: Mapping[str, int] = MappingProxyType({})
_NO_VARIABLES: Mapping[str, str] = MappingProxyType({})


@dataclass(frozen=True, slots=True, kw_only=True)
class DeviceNode:
    """A device node of the host, its path in the container, and what the container may do: letters of ``mrw``."""

    path: str
    mount_path: str
    permissions: str = "mrw"


@dataclass(frozen=True, slots=True, kw_only=True)
class BindMount:
    """A file or folder of the host, and its path in the container."""

    path: str
    mount_path: str
    read_only: bool = True


UnitFile = DeviceNode | BindMount


@dataclass(frozen=True, slots=True, kw_only=True)
class Unit:
    """What is given as a whole, and what is known of it now.

    ``id``: the same as long as it is the same thing, and after each start.
    ``shares``: how many containers may have it at once; each share is a device.
    ``why``: why it may not be given; empty if it may, and so it is healthy.
    ``is_waiting``: nothing is wrong with it: it waits until it may be given in another way than before.
    ``numa_nodes``: where it is.
    ``links``: id of another unit -> how many links there are to it.
    ``files``: device nodes and mounts that come into a container, in the order in which people see them.
    ``environment``: variables of the container. Where units differ, it gets all values, separated by commas.
    ``identity``: what its files are; a container that was given other ones does not start. Empty: not checked.
    ``ids``: those of its devices that are listed; empty: all. What the others are, another unit of the same id says.
    """

    id: str
    shares: int = 1
    why: str = ""
    is_waiting: bool = False
    numa_nodes: tuple[int, ...] = ()
    links: Mapping[str, int] = field(default_factory=lambda: _NONE)
    files: tuple[UnitFile, ...] = ()
    environment: Mapping[str, str] = field(default_factory=lambda: _NO_VARIABLES)
    identity: tuple[str, ...] = ()
    ids: tuple[str, ...] = ()

    @property
    def device_ids(self) -> tuple[str, ...]:
        """Return the ids of its devices that are listed."""
        return self.ids or share_ids(self.id, self.shares)

    @property
    def is_healthy(self) -> bool:
        """Return whether it may be given to a container."""
        return not self.why


class Policy(StrEnum):
    """Which of several shared units that are alike a container gets shares of.

    ``DISTRIBUTED``: of the least used ones. ``PACKED``: of the most used ones, so that whole units stay free.
    """

    DISTRIBUTED = "distributed"
    PACKED = "packed"


@dataclass(frozen=True, slots=True, kw_only=True)
class Traits:
    """What a source decides about a resource, before it has any units.

    ``policy``: which shares a container gets.
    ``is_checked``: each unit has an identity, which is compared before each start of a container.
    ``is_remembered``: what is given is remembered, also where it is not checked.
    ``one_share``: a container that asks for more than one share is refused.
    ``beside``: other resources as which another plugin would give the same units.
    """

    policy: Policy = Policy.DISTRIBUTED
    is_checked: bool = False
    is_remembered: bool = False
    one_share: bool = False
    beside: tuple[str, ...] = ()


PLAIN = Traits()
"""Of a resource about which nothing else is decided."""


@dataclass(frozen=True, slots=True, kw_only=True)
class OfferedDevice:
    """What the kubelet counts: a share of a unit."""

    id: str
    unit: Unit


def offered(units: Sequence[Unit]) -> dict[str, OfferedDevice]:
    """List the devices of a resource by id: each unit as often as it has shares, while there is room for the next."""
    devices: dict[str, OfferedDevice] = {}
    for unit in units:
        names = unit.device_ids
        if len(devices) + len(names) > MAX_DEVICES:
            break
        devices |= {name: OfferedDevice(id=name, unit=unit) for name in names}
    return devices


def is_too_much(units: Sequence[Unit]) -> bool:
    """Return whether there are more devices than :func:`offered` lists."""
    return sum(len(unit.ids) or unit.shares for unit in units) > MAX_DEVICES


def share_ids(unit: str, shares: int) -> tuple[str, ...]:
    """Name the devices of a unit: its own id where it is given whole, else ``id::0`` and so on."""
    return (unit,) if shares == 1 else tuple(f"{unit}{_SHARE}{share}" for share in range(shares))


def unit_of(device: str) -> str:
    """Return the id of the unit that a device is a share of."""
    unit, _, share = device.rpartition(_SHARE)
    return unit if unit and share.isdecimal() else device
