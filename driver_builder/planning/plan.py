"""``plan(snapshot, settings)``: what to do next, and what to say about it. Pure.

The controller, the ``plan`` command and the tests call this one function. It decides target by target; a target that
fails says so and is left alone until its time comes, the others go on. Nothing is removed on an incomplete view:
``observe`` either sees everything or raises.
"""

from dataclasses import dataclass, replace

from driver_builder.errors import InvalidDriver
from driver_builder.planning.actions import (
    Action,
    CancelBuild,
    DeleteDaemonSet,
    LabelNode,
    SetFinalizer,
    StartBuild,
)
from driver_builder.planning.ahead import plan_ahead
from driver_builder.planning.ahead_labels import label_moves
from driver_builder.planning.ahead_status import AheadStatus, previous_ahead
from driver_builder.planning.desired import Unwanted, Wanted
from driver_builder.planning.node_pools import follows
from driver_builder.planning.plan_labels import relabel, unlabel
from driver_builder.planning.plan_target import plan_target
from driver_builder.planning.plan_view import DriverPlan, DriverView, PlanSettings
from driver_builder.planning.snapshot import Snapshot
from driver_builder.planning.status import TargetState
from driver_builder.planning.wanted import desired_targets
from driver_builder.spec.driver_container import DriverContainer


@dataclass(frozen=True, slots=True, kw_only=True)
class Plan:
    """All drivers' parts, in the order of their keys."""

    drivers: tuple[DriverPlan, ...] = ()
    cancels: tuple[CancelBuild, ...] = ()

    @property
    def actions(self) -> tuple[Action, ...]:
        """Everything to do, builds with many waiting nodes first."""
        every = [*self.cancels, *(action for part in self.drivers for action in part.actions)]
        return tuple(sorted(every, key=lambda action: -action.waiting if isinstance(action, StartBuild) else -1 << 30))

    @property
    def requeue_at(self) -> float | None:
        """The earliest moment any driver wants to be looked at again."""
        return min((part.requeue_at for part in self.drivers if part.requeue_at is not None), default=None)


def plan(snapshot: Snapshot, settings: PlanSettings) -> Plan:
    """Decide what to do next for every driver."""
    drivers = sorted(snapshot.drivers, key=lambda driver: driver.key)
    labels = label_moves(snapshot, settings.recipes)
    parts = tuple(
        _plan_driver(DriverView.of(snapshot, driver, settings), labels.get(driver.key, ())) for driver in drivers
    )
    unneeded = snapshot.running_builds.difference(*(part.needed for part in parts))
    return Plan(drivers=parts, cancels=tuple(CancelBuild(key=key) for key in sorted(unneeded)))


def _plan_driver(view: DriverView, labels: tuple[LabelNode, ...]) -> DriverPlan:
    """Plan for one driver; ``labels`` are those of all drivers together that are done in its name."""
    driver = view.driver
    if driver.deleting:
        return _plan_removal(view, labels)
    if isinstance(driver.spec, InvalidDriver) or driver.paused:
        return replace(view.nothing_new, actions=(*unlabel(view), *labels))
    wanted, stock, rebuilds = desired_targets(view.snapshot, driver, driver.spec, view.settings.recipes)
    view = replace(view, wanted=wanted)
    # What was built ahead, or failed to, is not forgotten when a node boots the kernel.
    ahead_before = {entry.target.target: entry.target for entry in previous_ahead(driver.status).values()}
    informed = replace(view, before={**ahead_before, **view.before})
    parts = [plan_target(informed, driver.spec, item) for item in wanted]
    ahead = plan_ahead(view, driver.spec, {part.status.target: part for part in parts})
    # A target that is blocked has no key in its status: what is known of its builds is kept for when it is not.
    judged = {status.key for status in (*(part.status for part in parts), *(item.target for item in ahead.entries))}
    actions: list[Action] = [] if driver.has_finalizer else [_finalizer(driver, present=True)]
    actions += [action for part in parts for action in part.actions]
    actions += _surplus(view, {item.target.short_hash for item in wanted if not _is_skipped(item)})
    actions += relabel(view, {node: version for part in parts for node, version in part.ready.items()}, parts)
    actions += (*ahead.actions, *labels)
    times = (ahead.requeue_at, *(part.requeue_at for part in parts))
    return DriverPlan(
        driver=driver,
        actions=tuple(actions),
        targets=tuple(part.status for part in parts),
        rebuilds=rebuilds,
        unknown=stock.unknown,
        failures={key: failure for key, failure in view.snapshot.failed_builds.items() if key in judged},
        needed=ahead.needed.union(key for item in wanted if (key := _needed_key(view, item))),
        requeue_at=min((time for time in times if time is not None), default=None),
        ahead=ahead.entries if follows(driver) else _entries_before(driver, labels),
    )


def _entries_before(driver: DriverContainer, labels: tuple[LabelNode, ...]) -> tuple[AheadStatus, ...] | None:
    """Keep what a driver said while it followed until the labels are gone: by that they are known to be ours."""
    return tuple(previous_ahead(driver.status).values()) if labels else None


def _plan_removal(view: DriverView, labels: tuple[LabelNode, ...]) -> DriverPlan:
    """Take back everything that the owner references do not: labels first, then the finalizer."""
    driver = view.driver
    actions: list[Action] = [
        DeleteDaemonSet(namespace=item.namespace, name=item.name, uid=item.uid) for item in view.daemon_sets.values()
    ]
    actions += (*relabel(view, {}, ()), *labels)
    if not actions and not view.pods and driver.has_finalizer:
        actions.append(_finalizer(driver, present=False))
    return replace(view.nothing_new, actions=tuple(actions), needed=frozenset())


def _finalizer(driver: DriverContainer, *, present: bool) -> SetFinalizer:
    return SetFinalizer(namespace=driver.namespace, name=driver.name, present=present)


def _is_skipped(item: Wanted | Unwanted) -> bool:
    """Tell whether a target is to have no driver; one that merely cannot be built now keeps what it has."""
    return isinstance(item, Unwanted) and item.state is TargetState.SKIPPED


def _needed_key(view: DriverView, item: Wanted | Unwanted) -> str:
    """Name the build that a target's nodes wait for; where none can be named now (no source), the one before."""
    if isinstance(item, Wanted):
        return item.request.key if item.request else ""
    before = view.before.get(item.target.id)
    return before.key if before is not None and not _is_skipped(item) else ""


def _surplus(view: DriverView, wanted: set[str]) -> list[Action]:
    return [
        DeleteDaemonSet(namespace=item.namespace, name=item.name, uid=item.uid)
        for target, item in sorted(view.daemon_sets.items())
        if target not in wanted
    ]
