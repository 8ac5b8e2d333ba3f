"""What a GPU measures of itself. Each value is asked alone: what this GPU or this driver does not know is not there."""

from collections.abc import Mapping
from math import isfinite
from typing import Any

from nvml_inventory.binding import nvml
from nvml_inventory.questions import answer, read_field

_NOT_AVAILABLE = 2**32 - 1
"""NVML's word for "not known" in 32 bits; that of 64 bits is out of bounds."""
_MOST = 2**63
_MOST_PERCENT = 200
"""Above it a number is no percentage. A little above 100 is the driver's rounding."""


def read_values(handle: Any) -> dict[str, float]:
    """Read a GPU's values, by the names of :data:`device_agent.gpu_state.use.VALUES`, but for those of GPM."""
    rates = answer(nvml.nvmlDeviceGetUtilizationRates, handle)
    encoder = answer(nvml.nvmlDeviceGetEncoderUtilization, handle)
    decoder = answer(nvml.nvmlDeviceGetDecoderUtilization, handle)
    power = answer(nvml.nvmlDeviceGetPowerUsage, handle)
    rows = answer(nvml.nvmlDeviceGetRemappedRows, handle) or (None, None, None, None)
    single, double = nvml.NVML_MEMORY_ERROR_TYPE_CORRECTED, nvml.NVML_MEMORY_ERROR_TYPE_UNCORRECTED
    volatile, aggregate = nvml.NVML_VOLATILE_ECC, nvml.NVML_AGGREGATE_ECC
    values = {
        "sm_clock_mhz": answer(nvml.nvmlDeviceGetClockInfo, handle, nvml.NVML_CLOCK_SM),
        "memory_clock_mhz": answer(nvml.nvmlDeviceGetClockInfo, handle, nvml.NVML_CLOCK_MEM),
        "temperature_c": _temperature(handle),
        # Without a sensor some drivers answer 0.
        "memory_temperature_c": read_field(handle, nvml.NVML_FI_DEV_MEMORY_TEMP) or None,
        "power_w": known(power) and power / 1000,
        "energy_mj": answer(nvml.nvmlDeviceGetTotalEnergyConsumption, handle),
        "busy_percent": percent(rates and rates.gpu),
        "memory_busy_percent": percent(rates and rates.memory),
        "encoder_percent": percent(encoder and encoder[0]),
        "decoder_percent": percent(decoder and decoder[0]),
        "pcie_replays": answer(nvml.nvmlDeviceGetPcieReplayCounter, handle),
        "ecc_single_volatile": answer(nvml.nvmlDeviceGetTotalEccErrors, handle, single, volatile),
        "ecc_double_volatile": answer(nvml.nvmlDeviceGetTotalEccErrors, handle, double, volatile),
        "ecc_single_aggregate": answer(nvml.nvmlDeviceGetTotalEccErrors, handle, single, aggregate),
        "ecc_double_aggregate": answer(nvml.nvmlDeviceGetTotalEccErrors, handle, double, aggregate),
        "rows_correctable": rows[0],
        "rows_uncorrectable": rows[1],
        "rows_failed": rows[3],
        "throttle": _throttle(handle),
    }
    return {**only_known(values), **read_memory(handle)}


def read_memory(handle: Any) -> dict[str, float]:
    """Read the memory of a GPU or a MIG device.

    An old driver does not say what it has reserved for itself; its used memory includes that.
    """
    memory = answer(nvml.nvmlDeviceGetMemoryInfo, handle, nvml.nvmlMemory_v2)
    reserved = memory and memory.reserved
    memory = memory or answer(nvml.nvmlDeviceGetMemoryInfo, handle)
    if memory is None:
        return {}
    values = {
        "memory_total": memory.total,
        "memory_used": memory.used,
        "memory_free": memory.free,
        "memory_reserved": reserved,
    }
    return only_known(values)


def known(value: float | None) -> float | None:
    """Return a value that makes sense: a number, not negative, not NVML's word for "not known"; otherwise None."""
    if value is None or not isfinite(value) or not 0 <= value < _MOST or value == _NOT_AVAILABLE:
        return None
    return value


def percent(value: float | None) -> float | None:
    """Return a percentage that makes sense, 100 at most; otherwise None."""
    value = known(value)
    return None if value is None or value > _MOST_PERCENT else min(value, 100)


def only_known(values: Mapping[str, float | None]) -> dict[str, float]:
    """Leave out what is not known."""
    return {name: value for name, value in values.items() if value is not None and known(value) is not None}


def _temperature(handle: Any) -> float | None:
    celsius: float | None = answer(nvml.nvmlDeviceGetTemperature, handle, nvml.NVML_TEMPERATURE_GPU)
    if celsius is None:
        # Newer drivers are to lose the first question.
        celsius = answer(nvml.nvmlDeviceGetTemperatureV, handle, nvml.NVML_TEMPERATURE_GPU)
    return celsius


def _throttle(handle: Any) -> float | None:
    reasons: float | None = answer(nvml.nvmlDeviceGetCurrentClocksEventReasons, handle)
    if reasons is None:
        reasons = answer(nvml.nvmlDeviceGetCurrentClocksThrottleReasons, handle)  # its name before driver 535
    return reasons
