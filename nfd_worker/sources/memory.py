"""Source ``memory``: NUMA nodes, swap, huge pages and non-volatile memory.

Formats: the kernel's Documentation/ABI/stable/sysfs-devices-node, Documentation/admin-guide/mm/hugetlbpage.rst and
Documentation/ABI/testing/sysfs-bus-nvdimm; proc(5) for ``/proc/swaps``.
"""

import re
from collections.abc import Sequence

from feature_rules.features import Attributes, Features, Instances
from nfd_worker.host import Host
from nfd_worker.sources.settings import SourceSettings

_NODES = "sys/bus/node/devices"
_HUGE_PAGES = "sys/kernel/mm/hugepages"
_NV_DEVICES = "sys/bus/nd/devices"

_HUGE_PAGE_SIZE = re.compile(r"hugepages-([1-9][0-9]{0,17})kB", re.ASCII)


def discover(host: Host, settings: SourceSettings) -> Features:
    """Read all that is known of the memory; a kernel without NUMA or swap has no such feature.

    Raises:
        HostReadError: without a sysfs.
    """
    host.require("sys/bus")
    attributes: dict[str, Attributes] = {"memory.hugepages": discover_huge_pages(host)}
    nodes = host.entries(_NODES)
    if nodes:
        attributes["memory.numa"] = discover_numa(host, nodes, settings)
    swaps = host.find("proc/swaps")
    if swaps is not None:
        attributes["memory.swap"] = parse_swaps(swaps)
    return Features(attributes=attributes, instances={"memory.nv": discover_nv(host)})


def labels(features: Features, settings: SourceSettings) -> dict[str, str]:
    """Label NUMA, swap and non-volatile memory where they are; huge pages have no label."""
    devices = features.instances["memory.nv"]
    if not settings.upstream_hardware_labels:
        devices = tuple(device for device in devices if _is_memory(device))
    found = {
        "numa": features.attributes.get("memory.numa", {}).get("is_numa") == "true",
        "swap": features.attributes.get("memory.swap", {}).get("enabled") == "true",
        "nv.present": bool(devices),
        "nv.dax": any(device.get("devtype") == "nd_dax" for device in devices),
    }
    return {name: "true" for name, is_there in found.items() if is_there}


def discover_numa(host: Host, nodes: Sequence[str], settings: SourceSettings) -> dict[str, str]:
    """Count the nodes, and those with CPUs: the others are memory alone, such as that of a GPU (GH200 has eight)."""
    cpus = [host.find(f"{_NODES}/{node}/cpulist") for node in nodes]
    with_cpus = sum(each is None or bool(each.strip()) for each in cpus)
    counted = len(nodes) if settings.upstream_hardware_labels else with_cpus
    return {"is_numa": _bool(counted > 1), "node_count": str(len(nodes)), "cpu_node_count": str(with_cpus)}


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
    return {"name": name, **host.find_all(f"{_NV_DEVICES}/{name}", ("devtype", "mode", "namespace"))}


def _is_memory(device: Attributes) -> bool:
    """Return whether this is neither a bus nor one of the empty devices that the kernel makes with each region."""
    return not device["name"].startswith("ndbus") and device.get("namespace") != ""


def _bool(value: bool) -> str:
    return "true" if value else "false"
