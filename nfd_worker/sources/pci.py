"""Source ``pci``: the devices of the PCI bus (the kernel's Documentation/ABI/testing/sysfs-bus-pci)."""

import logging
from collections.abc import Iterable, Mapping

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

OPTIONAL = ("sriov_totalvfs", "iommu_group/type", "iommu/intel-iommu/version")


def discover(host: Host, _settings: SourceSettings) -> Features:
    """List all devices; a device that goes away while it is read is not there.

    Raises:
        HostReadError: without a sysfs; a machine without a PCI bus simply has no devices.
    """
    host.require("sys/bus")
    devices = (_read_device(host, address) for address in host.entries(_DEVICES))
    return Features(instances={"pci.device": tuple(device for device in devices if device is not None)})


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


def parse_device(raw: Mapping[str, str]) -> Attributes | None:
    """Make attributes of a device's sysfs files: without ``0x`` and white space, the class cut to base and sub class.

    None when one of the five that every device has is missing.
    """
    values = {name: text.strip().removeprefix("0x") for name, text in raw.items()}
    if any(field not in values for field in FIELDS):
        return None
    return {**values, "class": values["class"][:CLASS_DIGITS]}


def _read_device(host: Host, address: str) -> Attributes | None:
    device = parse_device(host.find_all(f"{_DEVICES}/{address}", (*FIELDS, *OPTIONAL)))
    if device is None:
        log.debug("pci: %s does not report all of %s; left out", address, ", ".join(FIELDS))
    return device


def _of_class(devices: Instances, whitelist: tuple[str, ...]) -> Instances:
    beginnings = class_prefixes(whitelist, CLASS_DIGITS)
    return tuple(device for device in devices if device["class"].lower().startswith(beginnings))
