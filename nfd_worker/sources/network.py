"""Source ``network``: the network interfaces (the kernel's Documentation/ABI/testing/sysfs-class-net).

Those of the node and not of the pod: a mount of the node's ``/sys`` shows the interfaces of the namespace in which it
was mounted.
"""

from feature_rules.features import Attributes, Features
from nfd_worker.host import Host
from nfd_worker.sources.settings import SourceSettings

_INTERFACES = "sys/class/net"

_ATTRIBUTES = ("operstate", "speed", "mtu")
_FUNCTIONS = ("device/sriov_numvfs", "device/sriov_totalvfs")

_LABELS = (("sriov_totalvfs", "sriov.capable"), ("sriov_numvfs", "sriov.configured"))


def discover(host: Host, _settings: SourceSettings) -> Features:
    """List all interfaces: those of a device, and virtual ones.

    An attribute that an interface does not have, such as the speed of one that is down, is left out.

    Raises:
        HostReadError: without a sysfs.
    """
    host.require("sys/bus")
    found: dict[bool, list[Attributes]] = {True: [], False: []}
    for name, (is_device, attributes) in host.remembered(_INTERFACES, lambda name: _find_files(host, name)).items():
        found[is_device].append(_read_interface(host, name, attributes))
    return Features(instances={"network.device": tuple(found[True]), "network.virtual": tuple(found[False])})


def labels(features: Features, _settings: SourceSettings) -> dict[str, str]:
    """Label SR-IOV: that an interface can make virtual functions, and that one has."""
    return {
        label: "true"
        for attribute, label in _LABELS
        if any(is_positive(device.get(attribute, "")) for device in features.instances["network.device"])
    }


def is_positive(text: str) -> bool:
    """Return whether this is a decimal number above zero, of any length."""
    return text.isascii() and text.isdigit() and text.strip("0") != ""


def _find_files(host: Host, name: str) -> tuple[bool, tuple[str, ...]] | None:
    """Find out whether an interface is one of a device, and which files it has; neither changes while it is there."""
    if name == "bonding_masters":  # the one file among the directories: the control file of the bonding driver
        return None
    if not host.has(f"{_INTERFACES}/{name}/device"):
        return False, _ATTRIBUTES
    functions = (file for file in _FUNCTIONS if host.has(f"{_INTERFACES}/{name}/{file}"))
    return True, (*_ATTRIBUTES, *functions)


def _read_interface(host: Host, name: str, attributes: tuple[str, ...]) -> Attributes:
    texts = host.find_all(f"{_INTERFACES}/{name}", attributes)
    return {"name": name, **{attribute.removeprefix("device/"): text for attribute, text in texts.items()}}
