"""The state of a node's NVIDIA GPUs: plain values, which the container ``nvml`` sends and the agent reads.

NamedTuples, because ``dataclasses`` would cost a process 2.8 MiB.
"""

from typing import NamedTuple

OK, ABSENT, FAILED = "ok", "absent", "failed"
"""What :attr:`State.status` is: GPUs are read, there is no driver (which is normal), or reading failed."""

MOST_CARDS, MOST_INSTANCES, MOST_XIDS, MOST_NODES = 64, 64, 256, 1024
"""Entries of a state: cards, MIG instances of a card, the last Xid events, device nodes."""
MOST_SLICES = 8
"""Memory slices of a card, and compute slices: no model has more."""
MOST_GPU_INSTANCES, MOST_PROFILES = MOST_SLICES, 32
"""GPU instances of a card, and profiles that it can make them of."""


class InstanceState(NamedTuple):
    """A MIG device of a card.

    ``profile``: such as ``1g.5gb`` or ``1g.10gb+me``. ``gi``, ``ci``: ids of its GPU instance and compute instance.
    """

    uuid: str
    profile: str
    gi: int
    ci: int
    memory_mib: int


class GpuInstanceState(NamedTuple):
    """A GPU instance of a card, whether there are MIG devices in it or not.

    ``gi``: its id. ``profile``: such as ``3g.20gb`` or ``1g.5gb+me``. ``start``, ``size``: its memory slices.
    ``compute``: the slices of each compute instance, largest first; empty: none were made.
    """

    gi: int
    profile: str
    start: int
    size: int
    compute: tuple[int, ...] = ()


class MigProfileState(NamedTuple):
    """A profile that a card can make GPU instances of.

    ``starts``: the memory slices at which one may begin. ``size``: how many it has. ``most``: how many of them a card
    without others has room for.
    """

    name: str
    starts: tuple[int, ...]
    size: int
    most: int


class CardState(NamedTuple):
    """A GPU by NVML's index.

    ``uuid``, ``pci``, ``minor``: of a card that cannot be read, what was known of it; empty and None otherwise.
    ``pci``: as in sysfs, ``0000:3b:00.0``. ``minor``: of its device node. ``memory_mib``: None where NVML knows none.
    ``mig_mode``: 0, 1, or None for a card without MIG.
    ``links``: UUID of another card, and how many NVLinks lead there; behind NVSwitch, how many the card itself has.
    ``why``: why it cannot be read, empty where it can. ``error``: NVML's number of that error, otherwise 0.
    ``recovery_action``: NVML's field 230, 0 for none; None where the driver does not know it.
    ``row_remap_failed``: memory of it is broken and could not be replaced.
    ``fabric``: why NVSwitch's fabric is not ready for it; empty where it is, and where there is none.
    ``numa_node``: from sysfs; None where the machine has no such nodes.
    ``instances``: its MIG devices. ``pci_id``: device and vendor, ``0x20b010de``; empty where NVML does not say.
    ``mig_pending``: what ``mig_mode`` is to be after a reset or a boot.
    ``gpu_instances``, ``mig_profiles``: empty where NVML does not say, and where there are none.
    """

    index: int  # type: ignore[assignment] # nobody searches in a card as in a tuple
    uuid: str = ""
    name: str = ""
    pci: str = ""
    minor: int | None = None
    memory_mib: int | None = None
    mig_mode: int | None = None
    links: tuple[tuple[str, int], ...] = ()
    why: str = ""
    error: int = 0
    recovery_action: int | None = None
    row_remap_failed: bool = False
    fabric: str = ""
    numa_node: int | None = None
    instances: tuple[InstanceState, ...] = ()
    pci_id: str = ""
    mig_pending: int | None = None
    gpu_instances: tuple[GpuInstanceState, ...] = ()
    mig_profiles: tuple[MigProfileState, ...] = ()


class XidEvent(NamedTuple):
    """An Xid error that NVML reported.

    ``number``: counts from 1 in a session. ``at``: seconds of CLOCK_BOOTTIME. ``uuid``: of the card;
    empty when NVML does not say whose it is: it may be any card's.
    ``gi``, ``ci``: the instance that it is about; None where it is the whole card.
    """

    number: int
    at: float
    uuid: str
    xid: int
    gi: int | None = None
    ci: int | None = None


class NodeState(NamedTuple):
    """A device node that the driver's cards need, or that is in their way.

    ``why``: what is wrong with it, empty when it is there and right. ``capability``: the path of the capability of MIG
    that it stands for below ``/proc/driver/nvidia/capabilities``, ``gpu0/mig/gi7/access``; empty for others.
    """

    path: str
    major: int
    minor: int
    why: str = ""
    capability: str = ""


class MigChanged(NamedTuple):
    """What became of the request with this id (:class:`device_agent.gpu_state.mig_change.MigChange`).

    ``outcome``: one of :data:`device_agent.gpu_state.mig_change.OUTCOMES`. ``why``: empty when it is done.
    ``at``: when that was known, in seconds of CLOCK_BOOTTIME.
    """

    id: int
    card: str
    outcome: str
    why: str
    at: float


class State(NamedTuple):
    """All that the container ``nvml`` says, each time.

    ``session``: a random text of each start of the container. ``boot``: the kernel's id of this boot.
    ``load``: changes with each load of the module ``nvidia``; empty where it is not loaded.
    ``status``: :data:`OK`, :data:`ABSENT` or :data:`FAILED`. ``reason``: empty when ok; otherwise why, and what to do.
    ``driver``: its version, ``550.54.15``. ``cards``: by NVML's index. Both are empty when absent; when failed they are
    what was read last of this load.
    ``xids``: the last ones of this session, of each card, number and instance the last one alone, oldest first.
    ``nodes``: what is to be in ``/dev``.
    ``read_at``: when the cards were last read, in seconds of CLOCK_BOOTTIME: the same state is sent again and again. 0
    until they were read of this load.
    ``mig_changes``: the last request of each card to change its MIG instances that was answered in this session, the
    last one last. The cards were read after it.
    """

    session: str
    boot: str = ""
    load: str = ""
    status: str = ABSENT
    reason: str = ""
    driver: str = ""
    cards: tuple[CardState, ...] = ()
    xids: tuple[XidEvent, ...] = ()
    nodes: tuple[NodeState, ...] = ()
    read_at: float = 0.0
    mig_changes: tuple[MigChanged, ...] = ()
