"""The inventory of a node's NVIDIA GPUs, card by card: one that cannot be read has a reason, the others are there.

To be called in a child process only: the driver's library needs memory, may hang in the kernel, and may crash.
"""

from collections.abc import Mapping
from contextlib import suppress
from typing import Any, NamedTuple

from nvml_inventory.advice import explain, means_absence
from nvml_inventory.binding import nvml
from nvml_inventory.cards import read_card
from nvml_inventory.errors import DriverUnreadable
from nvml_inventory.library import LIBRARY, load_library
from nvml_inventory.nvlinks import Links, count_links, read_links, read_peers
from nvml_inventory.questions import pci_address
from nvml_inventory.values import Absent, Card, Inventory, Unreadable


class Reading(NamedTuple):
    """An inventory, and NVML's handles of the GPUs that could be read, by their UUIDs."""

    inventory: Inventory
    handles: Mapping[str, Any]


def read_inventory(root: str = "/", library: str = "") -> Inventory | Absent:
    """Ask NVML for driver and GPUs, between its initialisation and its shutdown.

    ``root``: where the host's files are. ``library``: see :func:`nvml_inventory.library.load_library`.

    Raises:
        LibraryUnusable: when the library is there and cannot be loaded.
        DriverUnreadable: when NVML answers with an error that does not mean absence.
    """
    if absent := start(root, library):
        return absent
    try:
        return read().inventory
    finally:
        stop()


def start(root: str, library: str) -> Absent | None:
    """Load the library and initialise NVML; returns what is missing, or None when NVML can be asked.

    Raises:
        LibraryUnusable: when the library is there and cannot be loaded.
        DriverUnreadable: when NVML answers with an error that does not mean absence.
    """
    if nvml is None:
        return Absent("the Python package nvidia-ml-py is not installed")
    if not load_library(root, library):
        return Absent(f"there is no {library or LIBRARY}")
    try:
        nvml.nvmlInit()
    except nvml.NVMLError as error:
        message = explain("NVML cannot start", error)
        if means_absence(error):
            return Absent(message)
        raise DriverUnreadable(message) from error
    return None


def stop() -> None:
    """Shut NVML down, as well as it can be."""
    with suppress(nvml.NVMLError):
        nvml.nvmlShutdown()


def read() -> Reading:
    """Ask NVML, which is initialised, for driver and GPUs.

    Raises:
        DriverUnreadable: when it cannot say which driver and how many GPUs there are.
    """
    try:
        driver = nvml.nvmlSystemGetDriverVersion()
        cuda = nvml.nvmlSystemGetCudaDriverVersion_v2()
        count = nvml.nvmlDeviceGetCount()
    except nvml.NVMLError as error:
        raise DriverUnreadable(explain("NVML cannot read the driver", error)) from error
    except ValueError as error:
        raise DriverUnreadable(f"NVML cannot read the driver: its answer makes no sense: {error}") from error
    found = [_read_card(index) for index in range(count)]
    readable = [one for one in found if isinstance(one, _Readable)]
    peers = read_peers(
        {one.card.pci_bus_id: one.handle for one in readable}, {one.card.pci_bus_id: one.links for one in readable}
    )
    cards = tuple(one.with_peers(peers) if isinstance(one, _Readable) else one for one in found)
    return Reading(Inventory(driver=driver, cuda=cuda, cards=cards), {one.card.uuid: one.handle for one in readable})


class _Readable(NamedTuple):
    """A GPU that could be read, but for the GPUs that it reaches."""

    handle: Any
    links: Links
    card: Card

    def with_peers(self, peers: Mapping[str, tuple[str, ...]]) -> Card:
        its_peers = peers[self.card.pci_bus_id]
        return self.card._replace(nvlink_peers=its_peers, nvlinks=count_links(self.links, its_peers))


def _read_card(index: int) -> _Readable | Unreadable:
    handle = None
    try:
        handle = nvml.nvmlDeviceGetHandleByIndex(index)
        links = read_links(handle)
        return _Readable(handle, links, read_card(handle, links))
    except nvml.NVMLError as error:
        return _unreadable(handle, index, explain(f"GPU {index} cannot be read", error), error.value)
    except ValueError as error:
        # A text that is no UTF-8, a PCI address without numbers.
        return _unreadable(handle, index, f"GPU {index} cannot be read: NVML's answer makes no sense: {error}", 0)


def _unreadable(handle: Any, index: int, reason: str, error: int) -> Unreadable:
    """Say which GPU it is as far as NVML still does: not one whose handle it refuses."""
    uuid = pci = ""
    if handle is not None:
        with suppress(nvml.NVMLError, ValueError):
            uuid = nvml.nvmlDeviceGetUUID(handle)
        with suppress(nvml.NVMLError, ValueError):
            pci = pci_address(nvml.nvmlDeviceGetPciInfo(handle).busId)
    return Unreadable(reason, index=index, error=error, uuid=uuid, pci=pci)
