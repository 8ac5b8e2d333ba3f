"""What a change of a node's MIG layout is decided by, and what is decided. Plain values.

:mod:`device_agent.node` makes :class:`NodeMig` of the Node and writes :class:`NodeWrite`; the container ``nvml`` is
asked for a :class:`~device_agent.gpu_state.mig_change.MigChange`. What :class:`Memory` holds saves time alone: without
it every step follows from the Node and the cards.
"""

from collections.abc import Mapping
from dataclasses import dataclass, field
from typing import TYPE_CHECKING

if TYPE_CHECKING:
    from device_agent.gpu_state.mig_change import MigChange
    from device_agent.gpu_state.state import State
    from device_agent.mig.parse import Entry


@dataclass(frozen=True, slots=True, kw_only=True)
class NodeMig:
    """What a Node says about MIG; keys as :mod:`kube_api.names` has them. None: it has no such label or annotation.

    ``asked``: the label ``nvidia.com/mig.config`` as it stands, 63 printable characters; an empty one asks for nothing.
    ``state``: the label ``nvidia.com/mig.config.state``. ``record``, ``lock``, ``drain_request``, ``drain_state``:
    annotations ``driverwright.io/mig``, ``lock``, ``drain-request`` and ``drain-state`` as they stand; of one that is
    longer than 64 KiB the first 64 KiB. ``reboot_required``: the label ``driverwright.io/reboot-required``.
    ``deploy``: labels ``nvidia.com/gpu.deploy.*`` by their whole keys.
    """

    asked: str | None = None
    state: str | None = None
    record: str | None = None
    lock: str | None = None
    drain_request: str | None = None
    drain_state: str | None = None
    reboot_required: str | None = None
    deploy: Mapping[str, str] = field(default_factory=dict)
    resource_version: str = ""
    uid: str = ""


@dataclass(frozen=True, slots=True, kw_only=True)
class NodeWrite:
    """One merge patch of a Node, with ``metadata.resourceVersion`` of the Node that it was decided by.

    Refused because of that version: nothing is written, and it is decided anew. ``labels``, ``annotations``: whole
    keys; None removes one. ``event``: message of a warning Event, with the reason MIGChangeFailed, after the patch.
    """

    labels: Mapping[str, str | None] = field(default_factory=dict)
    annotations: Mapping[str, str | None] = field(default_factory=dict)
    event: str | None = None
    resource_version: str = ""


@dataclass(frozen=True, slots=True, order=True)
class Holding:
    """A container has a unit. ``pod``: NAMESPACE/NAME; empty where the kubelet has not named it yet."""

    pod: str
    resource: str


@dataclass(frozen=True, slots=True, kw_only=True)
class UnitUsers:
    """Who has which GPU or MIG instance, by UUID. ``at``: when it was asked, in seconds of CLOCK_BOOTTIME."""

    at: float
    units: Mapping[str, frozenset[Holding]] = field(default_factory=dict)


@dataclass(frozen=True, slots=True, kw_only=True)
class MigSettings:
    """``drain``: driver-builder is to evict users of what goes, in ``deadline`` seconds; else they are waited for."""

    drain: bool = False
    deadline: int = 1800


@dataclass(frozen=True, slots=True, kw_only=True)
class Layouts:
    """What the file asks for under one key. ``error``: why that cannot be said; then there are no entries."""

    key: str
    entries: "tuple[Entry, ...]" = ()
    error: str = ""


@dataclass(frozen=True, slots=True, kw_only=True)
class Shown:
    """The cards (UUIDs) whose devices the kubelet was shown as not healthy.

    ``since``: since when all of them, in seconds of CLOCK_BOOTTIME.
    """

    cards: frozenset[str] = frozenset()
    since: float = 0.0


@dataclass(frozen=True, slots=True, kw_only=True)
class Rest:
    """A try that has failed, and is not repeated before ``until``, in seconds of CLOCK_BOOTTIME.

    ``layouts``: what was asked. ``users``: who was in the way; None where nobody was. Another question does not wait.
    """

    layouts: Layouts
    until: float
    users: frozenset[Holding] | None = None
    tries: int = 1


@dataclass(frozen=True, slots=True, kw_only=True)
class Memory:
    """What an agent remembers between two steps, and may forget.

    ``sent``: the change that was asked for and not answered yet; ``done``: the last one that was done.
    ``rest``: the last try that has failed.
    ``tries``: how often the card refused the change that is due, which waits until ``pause``.
    ``drains_since``: when the drain that is under way was asked for. Times are seconds of CLOCK_BOOTTIME.
    """

    sent: "MigChange | None" = None
    done: "MigChange | None" = None
    rest: Rest | None = None
    tries: int = 0
    pause: float = 0.0
    drains_since: float | None = None


@dataclass(frozen=True, slots=True, kw_only=True)
class Sight:
    """All that a step is decided by. ``node``, ``users``: None while that is not known.

    ``layouts``: of the key that the Node asks for; of another one, or None: it is being read.
    ``state``: None unless its cards are read. ``unknown``: why users are not known though they were looked at.
    ``now``: seconds since the epoch, for the lock. ``clock``: seconds of CLOCK_BOOTTIME.
    ``inherited``: the clock when the agent began, if a change was under way by then; else 0.
    """

    node: NodeMig | None
    layouts: Layouts | None
    state: "State | None"
    users: UnitUsers | None
    now: float
    clock: float
    boot_id: str
    inherited: float = 0.0
    unknown: str = ""
    settings: MigSettings = MigSettings()
    shown: Shown = Shown()
    memory: Memory = Memory()


@dataclass(frozen=True, slots=True, kw_only=True)
class Step:
    """What is to be done now; never both of ``write`` and ``change``.

    ``held``: UUIDs of cards none of whose devices may be given. ``why``: what is waited for, for log and metric.
    ``again``: seconds after which to decide anew though nothing has changed; None: not at all.
    ``looks``: whether users have to be looked at. ``registers``: False while nothing may be registered that is not yet.
    ``memory``: for the next step, if what this one says was done.
    """

    write: NodeWrite | None = None
    change: "MigChange | None" = None
    held: frozenset[str] = frozenset()
    why: str = ""
    again: float | None = None
    looks: bool = False
    registers: bool = True
    memory: Memory = Memory()
