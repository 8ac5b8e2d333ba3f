"""What a GPU says of its own health. No answer is no complaint: a GPU that is lost is known from the inventory."""

import ctypes
from typing import Any

from nvml_inventory.binding import nvml
from nvml_inventory.questions import answer, read_field
from nvml_inventory.values import Conditions

_STATE_NAMES = {1: "not started", 2: "in progress"}
"""``nvmlGpuFabricState_t``; 0 is "there is no fabric", 3 "completed"."""


def read_conditions(index: int) -> Conditions:
    """Ask the GPU of this index of NVML's."""
    handle = answer(nvml.nvmlDeviceGetHandleByIndex, index)
    if handle is None:
        return Conditions()
    rows = answer(nvml.nvmlDeviceGetRemappedRows, handle)
    return Conditions(
        recovery_action=_recovery_action(handle),
        row_remap_failed=bool(rows and rows[3]),
        fabric=_fabric(handle),
    )


def _recovery_action(handle: Any) -> int | None:
    action = read_field(handle, nvml.NVML_FI_DEV_GET_GPU_RECOVERY_ACTION)
    return None if action is None else int(action)


def _fabric(handle: Any) -> str:
    info = nvml.c_nvmlGpuFabricInfoV_t()
    if answer(nvml.nvmlDeviceGetGpuFabricInfoV, handle, ctypes.byref(info)) is None:
        return ""
    if info.state in _STATE_NAMES:
        return (
            f"the GPU's registration with the NVSwitch fabric is {_STATE_NAMES[info.state]}; "
            "check the fabric manager (nvidia-fabricmanager) of this node"
        )
    if info.state == nvml.NVML_GPU_FABRIC_STATE_COMPLETED and info.status != nvml.NVML_SUCCESS:
        return (
            f"the GPU's registration with the NVSwitch fabric has failed: {nvml.NVMLError(info.status)}; "
            "see the log of the fabric manager (nvidia-fabricmanager)"
        )
    return ""
