"""Cards of other vendors, as the kernel's DRM drivers show them in sysfs, and which processes use them."""

import os
import re
from collections.abc import Iterable, Iterator, Mapping

from device_agent.boot import read_line, read_text, seconds_since_boot
from device_agent.gpu_state.checks import MOST
from device_agent.gpu_state.use import NVIDIA, CardUse, ProcessUse
from device_agent.nvml_container.fdinfo import Client, Engines, list_descriptors, read_client
from device_agent.nvml_container.processes import Process, read_start
from kube_api.text import printable

_CARDS = "sys/class/drm"
_CARD = re.compile(r"card(\d{1,5})", re.ASCII)
_PCI = re.compile(r"[0-9a-f]{4,8}:[0-9a-f]{2}:[0-9a-f]{2}\.[0-7]")
_LONGEST_NAME = 100
_MOST_PERCENT = 100
_MOST_DESCRIPTORS = 1 << 13
"""Open files of a pod that are looked at in a sample: 10 microseconds each."""


def read_cards(root: str) -> tuple[CardUse, ...]:
    """Read the PCI cards of all drivers but NVIDIA's, by their index, without processes."""
    try:
        names = os.listdir(f"{root.rstrip('/')}/{_CARDS}")  # noqa: PTH208 - pathlib costs 1 MiB
    except OSError:  # there is no DRM driver
        return ()
    indexes = sorted(int(found[1]) for name in names if (found := _CARD.fullmatch(name)))
    return tuple(card for index in indexes for card in _read_card(root, index))


def _read_card(root: str, index: int) -> Iterator[CardUse]:
    device = f"{root.rstrip('/')}/{_CARDS}/card{index}/device"
    pci, driver = _target(device), _target(f"{device}/driver")
    if _PCI.fullmatch(pci) and driver not in {"", NVIDIA}:
        name = printable(read_text(f"{device}/product_name", _LONGEST_NAME).strip(), _LONGEST_NAME)
        yield CardUse(pci, pci, driver, index, name=name, values=_read_values(root, f"{_CARDS}/card{index}/device"))


def is_pci(card: str) -> bool:
    """Return whether a card is known by its PCI address, as those of other drivers than NVIDIA's are."""
    return _PCI.fullmatch(card) is not None


def uses_card(proc: str, pid: int, card: str) -> bool:
    """Return whether a process has a card open, by its PCI address."""
    clients = (read_client(proc, pid, one) for one in list_descriptors(proc, pid, _MOST_DESCRIPTORS))
    return any(client is not None and client.card == card for client in clients)


def _target(link: str) -> str:
    """Return the last part of where a link leads; empty where there is none."""
    try:
        return os.path.basename(os.readlink(link))  # noqa: PTH115, PTH119 - pathlib costs 1 MiB
    except OSError:
        return ""


def _read_values(root: str, device: str) -> dict[str, float]:
    """Read what amdgpu says of a card; other drivers say nothing here. To ask one that is suspended would wake it."""
    if read_line(root, f"{device}/power/runtime_status") == "suspended":
        return {}
    total, used, busy = (
        _number(read_line(root, f"{device}/{name}"))
        for name in ("mem_info_vram_total", "mem_info_vram_used", "gpu_busy_percent")
    )
    free = None if total is None or used is None else max(0, total - used)
    values = {
        "memory_total": total,
        "memory_used": used,
        "memory_free": free,
        "busy_percent": None if busy is None else min(busy, _MOST_PERCENT),
    }
    return {name: value for name, value in values.items() if value is not None}


def _memory(clients: Iterable[Client]) -> int | None:
    """Add what clients have; None where nothing is known of it, and where it makes no sense."""
    known = [client.memory for client in clients if client.memory is not None]
    return sum(known) if known and sum(known) <= MOST else None


def _number(text: str) -> int | None:
    return int(text) if text.isascii() and text.isdecimal() and len(text) <= 15 else None


class Clients:
    """Finds out which processes use which card, and how much.

    ``unread``: the UIDs of pods that had too many open files for the last sample: what they use is not known.
    """

    def __init__(self, proc: str) -> None:
        self.unread: frozenset[str] = frozenset()
        self._proc = proc
        self._engines = Engines()

    def read(self, processes: Iterable[Process], pods: Mapping[str, str]) -> dict[str, list[ProcessUse]]:
        """Return what these processes have of each card, by its PCI address. ``pods``: by UID.

        A client that several processes have, as after a fork, counts for the first of them alone: what all have
        together is never more than what the card has. Of a pod with too many open files only the first ones are read.
        """
        seen: set[tuple[str, int]] = set()
        left = dict.fromkeys(pods, _MOST_DESCRIPTORS)
        used: dict[str, list[ProcessUse]] = {}
        for process in processes:
            most = max(0, left[process.uid])
            descriptors = list_descriptors(self._proc, process.pid, most + 1)
            left[process.uid] -= len(descriptors)
            for card, clients in self._of_process(process, descriptors[:most], seen).items():
                busy = self._engines.busy(clients, seconds_since_boot())
                used.setdefault(card, []).append(ProcessUse(*process, pods[process.uid], _memory(clients), busy))
        self._engines.turn()
        self.unread = frozenset(uid for uid, count in left.items() if count < 0)
        return used

    def _of_process(
        self, process: Process, descriptors: Iterable[str], seen: set[tuple[str, int]]
    ) -> dict[str, list[Client]]:
        cards: dict[str, list[Client]] = {}
        for descriptor in descriptors:
            client = read_client(self._proc, process.pid, descriptor)
            if client is not None and (client.card, client.number) not in seen:
                seen.add((client.card, client.number))
                cards.setdefault(client.card, []).append(client)
        # What was read may be that of another process, which has the number by now.
        return cards if not cards or read_start(self._proc, process.pid) == process.start else {}
