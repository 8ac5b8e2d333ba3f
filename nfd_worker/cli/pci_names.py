"""What PCI numbers mean in words: for the table of ``nfd-worker scan``, and never for the resident process.

The database is ``pci.ids`` (https://pci-ids.ucw.cz), which hwdata and pci.ids packages bring; without one, what udev
wrote about the devices of this machine. A host with neither gets no words.
"""

from collections.abc import Iterable, Mapping
from typing import NamedTuple

import pyudev

from feature_rules.features import Attributes
from nfd_worker.errors import HostReadError
from nfd_worker.host import Host

PCI_IDS = ("usr/share/hwdata/pci.ids", "usr/share/misc/pci.ids")
"""Where distributions put it: Red Hat, SUSE and Arch; Debian and Alpine."""

_NONE: Mapping[str, str] = {}


class PciNames(NamedTuple):
    """Number -> name; numbers are lower-case hexadecimal without ``0x``.

    ``vendors``: ``10de``. ``devices``: vendor and device, ``10de2330``. ``classes``: base and sub class, ``0302``, and
    base class alone, ``03``.
    """

    vendors: Mapping[str, str] = _NONE
    devices: Mapping[str, str] = _NONE
    classes: Mapping[str, str] = _NONE

    def class_name(self, number: str) -> str:
        """Name a class of four digits; its base class where the sub class has no name; empty when unknown."""
        return self.classes.get(number[:4]) or self.classes.get(number[:2], "")

    def device_name(self, device: Attributes) -> str:
        """Name a device of ``pci.device``: class, vendor and model, as far as they are known."""
        vendor, model = device.get("vendor", ""), device.get("device", "")
        maker = " ".join(filter(None, (self.vendors.get(vendor, ""), self.devices.get(vendor + model, ""))))
        return ": ".join(filter(None, (self.class_name(device.get("class", "")), maker)))


def read_pci_names(host: Host) -> PciNames:
    """Read the host's database of names; empty when it has none."""
    try:
        found = host.find_first(PCI_IDS)
    except HostReadError:
        found = None
    if found is not None:
        return parse_pci_ids(found[1].decode(errors="replace"))
    return names_of_udev(_udev_devices()) if host.is_live else PciNames()


def parse_pci_ids(text: str) -> PciNames:
    """Read the text of a ``pci.ids``: a vendor a line with its devices indented below, and so the classes after them.

    Subsystems (two tabs) are left out, as is every line that is neither.
    """
    vendors: dict[str, str] = {}
    devices: dict[str, str] = {}
    classes: dict[str, str] = {}
    parent, children = "", devices
    for line in text.splitlines():
        number, _, name = line.strip().partition("  ")
        if not line or line.startswith(("#", "\t\t")) or not name:
            continue
        if line.startswith("\t"):
            children.setdefault((parent + number).lower(), name)
        elif line.startswith("C "):
            parent, children = number.removeprefix("C "), classes
            classes[parent.lower()] = name
        else:
            parent, children = number, devices
            vendors[number.lower()] = name
    return PciNames(vendors, devices, classes)


def names_of_udev(devices: Iterable[Mapping[str, str]]) -> PciNames:
    """Collect names from udev's properties of PCI devices, which its hardware database put there."""
    vendors: dict[str, str] = {}
    models: dict[str, str] = {}
    classes: dict[str, str] = {}
    for properties in devices:
        vendor, _, model = properties.get("PCI_ID", "").lower().partition(":")
        number = properties.get("PCI_CLASS", "").lower().rjust(6, "0")
        vendors[vendor] = properties.get("ID_VENDOR_FROM_DATABASE", "")
        models[vendor + model] = properties.get("ID_MODEL_FROM_DATABASE", "")
        classes[number[:4]] = properties.get("ID_PCI_SUBCLASS_FROM_DATABASE", "")
        classes[number[:2]] = properties.get("ID_PCI_CLASS_FROM_DATABASE", "")
    return PciNames(_named(vendors), _named(models), _named(classes))


def _named(names: Mapping[str, str]) -> Mapping[str, str]:
    return {number: name for number, name in names.items() if number and name}


def _udev_devices() -> Iterable[Mapping[str, str]]:
    return [device.properties for device in pyudev.Context().list_devices(subsystem="pci")]
