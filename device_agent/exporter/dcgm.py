"""The series of NVIDIA's dcgm-exporter: its names, types and units, so that its dashboard and its alerts work. Pure."""

from collections.abc import Callable, Iterator, Sequence

from device_agent.exporter.labels import Family, Labelled, Sample, pods_of_cards
from device_agent.gpu_state.use import NVIDIA, XidCount

_MIB = 1 << 20
_USED, _BUSY = "FB_USED", "GPU_UTIL"


def _as_is(value: float) -> float:
    return value


def _mib(value: float) -> float:
    return int(value) // _MIB


def _flag(value: float) -> float:
    return value > 0


_METRICS: tuple[tuple[str, str, str, str, Callable[[float], float]], ...] = (
    ("SM_CLOCK", "gauge", "SM clock in MHz.", "sm_clock_mhz", _as_is),
    ("MEM_CLOCK", "gauge", "Memory clock in MHz.", "memory_clock_mhz", _as_is),
    ("MEMORY_TEMP", "gauge", "Temperature of the memory in degrees C.", "memory_temperature_c", _as_is),
    ("GPU_TEMP", "gauge", "Temperature of the GPU in degrees C.", "temperature_c", _as_is),
    ("POWER_USAGE", "gauge", "Power draw in W.", "power_w", _as_is),
    ("TOTAL_ENERGY_CONSUMPTION", "counter", "Energy in mJ since the driver was loaded.", "energy_mj", _as_is),
    ("PCIE_REPLAY_COUNTER", "counter", "Retries on PCIe.", "pcie_replays", _as_is),
    (_BUSY, "gauge", "Percent of time in which the GPU was busy.", "busy_percent", _as_is),
    ("MEM_COPY_UTIL", "gauge", "Percent of time in which memory was read or written.", "memory_busy_percent", _as_is),
    ("ENC_UTIL", "gauge", "Percent of time in which the encoder was busy.", "encoder_percent", _as_is),
    ("DEC_UTIL", "gauge", "Percent of time in which the decoder was busy.", "decoder_percent", _as_is),
    ("FB_FREE", "gauge", "Free memory in MiB.", "memory_free", _mib),
    (_USED, "gauge", "Used memory in MiB.", "memory_used", _mib),
    ("FB_RESERVED", "gauge", "Memory in MiB that the driver keeps for itself.", "memory_reserved", _mib),
    ("ECC_SBE_VOL_TOTAL", "counter", "Single-bit ECC errors since the driver was loaded.",
     "ecc_single_volatile", _as_is),
    ("ECC_DBE_VOL_TOTAL", "counter", "Double-bit ECC errors since the driver was loaded.",
     "ecc_double_volatile", _as_is),
    ("ECC_SBE_AGG_TOTAL", "counter", "Single-bit ECC errors of the card's life.", "ecc_single_aggregate", _as_is),
    ("ECC_DBE_AGG_TOTAL", "counter", "Double-bit ECC errors of the card's life.", "ecc_double_aggregate", _as_is),
    ("CORRECTABLE_REMAPPED_ROWS", "counter", "Rows of memory that were remapped after correctable errors.",
     "rows_correctable", _as_is),
    ("UNCORRECTABLE_REMAPPED_ROWS", "counter", "Rows of memory that were remapped after uncorrectable errors.",
     "rows_uncorrectable", _as_is),
    ("ROW_REMAP_FAILURE", "gauge", "1 if a row of memory could not be remapped.", "rows_failed", _flag),
)  # fmt: skip
"""Name after ``DCGM_FI_DEV_``, type, help, the name of the value, and how it becomes the unit of DCGM."""

_PROFILING = (
    ("GR_ENGINE_ACTIVE", "Share of time in which an engine was active, 0 to 1.", "engine_active"),
    ("SM_ACTIVE", "Share of time in which an SM had work, 0 to 1.", "sm_active"),
    ("PIPE_TENSOR_ACTIVE", "Share of time in which the tensor cores were active, 0 to 1.", "tensor_active"),
    ("DRAM_ACTIVE", "Share of time in which memory was read or written, 0 to 1.", "dram_active"),
)
"""Name after ``DCGM_FI_PROF_``, help, and the name of the value. GPUs before Hopper have none of them."""


def dcgm_families(cards: Sequence[Labelled], xids: Sequence[XidCount]) -> Iterator[Family]:
    """Make all series of NVIDIA's cards; a value that a card does not know is none."""
    ours = [one for one in cards if one.card.driver == NVIDIA]
    for name, kind, description, value, unit in _METRICS:
        samples = [(one.own, unit(one.card.values[value])) for one in ours if value in one.card.values]
        if name == _USED:
            samples += [(pairs, _mib(pod.memory)) for pairs, pod in pods_of_cards(ours) if pod.memory is not None]
        if name == _BUSY:
            samples += [(pairs, pod.busy) for pairs, pod in pods_of_cards(ours) if pod.busy is not None]
        yield Family(f"DCGM_FI_DEV_{name}", kind, description, samples)
    last = {one.uuid: one.xid for one in xids}
    yield Family(
        "DCGM_FI_DEV_XID_ERRORS",
        "gauge",
        "The last Xid error, 0 for none.",
        [(one.own, last.get(one.card.id, 0)) for one in ours if not one.card.parent],
    )
    for name, description, value in _PROFILING:
        known: list[Sample] = [(one.own, one.card.values[value]) for one in ours if value in one.card.values]
        yield Family(f"DCGM_FI_PROF_{name}", "gauge", description, known)
