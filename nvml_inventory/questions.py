"""How NVML is asked, and how its answers are spelt."""

from collections.abc import Callable
from typing import Any

from nvml_inventory.binding import nvml

_VALUE_NAMES = ("dVal", "uiVal", "ulVal", "ullVal", "sllVal", "siVal", "usVal")
"""The member of the union for each ``nvmlValueType_t``."""


def ask(question: Callable[..., Any], *arguments: Any) -> Any:
    """Ask what not every GPU and driver can answer; None without an answer."""
    try:
        return question(*arguments)
    except (nvml.NVMLError_NotSupported, nvml.NVMLError_FunctionNotFound):
        return None


def answer(question: Callable[..., Any], *arguments: Any) -> Any:
    """Ask what may fail for any reason, also because the GPU is lost; None without an answer."""
    try:
        return question(*arguments)
    except nvml.NVMLError:
        return None


def read_field(handle: Any, field: int) -> float | None:
    """Ask for one of NVML's fields. The whole question may fail, and each field has a result of its own."""
    fields = answer(nvml.nvmlDeviceGetFieldValues, handle, [field])
    if not fields or fields[0].nvmlReturn != nvml.NVML_SUCCESS or fields[0].valueType >= len(_VALUE_NAMES):
        return None
    value: float = getattr(fields[0].value, _VALUE_NAMES[fields[0].valueType])
    return value


def pci_address(bus_id: str) -> str:
    """Spell NVML's PCI bus id as sysfs does: ``00000000:3B:00.0`` -> ``0000:3b:00.0``."""
    domain, _, rest = bus_id.lower().partition(":")
    return f"{int(domain, 16):04x}:{rest}"
