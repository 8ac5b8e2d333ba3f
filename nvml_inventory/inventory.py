"""The inventory of a node's NVIDIA GPUs, card by card: one that cannot be read has a reason, the others are there.

To be called in a child process only: the driver's library needs memory, may hang in the kernel, and may crash.
"""

from contextlib import suppress
from typing import Any

from nvml_inventory.advice import explain, means_absence
from nvml_inventory.binding import nvml
from nvml_inventory.cards import read_card
from nvml_inventory.errors import DriverUnreadable
from nvml_inventory.library import LIBRARY, load_library
from nvml_inventory.nvlinks import Links, read_links, read_peers
from nvml_inventory.values import Absent, Card, Inventory, Unreadable


def read_inventory(root: str = "/", library: str = "") -> Inventory | Absent:
    """Ask NVML for driver and GPUs, between its initialisation and its shutdown.

    ``root``: where the host's files are. ``library``: see :func:`nvml_inventory.library.load_library`.

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
    try:
        return Inventory(
            driver=nvml.nvmlSystemGetDriverVersion(),
            cuda=nvml.nvmlSystemGetCudaDriverVersion_v2(),
            cards=_read_cards(nvml.nvmlDeviceGetCount()),
        )
    except nvml.NVMLError as error:
        raise DriverUnreadable(explain("NVML cannot read the driver", error)) from error
    finally:
        with suppress(nvml.NVMLError):
            nvml.nvmlShutdown()


def _read_cards(count: int) -> tuple[Card | Unreadable, ...]:
    handles: dict[str, Any] = {}
    links: dict[str, Links] = {}
    found: list[Card | Unreadable] = []
    for index in range(count):
        try:
            handle = nvml.nvmlDeviceGetHandleByIndex(index)
            its_links = read_links(handle)
            card = read_card(handle, its_links)
        except nvml.NVMLError as error:
            found.append(Unreadable(explain(f"GPU {index} cannot be read", error)))
        except ValueError as error:
            # A text that is no UTF-8, a PCI address without numbers.
            found.append(Unreadable(f"GPU {index} cannot be read: NVML's answer makes no sense: {error}"))
        else:
            handles[card.pci_bus_id], links[card.pci_bus_id] = handle, its_links
            found.append(card)
    peers = read_peers(handles, links)
    return tuple(one._replace(nvlink_peers=peers[one.pci_bus_id]) if isinstance(one, Card) else one for one in found)
