"""Which PCI device a device node is of, and whether it answers: the one sign of a lost card that all vendors have."""

import re
from collections.abc import Iterable

from device_agent.sources.files.find import raise_if_exhausted
from device_agent.sources.files.sysfs import device_folders

_ADDRESS = re.compile(r"[0-9a-f]{4,8}:[0-9a-f]{2}:[0-9a-f]{2}\.[0-7]")
_HEADER = 64
"""Bytes of the config space that may be read without capabilities, and that each device has."""


def silent_device(root: str, paths: list[str]) -> str:
    """Return which PCI device of these nodes does not answer; empty if each does, or there is none.

    A read to which no device answers has all bits set. Of a virtual function only the vendor and device have: the
    whole header tells.
    """
    for path in paths:
        if (folder := _pci_folder(root, path)) and _is_all_ones(f"{folder}/config"):
            return f"its PCI device {_address(folder)} does not answer (config space reads all ones)"
    return ""


def pci_addresses(root: str, paths: Iterable[str]) -> frozenset[str]:
    """Return the addresses of the PCI devices of nodes, such as ``0000:03:00.0``; those of other buses have none."""
    return frozenset(_address(folder) for path in paths if (folder := _pci_folder(root, path)))


def _pci_folder(root: str, path: str) -> str:
    """Return the folder of the nearest PCI device above a node; those further up are bridges."""
    return next((folder for folder in device_folders(root, path) if _ADDRESS.fullmatch(_address(folder))), "")


def _address(folder: str) -> str:
    return folder.rpartition("/")[2]


def _is_all_ones(config: str) -> bool:
    try:
        with open(config, "rb", buffering=0) as file:  # noqa: PTH123 - as in find.py
            return file.read(_HEADER) == b"\xff" * _HEADER
    except OSError as error:
        raise_if_exhausted(error)
        return False
