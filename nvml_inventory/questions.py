"""How NVML is asked, and how its answers are spelt."""

from collections.abc import Callable
from typing import Any

from nvml_inventory.binding import nvml


def ask(question: Callable[..., Any], *arguments: Any) -> Any:
    """Ask what not every GPU and driver can answer; None without an answer."""
    try:
        return question(*arguments)
    except (nvml.NVMLError_NotSupported, nvml.NVMLError_FunctionNotFound):
        return None


def pci_address(bus_id: str) -> str:
    """Spell NVML's PCI bus id as sysfs does: ``00000000:3B:00.0`` -> ``0000:3b:00.0``."""
    domain, _, rest = bus_id.lower().partition(":")
    return f"{int(domain, 16):04x}:{rest}"
