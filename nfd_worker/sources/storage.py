"""Source ``storage``: the block devices (the kernel's Documentation/ABI/stable/sysfs-block)."""

from feature_rules.features import Attributes, Features
from nfd_worker.host import Host
from nfd_worker.sources.settings import SourceSettings

_BLOCK_DEVICES = "sys/block"

_ATTRIBUTES = ("dax", "rotational", "nr_zones", "zoned")
"""Files below ``queue`` of each device; which there are depends on the kernel's version."""


def discover(host: Host, _settings: SourceSettings) -> Features:
    """List all block devices.

    Raises:
        HostReadError: without a sysfs.
    """
    host.require("sys/bus")
    return Features(
        instances={"storage.block": tuple(_read_device(host, name) for name in host.entries(_BLOCK_DEVICES))}
    )


def labels(features: Features, _settings: SourceSettings) -> dict[str, str]:
    """Label a disk that does not rotate."""
    if any(device.get("rotational") == "0" for device in features.instances["storage.block"]):
        return {"nonrotationaldisk": "true"}
    return {}


def _read_device(host: Host, name: str) -> Attributes:
    return {"name": name, **host.find_all(f"{_BLOCK_DEVICES}/{name}/queue", _ATTRIBUTES)}
