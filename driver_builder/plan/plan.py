"""``plan(snapshot, settings)``: what to do next, and what to report. Pure.

The controller, the ``plan`` command and the tests call this one function. It decides target by target; a target that
fails is reported and waits for its next try, the others go on. Nothing is removed on an incomplete view:
``observe`` either sees everything or raises.
"""

from collections.abc import Callable, Iterable, Mapping
from dataclasses import dataclass, field, replace
from functools import partial
from itertools import chain
from types import MappingProxyType
from typing import Any, TypeVar

from driver_builder.api import unloading
from driver_builder.api.driver_container import FINALIZER, DriverContainer
from driver_builder.api.driver_spec import DriverSpec
from driver_builder.api.node_notes import bounded
from driver_builder.api.prebuild_status import AheadStatus, previous_ahead
from driver_builder.api.rebuild_status import Rebuilds
from driver_builder.api.status import Trouble, previous_targets
from driver_builder.api.unloading import Unloading
from driver_builder.base.boundary import contained
from driver_builder.base.errors import InternalError, InvalidDriver
from driver_builder.base.reasons import Reason
from driver_builder.model.driver_key import DriverKey
from driver_builder.nodes.changes import CancelBuild, Change, PatchNode, PatchObject, StartBuild, batches
from driver_builder.nodes.ordinary import ordinary_nodes
from driver_builder.nodes.plan_labels import evidence_of_weighed, relabel, unlabel
from driver_builder.nodes.plan_view import DriverPlan, DriverView, PlanSettings
from driver_builder.objects import slots
from driver_builder.objects.tolerations import of_pending
from driver_builder.plan import leave, plan_loaded, plan_stages, removal, vacant
from driver_builder.plan.drift import repair
from driver_builder.plan.pending_taint import taint, untaint
from driver_builder.plan.plan_memory import DriverMemory, Inputs, PlanMemory
from driver_builder.plan.proof_step import PROVE, without_label
from driver_builder.plan.removal import Leaving
from driver_builder.plan.run_tasks import Case, Work, run
from driver_builder.plan.validation_step import VALIDATE
from driver_builder.prebuild.node_pools import follows
from driver_builder.prebuild.prebuild import plan_prebuilds
from driver_builder.prebuild.upgrade_labels import label_moves
from driver_builder.rollout.agent_drain import AgentDrainsDone, agent_drains
from driver_builder.rollout.fleet import admit
from driver_builder.rollout.held_waves import held_waves
from driver_builder.rollout.hold_node import Step, renewals
from driver_builder.rollout.holds import Holds
from driver_builder.rollout.next_drains import NextDrains, next_drains
from driver_builder.rollout.order import Order
from driver_builder.rollout.plan_target import plan_target
from driver_builder.rollout.prepare import Prepared, prepare
from driver_builder.rollout.pulls import Pulls
from driver_builder.rollout.roll import roll
from driver_builder.rollout.wave_labels import moving, restore, tidy, with_moved
from driver_builder.snapshot import inventory
from driver_builder.snapshot.share import share_of
from driver_builder.snapshot.snapshot import Snapshot
from driver_builder.targets import permissions
from driver_builder.targets.conflicts import conflicts
from driver_builder.targets.dependencies import NONE, Dependencies, dependencies
from driver_builder.targets.desired_target import DesiredTarget, ImageTarget, SkippedTarget
from driver_builder.targets.resolve import Resolved, resolve
from driver_builder.targets.resource_conflicts import resource_conflicts
from driver_builder.targets.shared_work import SharedWork, written_needs
from kube_api.resources import DRIVER_CONTAINERS

Json = dict[str, Any]
Result = TypeVar("Result")

WORKS: tuple[Work, ...] = (PROVE, VALIDATE)
"""What runs tasks on a driver's nodes, besides its removals, stages and waves."""


@dataclass(frozen=True, slots=True, kw_only=True)
class Plan:
    """All drivers' parts, in the order of their keys; ``released`` is what drivers that are gone have left on nodes.

    ``drains`` are those that begin next: with what pods say of their nodes others may begin. ``agents`` is what is
    done for the device agents of nodes.
    """

    drivers: tuple[DriverPlan, ...] = ()
    cancels: tuple[CancelBuild, ...] = ()
    released: tuple[PatchNode, ...] = ()
    drains: tuple[NextDrains, ...] = ()
    agents: AgentDrainsDone = field(default_factory=AgentDrainsDone)

    @property
    def actions(self) -> tuple[Change, ...]:
        """Everything to do, builds with many waiting nodes first."""
        # A node is given back before a driver takes it, and answered after one has given it back.
        every: list[Change] = [*self.cancels, *self.released, *self.agents.released]
        every += [action for part in self.drivers for action in part.actions]
        every += self.agents.answers
        return tuple(sorted(every, key=lambda action: -action.waiting if isinstance(action, StartBuild) else -1 << 30))

    @property
    def requeue_at(self) -> float | None:
        """The earliest time at which any driver or node wants to be looked at again."""
        times = (self.agents.requeue_at, *(part.requeue_at for part in self.drivers))
        return min((time for time in times if time is not None), default=None)


def plan(
    snapshot: Snapshot,
    settings: PlanSettings,
    resolved: Mapping[str, Resolved] = MappingProxyType({}),
    memory: PlanMemory | None = None,
) -> Plan:
    """Decide what to do next for every driver; ``resolved`` are drivers that are resolved already, by their keys.

    ``memory`` is that of the plans before: it changes what a plan costs, not what it says.
    """
    memory = PlanMemory() if memory is None else memory
    drivers = sorted(snapshot.drivers, key=lambda driver: driver.key)
    allowed, has_agent = settings.template_versions.permissions, bool(settings.device_agent_image)
    shared = SharedWork(snapshot)
    labels = shared.of_all(lambda seen: label_moves(seen, settings.template_versions))
    kept = shared.of_related(lambda seen: conflicts(seen, allowed))
    resources = shared.of_related(lambda seen: resource_conflicts(seen, allowed, has_agent=has_agent))
    needs = shared.of_related(_needs)
    held = shared.of_related(lambda seen: dict.fromkeys(held_waves(seen, needs), True))
    pending = shared.of_all(lambda seen: {"": of_pending(seen.drivers)}).get("", ())
    parts = []
    for driver in drivers:
        inputs = partial(
            _inputs,
            snapshot,
            driver,
            settings=settings,
            labels=labels.get(driver.key, ()),
            conflicts=kept.get(driver.key, ()),
            dependencies=needs.get(driver.key, NONE),
            is_wave_held=driver.key in held,
            pending=pending,
            resource_kept=resources.get(driver.key, {}),
        )
        if (error := shared.failed.get(driver.key)) is not None:
            parts.append(_undecided(snapshot, driver, Reason.INTERNAL_ERROR, str(error), settings))
        else:
            known = memory.of(driver.key)
            parts.append(_plan_alone(snapshot, driver, inputs, resolved.get(driver.key), known, settings=settings))
    memory.forget_others(frozenset(driver.key for driver in drivers))
    prepared = contained(
        "driver",
        "all",
        lambda: _together(snapshot, parts, needs, settings),
        lambda error: Prepared(
            parts=tuple(_undecided(snapshot, driver, Reason.INTERNAL_ERROR, str(error), settings) for driver in drivers)
        ),
    )
    unneeded = snapshot.running_builds.difference(*(part.needed for part in prepared.parts))
    cancels = tuple(CancelBuild(key=key) for key in sorted(unneeded))
    namespaces = settings.template_versions.permissions.drain_namespaces
    drain = partial(agent_drains, snapshot, settings.agent_drains, namespaces)
    agents = contained("node", "all", drain, lambda _error: AgentDrainsDone())
    return Plan(
        drivers=prepared.parts,
        cancels=cancels,
        released=prepared.released,
        drains=prepared.drains,
        agents=agents,
    )


def _needs(snapshot: Snapshot) -> dict[DriverKey, Dependencies]:
    """Return the dependencies of drivers; those of one whose spec is invalid are what its DaemonSets wait for."""
    invalid = (driver.key for driver in snapshot.drivers if isinstance(driver.spec, InvalidDriver))
    return dependencies(snapshot.drivers, {key: written_needs(snapshot, key) for key in invalid})


def _together(
    snapshot: Snapshot, parts: Iterable[DriverPlan], needs: Mapping[DriverKey, Dependencies], settings: PlanSettings
) -> Prepared:
    """Hold back what would be too much at once, and prepare the nodes where a driver goes."""

    def alone(part: DriverPlan, work: Callable[[], DriverPlan]) -> DriverPlan:
        def undecided(error: InternalError) -> DriverPlan:
            return _undecided(snapshot, part.driver, Reason.INTERNAL_ERROR, str(error), settings)

        return contained("driver", part.driver.key, work, undecided)

    parts = tuple(parts)
    nodes, pressed = inventory.held(snapshot.nodes), inventory.pressed(snapshot.nodes)
    holds = Holds.of(nodes, snapshot.now, pressed, snapshot.locks_first_seen)
    pulls = Pulls.of(snapshot.tasks, snapshot.now, inventory.by_name(snapshot.nodes))
    order = Order.of(parts, needs, snapshot)
    namespaces = settings.template_versions.permissions.drain_namespaces

    def drains_of(part: DriverPlan) -> NextDrains | None:
        return contained("driver", part.driver.key, lambda: next_drains(part, holds, order, namespaces), lambda _: None)

    drains = tuple(item for part in parts if (item := drains_of(part)) is not None)
    admitted = admit(parts, settings.max_unavailable_nodes, holds, pulls, order, alone=alone)
    prepared = prepare(
        admitted, snapshot, settings.loader_image, pulls, order, drain_namespaces=namespaces, alone=alone
    )
    going = leave.hold_back(admitted, prepared.parts, snapshot, alone)
    known = inventory.by_name(snapshot.nodes)
    labelled = (alone(part, partial(without_label, part, snapshot)) for part in going)
    moved = (alone(part, partial(with_moved, part, known)) for part in labelled)
    return replace(prepared, parts=tuple(map(_in_order, moved)), drains=drains)


def _in_order(part: DriverPlan) -> DriverPlan:
    """Name in one place what is written on a Node at once."""
    changes = batches(part.actions, lambda change: isinstance(change, PatchNode) and change.noted)
    return replace(part, actions=tuple(chain.from_iterable(changes))) if part.actions else part


def _inputs(snapshot: Snapshot, driver: DriverContainer, **others: Any) -> Inputs:
    return Inputs(share=share_of(snapshot, driver), **others)


def _plan_alone(
    snapshot: Snapshot,
    driver: DriverContainer,
    inputs: Callable[[], Inputs],
    resolved: Resolved | None,
    memory: DriverMemory,
    *,
    settings: PlanSettings,
) -> DriverPlan:
    """Plan for one driver, whose errors concern it alone."""
    if driver.namespace in snapshot.forbidden:
        return _undecided(snapshot, driver, Reason.NAMESPACE_FORBIDDEN, snapshot.forbidden[driver.namespace], settings)
    return contained(
        "driver",
        driver.key,
        lambda: _recalled(inputs(), driver, resolved, memory),
        lambda error: _undecided(snapshot, driver, Reason.INTERNAL_ERROR, str(error), settings),
    )


def _recalled(inputs: Inputs, driver: DriverContainer, resolved: Resolved | None, memory: DriverMemory) -> DriverPlan:
    if (known := memory.recall(inputs)) is not None:
        return known
    view = replace(
        DriverView.of(inputs.share, driver, inputs.settings),
        conflicts=inputs.conflicts,
        dependencies=inputs.dependencies,
        is_wave_held=inputs.is_wave_held,
        resource_kept=inputs.resource_kept,
        written=memory.written,
        settled=memory.settled,
    )
    part = _plan_driver(view, inputs, resolved, memory)
    memory.keep(inputs, part)
    return part


def _undecided(
    snapshot: Snapshot, driver: DriverContainer, reason: Reason, message: str, settings: PlanSettings
) -> DriverPlan:
    """Leave everything as it is. It is unknown which builds the driver needs: all go on.

    Its locks stay: what was begun on a node is not over. Labels that a node refutes go, unless the driver's pods may
    not be read.
    """

    def refuted() -> tuple[Change, ...]:
        if reason is Reason.NAMESPACE_FORBIDDEN:
            return ()
        return _untrue_labels(DriverView.of(share_of(snapshot, driver), driver, settings))

    def known(work: Callable[[], Result], nothing: Result) -> Result:
        return contained("driver", driver.key, work, lambda _error: nothing)

    no_actions: tuple[Change, ...] = ()

    kept = known(lambda: renewals(driver.key, snapshot), Step())
    return DriverPlan(
        driver=driver,
        actions=(*kept.actions, *known(refuted, no_actions)),
        targets=known(lambda: tuple(previous_targets(driver.status).values()), ()),
        rebuilds=Rebuilds(requests={}, tokens={}),
        unknown={},
        needed=snapshot.running_builds,
        requeue_at=kept.requeue_at,
        trouble=Trouble(reason=reason, message=message),
    )


def _plan_driver(view: DriverView, inputs: Inputs, resolved: Resolved | None, memory: DriverMemory) -> DriverPlan:
    """Plan for one driver; ``inputs`` has labels of all drivers together that this driver's plan has."""
    driver, labels = view.driver, inputs.labels
    if driver.deleting:
        return _plan_removal(view, labels)
    if isinstance(driver.spec, InvalidDriver) or driver.paused:
        # Its DaemonSets are there, and so their pods come to a Node that has lost its label.
        right = (*_untrue_labels(view), *labels, *restore(view))
        return replace(view.nothing_new, actions=right, busy=moving(view))
    if resolved is None or not resolved.holds(view.snapshot, driver):
        resolved = resolve(view.snapshot, driver, driver.spec, view.settings.template_versions)
    wanted, stock, rebuilds = resolved.targets, resolved.inventory, resolved.rebuilds
    view = _with_ordinary(replace(view, wanted=wanted, rebuilds=rebuilds), memory)
    # A prebuild or its failure still counts when a node boots the kernel.
    ahead_before = {entry.target.target: entry.target for entry in previous_ahead(driver.status).values()}
    informed = replace(view, before={**ahead_before, **view.before})
    tolerant = _tolerant(driver.spec, inputs.pending)
    rolled = roll(view, driver.spec, [plan_target(informed, tolerant, item) for item in wanted])
    parts = rolled.parts
    ahead = plan_prebuilds(view, driver.spec, {part.status.target: part for part in parts})
    # The status of a blocked target has no key: what is known of its builds is kept for later.
    judged = {status.key for status in (*(part.status for part in parts), *(item.target for item in ahead.entries))}
    actions: list[Change] = [] if driver.has_finalizer else [_finalizer(driver, present=True)]
    actions += [action for part in parts for action in part.actions]
    is_astray = permissions.refuses_selector(driver.spec, view.settings.template_versions.permissions)
    # With a selector that is not allowed a driver leaves no node, as with a spec that cannot be read.
    leaving = Leaving(nodes=frozenset()) if is_astray else removal.leaving(view, wanted)
    outside = view.nodes if is_astray else leaving.nodes | leaving.outside
    yielding, unwanted = removal.yielding(view, outside, parts)
    leaving = replace(leaving, nodes=leaving.nodes | yielding)
    behind = leave.staying(view, leaving.nodes)
    going = leave.with_staying(view, removal.remove(view, leaving.nodes.difference(behind)), behind)
    actions += (*leaving.actions, *unwanted, *going.actions)
    kept = [item for item in wanted if not isinstance(item, SkippedTarget) or not going.holds.isdisjoint(item.nodes)]
    lost = vacant.vacant(view, wanted, stock.unknown.keys())
    with_nodes = {item.target.short_hash for item in kept}
    actions += () if is_astray else removal.delete_daemon_sets(view, view.daemon_sets.keys() - with_nodes - lost)
    without_nodes = tuple(vacant.statuses(view, lost))
    known = evidence_of_weighed(view, parts)
    nameless = view.nodes if is_astray else stock.unknown
    relabelled = [item for item in relabel(view, known, nameless) if not _is_leaving(item, leaving)]
    staying = [node for item in wanted for node in view.weighed(item) if node not in leaving.nodes]
    actions += (*tidy(view), *restore(view))
    actions += (
        *plan_loaded.remember(view, staying, relabelled),
        *plan_loaded.clean_up(view, (*staying, *removal.left(view, leaving.nodes.union(staying)))),
    )
    staged = plan_stages.plan_stages(view, tolerant, known, relabelled, leaving.nodes)
    repairs = repair(view, parts, leaving.nodes.union(leave.refuted(view)))
    case = Case(view=view, spec=driver.spec, parts=parts, leaving=leaving.nodes)
    tasks = [run(work, case) for work in WORKS]
    tainted = taint(view, parts, leaving.nodes, nameless.keys())
    actions += (
        *repairs.actions,
        *(action for done, _ in tasks for action in done),
        *staged.actions,
        *ahead.actions,
        *labels,
        *tainted,
    )
    actions = [_tolerating(action, inputs.pending) for action in actions] if inputs.pending else actions
    at_work = (*(due_at for _, due_at in tasks), staged.requeue_at, rebuilds.heard_at)
    own = (leaving.requeue_at, going.requeue_at, repairs.requeue_at, *at_work)
    times = (ahead.requeue_at, rolled.requeue_at, *own, *(part.requeue_at for part in parts))
    return DriverPlan(
        driver=driver,
        actions=tuple(actions),
        targets=(*(part.status for part in parts), *without_nodes),
        rebuilds=rebuilds.without(node for part in parts for node in part.served),
        unknown=stock.unknown,
        failures={key: failure for key, failure in view.snapshot.failed_builds.items() if key in judged},
        needed=ahead.needed.union(
            (key for item in wanted if (key := _needed_key(view, item))),
            (item.key for item in without_nodes if item.key),
        ),
        requeue_at=min((time for time in times if time is not None), default=None),
        notes=bounded(repairs.notes),
        ahead=ahead.entries if follows(driver) else _entries_before(driver, labels),
        unloading=going.unloading,
        stages=staged.status,
        **rolled.of_wave,
    )


def _tolerant(spec: DriverSpec, pending: tuple[Json, ...]) -> DriverSpec:
    """Let pods tolerate the taints of all drivers that are not proven yet; without tolerations they tolerate all."""
    return replace(spec, tolerations=(*spec.tolerations, *pending)) if pending and spec.tolerations else spec


def _tolerating(action: Change, pending: tuple[Json, ...]) -> Change:
    """Let a build run on nodes where a driver is not proven yet: there may be no other."""
    if not isinstance(action, StartBuild):
        return action
    others = (item for item in pending if item not in action.tolerations)
    return replace(action, tolerations=(*action.tolerations, *others))


def _with_ordinary(view: DriverView, memory: DriverMemory) -> DriverView:
    found = memory.ordinary = ordinary_nodes(view, view.wanted, memory.ordinary)
    targets = {item.target.short_hash for item in view.wanted}
    for gone in [place for place in view.written if slots.parse_name(place)[0] not in targets]:
        del view.written[gone]
    names = found.elsewhere.union(*found.others.values())
    others = tuple(view.nodes[name] for name in sorted(names) if name in view.nodes)
    return replace(view, waiting=found.waiting, others=others, others_of=found.others)


def _is_leaving(action: Change, leaving: Leaving) -> bool:
    """Return whether a label does not depend on pods: the driver leaves the node, or may soon."""
    return isinstance(action, PatchNode) and action.node in leaving.nodes | leaving.loaded


def _entries_before(driver: DriverContainer, labels: tuple[PatchNode, ...]) -> tuple[AheadStatus, ...] | None:
    """Keep the status of a driver that no longer follows until the labels are gone: it marks them as ours."""
    return tuple(previous_ahead(driver.status).values()) if labels else None


def _untrue_labels(view: DriverView) -> tuple[PatchNode, ...]:
    """Remove the labels of nodes that prove the contrary, though nothing else is decided for the driver."""
    gone = unlabel(view)
    return (*gone, *plan_stages.unlabel(view, gone))


def _plan_removal(view: DriverView, labels: tuple[PatchNode, ...]) -> DriverPlan:
    """Remove everything that owner references do not: labels, DaemonSets, modules on nodes, then the finalizer.

    While other drivers depend on it, the driver stays where it is.
    """
    driver = view.driver
    if dependents := view.dependencies.dependents:
        held = Unloading(dependents=dependents)
        return replace(view.nothing_new, actions=(*_untrue_labels(view), *labels), unloading=held)
    behind = leave.staying(view, view.nodes)
    going = leave.with_staying(view, removal.remove(view, view.nodes.keys() - behind.keys()), behind)
    actions: list[Change] = [action for work in reversed(WORKS) for action in work.end(view)]
    actions += (*untaint(view, view.nodes.values()), *removal.forget_outside(view))
    actions += (*going.actions, *plan_stages.remove(view), *labels)
    if not going.holds:
        actions += removal.delete_daemon_sets(view, view.daemon_sets)
        # While there are two DaemonSets, the label says which of them a node belongs to.
        actions += () if view.daemon_sets else tidy(view)
    # Reported before the object is gone.
    is_done = going.is_done and unloading.is_said(going.unloading, driver.status)
    if not actions and is_done and driver.has_finalizer:
        actions.append(_finalizer(driver, present=False))
    return replace(
        view.nothing_new,
        actions=tuple(actions),
        needed=frozenset(),
        unloading=going.unloading,
        requeue_at=going.requeue_at,
    )


def _finalizer(driver: DriverContainer, *, present: bool) -> PatchObject:
    """Let the driver's object wait for the removal of what is on nodes, or go."""
    return PatchObject(
        resource=DRIVER_CONTAINERS,
        namespace=driver.namespace,
        name=driver.name,
        finalizers={FINALIZER: present},
        why="wait, if it is deleted, until nodes are without it" if present else "go: no node has anything of it",
    )


def _needed_key(view: DriverView, item: DesiredTarget) -> str:
    """Return the key of the build that a target's nodes wait for; if unknown now (no source), the previous one."""
    if isinstance(item, ImageTarget):
        return item.key
    before = view.before.get(item.target.id)
    return before.key if before is not None and not isinstance(item, SkippedTarget) else ""
