"""What the parts of a plan share: one driver's view of a snapshot, and what one target adds to a plan. Pure."""

from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass, field, fields, replace
from typing import Any

from driver_builder.api import rebuild_status
from driver_builder.api.driver_container import DriverContainer
from driver_builder.api.driver_spec import DriverSpec, ValidationSettings
from driver_builder.api.node_notes import BegunDrain, NodeNote, previous_notes
from driver_builder.api.prebuild_status import AheadStatus, previous_ahead
from driver_builder.api.rebuild_status import Rebuilds
from driver_builder.api.rollout_settings import DrainSettings
from driver_builder.api.rollout_status import Wave, previous_wave
from driver_builder.api.stage_status import StageStatus, previous_stages
from driver_builder.api.status import TargetStatus, Trouble, previous_targets
from driver_builder.api.unloading import Unloading
from driver_builder.base.persistent import Layered
from driver_builder.base.reasons import Reason, TargetState
from driver_builder.model import defaults
from driver_builder.model.agent_drains import AgentDrains
from driver_builder.model.build import ModuleSpec
from driver_builder.model.kernels import KernelTarget
from driver_builder.model.loader_privileges import LoaderPrivileges
from driver_builder.nodes.changes import Change, Taking
from driver_builder.nodes.evidence import NodeEvidence
from driver_builder.nodes.settled import Settled
from driver_builder.nodes.standing import Placed, TargetStanding
from driver_builder.objects.driver_keys import DriverKeys, driver_keys
from driver_builder.snapshot import inventory, pairs
from driver_builder.snapshot.by_driver import PodsOfDriver, of_driver, pods_of
from driver_builder.snapshot.inventory import Node
from driver_builder.snapshot.node_record import NodeRecord, record_of
from driver_builder.snapshot.pairs import Pair
from driver_builder.snapshot.snapshot import DaemonSet, DriverPod, FailedBuild, Snapshot, Suspension
from driver_builder.targets.conflicts import Conflict
from driver_builder.targets.dependencies import NONE, Dependencies
from driver_builder.targets.desired_target import DesiredTarget, TemplateVersions
from driver_builder.tasks.node_task import NodeTask
from driver_builder.tasks.task_kind import TaskKind

DEFAULT_LOADER_IMAGE = "driverwright/loader:latest"
"""The image in the manifests in ``deploy/``; the controller always gets its own by a flag."""


@dataclass(frozen=True, slots=True, kw_only=True)
class PlanSettings:
    """What a plan depends on besides the snapshot. Seconds between tries of a failed build double from min to max.

    ``loader_image`` is the image with the loader of driver pods, ``loader_privileges`` says what the loader may do on a
    node. Unloading a driver from a node is tried for ``unload_deadline_seconds``. Of all drivers together, working ones
    are replaced on at most ``max_unavailable_nodes`` at once; 0 is no limit.
    """

    template_versions: TemplateVersions
    loader_image: str = DEFAULT_LOADER_IMAGE
    loader_privileges: LoaderPrivileges = LoaderPrivileges.PRIVILEGED
    retry_min_seconds: float = defaults.RETRY_MIN_SECONDS
    retry_max_seconds: float = defaults.RETRY_MAX_SECONDS
    unload_deadline_seconds: float = defaults.UNLOAD_DEADLINE_SECONDS
    max_unavailable_nodes: int = 0
    device_agent_image: str = ""
    """The image of our device plugin; empty where there is none."""
    device_agent_accounts: frozenset[str] = frozenset()
    """The service accounts (``namespace/name``) whose tokens it may get."""
    agent_drains: AgentDrains = field(default_factory=AgentDrains)
    """What the agents of nodes may have drained."""
    dra_driver_accounts: frozenset[str] = frozenset()
    """Those that vendors' DRA drivers may have."""

    @property
    def plugin_accounts(self) -> frozenset[str]:
        """All accounts that plugins of drivers may have."""
        return self.device_agent_accounts | self.dra_driver_accounts


@dataclass(frozen=True, slots=True, kw_only=True)
class WavePart:
    """What a driver's wave adds to its plan."""

    wave: Wave | None = None
    busy: frozenset[str] = frozenset()
    budgeted: frozenset[str] = frozenset()
    """Nodes that the driver works on, and those where a working driver is replaced next."""
    taken: frozenset[str] = frozenset()
    """Nodes that the wave answers for."""
    reserve: tuple[Taking, ...] = ()
    """What is replaced instead where a budgeted node is held back."""
    drained_last: frozenset[str] = frozenset()
    """Nodes on which a drain would wait for pods: others go first."""
    images: Mapping[str, str] = field(default_factory=dict)
    """By node, in their order, the image that has to be there before a working driver is replaced, now or soon."""
    pulls: int = 0
    """So many of these nodes get their image at once."""
    pulled_for: tuple[tuple[frozenset[str], int], ...] = ()
    """Where waves of other drivers need images of this one, too: the nodes of each wave, and so many of them at once.

    No wave takes the place of another one: of two waves that need the same two drivers neither waits for ever.
    """
    placed: Mapping[tuple[str, str, str], Placed] = field(default_factory=dict)
    """Of a driver that depends on others, or others on it: the targets that have an image, by their groups."""
    yielded: Mapping[str, bool] = field(default_factory=dict)
    """Nodes where drivers that depend on this one yield, and whether this one works there."""

    @property
    def of_wave(self) -> dict[str, Any]:
        """Return all this by name, for another part."""
        return {item.name: getattr(self, item.name) for item in fields(WavePart)}


@dataclass(frozen=True, slots=True, kw_only=True)
class DriverPlan(WavePart):
    """One driver's part.

    ``failures`` are the failed builds in ``targets`` and ``ahead``, by key; ``needed`` are the keys whose builds
    continue; ``requeue_at`` (seconds since the epoch) is when to look again although nothing changes.
    ``ahead`` are the kernels that nodes can move to, None for a driver without prebuilds. ``trouble``
    says why nothing could be decided: ``targets`` are the previous ones, and are not written. ``notes`` are what the
    status keeps of single nodes.
    """

    driver: DriverContainer
    actions: tuple[Change, ...] = ()
    targets: tuple[TargetStatus, ...] = ()
    rebuilds: Rebuilds
    unknown: Mapping[str, str]
    failures: Mapping[str, FailedBuild] = field(default_factory=dict)
    needed: frozenset[str] = frozenset()
    requeue_at: float | None = None
    ahead: tuple[AheadStatus, ...] | None = None
    trouble: Trouble | None = None
    unloading: Unloading = field(default_factory=Unloading)
    notes: tuple[NodeNote, ...] = ()
    stages: StageStatus | None = None
    undrained: Mapping[str, str] = field(default_factory=dict)
    """Nodes that could not be drained and keep their driver, with what was in the way."""
    draining: Mapping[str, BegunDrain] = field(default_factory=dict)
    """The nodes that are drained for this driver."""
    unyielded: Mapping[str, str] = field(default_factory=dict)
    """Nodes where a driver that depends on this one cannot be unloaded, with the driver and what holds its modules."""

    @property
    def drain(self) -> DrainSettings | None:
        """How nodes are drained before the driver is replaced; None where they are not, or the spec is invalid."""
        return self.driver.spec.rollout.drain if isinstance(self.driver.spec, DriverSpec) else None


Alone = Callable[[DriverPlan, Callable[[], DriverPlan]], DriverPlan]
"""Does some work for one driver's plan among those of all: its errors concern that driver alone."""


@dataclass(frozen=True, slots=True, kw_only=True)
class DriverView:
    """One driver's share of the snapshot."""

    snapshot: Snapshot
    settings: PlanSettings
    driver: DriverContainer
    nodes: Layered[Node]
    daemon_sets: Mapping[str, DaemonSet]
    """By target; of a pair the one that a wave moves nodes to."""
    own_pods: PodsOfDriver
    before: Mapping[str, TargetStatus]
    notes: Mapping[str, NodeNote]
    orphans: frozenset[str] = frozenset()
    """Nodes with pods whose DaemonSet is gone."""
    tasks: Mapping[str, Mapping[str, list[NodeTask]]] = field(default_factory=dict)
    """By kind and node."""
    conflicts: tuple[Conflict, ...] = ()
    """What the driver must leave to others."""
    resource_kept: Mapping[str, str] = field(default_factory=dict)
    """By node, the driver that keeps the resource which this one offers as well."""
    dependencies: Dependencies = NONE
    """What it needs of others, and they of it."""
    is_wave_held: bool = False
    """Whether a wave does not end yet (:mod:`driver_builder.rollout.held_waves`)."""
    wanted: tuple[DesiredTarget, ...] = ()
    """What all targets of the driver should run, once it is resolved."""
    rebuilds: Rebuilds = Rebuilds(requests={}, tokens={})  # noqa: RUF009  # a frozen value
    pairs: Mapping[str, Pair] = field(default_factory=dict)
    """By target, both DaemonSets of those in a wave."""
    waiting: Mapping[KernelTarget, tuple[str, ...]] = field(default_factory=dict)
    """Ordinary nodes (:mod:`driver_builder.nodes.ordinary`) that a wave has not reached, by target and sorted."""
    others: Sequence[Node] = ()
    """The nodes that are not ordinary: where something may have to be done."""
    others_of: Mapping[KernelTarget, tuple[str, ...]] = field(default_factory=dict)
    """Their names, by the target that is rolled out to them."""
    written: dict[str, tuple[tuple[object, ...], DaemonSet]] = field(default_factory=dict)
    """By target, the DaemonSet that was wanted the last time, with all that it was made from."""
    settled: Settled = field(default_factory=Settled)
    """The nodes where nothing of its stages was to be done the last time."""

    @classmethod
    def of(cls, snapshot: Snapshot, driver: DriverContainer, settings: PlanSettings) -> "DriverView":
        """Take from a snapshot what concerns one driver."""
        daemon_sets = of_driver(snapshot.daemon_sets, driver.key)
        known_pairs = pairs.pairs(daemon_sets)
        tasks: dict[str, dict[str, list[NodeTask]]] = {}
        for task in sorted(of_driver(snapshot.tasks, driver.key), key=lambda item: item.name):
            tasks.setdefault(task.kind, {}).setdefault(task.node, []).append(task)
        return cls(
            snapshot=snapshot,
            settings=settings,
            driver=driver,
            nodes=inventory.by_name(snapshot.nodes),
            daemon_sets=pairs.by_target(daemon_sets, known_pairs),
            pairs=known_pairs,
            own_pods=pods_of(snapshot.pods, driver.key),
            before=previous_targets(driver.status),
            orphans=frozenset(pod.node for pod in of_driver(snapshot.orphaned_pods, driver.key)),
            tasks=tasks,
            notes=previous_notes(driver.status),
            others=snapshot.nodes,
        )

    def pods_on(self, node: str) -> tuple[DriverPod, ...]:
        """Return the driver's pods on a node, those that stay first."""
        pods = self.own_pods.on(node)
        pair = self.pairs.get(pods[0].target) if self.pairs and pods else None
        return pods if pair is None or node not in self.nodes else pair.seen_on(self.on(self.nodes[node]).wave, pods)

    def tasks_of(self, kind: TaskKind) -> Mapping[str, list[NodeTask]]:
        """Return the driver's tasks of a kind by node."""
        return self.tasks.get(kind.name, {})

    def room(self, kind: TaskKind) -> int:
        """Return how many pods of a kind may start now."""
        tasks = self.tasks_of(kind).values() if kind.counts_running else ()
        return max(0, kind.most - sum(not task.has_ended for found in tasks for task in found))

    @property
    def keys(self) -> DriverKeys:
        """The keys that stand on Nodes of the driver."""
        return driver_keys(self.driver.key)

    def on(self, node: Node) -> NodeRecord:
        """Return what stands on a node of the driver."""
        return record_of(node, self.driver.key)

    def weighed(self, item: DesiredTarget) -> tuple[str, ...]:
        """Return the nodes of a target that are not ordinary: of a fleet hardly any."""
        return self.others_of.get(item.target, item.nodes)

    @property
    def suspension(self) -> Suspension | None:
        """Return why builds of this driver are suspended, None while they are not."""
        return self.snapshot.suspended.get("") or self.snapshot.suspended.get(self.driver.key)

    @property
    def validation(self) -> ValidationSettings:
        """What a ready label needs besides the load; nothing if the spec is invalid."""
        return self.driver.spec.validation if isinstance(self.driver.spec, DriverSpec) else ValidationSettings()

    @property
    def has_stages(self) -> bool:
        """Whether something follows once the driver is proven; not if the spec is invalid."""
        return isinstance(self.driver.spec, DriverSpec) and self.driver.spec.stages is not None

    @property
    def modules(self) -> tuple[ModuleSpec, ...]:
        """The spec's modules in load order; none if the spec is invalid."""
        return self.driver.spec.module.load_order if isinstance(self.driver.spec, DriverSpec) else ()

    @property
    def nothing_new(self) -> DriverPlan:
        """A plan that changes nothing and keeps the previous status."""
        ahead = tuple(previous_ahead(self.driver.status).values())
        return DriverPlan(
            driver=self.driver,
            targets=tuple(self.before.values()),
            ahead=ahead or None,
            needed=frozenset(target.key for target in (*self.before.values(), *(entry.target for entry in ahead))),
            rebuilds=rebuild_status.from_status(self.driver.status.get("rebuild")),
            unknown={},
            notes=tuple(self.notes.values()),
            wave=previous_wave(self.driver.status),
            stages=previous_stages(self.driver.status),
        )


@dataclass(frozen=True, slots=True, kw_only=True)
class TargetPart:
    """What one target adds to the plan.

    ``evidence`` is that of each of its nodes that is not ordinary, ``usual`` that of all others; those in ``served``
    have the rebuild that they requested.
    """

    status: TargetStatus
    actions: tuple[Change, ...] = ()
    evidence: Mapping[str, NodeEvidence]
    usual: NodeEvidence
    served: frozenset[str] = frozenset()
    standing: TargetStanding | None = None
    """Where its nodes stand, if it has an image that is rolled out."""
    spent: DaemonSet | None = None
    """What had the image of before for them: it is kept until the wave has ended on all targets."""
    is_remade: bool = False
    """Whether the DaemonSet with the image of before is made anew."""
    requeue_at: float | None = None

    def of_node(self, node: str) -> NodeEvidence:
        """Return the evidence of one of its nodes."""
        return self.evidence.get(node, self.usual)

    def with_status(self, **changes: Any) -> "TargetPart":
        """Return the same with these fields of its status."""
        return replace(self, status=replace(self.status, **changes))

    def blocked(self, reason: Reason, message: str) -> "TargetPart":
        """Report that something else prevents progress; the target keeps what it has."""
        return self.with_status(state=TargetState.BLOCKED, reason=reason, message=message)
