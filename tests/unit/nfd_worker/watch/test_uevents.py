"""Devices that come or go: which events count, and that the kernel's arrive."""

import os
import select
import subprocess
import sys
from pathlib import Path

import pytest

from nfd_worker.sources import SOURCES
from nfd_worker.watch.uevents import DeviceWatch, is_of_interest, watch_devices

NULL = Path("/sys/devices/virtual/mem/null/uevent")
GPU = "/devices/pci0000:00/0000:00:01.0"


@pytest.mark.parametrize(
    ("action", "subsystem", "path", "counts"),
    [
        pytest.param("add", "pci", GPU, True, id="a card is put in"),
        pytest.param("remove", "pci", GPU, True, id="a card is taken out"),
        pytest.param("bind", "pci", GPU, True, id="a driver takes a card"),
        pytest.param("add", "usb", "/devices/pci0000:00/usb1/1-1", True, id="a stick is plugged in"),
        pytest.param("change", "usb", "/devices/pci0000:00/usb1/1-1", False, id="a USB device changes its mind"),
        pytest.param("add", "net", f"{GPU}/net/eth1", True, id="a network card"),
        pytest.param("add", "net", "/devices/virtual/net/veth12", False, id="the network of a pod"),
        pytest.param("add", "block", f"{GPU}/block/sda", True, id="a disk"),
        pytest.param("change", "block", f"{GPU}/block/sr0", False, id="a disk is put into a drive"),
        pytest.param("add", "block", "/devices/virtual/block/loop3", False, id="the disk of an image"),
        pytest.param("add", "module", "/module/nvidia", True, id="a kernel module is loaded"),
        pytest.param("add", "bdi", "/devices/virtual/bdi/7:3", False, id="a subsystem without features"),
    ],
)
def test_events_count_that_can_change_a_feature(action: str, subsystem: str, path: str, counts: bool) -> None:
    """What comes and goes all day and makes no label wakes nobody."""
    assert is_of_interest(action, subsystem, path) is counts


@pytest.mark.parametrize("name", SOURCES)
def test_every_event_that_a_source_names_counts(name: str) -> None:
    """The worker reads the source at once, and not at the next interval."""
    for subsystem, actions in SOURCES[name].uevents.items():
        assert all(is_of_interest(action, subsystem, f"/devices/{subsystem}") for action in actions)


def is_ready(watch: DeviceWatch, seconds: float) -> bool:
    """Wait for an event."""
    return bool(select.select([watch], [], [], seconds)[0])


def test_the_kernels_events_arrive_and_others_do_not_count() -> None:
    """The kernel sends an event when told to by root, as it does when a device comes."""
    pci = sorted(Path("/sys/bus/pci/devices").glob("*/uevent"))
    if not pci or not os.access(pci[0], os.W_OK) or not NULL.exists():
        pytest.skip("needs root and a PCI device")
    watch = watch_devices()
    assert watch is not None
    NULL.write_text("change")
    pci[0].write_text("add")
    arrived: set[str] = set()
    while "pci" not in arrived:
        assert is_ready(watch, 60.0)
        arrived |= watch.drain()
    # Events come in their order; some may be of this machine's other devices.
    assert "mem" not in arrived


def test_pyudev_comes_without_what_it_does_not_need() -> None:
    """And what is imported later is the real thing."""
    code = (
        "import sys; from nfd_worker.watch.uevents import watch_devices; watch = watch_devices();"
        " assert 'pyudev' in sys.modules; assert 'tempfile' not in sys.modules; assert 'random' not in sys.modules;"
        " import subprocess, ctypes.util; assert subprocess.run; assert ctypes.util.find_library('c')"
    )
    subprocess.run([sys.executable, "-I", "-c", code], check=True, timeout=300)
