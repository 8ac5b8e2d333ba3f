"""The little that is read of the node's /sys and /proc besides NVML."""

import os

_MODULE = "sys/module/nvidia"
_NUMA_NODE = "sys/bus/pci/devices/{}/numa_node"
_BOOT_ID = "proc/sys/kernel/random/boot_id"
_LONGEST = 64


def read_load(root: str) -> str:
    """Return a text that is another one after each load of the module ``nvidia``; empty where it is not loaded."""
    try:
        return str(os.stat(f"{root.rstrip('/')}/{_MODULE}").st_ino)  # noqa: PTH116 - pathlib costs 1 MiB
    except OSError:
        return ""


def read_numa_node(root: str, pci: str) -> int | None:
    """Return the NUMA node of a PCI device; None where the machine has none."""
    text = _read(root, _NUMA_NODE.format(pci))
    return int(text) if text.isascii() and text.isdigit() else None


def read_boot_id(proc_root: str) -> str:
    """Return the kernel's id of this boot; empty when it cannot be read."""
    return _read(proc_root, _BOOT_ID)


def _read(root: str, path: str) -> str:
    try:
        descriptor = os.open(f"{root.rstrip('/')}/{path}", os.O_RDONLY | os.O_CLOEXEC)
    except OSError:
        return ""
    try:
        return os.read(descriptor, _LONGEST).decode(errors="replace").strip()
    except OSError:
        return ""
    finally:
        os.close(descriptor)
