"""Source ``system``: the node's name, its operating system (os-release(5)) and its DMI identification."""

import re

from feature_rules.features import Attributes, Features
from nfd_worker.errors import HostReadError
from nfd_worker.host import Host
from nfd_worker.sources.settings import SourceSettings

_OS_RELEASE = ("etc/os-release", "usr/lib/os-release")

DMI_NAMES = (
    "bios_date", "bios_vendor", "bios_version", "board_asset_tag", "board_name", "board_vendor", "board_version",
    "chassis_asset_tag", "chassis_type", "chassis_vendor", "chassis_version", "product_family", "product_name",
    "product_sku", "product_version", "sys_vendor",
)  # fmt: skip
"""What of ``/sys/devices/virtual/dmi/id`` is read: never serial numbers or the UUID, which name one machine."""

OS_LABELS = ("ID", "VERSION_ID", "VERSION_ID.major", "VERSION_ID.minor")

_ASSIGNMENT = re.compile(r"^(\w+)=(.+)", re.MULTILINE | re.ASCII)
_VERSION_ID = re.compile(r"[vV]?(\d+)(?:\.(\d+))?", re.ASCII)
"""The numbers that a version begins with; Talos writes ``v1.9.2``, and others append a suffix."""


def discover(host: Host, settings: SourceSettings) -> Features:
    """Read os-release and DMI.

    Raises:
        HostReadError: without an os-release, which every node has: then the mount is missing, not the system.
    """
    found = host.find_first(_OS_RELEASE)
    if found is None:
        raise HostReadError(
            f"cannot read {' or '.join(_OS_RELEASE)} below {host.root}: is the host's /etc/os-release there?"
        )
    attributes: dict[str, Attributes] = {"system.osrelease": parse_os_release(found[1].decode(errors="replace"))}
    if settings.system.node_name:
        attributes["system.name"] = {"nodename": settings.system.node_name}
    dmi = read_dmi(host)
    if dmi:
        attributes["system.dmiid"] = dmi
    return Features(attributes=attributes)


def labels(features: Features, _settings: SourceSettings) -> dict[str, str]:
    """Label the operating system and its version."""
    os_release = features.attributes["system.osrelease"]
    return {f"os_release.{name}": os_release[name] for name in OS_LABELS if name in os_release}


def parse_os_release(text: str) -> dict[str, str]:
    """Read ``NAME=value`` lines; quotes at the ends and empty values are dropped, shell escapes are not undone.

    Adds ``VERSION_ID.major`` and ``.minor`` where VERSION_ID starts with numbers.
    """
    values = {match[1]: match[2].strip().strip("\"'") for match in _ASSIGNMENT.finditer(text)}
    return {**values, **split_version_id(values.get("VERSION_ID", ""))}


def split_version_id(version_id: str) -> dict[str, str]:
    """Name the leading numbers of a version: ``22.04`` -> major 22, minor 04; ``rolling`` -> nothing."""
    match = _VERSION_ID.match(version_id)
    if match is None:
        return {}
    parts = {"VERSION_ID.major": match[1], "VERSION_ID.minor": match[2]}
    return {name: part for name, part in parts.items() if part}


def read_dmi(host: Host) -> dict[str, str]:
    """Read the DMI identification, as far as this machine has it; empty on a machine without."""
    return host.find_all("sys/devices/virtual/dmi/id", DMI_NAMES)
