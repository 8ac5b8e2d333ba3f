"""Source usb: devices, the classes of their interfaces, and what their labels say."""

from pathlib import Path

import pytest

from feature_rules.features import Failed, Features
from nfd_worker.sources import discover
from nfd_worker.sources.settings import SourceSettings, UsbSettings
from nfd_worker.sources.usb import labels, usable_label_fields
from tests.support.nfd_worker.trees import host

STICK = {"1-1/bDeviceClass": "00\n", "1-1/idVendor": "0781\n", "1-1/idProduct": "5583\n", "1-1/serial": "4C53\n"}
CAMERA = {"1-2/bDeviceClass": "ef\n", "1-2/idVendor": "5986\n", "1-2/idProduct": "1177\n"}


def found_in(root: Path, files: dict[str, str]) -> Features:
    """Discover a few files of the USB bus."""
    it = host(root, {"sys/bus/cpu/x": "", **{f"sys/bus/usb/devices/{name}": text for name, text in files.items()}})
    found = discover("usb", it, SourceSettings())
    assert isinstance(found, Features)
    return found


def test_a_device_has_its_class_vendor_product_and_serial_number(tmp_path: Path) -> None:
    """Interfaces on the bus are not counted as devices."""
    found = found_in(tmp_path, {**CAMERA, "1-2:1.0/bInterfaceClass": "0e\n"})
    assert found.instances["usb.device"] == ({"class": "ef", "vendor": "5986", "device": "1177"},)


def test_a_device_without_a_class_counts_once_for_each_interface(tmp_path: Path) -> None:
    """A stick that is also a keyboard is both."""
    interfaces = {"1-1/1-1:1.0/bInterfaceClass": "08\n", "1-1/1-1:1.1/bInterfaceClass": "03\n", "1-1/1-1:1.2/x": ""}
    found = found_in(tmp_path, {**STICK, **interfaces})
    stick = {"vendor": "0781", "device": "5583", "serial": "4C53"}
    assert found.instances["usb.device"] == ({**stick, "class": "08"}, {**stick, "class": "03"})


def test_a_composite_device_counts_once_more_for_each_class_of_its_interfaces(tmp_path: Path) -> None:
    """A webcam says miscellaneous (ef); its interfaces say video and audio. Other classes have no interfaces to see."""
    interfaces = {
        "1-2/1-2:1.0/bInterfaceClass": "0e\n",
        "1-2/1-2:1.1/bInterfaceClass": "01\n",
        "1-2/1-2:1.2/bInterfaceClass": "01\n",
    }
    other = {
        "1-3/bDeviceClass": "ff\n",
        "1-3/idVendor": "1\n",
        "1-3/idProduct": "2\n",
        "1-3/1-3:1.0/bInterfaceClass": "3",
    }
    found = found_in(tmp_path, {**CAMERA, **interfaces, **other})
    assert [device["class"] for device in found.instances["usb.device"]] == ["ef", "0e", "01", "ff"]
    assert {"0e_5986_1177.present", "ef_5986_1177.present"} <= labels(found, SourceSettings()).keys()


def test_a_device_that_goes_away_while_it_is_read_is_not_there(tmp_path: Path) -> None:
    """A device without a product is left out."""
    assert found_in(tmp_path, {"1-3/bDeviceClass": "ff\n"}).instances["usb.device"] == ()


@pytest.mark.parametrize(
    ("settings", "expected"),
    [
        pytest.param(UsbSettings(), {"ef_5986_1177.present"}, id="default: no storage"),
        pytest.param(UsbSettings(("08", "EF"), ("vendor",)), {"0781.present", "5986.present"}, id="classes, one field"),
        pytest.param(
            UsbSettings(("08",), ("serial", "device", "class")), {"08_5583_4C53.present"}, id="fields in fixed order"
        ),
        pytest.param(UsbSettings(("e",), ("serial", "class")), {"ef_.present"}, id="a field that is missing is empty"),
        pytest.param(UsbSettings((), ()), set(), id="nothing wanted"),
        pytest.param(UsbSettings(("0xEF",), ("class",)), {"ef.present"}, id="class with 0x"),
        pytest.param(UsbSettings(("080650",), ("class",)), {"08.present"}, id="class with subclass and protocol"),
        pytest.param(UsbSettings(("e*",), ("class",)), set(), id="no class"),
    ],
)
def test_labels_say_what_the_settings_ask_for(tmp_path: Path, settings: UsbSettings, expected: set[str]) -> None:
    """Which classes, and which fields of each device."""
    found = found_in(tmp_path, {**STICK, **CAMERA, "1-1/1-1:1.0/bInterfaceClass": "08\n"})
    assert set(labels(found, SourceSettings(usb=settings))) == expected


def test_no_known_field_means_the_default() -> None:
    """Without a known label field the default fields are used, as with PCI devices."""
    assert usable_label_fields(["colour"]) == ("class", "vendor", "device")


def test_a_machine_without_usb_has_no_devices(tmp_path: Path) -> None:
    """Without /sys/bus/usb there are no devices, and no failure."""
    assert found_in(tmp_path, {}).instances == {"usb.device": ()}


def test_a_missing_sysfs_is_a_failure(tmp_path: Path) -> None:
    """Without sysfs the source fails: a mount is missing."""
    assert isinstance(discover("usb", host(tmp_path, {}), SourceSettings()), Failed)
