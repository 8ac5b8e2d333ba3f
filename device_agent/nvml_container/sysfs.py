"""The little that is read of the node's /sys besides NVML."""

import os

from device_agent.boot import read_line

_MODULE = "sys/module/nvidia"
_NUMA_NODE = "sys/bus/pci/devices/{}/numa_node"


def read_load(root: str) -> str:
    """Return a text that is another one after each load of the module ``nvidia``; empty where it is not loaded."""
    try:
        return str(os.stat(f"{root.rstrip('/')}/{_MODULE}").st_ino)  # noqa: PTH116 - pathlib costs 1 MiB
    except OSError:
        return ""


def read_numa_node(root: str, pci: str) -> int | None:
    """Return the NUMA node of a PCI device; None where the machine has none."""
    text = read_line(root, _NUMA_NODE.format(pci))
    return int(text) if text.isascii() and text.isdigit() else None
