"""Source ``pci``: the devices of the PCI bus (the kernel's Documentation/ABI/testing/sysfs-bus-pci)."""

import logging
from collections.abc import Iterable, Mapping
from typing import NamedTuple

from feature_rules.features import Attributes, Features, Instances
from nfd_worker.host import Host
from nfd_worker.sources.network import is_positive
from nfd_worker.sources.settings import SourceSettings, class_prefixes

log = logging.getLogger(__name__)

_DEVICES = "sys/bus/pci/devices"

FIELDS = ("class", "vendor", "device", "subsystem_vendor", "subsystem_device")
"""What every device must have; also the order of the fields in a label."""

CLASS_DIGITS = 4
"""Base and sub class; the programming interface is not in the feature."""

_GROUP_TYPE = "iommu_group/type"
_FIXED = ("sriov_totalvfs", "iommu/intel-iommu/version")
"""Files that a device has or has not as long as it is there; their contents can change."""

OPTIONAL = (*_FIXED, _GROUP_TYPE)


class Identity(NamedTuple):
    """What stays of a device. ``fields``: values of :data:`FIELDS`; ``optional``: its files of :data:`OPTIONAL`."""

    fields: tuple[str, ...]
    optional: tuple[str, ...]

    @property
    def device_class(self) -> str:
        """Base and sub class, as four hexadecimal digits."""
        return self.fields[FIELDS.index("class")]

    @property
    def vendor(self) -> str:
        """The vendor, as four hexadecimal digits."""
        return self.fields[FIELDS.index("vendor")]


def discover(host: Host, _settings: SourceSettings) -> Features:
    """List all devices; a device that goes away while it is read is not there.

    Raises:
        HostReadError: without a sysfs; a machine without a PCI bus simply has no devices.
    """
    host.require("sys/bus")
    devices = identities(host).items()
    return Features(instances={"pci.device": tuple(_with_optional(host, *device) for device in devices)})


def identities(host: Host) -> dict[str, Identity]:
    """Give what does not change about each device, by its address; read once while the device stays.

    Raises:
        HostReadError: when the devices cannot be listed or read.
    """
    return host.remembered(_DEVICES, lambda address: _read_identity(host, address))


def labels(features: Features, settings: SourceSettings) -> dict[str, str]:
    """Label the kinds of devices that are there, and those that can make virtual functions."""
    fields = usable_label_fields(settings.pci.device_label_fields)
    found: dict[str, str] = {}
    for device in _of_class(features.instances["pci.device"], settings.pci.device_class_whitelist):
        name = "_".join(device[field] for field in fields)
        found[f"{name}.present"] = "true"
        # Firmware can limit the virtual functions of a device to 0.
        functions = device.get("sriov_totalvfs", "")
        if is_positive(functions) or (functions and settings.upstream_hardware_labels):
            found[f"{name}.sriov.capable"] = "true"
    return found


def usable_label_fields(wanted: Iterable[str]) -> tuple[str, ...]:
    """Put the known ones of the wanted fields in their fixed order; the default when none is known."""
    known = set(wanted).intersection(FIELDS)
    return tuple(field for field in FIELDS if field in known) or ("class", "vendor")


def parse_identity(raw: Mapping[str, str]) -> Identity | None:
    """Make an identity of a device's sysfs files: without ``0x``, the class cut to base and sub class.

    None when one of the five that every device has is missing.
    """
    if any(field not in raw for field in FIELDS):
        return None
    class_code, *others = (_bare(raw[field]) for field in FIELDS)
    return Identity((class_code[:CLASS_DIGITS], *others), (_GROUP_TYPE, *(name for name in _FIXED if name in raw)))


def _bare(text: str) -> str:
    return text.strip().removeprefix("0x")


def _read_identity(host: Host, address: str) -> Identity | None:
    identity = parse_identity(host.find_all(f"{_DEVICES}/{address}", (*FIELDS, *_FIXED)))
    if identity is None:
        log.debug("pci: %s does not report all of %s; left out", address, ", ".join(FIELDS))
    return identity


def _with_optional(host: Host, address: str, identity: Identity) -> Attributes:
    """Add what a driver or an admin can change while the device stays."""
    optional = host.find_all(f"{_DEVICES}/{address}", identity.optional)
    fields = dict(zip(FIELDS, identity.fields, strict=True))
    return {**fields, **{name: _bare(text) for name, text in optional.items()}}


def _of_class(devices: Instances, whitelist: tuple[str, ...]) -> Instances:
    beginnings = class_prefixes(whitelist, CLASS_DIGITS)
    return tuple(device for device in devices if device["class"].lower().startswith(beginnings))
