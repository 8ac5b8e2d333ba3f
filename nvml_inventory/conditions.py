"""What a GPU says of its own health. No answer is no complaint: a GPU that is lost is known from the inventory."""

import ctypes
from collections.abc import Callable
from typing import Any

from nvml_inventory.binding import nvml
from nvml_inventory.values import Conditions

_STATE_NAMES = {1: "not started", 2: "in progress"}
"""``nvmlGpuFabricState_t``; 0 is "there is no fabric", 3 "completed"."""

_VALUE_NAMES = ("dVal", "uiVal", "ulVal", "ullVal", "sllVal", "siVal", "usVal")
"""The member of the union for each ``nvmlValueType_t``."""


def read_conditions(index: int) -> Conditions:
    """Ask the GPU of this index of NVML's."""
    handle = _answer(nvml.nvmlDeviceGetHandleByIndex, index)
    if handle is None:
        return Conditions()
    rows = _answer(nvml.nvmlDeviceGetRemappedRows, handle)
    return Conditions(
        recovery_action=_recovery_action(handle),
        row_remap_failed=bool(rows and rows[3]),
        fabric=_fabric(handle),
    )


def _answer(question: Callable[..., Any], *arguments: Any) -> Any:
    try:
        return question(*arguments)
    except nvml.NVMLError:
        return None


def _recovery_action(handle: Any) -> int | None:
    """Ask for the field. The whole question may fail, and each field has a result of its own."""
    fields = _answer(nvml.nvmlDeviceGetFieldValues, handle, [nvml.NVML_FI_DEV_GET_GPU_RECOVERY_ACTION])
    if not fields or fields[0].nvmlReturn != nvml.NVML_SUCCESS or fields[0].valueType >= len(_VALUE_NAMES):
        return None
    return int(getattr(fields[0].value, _VALUE_NAMES[fields[0].valueType]))


def _fabric(handle: Any) -> str:
    info = nvml.c_nvmlGpuFabricInfoV_t()
    if _answer(nvml.nvmlDeviceGetGpuFabricInfoV, handle, ctypes.byref(info)) is None:
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
