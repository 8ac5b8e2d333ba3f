"""PCI numbers in words."""

from collections.abc import Mapping
from pathlib import Path

import pytest
from hypothesis import given
from hypothesis import strategies as st

from nfd_worker.cli.pci_names import PCI_IDS, PciNames, names_of_udev, parse_pci_ids, read_pci_names
from nfd_worker.host import Host
from tests.support.nfd_worker.trees import host

TEXT = """\
# comment
10de  NVIDIA Corporation
\t2330  GH100 [H100 SXM5 80GB]
\t\t10de 16c1  a subsystem
\tABCD  Upper Case
15B3  Mellanox Technologies

C 02  Network controller
C 03  Display controller
\t02  3D controller
\t\t00  a programming interface
"""
NAMES = PciNames(
    vendors={"10de": "NVIDIA Corporation", "15b3": "Mellanox Technologies"},
    devices={"10de2330": "GH100 [H100 SXM5 80GB]", "10deabcd": "Upper Case"},
    classes={"02": "Network controller", "03": "Display controller", "0302": "3D controller"},
)


def test_vendors_devices_and_classes_are_read() -> None:
    """Subsystems, programming interfaces and comments of pci.ids are skipped."""
    assert parse_pci_ids(TEXT) == NAMES


@given(st.text())
def test_any_text_can_be_read(text: str) -> None:
    """Names are in words, and every number in it is one of the text's."""
    names = parse_pci_ids(text)
    assert all({**names.vendors, **names.devices, **names.classes}.values())


@pytest.mark.parametrize(
    ("device", "words"),
    [
        (
            {"class": "0302", "vendor": "10de", "device": "2330"},
            "3D controller: NVIDIA Corporation GH100 [H100 SXM5 80GB]",
        ),
        ({"class": "0302", "vendor": "10de"}, "3D controller: NVIDIA Corporation"),
        ({"class": "0207", "vendor": "15b3", "device": "1021"}, "Network controller: Mellanox Technologies"),
        ({"vendor": "10de"}, "NVIDIA Corporation"),
        ({"class": "ffff", "vendor": "ffff"}, ""),
        ({}, ""),
    ],
    ids=["all", "no device", "unknown sub class and device", "vendor", "unknown", "nothing"],
)
def test_a_device_is_named_as_far_as_it_is_known(device: Mapping[str, str], words: str) -> None:
    """An unknown sub class has the name of its base class."""
    assert NAMES.device_name(device) == words


@pytest.mark.parametrize("path", PCI_IDS)
def test_the_database_of_the_host_is_read(tmp_path: Path, path: str) -> None:
    """pci.ids is found at each place where distributions put it."""
    assert read_pci_names(host(tmp_path, {path: TEXT})) == NAMES


def test_a_recorded_host_without_a_database_has_no_words(tmp_path: Path) -> None:
    """This machine's udev knows nothing of it; nor is an unreadable database a reason to fail."""
    assert read_pci_names(Host(str(tmp_path))) == PciNames()
    (tmp_path / PCI_IDS[0]).mkdir(parents=True)
    assert read_pci_names(Host(str(tmp_path))) == PciNames()


def test_this_machine_has_what_its_udev_knows() -> None:
    """Which may be nothing, and then is no error."""
    names = read_pci_names(Host("/"))
    assert all(name for names_of_kind in names for name in names_of_kind.values())


def test_udev_knows_names_too() -> None:
    """Its classes have no leading zero; what its database does not name is left out."""
    gpu = {
        "PCI_ID": "10DE:2330",
        "PCI_CLASS": "30200",
        "ID_VENDOR_FROM_DATABASE": "NVIDIA Corporation",
        "ID_MODEL_FROM_DATABASE": "GH100",
        "ID_PCI_CLASS_FROM_DATABASE": "Display controller",
        "ID_PCI_SUBCLASS_FROM_DATABASE": "3D controller",
    }
    assert names_of_udev([gpu, {"PCI_ID": "1AF4:1045", "PCI_CLASS": "FFFF00"}, {}]) == PciNames(
        vendors={"10de": "NVIDIA Corporation"},
        devices={"10de2330": "GH100"},
        classes={"03": "Display controller", "0302": "3D controller"},
    )
