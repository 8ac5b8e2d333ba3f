"""Examples of docs/device-agent.md for cards of other vendors: read by the agent, and scanned on a tree like a host."""

from pathlib import Path
from typing import NamedTuple

import pytest

from device_agent.config.config_file import Description, parse_description
from device_agent.devices.model import DeviceNode
from device_agent.profiles.apply import shares_of_others
from device_agent.profiles.parse import parse_profile
from device_agent.sources.files.scan import scan
from device_resources.memory_limits import MemoryMode
from tests.support.console import ROOT, blocks
from tests.unit.device_agent.host_tree import HostTree, needs_root

PAGE = "docs/device-agent.md"
SECTION = (ROOT / PAGE).read_text().partition("\n## Other vendors\n")[2].partition("\n## ")[0]
BLOCKS = [text for text in blocks(PAGE, "yaml") if text in SECTION]


class Vendor(NamedTuple):
    """Cards of a vendor. ``nodes``: device nodes of each; ``common``: one of all, without a device of its own."""

    driver: str
    nodes: tuple[tuple[str, int, int], ...]
    common: tuple[str, int, int] | None = None
    shares: int = 1


VENDORS = {
    "amd.com/gpu": Vendor(
        "amdgpu", (("/dev/dri/renderD128", 226, 128), ("/dev/dri/renderD129", 226, 129)), ("/dev/kfd", 235, 0)
    ),
    "gpu.intel.com/i915": Vendor(
        "i915", (("/dev/dri/renderD128", 226, 128), ("/dev/dri/renderD129", 226, 129)), shares=4
    ),
    "example.com/fpga": Vendor("dfl-pci", (("/dev/dfl-port.0", 240, 0), ("/dev/dfl-port.1", 240, 1))),
    "rdma/hca": Vendor(
        "mlx5_core", (("/dev/infiniband/uverbs0", 231, 192), ("/dev/infiniband/uverbs1", 231, 193)),
        ("/dev/infiniband/rdma_cm", 10, 58), shares=16,
    ),
}  # fmt: skip


def examples() -> dict[str, Description]:
    """Read each example as the agent does, by the name of its resource."""
    read = [parse_description(text, "config.yaml") for text in BLOCKS if text.startswith("resources:")]
    return {description.resources[0].name: description for description in read}


def bus(index: int) -> str:
    """Return the PCI device of the card of an index, below the machine's devices."""
    return f"pci0000:00/0000:0{index + 3}:00.0"


def host_with(tmp_path: Path, vendor: Vendor) -> HostTree:
    """Make a host with the cards of a vendor, each on a NUMA node of its own."""
    host = HostTree(tmp_path)
    for index, (path, major, minor) in enumerate(vendor.nodes):
        host.node(path, major, minor)
        host.sysfs(f"{major}:{minor}", bus(index), driver=vendor.driver, numa=str(index))
        host.file(f"/sys/devices/{bus(index)}/config", "a header")
    if vendor.common:
        path, major, minor = vendor.common
        host.node(path, major, minor)
        host.sysfs(f"{major}:{minor}", "virtual/misc/common")
    return host


def found(name: str, host: HostTree) -> dict[str, tuple[tuple[str, ...], str, tuple[int, ...]]]:
    """Scan for an example's resource: its own node -> all nodes, what is wrong, NUMA nodes."""
    (resource,) = examples()[name].resources
    own = [path for path, _, _ in VENDORS[name].nodes]
    made = {}
    for one in scan(host.path, resource, (), lambda _: ""):
        paths = tuple(file.path for file in one.unit.files if isinstance(file, DeviceNode))
        made[next(path for path in paths if path in own)] = (paths, one.why, one.numa_nodes)
    return made


def test_there_is_an_example_of_each() -> None:
    """With how many containers may have a device; each device may be read and written, and no node made."""
    read = examples()
    assert read.keys() == VENDORS.keys()
    for name, description in read.items():
        (resource,) = description.resources
        (group,) = resource.groups
        assert group.count == VENDORS[name].shares
        assert {path.permissions for path in group.paths} == {"rw"}
    exporter, memory = read["amd.com/gpu"].exporter, read["gpu.intel.com/i915"].memory
    assert exporter is not None
    assert exporter.per_pod is True
    assert memory is not None
    assert memory.mode is MemoryMode.WATCH
    assert dict(memory.limits) == {"gpu.intel.com/i915": 4 << 30}


@needs_root
@pytest.mark.parametrize("name", VENDORS)
def test_cards_are_found_with_what_belongs_to_them(tmp_path: Path, name: str) -> None:
    """Each with its own node and the common one, on its NUMA node."""
    vendor = VENDORS[name]
    common = (vendor.common[0],) if vendor.common else ()
    seen = found(name, host_with(tmp_path, vendor))
    assert {own: (set(paths), why, numa) for own, (paths, why, numa) in seen.items()} == {
        path: ({path, *common}, "", (index,)) for index, (path, _, _) in enumerate(vendor.nodes)
    }


@needs_root
@pytest.mark.parametrize("name", VENDORS)
def test_a_card_with_another_driver_is_not_given(tmp_path: Path, name: str) -> None:
    """Such as one of another vendor, whose nodes have names alike; the other card is."""
    vendor = VENDORS[name]
    host = host_with(tmp_path, vendor)
    host.remove(f"/sys/devices/{bus(1)}/driver")
    host.bind(bus(1), "another")
    first, second = (why for _, why, _ in found(name, host).values())
    assert (first, second) == ("", f"driver {vendor.driver} is not bound to it, but another is")


@needs_root
@pytest.mark.parametrize("name", VENDORS)
def test_a_card_off_the_bus_is_not_given(tmp_path: Path, name: str) -> None:
    """Its config space reads all ones; the other card is."""
    host = host_with(tmp_path, VENDORS[name])
    (host.root / f"sys/devices/{bus(1)}/config").write_bytes(b"\xff" * 64)
    first, second = (why for _, why, _ in found(name, host).values())
    assert first == ""
    assert second.startswith("its PCI device 0000:04:00.0 does not answer")


def test_the_profile_shares_the_cards() -> None:
    """Under another name; what it does not name stays as it is described."""
    (text,) = (text for text in BLOCKS if text.startswith("version:"))
    profile = parse_profile(text, "packed")
    assert shares_of_others(profile, set(VENDORS)) == {"amd.com/gpu": ("amd.com/gpu.shared", 4)}
    assert profile.ignored == ()
