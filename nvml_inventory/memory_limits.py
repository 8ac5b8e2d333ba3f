"""Limits of a cgroup's memory on a GPU, which the driver itself enforces: a newer driver's, and none in MIG mode."""

from typing import Any

from nvml_inventory.advice import explain
from nvml_inventory.binding import nvml

_UNLIMITED = 2**64 - 1


def set_memory_limit(handle: Any, cgroup_folder: str, hard: int | None) -> str:
    """Limit what all processes of a cgroup may allocate together; returns why not, empty if it is done.

    ``cgroup_folder``: its full path, which NVML opens, where the caller has cgroup v2. ``hard``: bytes; None lifts the
    limit. The soft limit, what the driver would guarantee to the cgroup at others' expense, is 0: it would have to be
    taken back before the cgroup goes.
    """
    if not hasattr(nvml, "nvmlDeviceSetMemoryLimits_v1"):
        return "the Python package nvidia-ml-py is too old for memory limits"
    limits = nvml.c_nvmlSetMemoryLimits_v1_t()
    limits.nameSpace, limits.softLimit, limits.hardLimit = cgroup_folder, 0, _UNLIMITED if hard is None else hard
    try:
        nvml.nvmlDeviceSetMemoryLimits_v1(handle, limits)
    except nvml.NVMLError_FunctionNotFound:
        return "this driver has no memory limits"
    except nvml.NVMLError_NotSupported:
        return "this driver has no memory limits for this GPU, or the GPU is in MIG mode"
    except nvml.NVMLError as error:
        return explain(f"NVML cannot limit the memory of {cgroup_folder}", error)
    return ""


def read_memory_limit(handle: Any, cgroup_folder: str) -> int | None:
    """Return the hard limit of a cgroup in bytes; None where there is none, or the driver does not say."""
    if not hasattr(nvml, "nvmlDeviceGetMemoryLimits_v1"):
        return None
    limits = nvml.c_nvmlGetMemoryLimits_v1_t()
    limits.nameSpace = cgroup_folder
    try:
        nvml.nvmlDeviceGetMemoryLimits_v1(handle, limits)
    except nvml.NVMLError:
        return None
    return None if limits.hardLimit == _UNLIMITED else int(limits.hardLimit)
