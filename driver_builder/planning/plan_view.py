"""What the plan's parts have in common: one driver's share of a snapshot, and what one target adds to a plan. Pure."""

from collections.abc import Mapping
from dataclasses import dataclass, field, replace

from driver_builder.planning import rebuild
from driver_builder.planning.actions import Action
from driver_builder.planning.ahead_status import AheadStatus, previous_ahead
from driver_builder.planning.desired import Recipes, Unwanted, Wanted
from driver_builder.planning.inventory import Node
from driver_builder.planning.rebuild import Rebuilds
from driver_builder.planning.snapshot import DaemonSet, DriverPod, FailedBuild, Snapshot
from driver_builder.planning.status import Reason, TargetState, TargetStatus, previous_targets
from driver_builder.spec.driver_container import DriverContainer


@dataclass(frozen=True, slots=True, kw_only=True)
class PlanSettings:
    """What a plan depends on besides the snapshot. Seconds between tries of a failed build double from min to max."""

    recipes: Recipes
    retry_min_seconds: float = 30.0
    retry_max_seconds: float = 3600.0


@dataclass(frozen=True, slots=True, kw_only=True)
class DriverPlan:
    """One driver's part.

    ``failures`` are the failed builds that ``targets`` and ``ahead`` tell of, by key; ``needed`` are the keys whose
    builds are to go on; ``requeue_at`` (seconds since the epoch) is when to look again though nothing changes.
    ``ahead`` are the kernels that nodes can move to, None for a driver that is not asked to build ahead.
    """

    driver: DriverContainer
    actions: tuple[Action, ...] = ()
    targets: tuple[TargetStatus, ...] = ()
    rebuilds: Rebuilds
    unknown: Mapping[str, str]
    failures: Mapping[str, FailedBuild] = field(default_factory=dict)
    needed: frozenset[str] = frozenset()
    requeue_at: float | None = None
    ahead: tuple[AheadStatus, ...] | None = None


@dataclass(frozen=True, slots=True, kw_only=True)
class DriverView:
    """One driver's share of the snapshot."""

    snapshot: Snapshot
    settings: PlanSettings
    driver: DriverContainer
    nodes: Mapping[str, Node]
    daemon_sets: Mapping[str, DaemonSet]
    pods: Mapping[str, list[DriverPod]]
    """By target."""
    before: Mapping[str, TargetStatus]
    wanted: tuple[Wanted | Unwanted, ...] = ()
    """What all targets of the driver should run, once that is known."""

    @classmethod
    def of(cls, snapshot: Snapshot, driver: DriverContainer, settings: PlanSettings) -> "DriverView":
        """Pick out of a snapshot what concerns one driver."""
        pods: dict[str, list[DriverPod]] = {}
        for pod in sorted(snapshot.pods, key=lambda pod: (pod.node, pod.deleting, pod.name)):
            if pod.driver == driver.key:
                pods.setdefault(pod.target, []).append(pod)
        return cls(
            snapshot=snapshot,
            settings=settings,
            driver=driver,
            nodes={node.name: node for node in snapshot.nodes},
            daemon_sets={item.target: item for item in snapshot.daemon_sets if item.driver == driver.key},
            pods=pods,
            before=previous_targets(driver.status),
        )

    @property
    def nothing_new(self) -> DriverPlan:
        """A plan that leaves everything as it is and keeps what was said."""
        ahead = tuple(previous_ahead(self.driver.status).values())
        return DriverPlan(
            driver=self.driver,
            targets=tuple(self.before.values()),
            ahead=ahead or None,
            needed=frozenset(target.key for target in (*self.before.values(), *(entry.target for entry in ahead))),
            rebuilds=rebuild.from_status(self.driver.status.get("rebuild")),
            unknown={},
        )


@dataclass(frozen=True, slots=True, kw_only=True)
class TargetPart:
    """What one target adds to the plan. ``ready`` maps node to proven version, ``doubts`` node to what is missing."""

    status: TargetStatus
    actions: tuple[Action, ...] = ()
    ready: Mapping[str, str]
    doubts: Mapping[str, str]
    requeue_at: float | None = None

    def blocked(self, reason: Reason, message: str) -> "TargetPart":
        """Say that something else stands in the way; what the target has, it keeps."""
        return replace(self, status=replace(self.status, state=TargetState.BLOCKED, reason=reason, message=message))
