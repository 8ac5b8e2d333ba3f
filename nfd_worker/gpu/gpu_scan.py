"""Child of the worker: asks NVML for the GPUs of this node, prints one line of JSON and is gone.

Run as ``python -I -m nfd_worker.gpu.gpu_scan`` by :mod:`nfd_worker.gpu.scan_runner`. Only here is
:mod:`nvml_inventory` imported: package and driver library need memory that the resident process does not have, may
hang in the kernel, and may crash.

Standard input is a JSON object, or nothing: ``root`` is where the host's files are (default ``/``), ``library`` the one
path at which to take ``libnvidia-ml.so.1`` (default: the loader's search path, then the usual places below the root).
"""

import json
import sys
from typing import Any

from device_resources.gpu_sharing import LONGEST, InvalidSharing, parse_sharing
from nfd_worker.errors import HostReadError
from nfd_worker.host import Host
from nfd_worker.sources.gpu import SHARING_FILE
from nvml_inventory.errors import NvmlInventoryError
from nvml_inventory.inventory import read_inventory
from nvml_inventory.values import Absent, Card, Inventory, Unreadable

_FOR_DEVICES = frozenset({"minor", "nvlinks", "gi", "ci", "pci_id", "mig_pending"})
"""No feature is made of these; rules would see numbers that change with a boot."""

_PRODUCT_NAME = "sys/devices/virtual/dmi/id/product_name"


def main() -> None:
    """Answer the request on standard input."""
    request = json.loads(sys.stdin.read() or "{}")
    json.dump(scan(Host(request.get("root", "/")), request.get("library", "")), sys.stdout)
    print()


def scan(host: Host, library: str) -> dict[str, Any]:
    """Ask NVML for everything; never raises.

    ``state`` is ``ok``, ``absent`` (no package, no library, no driver or no GPU of its: all normal) or ``failed``;
    ``reason`` is a sentence unless ok. With ``ok`` come ``driver`` (X.Y or X.Y.Z), ``cuda`` (1000 major + 10 minor),
    ``machine`` (DMI product name or "") and ``devices``, in NVML's order: see :class:`nvml_inventory.values.Card`,
    with ``pci_class`` and ``numa_node`` of sysfs, and without what only gives GPUs to pods. Where device-agent has
    reported how they are shared, ``sharing`` has it, or ``sharing_problem`` why that cannot be used.
    """
    try:
        found = read_inventory(host.root, library)
        if isinstance(found, Absent):
            return {"state": "absent", "reason": found.reason}
        return _answer(host, found)
    except (NvmlInventoryError, HostReadError) as error:
        return {"state": "failed", "reason": str(error)}


def _answer(host: Host, found: Inventory) -> dict[str, Any]:
    """Make the answer. One GPU that cannot be read fails all: a count without it would be a false label.

    Raises:
        HostReadError: when sysfs cannot be read.
    """
    if reasons := [card.reason for card in found.cards if isinstance(card, Unreadable)]:
        return {"state": "failed", "reason": "; ".join(reasons)}
    return {
        "state": "ok",
        "reason": "",
        "driver": found.driver,
        "cuda": found.cuda,
        "machine": (host.find(_PRODUCT_NAME) or "").strip(),
        "devices": [_device(host, card) for card in found.cards if isinstance(card, Card)],
        **_sharing(host),
    }


def _sharing(host: Host) -> dict[str, Any]:
    """Read how the GPUs are shared: the attributes of ``gpu.sharing``, by the keys of labels; nothing without a report.

    What is wrong with it leaves the labels as they are without one.
    """
    if not host.has(SHARING_FILE):
        return {}
    try:
        found = parse_sharing(host.read_regular(SHARING_FILE, LONGEST))
    except HostReadError as error:
        return {"sharing_problem": str(error)}
    except InvalidSharing as error:
        return {"sharing_problem": f"/{SHARING_FILE}: {error}"}
    sharing = {"mig_strategy": found.mig_strategy}
    for name, one in found.resources.items():
        sharing[f"{name}.replicas"] = str(one.replicas)
        sharing[f"{name}.sharing-strategy"] = one.strategy
        sharing[f"{name}.renamed"] = str(one.is_renamed).lower()
    return {"sharing": sharing}


def _device(host: Host, card: Card) -> dict[str, Any]:
    return {
        **_without(card._asdict(), _FOR_DEVICES),
        "pci_class": _pci_class(host, card.pci_bus_id),
        "numa_node": _numa_node(host, card.pci_bus_id),
        "migs": [_without(mig._asdict(), _FOR_DEVICES) for mig in card.migs],
    }


def _without(values: dict[str, Any], names: frozenset[str]) -> dict[str, Any]:
    return {name: value for name, value in values.items() if name not in names}


def _pci_class(host: Host, address: str) -> str | None:
    """Read base and sub class, as the source ``pci`` has them; None in a container without the host's sysfs."""
    text = host.find(f"sys/bus/pci/devices/{address}/class")
    return text and text.strip().removeprefix("0x")[:4]


def _numa_node(host: Host, address: str) -> str | None:
    """Read the NUMA node; None for -1, which is the kernel's word for a machine with only one."""
    text = (host.find(f"sys/bus/pci/devices/{address}/numa_node") or "-1").strip()
    return None if text == "-1" else text


if __name__ == "__main__":
    main()
