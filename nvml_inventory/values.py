"""What an inventory is made of: plain values, without a handle of NVML's.

NamedTuples, because ``dataclasses`` would cost a process 2.8 MiB.
"""

from typing import NamedTuple


class Mig(NamedTuple):
    """A MIG device. ``name`` ends in its profile; the engines are those that it may use."""

    uuid: str
    name: str
    memory_mib: int
    multiprocessors: int
    slices_gi: int
    slices_ci: int
    engines_copy: int
    engines_decoder: int
    engines_encoder: int
    engines_jpeg: int
    engines_ofa: int


class Card(NamedTuple):
    """A GPU; None stands for what this GPU, or this version of the driver, does not know.

    ``pci_bus_id``: spelt as in sysfs. Modes and ``virtualization`` are NVML's numbers.
    ``nvlink_links``: how many links are active. ``nvlink_peers``: addresses of the GPUs that it reaches over NVLink.
    """

    uuid: str
    name: str
    pci_bus_id: str
    memory_mib: int | None
    compute_major: int | None
    compute_minor: int | None
    ecc_mode: int | None
    persistence_mode: int | None
    mig_mode: int | None
    virtualization: int | None
    nvlink_links: int | None
    nvlink_peers: tuple[str, ...] = ()
    migs: tuple[Mig, ...] = ()


class Unreadable(NamedTuple):
    """A GPU that NVML counts and that cannot be read, such as a lost one; the reason says what to do next."""

    reason: str


class Inventory(NamedTuple):
    """Driver and GPUs.

    ``driver``: X.Y or X.Y.Z. ``cuda``: 1000 major + 10 minor. ``cards``: by NVML's index.
    """

    driver: str
    cuda: int
    cards: tuple[Card | Unreadable, ...]


class Absent(NamedTuple):
    """There is no package, no library, no driver, or no GPU of the driver's: all of it normal."""

    reason: str
