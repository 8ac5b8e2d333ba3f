"""Source pci: which devices are there, and what their labels say."""

import logging
from pathlib import Path

import pytest

from feature_rules.features import Failed, Features
from nfd_worker.sources import discover
from nfd_worker.sources.pci import FIELDS, labels, parse_identity, usable_label_fields
from nfd_worker.sources.settings import PciSettings, SourceSettings
from tests.support.nfd_worker.trees import host, recorded


def found_on(name: str) -> Features:
    """Discover a recorded host."""
    found = discover("pci", recorded(name), SourceSettings())
    assert isinstance(found, Features)
    return found


@pytest.mark.parametrize(
    ("settings", "expected"),
    [
        pytest.param(PciSettings(("00",), ("class", "vendor")), {"00ff_1234.present"}, id="unclassified devices"),
        pytest.param(PciSettings(("00FF",), ("device",)), {"11e8.present"}, id="one field, class in upper case"),
        pytest.param(
            PciSettings(("00ff",), ("device", "vendor", "class")), {"00ff_1234_11e8.present"}, id="fixed order"
        ),
        pytest.param(PciSettings(("00ff",), ("colour",)), {"00ff_1234.present"}, id="no known field: the default"),
        pytest.param(PciSettings((), ("class",)), set(), id="nothing wanted"),
        pytest.param(PciSettings(("0x00ff",), ("class",)), {"00ff.present"}, id="class with 0x"),
        pytest.param(PciSettings(("00ff00",), ("class",)), {"00ff.present"}, id="class with programming interface"),
        pytest.param(PciSettings((" 00ff ",), ("class",)), {"00ff.present"}, id="class with blanks"),
        pytest.param(PciSettings(("00*", "00ff0000"), ("class",)), set(), id="no class"),
    ],
)
def test_labels_say_what_the_settings_ask_for(settings: PciSettings, expected: set[str]) -> None:
    """QEMU's edu device is of class 00ff."""
    assert set(labels(found_on("debian-qemu-guest"), SourceSettings(pci=settings))) == expected


def test_two_devices_of_a_kind_are_one_label() -> None:
    """A label says that there is one, and whether it can make virtual functions."""
    assert labels(found_on("intel-gpu-server"), SourceSettings()) == {
        "0300_102b.present": "true",
        "0302_10de.present": "true",
        "0302_10de.sriov.capable": "true",
    }


@pytest.mark.parametrize(
    ("functions", "upstream", "is_capable"),
    [
        pytest.param("8", False, True, id="eight"),
        pytest.param("0", False, False, id="none allowed by the firmware"),
        pytest.param("", False, False, id="no number"),
        pytest.param("0", True, True, id="none, as upstream"),
    ],
)
def test_a_device_without_virtual_functions_cannot_make_any(functions: str, upstream: bool, is_capable: bool) -> None:
    """That the kernel shows the amount says only that the device has the capability in its configuration space."""
    device = {**dict.fromkeys(FIELDS, "15b3"), "class": "0300", "sriov_totalvfs": functions}
    made = labels(Features(instances={"pci.device": (device,)}), SourceSettings(upstream_hardware_labels=upstream))
    assert ("0300_15b3.sriov.capable" in made) is is_capable


def test_devices_are_listed_by_address() -> None:
    """The order of instances is the same in every cycle."""
    vendors = [device["vendor"] for device in found_on("intel-gpu-server").instances["pci.device"]]
    assert vendors == ["8086", "10de", "10de", "15b3", "102b"]


def test_a_device_without_all_fields_is_left_out() -> None:
    """A device without all fields is being removed, and is left out."""
    assert parse_identity({"class": "0x030000\n", "vendor": "0x10de\n"}) is None


def test_a_device_that_goes_away_while_it_is_read_is_not_there(
    tmp_path: Path, caplog: pytest.LogCaptureFixture
) -> None:
    """The others are, and no warning is logged: upstream logs an error."""
    whole = dict.fromkeys((*FIELDS, "sriov_totalvfs"), "0x0300\n")
    files = {f"0000:00:01.0/{name}": text for name, text in whole.items()} | {"0000:00:02.0/class": "0x030000\n"}
    it = host(tmp_path, {f"sys/bus/pci/devices/{name}": text for name, text in files.items()})
    found = discover("pci", it, SourceSettings())
    assert isinstance(found, Features)
    assert found.instances["pci.device"] == (dict.fromkeys(whole, "0300"),)
    assert [record.message for record in caplog.records if record.levelno >= logging.WARNING] == []


def test_what_stays_of_a_device_is_read_once(tmp_path: Path) -> None:
    """Until another one comes to its address; what a driver or an admin can change is read each time."""
    device = {**dict.fromkeys(FIELDS, "0x1111\n"), "sriov_totalvfs": "8\n"}
    path = tmp_path / "sys/bus/pci/devices/0000:01:00.0"
    it = host(tmp_path, {f"sys/bus/pci/devices/0000:01:00.0/{name}": text for name, text in device.items()})
    host(tmp_path, {f"other/{name}": text for name, text in {**device, "vendor": "0x2222\n"}.items()})

    def found() -> dict[str, str]:
        features = discover("pci", it, SourceSettings())
        assert isinstance(features, Features)
        (one,) = features.instances["pci.device"]
        return {name: one.get(name, "") for name in ("vendor", "sriov_totalvfs", "iommu_group/type")}

    assert found() == {"vendor": "1111", "sriov_totalvfs": "8", "iommu_group/type": ""}
    (path / "vendor").write_text("0x3333\n")
    (path / "sriov_totalvfs").write_text("0\n")
    (path / "iommu_group").mkdir()
    (path / "iommu_group/type").write_text("DMA\n")
    assert found() == {"vendor": "1111", "sriov_totalvfs": "0", "iommu_group/type": "DMA"}
    path.rename(tmp_path / "gone")
    (tmp_path / "other").rename(path)
    assert found() == {"vendor": "2222", "sriov_totalvfs": "8", "iommu_group/type": ""}


def test_a_machine_without_a_pci_bus_has_no_devices(tmp_path: Path) -> None:
    """Without /sys/bus/pci there are no devices, and no failure."""
    found = discover("pci", host(tmp_path, {"sys/bus/cpu/x": ""}), SourceSettings())
    assert isinstance(found, Features)
    assert found.instances == {"pci.device": ()}


def test_a_missing_sysfs_is_a_failure(tmp_path: Path) -> None:
    """Then a mount is missing, and not the hardware."""
    found = discover("pci", host(tmp_path, {}), SourceSettings())
    assert isinstance(found, Failed)
    assert "is the host's /sys mounted there?" in found.reason


def test_fields_keep_their_order_whatever_the_settings_say() -> None:
    """Workloads select by the label's name."""
    assert usable_label_fields(["subsystem_vendor", "device", "x"]) == ("device", "subsystem_vendor")
