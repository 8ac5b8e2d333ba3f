"""How busy parts of a GPU, or of a GPU instance, were since the last look, as GPM measures it on Hopper and newer."""

import time
from collections.abc import Collection, Iterator
from contextlib import suppress
from typing import Any, NamedTuple

from nvml_inventory.binding import nvml
from nvml_inventory.measures import only_known, percent
from nvml_inventory.questions import answer

_LEAST_SECONDS = 0.1
"""Two samples of a pair are at least this far apart, as NVML asks for."""


class _Sample(NamedTuple):
    """NVML's sample, which has to be freed, and until when it was taken, in seconds of the monotonic clock."""

    sample: Any
    at: float


class Gpm:
    """Keeps one sample of each GPU and GPU instance, to compare the next one with."""

    def __init__(self) -> None:
        self._samples: dict[str, _Sample] = {}

    def read(self, uuid: str, handle: Any, gi: int | None = None) -> dict[str, float]:
        """Read what was measured since the last look at this GPU or MIG device; nothing at the first look.

        ``handle``: of the GPU. ``gi``: the GPU instance of a MIG device, to which the values belong.
        """
        before = self._samples.get(uuid)
        if before and time.monotonic() < before.at + _LEAST_SECONDS:
            return {}
        taken = _take(handle, gi)
        if before:
            del self._samples[uuid]
        if taken:
            self._samples[uuid] = taken
        values = dict(_compare(before.sample, taken.sample)) if before and taken else {}
        if before:
            _free(before.sample)
        return only_known(values)

    def keep(self, uuids: Collection[str]) -> None:
        """Free the samples of all other GPUs and MIG devices."""
        for uuid in [one for one in self._samples if one not in uuids]:
            _free(self._samples.pop(uuid).sample)


def _take(handle: Any, gi: int | None) -> _Sample | None:
    """Take a sample, if this GPU can; nothing is left of one that failed."""
    support = answer(nvml.nvmlGpmQueryDeviceSupport, handle)
    if not support or not support.isSupportedDevice:
        return None
    sample = answer(nvml.nvmlGpmSampleAlloc)
    if sample is None:
        return None
    try:
        if gi is None:
            nvml.nvmlGpmSampleGet(handle, sample)
        else:
            nvml.nvmlGpmMigSampleGet(handle, gi, sample)
    except nvml.NVMLError:
        _free(sample)
        return None
    return _Sample(sample, time.monotonic())


def _compare(older: Any, newer: Any) -> Iterator[tuple[str, float | None]]:
    """Say what was measured between two samples, each value from 0 to 1."""
    names = {
        nvml.NVML_GPM_METRIC_GRAPHICS_UTIL: "engine_active",
        nvml.NVML_GPM_METRIC_SM_UTIL: "sm_active",
        nvml.NVML_GPM_METRIC_ANY_TENSOR_UTIL: "tensor_active",
        nvml.NVML_GPM_METRIC_DRAM_BW_UTIL: "dram_active",
    }
    asked = nvml.c_nvmlGpmMetricsGet_t()
    asked.version, asked.numMetrics = nvml.NVML_GPM_METRICS_GET_VERSION, len(names)
    asked.sample1, asked.sample2 = older, newer
    for place, metric in enumerate(names):
        asked.metrics[place].metricId = metric
    if answer(nvml.nvmlGpmMetricsGet, asked) is None:
        return
    for place, name in enumerate(names.values()):
        value = percent(asked.metrics[place].value)
        if asked.metrics[place].nvmlReturn == nvml.NVML_SUCCESS and value is not None:
            yield name, value / 100


def _free(sample: Any) -> None:
    with suppress(nvml.NVMLError):
        nvml.nvmlGpmSampleFree(sample)
