"""Child of the worker: asks NVML for the GPUs of this node, prints one line of JSON and is gone.

Run as ``python -I -m nfd_worker.gpu.gpu_scan`` by :mod:`nfd_worker.gpu.scan_runner`. Only here is ``pynvml`` imported:
package and driver library need memory that the resident process does not have, may hang in the kernel, and may crash.

Standard input is a JSON object, or nothing: ``root`` is where the host's files are (default ``/``), ``library`` the one
path at which to take ``libnvidia-ml.so.1`` (default: the loader's search path, then the usual places below the root).
"""

import ctypes
import json
import os
import sys
from collections.abc import Callable, Iterator
from contextlib import suppress
from typing import Any

from nfd_worker.errors import HostReadError, NfdWorkerError
from nfd_worker.host import Host

try:
    import pynvml as nvml  # type: ignore[import-untyped]
except ImportError:
    nvml = None

LIBRARY = "libnvidia-ml.so.1"
"""Its SONAME: once it is loaded from anywhere, the loader gives the same one to ``pynvml``, which asks by name."""

_DRIVER_ROOTS = ("", "run/nvidia/driver/")
"""Where a driver is installed: on the host itself, or in the root of a driver container."""

_LIBRARY_DIRECTORIES = ("usr/lib/{arch}-linux-gnu", "usr/lib/{arch}-linux-gnu/nvidia/current", "usr/lib64", "usr/lib")
"""Debian and Ubuntu; Debian behind its alternatives, absolute links that lead nowhere below another root; the rest."""

_GKE_LIBRARY = "home/kubernetes/bin/nvidia/lib64/" + LIBRARY

_PRODUCT_NAME = "sys/devices/virtual/dmi/id/product_name"


class ScanError(NfdWorkerError):
    """NVML or its library answered with an error that does not mean absence; the message says what to do next."""


def main() -> None:
    """Answer the request on standard input."""
    request = json.loads(sys.stdin.read() or "{}")
    json.dump(scan(Host(request.get("root", "/")), request.get("library", "")), sys.stdout)
    print()


def scan(host: Host, library: str) -> dict[str, Any]:
    """Ask NVML for everything; never raises.

    ``state`` is ``ok``, ``absent`` (no package, no library, no driver or no GPU of its: all normal) or ``failed``;
    ``reason`` is a sentence unless ok. With ``ok`` come ``driver`` (X.Y or X.Y.Z), ``cuda`` (1000 major + 10 minor),
    ``machine`` (DMI product name or "") and ``devices``, in NVML's order: see :func:`read_device`.
    """
    if nvml is None:
        return {"state": "absent", "reason": "the Python package nvidia-ml-py is not installed"}
    try:
        if not load_library(host, library):
            return {"state": "absent", "reason": f"there is no {library or LIBRARY}"}
        return read_node(host)
    except (ScanError, HostReadError) as error:
        return {"state": "failed", "reason": str(error)}


def load_library(host: Host, library: str) -> bool:
    """Load the driver's library; returns whether there is one.

    Raises:
        ScanError: when it is there and cannot be loaded.
    """
    return any(_load(path) for path in ((library,) if library else (LIBRARY, *_library_paths(host))))


def read_node(host: Host) -> dict[str, Any]:
    """Read driver and GPUs between NVML's initialisation and shutdown.

    One GPU that cannot be read fails all: a count without it would be a false label.

    Raises:
        ScanError: as said.
        HostReadError: when sysfs cannot be read.
    """
    try:
        nvml.nvmlInit()
    except nvml.NVMLError as error:
        if error.value in _absences():
            return {"state": "absent", "reason": f"NVML cannot start: {error}"}
        raise _explained("NVML cannot start", error) from error
    try:
        return {
            "state": "ok",
            "reason": "",
            "driver": nvml.nvmlSystemGetDriverVersion(),
            "cuda": nvml.nvmlSystemGetCudaDriverVersion_v2(),
            "machine": (host.find(_PRODUCT_NAME) or "").strip(),
            "devices": [_read_nth(host, index) for index in range(nvml.nvmlDeviceGetCount())],
        }
    except nvml.NVMLError as error:
        raise _explained("NVML cannot read the driver", error) from error
    finally:
        with suppress(nvml.NVMLError):
            nvml.nvmlShutdown()


def read_device(host: Host, handle: Any) -> dict[str, Any]:
    """Read one GPU; None stands for what this GPU, or this version of the driver, does not know.

    ``memory_mib`` in MiB; modes and ``virtualization`` are NVML's numbers; ``nvlink_links`` counts active links,
    ``nvlink_peers`` are the PCI addresses of GPUs at their other ends, sorted; ``migs`` see :func:`read_migs`.
    """
    address = pci_address(nvml.nvmlDeviceGetPciInfo(handle).busId)
    memory = _ask(nvml.nvmlDeviceGetMemoryInfo, handle)
    capability = _ask(nvml.nvmlDeviceGetCudaComputeCapability, handle) or (None, None)
    ecc_mode = _ask(nvml.nvmlDeviceGetEccMode, handle)
    mig_mode = _ask(nvml.nvmlDeviceGetMigMode, handle)
    links = list(_active_links(handle))
    return {
        "uuid": nvml.nvmlDeviceGetUUID(handle),
        "name": nvml.nvmlDeviceGetName(handle),
        "pci_bus_id": address,
        "pci_class": _pci_class(host, address),
        "numa_node": _numa_node(host, address),
        "memory_mib": (memory and memory.total // 2**20) or None,
        "compute_major": capability[0],
        "compute_minor": capability[1],
        "ecc_mode": ecc_mode and ecc_mode[0],
        "persistence_mode": _ask(nvml.nvmlDeviceGetPersistenceMode, handle),
        "mig_mode": mig_mode and mig_mode[0],
        "virtualization": _ask(nvml.nvmlDeviceGetVirtualizationMode, handle),
        "nvlink_links": len(links) or None,
        "nvlink_peers": sorted({peer for peer in (_peer(handle, link) for link in links) if peer}),
        "migs": list(read_migs(handle)) if mig_mode and mig_mode[0] == nvml.NVML_DEVICE_MIG_ENABLE else [],
    }


def read_migs(handle: Any) -> Iterator[dict[str, Any]]:
    """Read the MIG devices of a GPU; the name of each ends in its profile, the engines are those it may use."""
    for index in range(nvml.nvmlDeviceGetMaxMigDeviceCount(handle)):
        try:
            mig = nvml.nvmlDeviceGetMigDeviceHandleByIndex(handle, index)
        except nvml.NVMLError_NotFound:
            continue
        attributes = nvml.nvmlDeviceGetAttributes_v2(mig)
        yield {
            "uuid": nvml.nvmlDeviceGetUUID(mig),
            "name": nvml.nvmlDeviceGetName(mig),
            "memory_mib": attributes.memorySizeMB,
            "multiprocessors": attributes.multiprocessorCount,
            "slices_gi": attributes.gpuInstanceSliceCount,
            "slices_ci": attributes.computeInstanceSliceCount,
            "engines_copy": attributes.sharedCopyEngineCount,
            "engines_decoder": attributes.sharedDecoderCount,
            "engines_encoder": attributes.sharedEncoderCount,
            "engines_jpeg": attributes.sharedJpegCount,
            "engines_ofa": attributes.sharedOfaCount,
        }


def pci_address(bus_id: str) -> str:
    """Spell NVML's PCI bus id as sysfs does: ``00000000:3B:00.0`` -> ``0000:3b:00.0``."""
    domain, _, rest = bus_id.lower().partition(":")
    return f"{int(domain, 16):04x}:{rest}"


def _library_paths(host: Host) -> Iterator[str]:
    """Name the usual places of the library below the root, those where there is one."""
    directories = (directory.format(arch=os.uname().machine) for directory in _LIBRARY_DIRECTORIES)
    places = [f"{root}{directory}/{LIBRARY}" for directory in directories for root in _DRIVER_ROOTS]
    return (f"{host.root.rstrip('/')}/{place}" for place in (*places, _GKE_LIBRARY))


def _load(path: str) -> bool:
    if "/" in path and not os.access(path, os.F_OK):
        return False
    try:
        ctypes.CDLL(path)
    except OSError as error:
        if str(error).startswith(f"{LIBRARY}: cannot open shared object file"):
            return False
        raise ScanError(f"{path} cannot be loaded: {error}; is it for this image's C library?") from error
    return True


def _read_nth(host: Host, index: int) -> dict[str, Any]:
    try:
        return read_device(host, nvml.nvmlDeviceGetHandleByIndex(index))
    except nvml.NVMLError as error:
        raise _explained(f"GPU {index} cannot be read", error) from error


def _ask(question: Callable[..., Any], *arguments: Any) -> Any:
    """Ask what not every GPU and driver can answer."""
    try:
        return question(*arguments)
    except (nvml.NVMLError_NotSupported, nvml.NVMLError_FunctionNotFound):
        return None


def _active_links(handle: Any) -> Iterator[int]:
    for link in range(nvml.NVML_NVLINK_MAX_LINKS):
        try:
            is_active = _ask(nvml.nvmlDeviceGetNvLinkState, handle, link)
        except nvml.NVMLError_InvalidArgument:
            return  # this GPU has fewer links
        if is_active:
            yield link


def _peer(handle: Any, link: int) -> str | None:
    """Name the GPU at the other end of a link; None for a switch or a processor."""
    if _ask(nvml.nvmlDeviceGetNvLinkRemoteDeviceType, handle, link) != nvml.NVML_NVLINK_DEVICE_TYPE_GPU:
        return None
    remote = _ask(nvml.nvmlDeviceGetNvLinkRemotePciInfo, handle, link)
    return remote and pci_address(remote.busId)


def _pci_class(host: Host, address: str) -> str | None:
    """Read base and sub class, as the source ``pci`` has them; None in a container without the host's sysfs."""
    text = host.find(f"sys/bus/pci/devices/{address}/class")
    return text and text.strip().removeprefix("0x")[:4]


def _numa_node(host: Host, address: str) -> str | None:
    """Read the NUMA node; None for -1, which is the kernel's word for a machine with only one."""
    text = (host.find(f"sys/bus/pci/devices/{address}/numa_node") or "-1").strip()
    return None if text == "-1" else text


def _absences() -> frozenset[int]:
    """NVML's errors at the start that say: this node has no driver, or the driver has no GPU."""
    return frozenset({
        nvml.NVML_ERROR_LIBRARY_NOT_FOUND,
        nvml.NVML_ERROR_DRIVER_NOT_LOADED,
        nvml.NVML_ERROR_NOT_FOUND,
        nvml.NVML_ERROR_GPU_NOT_FOUND,
    })  # fmt: skip


def _explained(attempt: str, error: Any) -> ScanError:
    devices = "check that this container may use /dev/nvidiactl and /dev/nvidia*"
    next_step = {
        nvml.NVML_ERROR_NO_PERMISSION: devices,
        nvml.NVML_ERROR_OPERATING_SYSTEM: devices,
        nvml.NVML_ERROR_UNKNOWN: devices,
        nvml.NVML_ERROR_LIB_RM_VERSION_MISMATCH: f"{LIBRARY} and the loaded kernel module are of different versions: "
        "load the module that belongs to the installed driver, or reboot",
        nvml.NVML_ERROR_GPU_IS_LOST: "the kernel log has an Xid message; drain the node and reset the GPU",
        nvml.NVML_ERROR_RESET_REQUIRED: "drain the node and reset the GPU",
    }.get(error.value, "the kernel log may have an NVRM message")
    return ScanError(f"{attempt}: {error}; {next_step}")


if __name__ == "__main__":
    main()
