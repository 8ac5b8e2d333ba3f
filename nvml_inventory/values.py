"""What an inventory is made of: plain values, without a handle of NVML's.

NamedTuples, because ``dataclasses`` would cost a process 2.8 MiB.
"""

from collections.abc import Mapping
from typing import NamedTuple


class Mig(NamedTuple):
    """A MIG device. ``name`` ends in its profile; the engines are those that it may use.

    ``gi``, ``ci``: numbers of its GPU instance and compute instance; None where the driver does not say.
    """

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
    gi: int | None = None
    ci: int | None = None

    @property
    def profile(self) -> str:
        """Its profile, such as ``1g.5gb`` or ``1g.10gb+me``; empty where the name does not end in one."""
        return self.name.partition(" MIG ")[2].strip()


class GpuInstance(NamedTuple):
    """A GPU instance: its id, its profile such as ``3g.20gb``, and its memory slices: the first one and how many."""

    gi: int
    profile: str
    start: int
    size: int


class MigProfile(NamedTuple):
    """A profile: the first memory slices that an instance may have, how many it has, and how many fit into a GPU."""

    name: str
    starts: tuple[int, ...]
    size: int
    most: int


class MigLayout(NamedTuple):
    """Profiles and GPU instances of a GPU in MIG mode."""

    profiles: tuple[MigProfile, ...] = ()
    instances: tuple[GpuInstance, ...] = ()


class Card(NamedTuple):
    """A GPU; None stands for what this GPU, or this version of the driver, does not know.

    ``pci_bus_id``: spelt as in sysfs. Modes and ``virtualization`` are NVML's numbers.
    ``nvlink_links``: how many links are active. ``nvlink_peers``: addresses of the GPUs that it reaches over NVLink.
    ``minor``: N of /dev/nvidiaN. ``nvlinks``: the same GPUs as ``nvlink_peers``, each with how many active links lead
    there; behind NVSwitch all links lead to each GPU.
    ``pci_id``: device and vendor, ``0x20b010de``; empty where it is not said. ``mig_pending``: MIG mode after a reset.
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
    minor: int | None = None
    nvlinks: tuple[tuple[str, int], ...] = ()
    pci_id: str = ""
    mig_pending: int | None = None


class Unreadable(NamedTuple):
    """A GPU that NVML counts and that cannot be read, such as a lost one; the reason says what to do next.

    ``index``: NVML's. ``error``: NVML's number of the error; 0 for an answer that makes no sense. ``uuid``, ``pci``:
    which GPU it is, if NVML still says so, or has said so earlier in the same session; otherwise empty.
    """

    reason: str
    index: int  # type: ignore[assignment]  # hides the tuple's own, which nobody asks
    error: int
    uuid: str = ""
    pci: str = ""


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


class Conditions(NamedTuple):
    """What a GPU says of its own health.

    ``recovery_action``: what has to be done to it (NVML's numbers: 0 nothing, 1 reset, 2 reboot, 3 drain its peers,
    4 drain and reset, ...); None where the driver does not know the question. ``row_remap_failed``: rows of its memory
    are broken, and no spare ones are left. ``fabric``: why the fabric of an NVSwitch system is not ready; empty when it
    is, and without one.
    """

    recovery_action: int | None = None
    row_remap_failed: bool = False
    fabric: str = ""


class Xid(NamedTuple):
    """An Xid error that the driver has reported.

    ``uuid``: of the GPU; empty when NVML does not say whose error it is: it may be that of any. ``gi``, ``ci``: the MIG
    instances that it concerns; None: the whole GPU.
    """

    uuid: str
    xid: int
    gi: int | None
    ci: int | None


class Process(NamedTuple):
    """A process on a GPU or MIG device, by its number in the driver's, the node's, PID namespace.

    ``memory``: bytes; None where NVML does not know. ``busy``: percent of the GPU's time since the last look; None
    where it is not known.
    """

    pid: int
    memory: int | None = None
    busy: float | None = None


class DeviceUse(NamedTuple):
    """How much a GPU, or a MIG device, is used now. ``index``: NVML's, of the GPU. ``pci``: spelt as in sysfs.

    ``parent``, ``profile``, ``gi``: of a MIG device: its GPU's UUID, its profile, its GPU instance.
    ``values``: what the GPU knows, by the names of :data:`device_agent.gpu_state.use.VALUES`.
    ``processes``: None: NVML did not say them now.
    """

    uuid: str
    pci: str
    index: int  # type: ignore[assignment]  # as above
    name: str = ""
    parent: str = ""
    profile: str = ""
    gi: int | None = None
    values: Mapping[str, float] = {}
    processes: tuple[Process, ...] | None = ()
