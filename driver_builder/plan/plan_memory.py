"""What was planned for each driver the last time, so that the next plan costs what changed.

A plan is a pure function of a driver's share of the snapshot. While that share is the same, and there was nothing to do
and nothing that depends on the time, so is the plan. Of a driver whose share changed the nodes are remembered where
nothing was to be done.
"""

from collections.abc import Mapping
from dataclasses import dataclass, field, replace
from typing import Any

from driver_builder.api import rebuild_status
from driver_builder.api.prebuild_status import previous_ahead
from driver_builder.api.rollout_status import previous_wave
from driver_builder.api.stage_status import previous_stages
from driver_builder.api.status import previous_targets
from driver_builder.base.reasons import TargetState
from driver_builder.model.driver_key import DriverKey
from driver_builder.nodes.changes import PatchNode
from driver_builder.nodes.ordinary import Ordinary
from driver_builder.nodes.plan_view import DriverPlan, PlanSettings
from driver_builder.nodes.settled import Settled
from driver_builder.snapshot.snapshot import DaemonSet, Snapshot
from driver_builder.targets.conflicts import Conflict
from driver_builder.targets.dependencies import NONE, Dependencies

Json = dict[str, Any]

_AT_REST = frozenset({TargetState.READY, TargetState.SKIPPED, TargetState.NOT_APPLICABLE})


Written = dict[str, tuple[tuple[object, ...], DaemonSet]]


@dataclass(frozen=True, slots=True, kw_only=True)
class Inputs:
    """All that a driver's plan depends on, but for the time. What follows ``settings`` comes from all drivers."""

    share: Snapshot
    settings: PlanSettings
    labels: tuple[PatchNode, ...]
    conflicts: tuple[Conflict, ...]
    dependencies: Dependencies = NONE
    is_wave_held: bool = False
    """Whether the driver keeps its image of before, for drivers that could return to theirs with it."""
    pending: tuple[Json, ...] = ()
    """What tolerates the taints of drivers that are not proven yet."""
    resource_kept: Mapping[str, str] = field(default_factory=dict)
    """By node, the driver that keeps the resource which this one offers as well."""


@dataclass(frozen=True, slots=True)
class _Known:
    inputs: Inputs
    part: DriverPlan
    at: float


@dataclass(slots=True)
class DriverMemory:
    """What is known of one driver: the nodes where nothing was to be done, also of its stages (``settled``).

    ``written`` are the DaemonSets that were wanted, by target. Planning adds to both.
    """

    ordinary: Ordinary = field(default_factory=Ordinary)
    written: Written = field(default_factory=dict)
    settled: Settled = field(default_factory=Settled)
    known: _Known | None = None

    def recall(self, inputs: Inputs) -> DriverPlan | None:
        """Return what was planned for these inputs, None if that is not known or no longer true."""
        known = self.known
        if known is None or known.inputs != replace(inputs, share=_timeless(inputs.share)):
            return None
        # A clock that was set back has planned for a time that has not come.
        until = known.part.requeue_at
        is_true = known.at <= inputs.share.now and (until is None or inputs.share.now < until)
        return known.part if is_true else None

    def keep(self, inputs: Inputs, part: DriverPlan) -> None:
        """Remember a plan if it stays true while its inputs do."""
        timeless = replace(inputs, share=_timeless(inputs.share))
        self.known = _Known(timeless, part, inputs.share.now) if is_at_rest(part) else None


class PlanMemory:
    """Remembers the plans of one controller; an empty one remembers nothing."""

    def __init__(self) -> None:
        self._drivers: dict[DriverKey, DriverMemory] = {}

    def of(self, driver: DriverKey) -> DriverMemory:
        """Return what is known of a driver."""
        return self._drivers.setdefault(driver, DriverMemory())

    def forget_others(self, drivers: frozenset[DriverKey]) -> None:
        """Forget the drivers that are gone."""
        self._drivers = {driver: known for driver, known in self._drivers.items() if driver in drivers}


def is_at_rest(part: DriverPlan) -> bool:
    """Return whether a plan changes nothing and is what the driver's status says already.

    Times in a status, waits and tries count from a moment: such a plan is made anew each time.
    """
    status = part.driver.status
    return not (part.actions or part.notes or part.failures or part.trouble or part.rebuilds.pending) and (
        not (part.unloading.waiting or part.unloading.in_use or part.unloading.stays or part.unloading.dependents)
        and all(target.state in _AT_REST for target in part.targets)
        and list(part.targets) == list(previous_targets(status).values())
        and part.rebuilds == rebuild_status.from_status(status.get("rebuild"))
        and (part.ahead or ()) == tuple(previous_ahead(status).values())
        and all(entry.error_at is None for entry in part.ahead or ())
        and part.wave == previous_wave(status)
        and part.stages == previous_stages(status)
    )


def _timeless(share: Snapshot) -> Snapshot:
    return replace(share, now=0.0)
