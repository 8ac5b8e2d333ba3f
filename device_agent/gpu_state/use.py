"""How much a node's cards are used, and by which processes: plain values, which the container ``nvml`` sends.

Of any vendor: NVIDIA's cards as NVML sees them, others as the kernel's DRM drivers do.
"""

from collections.abc import Mapping
from typing import NamedTuple

from device_agent.gpu_state.ending import Ended

NVIDIA = "nvidia"
"""The driver of the cards that NVML knows."""

MOST_PROCESSES = 1024
"""Processes of a card; of a longer list those with most memory are kept."""
MOST_DEVICES, MOST_IN_ALL = 256, 2048
"""Cards with their MIG devices, and processes of all of them."""
MOST_PODS = 1024
MOST_XID_COUNTS = 256
MOST_POD_LIMITS = 1024
"""Limits of pods on cards that drivers are asked to keep."""

VALUES = (
    "sm_clock_mhz",
    "memory_clock_mhz",
    "temperature_c",
    "memory_temperature_c",
    "power_w",
    "energy_mj",
    "busy_percent",
    "memory_busy_percent",
    "encoder_percent",
    "decoder_percent",
    "memory_total",
    "memory_used",
    "memory_free",
    "memory_reserved",
    "pcie_replays",
    "ecc_single_volatile",
    "ecc_double_volatile",
    "ecc_single_aggregate",
    "ecc_double_aggregate",
    "rows_correctable",
    "rows_uncorrectable",
    "rows_failed",
    "throttle",
    "engine_active",
    "sm_active",
    "tensor_active",
    "dram_active",
)
"""What may be known of a card; memory in bytes, energy in mJ since the driver was loaded, the last four from 0 to 1.

``throttle``: NVML's mask of why clocks are low (``nvmlClocksEventReason*``). What is not known is not there.
"""


class ProcessUse(NamedTuple):
    """A process of a pod that uses a card.

    ``pid``: the node's number of it, which the kernel uses again. ``start``: when it started, in clock ticks since the
    boot (field 22 of ``/proc/PID/stat``): with it the process is known for certain.
    ``uid``: its pod's UID, as :func:`device_agent.users.pods.plain_uid` writes it. ``pod``: NAMESPACE/NAME of that.
    ``memory``: bytes of the card; ``busy``: percent of the card's time. None: not known.
    """

    pid: int
    start: int
    uid: str
    pod: str
    memory: int | None = None
    busy: float | None = None


class CardUse(NamedTuple):
    """A card, or a MIG device of one.

    ``id``: its UUID; the PCI address of a card that has none. ``pci``: as in sysfs, ``0000:3b:00.0``.
    ``driver``: the kernel's, such as ``nvidia``, ``amdgpu``, ``i915``, ``xe``.
    ``index``: NVML's, or N of ``/dev/dri/cardN``. ``name``: the model; empty where it is not known.
    ``parent``: the UUID of a MIG device's card, ``profile`` and ``gi`` its profile and GPU instance; empty, None of
    cards.
    ``values``: by the names of :data:`VALUES`.
    ``processes``: of pods alone, and of those pods alone that were asked for.
    ``is_unread``: its processes could not be read for this sample.
    """

    id: str
    pci: str
    driver: str
    index: int  # type: ignore[assignment] # nobody searches in a card as in a tuple
    name: str = ""
    parent: str = ""
    profile: str = ""
    gi: int | None = None
    values: Mapping[str, float] = {}
    processes: tuple[ProcessUse, ...] = ()
    is_unread: bool = False


class XidCount(NamedTuple):
    """How often an Xid error was reported of a card since the container ``nvml`` started; the last one is last."""

    uuid: str
    xid: int
    count: int  # type: ignore[assignment] # as with the index of a card


class KeptLimit(NamedTuple):
    """The driver of this card keeps this limit in bytes of this pod, NAMESPACE/NAME: nobody has to watch it."""

    card: str
    pod: str
    limit: int


class Use(NamedTuple):
    """All that is said of use, each time.

    ``session``: of the container ``nvml``, as in its state. ``at``: when the oldest value was read, in seconds of
    CLOCK_BOOTTIME. ``processes``: why no process can be said to be of a pod; empty if they can, or none was asked for.
    ``pods``: the pods, NAMESPACE/NAME, whose processes this speaks of: those that were asked for, as far as their UIDs
    are known; None: processes were not asked for.
    ``ended``: what became of the last requests that a process be ended, the last one last.
    ``kept``: the limits of memory that drivers keep, of those that were asked for last. ``refused``: why a card's
    driver keeps none, or not all of them, by the card's id.
    ``unread``: the pods of ``pods`` of which not all open files were looked at, as there are too many: what they use of
    cards of other drivers than NVIDIA's is not known.
    """

    session: str
    at: float
    cards: tuple[CardUse, ...] = ()
    xids: tuple[XidCount, ...] = ()
    pods: tuple[str, ...] | None = None
    processes: str = ""
    ended: tuple[Ended, ...] = ()
    kept: tuple[KeptLimit, ...] = ()
    refused: Mapping[str, str] = {}
    unread: tuple[str, ...] = ()
