"""A device whose PCI device is off the bus is not healthy, whoever made it."""

from pathlib import Path

import pytest

from device_agent.sources.files.pci import pci_addresses
from device_agent.sources.files.scan import scan
from tests.unit.device_agent.host_tree import HostTree, needs_root, resource

BRIDGE, DEVICE = "pci0000:00/0000:00:01.0", "pci0000:00/0000:00:01.0/0000:3b:00.0"
ANSWERS = b"\xde\x10\x20\x23" + b"\0" * 60
VIRTUAL = b"\xff\xff\xff\xff" + b"\x06\x04\x10\0" + b"\0" * 56
SILENT = b"\xff" * 64
WHY = "its PCI device 0000:3b:00.0 does not answer (config space reads all ones)"


@pytest.fixture
def host(tmp_path: Path) -> HostTree:
    """Make a host with a card behind a bridge."""
    made = HostTree(tmp_path)
    made.node("/dev/card0", 10, 120)
    made.sysfs("10:120", DEVICE, driver="card")
    return made


def config(host: HostTree, device: str, content: bytes) -> None:
    """Write the config space of a PCI device."""
    (host.root / "sys/devices" / device / "config").write_bytes(content)


def why(host: HostTree, **health: object) -> str:
    """Return what is wrong with the card."""
    (state,) = scan(host.path, resource("/dev/card*", health=health), (), lambda _: "")
    return state.why


@needs_root
@pytest.mark.parametrize(
    ("content", "expected"),
    [
        pytest.param(ANSWERS, "", id="answers"),
        pytest.param(ANSWERS + b"\xff" * 192, "", id="with more than a header"),
        pytest.param(SILENT, WHY, id="all ones"),
        pytest.param(SILENT * 4, WHY, id="all ones, as one with capabilities sees it"),
        pytest.param(VIRTUAL, "", id="a virtual function, which has no vendor"),
        pytest.param(b"\xff" * 4, "", id="less than a header"),
        pytest.param(b"", "", id="nothing"),
        pytest.param(None, "", id="no config space"),
    ],
)
def test_all_ones_are_no_answer(host: HostTree, content: bytes | None, expected: str) -> None:
    """Of the whole header, and only where that is asked for."""
    if content is not None:
        config(host, DEVICE, content)
    assert why(host, pci=True) == expected
    assert why(host, pci=False) == why(host) == ""


@needs_root
def test_it_recovers(host: HostTree) -> None:
    """It is healthy again when it answers; that it does not comes before its driver, which may have left it."""
    config(host, DEVICE, SILENT)
    assert why(host, pci=True, driver="other") == WHY
    config(host, DEVICE, ANSWERS)
    assert why(host, pci=True, driver="other") == "driver other is not bound to it, but card is"
    assert why(host, pci=True, driver="card") == ""


@needs_root
def test_the_nearest_pci_device_counts(host: HostTree) -> None:
    """A bridge above it is another device."""
    config(host, DEVICE, ANSWERS)
    config(host, BRIDGE, SILENT)
    assert why(host, pci=True) == ""


@needs_root
def test_a_node_of_no_pci_device_is_not_checked(host: HostTree) -> None:
    """Sysfs does not know it, or it is of another bus."""
    host.remove("/sys/dev/char/10:120")
    assert why(host, pci=True) == ""
    host.sysfs("10:121", "virtual/misc")
    host.remove("/dev/card0")
    host.node("/dev/card0", 10, 121)
    assert why(host, pci=True) == ""


@needs_root
def test_a_device_node_is_of_a_pci_device(host: HostTree) -> None:
    """The nearest one: those above it are bridges. A node of another bus, or of none, has no address."""
    host.node("/dev/ttyS0", 4, 64)
    host.file("/dev/notes")
    assert pci_addresses(host.path, ["/dev/card0"]) == {"0000:3b:00.0"}
    assert pci_addresses(host.path, ["/dev/ttyS0", "/dev/notes", "/dev/none"]) == frozenset()
    assert pci_addresses(host.path, []) == frozenset()
