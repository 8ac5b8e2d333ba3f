"""Source ``usb``: the devices of the USB buses (the kernel's Documentation/ABI/stable/sysfs-bus-usb)."""

from collections.abc import Iterable, Iterator

from feature_rules.features import Attributes, Features
from nfd_worker.host import Host
from nfd_worker.sources.settings import SourceSettings, UsbSettings, class_prefixes

_DEVICES = "sys/bus/usb/devices"

_FILES = {"class": "bDeviceClass", "vendor": "idVendor", "device": "idProduct", "serial": "serial"}

FIELDS = tuple(_FILES)
"""What a device may have; also the order of the fields in a label."""

CLASS_DIGITS = 2


def discover(host: Host, _settings: SourceSettings) -> Features:
    """List all devices, hubs too; one without a class counts once for each interface.

    A composite device counts once, and once more for each class of its interfaces.

    Raises:
        HostReadError: without a sysfs; a machine without USB simply has no devices.
    """
    host.require("sys/bus")
    # What has a colon in its name is an interface of a device: 1-4:1.0 of 1-4.
    addresses = [name for name in host.entries(_DEVICES) if ":" not in name]
    return Features(instances={"usb.device": tuple(each for address in addresses for each in _read(host, address))})


def labels(features: Features, settings: SourceSettings) -> dict[str, str]:
    """Label the kinds of devices that are there."""
    fields = usable_label_fields(settings.usb.device_label_fields)
    wanted = class_prefixes(settings.usb.device_class_whitelist, CLASS_DIGITS)
    return {
        "_".join(device.get(field, "") for field in fields) + ".present": "true"
        for device in features.instances["usb.device"]
        if device.get("class", "").startswith(wanted)
    }


def usable_label_fields(wanted: Iterable[str]) -> tuple[str, ...]:
    """Put the known ones of the wanted fields in their fixed order; the default when none is known."""
    known = set(wanted).intersection(FIELDS)
    return tuple(field for field in FIELDS if field in known) or UsbSettings().device_label_fields


def _read(host: Host, address: str) -> Iterator[Attributes]:
    texts = host.find_all(f"{_DEVICES}/{address}", _FILES.values())
    device = {field: texts[file] for field, file in _FILES.items() if texts.get(file)}
    if "device" not in device:
        return
    match device.get("class"):
        case "00":
            yield from ({**device, "class": each} for each in _interface_classes(host, address))
        case "ef":
            # Miscellaneous: what a webcam says, and others whose interfaces belong together.
            yield device
            yield from ({**device, "class": each} for each in dict.fromkeys(_interface_classes(host, address)))
        case _:
            yield device


def _interface_classes(host: Host, address: str) -> Iterator[str]:
    for interface in host.entries(f"{_DEVICES}/{address}"):
        reported = host.find(f"{_DEVICES}/{address}/{interface}/bInterfaceClass") if ":" in interface else None
        if reported is not None:
            yield reported.strip()
