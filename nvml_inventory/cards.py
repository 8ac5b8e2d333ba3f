"""Reading one GPU."""

from collections.abc import Iterator
from typing import Any

from nvml_inventory.binding import nvml
from nvml_inventory.nvlinks import Links
from nvml_inventory.questions import ask, pci_address
from nvml_inventory.values import Card, Mig


def read_card(handle: Any, links: Links) -> Card:
    """Read a GPU, but for the GPUs that it reaches: these are known when all are read."""
    memory = ask(nvml.nvmlDeviceGetMemoryInfo, handle)
    compute_major, compute_minor = ask(nvml.nvmlDeviceGetCudaComputeCapability, handle) or (None, None)
    ecc_mode = ask(nvml.nvmlDeviceGetEccMode, handle)
    mig_mode = ask(nvml.nvmlDeviceGetMigMode, handle)
    pci = nvml.nvmlDeviceGetPciInfo(handle)
    return Card(
        uuid=nvml.nvmlDeviceGetUUID(handle),
        name=nvml.nvmlDeviceGetName(handle),
        pci_bus_id=pci_address(pci.busId),
        memory_mib=(memory and memory.total // 2**20) or None,
        compute_major=compute_major,
        compute_minor=compute_minor,
        ecc_mode=ecc_mode and ecc_mode[0],
        persistence_mode=ask(nvml.nvmlDeviceGetPersistenceMode, handle),
        mig_mode=mig_mode and mig_mode[0],
        virtualization=ask(nvml.nvmlDeviceGetVirtualizationMode, handle),
        nvlink_links=links.active or None,
        migs=tuple(_migs(handle)) if mig_mode and mig_mode[0] == nvml.NVML_DEVICE_MIG_ENABLE else (),
        minor=ask(nvml.nvmlDeviceGetMinorNumber, handle),
        pci_id=f"0x{pci.pciDeviceId:08x}" if pci.pciDeviceId else "",
        mig_pending=mig_mode and mig_mode[1],
    )


def _migs(handle: Any) -> Iterator[Mig]:
    for index in range(nvml.nvmlDeviceGetMaxMigDeviceCount(handle)):
        try:
            mig = nvml.nvmlDeviceGetMigDeviceHandleByIndex(handle, index)
        except nvml.NVMLError_NotFound:
            continue
        attributes = nvml.nvmlDeviceGetAttributes_v2(mig)
        yield Mig(
            uuid=nvml.nvmlDeviceGetUUID(mig),
            name=nvml.nvmlDeviceGetName(mig),
            memory_mib=attributes.memorySizeMB,
            multiprocessors=attributes.multiprocessorCount,
            slices_gi=attributes.gpuInstanceSliceCount,
            slices_ci=attributes.computeInstanceSliceCount,
            engines_copy=attributes.sharedCopyEngineCount,
            engines_decoder=attributes.sharedDecoderCount,
            engines_encoder=attributes.sharedEncoderCount,
            engines_jpeg=attributes.sharedJpegCount,
            engines_ofa=attributes.sharedOfaCount,
            gi=ask(nvml.nvmlDeviceGetGpuInstanceId, mig),
            ci=ask(nvml.nvmlDeviceGetComputeInstanceId, mig),
        )
