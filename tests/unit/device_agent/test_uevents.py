"""Which of the kernel's events make the agent look at its devices."""

import pytest

from device_agent.uevents import concerns_devices


def event(action: str, path: str, subsystem: str) -> bytes:
    """Write an event as the kernel does."""
    return b"\0".join(
        line.encode() for line in (f"{action}@{path}", f"ACTION={action}", f"DEVPATH={path}", f"SUBSYSTEM={subsystem}")
    )


@pytest.mark.parametrize(
    ("message", "expected"),
    [
        pytest.param(event("add", "/devices/pci0000:00/0000:00:04.0", "pci"), True, id="a device comes"),
        pytest.param(event("unbind", "/devices/pci0000:00/0000:00:04.0", "pci"), True, id="its driver goes"),
        pytest.param(event("add", "/devices/virtual/misc/edu0", "misc"), True, id="a virtual device"),
        pytest.param(event("add", "/devices/virtual/net/veth1", "net"), False, id="a pod's network"),
        pytest.param(event("add", "/devices/virtual/net/veth1/queues/rx-0", "queues"), False, id="its queue"),
        pytest.param(event("add", "/devices/virtual/bdi/259:1", "bdi"), False, id="a mounted disk"),
        pytest.param(event("add", "/kernel/slab/kmalloc-8(7:cri-1)", "slab"), False, id="a cgroup's cache"),
        pytest.param(event("remove", "/devices/virtual/block/dm-1", "block"), False, id="a container's disk"),
        pytest.param(event("add", "/devices/pci0000:00/0000:00:05.0/net/eth1", "net"), True, id="a network card"),
        pytest.param(event("move", "/devices/pci0000:00/x", "net"), False, id="another name"),
        pytest.param(b"", False, id="nothing"),
        pytest.param(b"libudev\0\xfe\xed", False, id="not the kernel's format"),
    ],
)
def test_events(message: bytes, expected: bool) -> None:
    """Devices and drivers that come or go; not what pods do all day."""
    assert concerns_devices(message) is expected
