"""Source ``memory``: NUMA nodes, swap, huge pages and non-volatile memory.

Formats: the kernel's Documentation/ABI/stable/sysfs-devices-node, Documentation/admin-guide/mm/hugetlbpage.rst and
Documentation/ABI/testing/sysfs-bus-nvdimm; proc(5) for ``/proc/swaps``.
"""

import re

from feature_rules.features import Attributes, Features, Instances
from nfd_worker.host import Host
from nfd_worker.sources.settings import SourceSettings

_NODES = "sys/bus/node/devices"
_HUGE_PAGES = "sys/kernel/mm/hugepages"
_NV_DEVICES = "sys/bus/nd/devices"

_HUGE_PAGE_SIZE = re.compile(r"hugepages-([1-9][0-9]{0,17})kB", re.ASCII)


def discover(host: Host, _settings: SourceSettings) -> Features:
    """Read all that is known of the memory; a kernel without NUMA or swap has no such feature.

    Raises:
        HostReadError: without a sysfs.
    """
    host.require("sys/bus")
    attributes: dict[str, Attributes] = {"memory.hugepages": discover_huge_pages(host)}
    nodes = len(host.entries(_NODES))
    if nodes:
        attributes["memory.numa"] = {"is_numa": _bool(nodes > 1), "node_count": str(nodes)}
    swaps = host.find("proc/swaps")
    if swaps is not None:
        attributes["memory.swap"] = parse_swaps(swaps)
    return Features(attributes=attributes, instances={"memory.nv": discover_nv(host)})


def labels(features: Features, _settings: SourceSettings) -> dict[str, str]:
    """Label NUMA, swap and non-volatile memory where they are; huge pages have no label."""
    devices = features.instances["memory.nv"]
    found = {
        "numa": features.attributes.get("memory.numa", {}).get("is_numa") == "true",
        "swap": features.attributes.get("memory.swap", {}).get("enabled") == "true",
        "nv.present": bool(devices),
        "nv.dax": any(device.get("devtype") == "nd_dax" for device in devices),
    }
    return {name: "true" for name, is_there in found.items() if is_there}


def parse_swaps(proc_swaps: str) -> dict[str, str]:
    """Return whether there is swap: a line below the heading."""
    lines = [line for line in proc_swaps.splitlines() if line.strip()]
    return {"enabled": _bool(len(lines) > 1)}


def discover_huge_pages(host: Host) -> dict[str, str]:
    """Count the pages of each size that are reserved, and find out whether there are any."""
    counts: dict[str, int] = {}
    for entry in host.entries(_HUGE_PAGES):
        size = _HUGE_PAGE_SIZE.fullmatch(entry)
        pages = host.find_int(f"{_HUGE_PAGES}/{entry}/nr_hugepages") if size else None
        if size and pages is not None:
            counts[f"hugepages-{quantity(int(size[1]))}"] = pages
    return {"enabled": _bool(any(counts.values())), **{name: str(pages) for name, pages in counts.items()}}


def quantity(kibibytes: int) -> str:
    """Write an amount as Kubernetes does: in the largest binary unit that leaves it whole."""
    units = ["Ki", "Mi", "Gi", "Ti", "Pi", "Ei"]
    while kibibytes % 1024 == 0 and len(units) > 1:
        kibibytes //= 1024
        units.pop(0)
    return f"{kibibytes}{units[0]}"


def discover_nv(host: Host) -> Instances:
    """List what the NVDIMM bus has: regions, namespaces, DAX devices."""
    return tuple(_read_nv(host, name) for name in host.entries(_NV_DEVICES))


def _read_nv(host: Host, name: str) -> Attributes:
    return {"name": name, **host.find_all(f"{_NV_DEVICES}/{name}", ("devtype", "mode"))}


def _bool(value: bool) -> str:
    return "true" if value else "false"
