"""What an error of NVML's means, and what to do about it."""

from typing import Any

from nvml_inventory.binding import nvml
from nvml_inventory.library import LIBRARY

_DEVICES = "check that this container may use /dev/nvidiactl and /dev/nvidia*"


def means_absence(error: Any) -> bool:
    """Return whether an error at the start says: this node has no driver, or the driver has no GPU."""
    return error.value in {
        nvml.NVML_ERROR_LIBRARY_NOT_FOUND,
        nvml.NVML_ERROR_DRIVER_NOT_LOADED,
        nvml.NVML_ERROR_NOT_FOUND,
        nvml.NVML_ERROR_GPU_NOT_FOUND,
    }


def explain(attempt: str, error: Any) -> str:
    """Say what was attempted, what NVML answered, and what to do next."""
    next_step = {
        nvml.NVML_ERROR_DRIVER_NOT_LOADED: f"where the kernel module nvidia is loaded, {_DEVICES}",
        nvml.NVML_ERROR_NO_PERMISSION: _DEVICES,
        nvml.NVML_ERROR_OPERATING_SYSTEM: _DEVICES,
        nvml.NVML_ERROR_UNKNOWN: _DEVICES,
        nvml.NVML_ERROR_LIB_RM_VERSION_MISMATCH: f"{LIBRARY} and the loaded kernel module are of different versions: "
        "load the module that belongs to the installed driver, or reboot",
        nvml.NVML_ERROR_GPU_IS_LOST: "the kernel log has an Xid message; drain the node and reset the GPU",
        nvml.NVML_ERROR_IN_USE: "end the programs that use it",
        nvml.NVML_ERROR_RESET_REQUIRED: "drain the node and reset the GPU",
    }.get(error.value, "the kernel log may have an NVRM message")
    return f"{attempt}: {error}; {next_step}"
