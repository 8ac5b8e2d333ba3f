"""An exporter of one process with pynvml and prometheus_client, as their documentation has it.

``python exporter_reference.py PATH LIBRARY PORT``: PATH are folders of modules, as JSON; LIBRARY is NVML's. It reads
nine values of each GPU and the memory of each process every three seconds. It knows no pods.
"""

import ctypes
import json
import sys
import time
from importlib import import_module
from typing import Any

SECONDS = 3

NAMES = ("sm_clock", "memory_clock", "temperature", "power", "busy", "memory_busy", "used", "free", "total")


def read(nvml: Any, gpu: Any) -> tuple[float, ...]:
    """Read the values of a GPU, in the order of :data:`NAMES`."""
    memory = nvml.nvmlDeviceGetMemoryInfo(gpu)
    try:
        busy = nvml.nvmlDeviceGetUtilizationRates(gpu)
    except nvml.NVMLError_NotSupported:  # in MIG mode
        busy = nvml.c_nvmlUtilization_t()
    return (
        nvml.nvmlDeviceGetClockInfo(gpu, nvml.NVML_CLOCK_SM),
        nvml.nvmlDeviceGetClockInfo(gpu, nvml.NVML_CLOCK_MEM),
        nvml.nvmlDeviceGetTemperature(gpu, nvml.NVML_TEMPERATURE_GPU),
        nvml.nvmlDeviceGetPowerUsage(gpu) / 1000,
        busy.gpu,
        busy.memory,
        memory.used,
        memory.free,
        memory.total,
    )


def main(library: str, port: str) -> None:
    """Serve until it is ended."""
    ctypes.CDLL(library)
    nvml, client = import_module("pynvml"), import_module("prometheus_client")
    nvml.nvmlInit()
    gauges = [client.Gauge(f"reference_{name}", name, ["gpu", "UUID", "pid"]) for name in NAMES]
    client.start_http_server(int(port))
    while True:
        for index in range(nvml.nvmlDeviceGetCount()):
            gpu = nvml.nvmlDeviceGetHandleByIndex(index)
            uuid = nvml.nvmlDeviceGetUUID(gpu)
            for gauge, value in zip(gauges, read(nvml, gpu), strict=True):
                gauge.labels(index, uuid, "").set(value)
            used = gauges[NAMES.index("used")]
            for process in nvml.nvmlDeviceGetComputeRunningProcesses(gpu):
                used.labels(index, uuid, process.pid).set(process.usedGpuMemory or 0)
        time.sleep(SECONDS)


if __name__ == "__main__":
    sys.path[:0] = json.loads(sys.argv[1])
    main(*sys.argv[2:])
