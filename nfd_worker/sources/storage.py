"""Source ``storage``: the block devices (the kernel's Documentation/ABI/stable/sysfs-block)."""

from feature_rules.features import Attributes, Features
from nfd_worker.host import Host
from nfd_worker.sources.settings import SourceSettings

_BLOCK_DEVICES = "sys/block"

_QUEUE = ("dax", "rotational", "nr_zones", "zoned")
"""Files below ``queue`` of each device; which there are depends on the kernel's version."""

ATTRIBUTES = ("name", "type", *_QUEUE)
"""All attributes that a ``storage.block`` can have."""

DISK, ROM, VIRTUAL = TYPES = ("disk", "rom", "virtual")
"""Values of ``type``: a drive, a CD or DVD drive, and what no hardware is behind (loop, zram, nbd, dm, md)."""

_SCSI_TYPE = "device/type"
_OPTICAL = frozenset({"4", "5", "7"})
"""SCSI's device types that are no disks: write-once, CD or DVD, optical memory (SPC-4)."""


def discover(host: Host, _settings: SourceSettings) -> Features:
    """List all block devices.

    Raises:
        HostReadError: without a sysfs.
    """
    host.require("sys/bus")
    return Features(
        instances={"storage.block": tuple(_read_device(host, name) for name in host.entries(_BLOCK_DEVICES))}
    )


def labels(features: Features, settings: SourceSettings) -> dict[str, str]:
    """Label a disk that does not rotate; many loop devices, zram and CD drives say that they do not, either."""
    types = TYPES if settings.upstream_hardware_labels else (DISK,)
    devices = features.instances["storage.block"]
    if any(device.get("rotational") == "0" and device["type"] in types for device in devices):
        return {"nonrotationaldisk": "true"}
    return {}


def _read_device(host: Host, name: str) -> Attributes:
    directory = f"{_BLOCK_DEVICES}/{name}"
    # Only what a driver has bound to hardware (or to its like in a virtual machine) has a device.
    kind = VIRTUAL if not host.has(f"{directory}/device") else DISK
    texts = host.find_all(directory, (*(f"queue/{name}" for name in _QUEUE), _SCSI_TYPE))
    if texts.pop(_SCSI_TYPE, "") in _OPTICAL:
        kind = ROM
    return {"name": name, "type": kind, **{key.removeprefix("queue/"): text for key, text in texts.items()}}
