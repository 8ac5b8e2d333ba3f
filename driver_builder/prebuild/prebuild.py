"""Prebuilds: the image of each pool's newest kernel, made before any node boots it. Pure.

Place in the flow: ``plan`` asks for a driver with ``spec.preflight.followRepository``. The image is the same one that
the plan would want once a node runs that kernel. Its build and its failures are handled as for other targets, except
that no node waits for it. The labels for nodes: ``upgrade_labels``.
"""

import hashlib
from collections.abc import Iterator, Mapping
from dataclasses import dataclass, replace
from functools import partial

from driver_builder.api.driver_container import DriverContainer
from driver_builder.api.driver_spec import DriverSpec
from driver_builder.api.prebuild_status import AheadStatus, previous_ahead
from driver_builder.api.status import TargetStatus
from driver_builder.base.boundary import contained
from driver_builder.base.reasons import Reason, TargetState
from driver_builder.base.retry import chance_of
from driver_builder.model.image_state import Present
from driver_builder.model.kernels import KernelTarget
from driver_builder.model.repositories import Discovery, Repository
from driver_builder.nodes.changes import Change, DiscoverKernels
from driver_builder.nodes.plan_view import DriverView, TargetPart
from driver_builder.prebuild.node_pools import Knowledge, Pool, follows, known_of, pools_of
from driver_builder.rollout.plan_target import plan_target
from driver_builder.snapshot.snapshot import Snapshot
from driver_builder.targets import permissions, resolve_target
from driver_builder.targets.desired_target import ImageTarget, SkippedTarget, TargetToBuild, TemplateVersions
from driver_builder.targets.resolve_node import resolve_for

DAY_SECONDS = 86400.0
RETRY_SECONDS = 3600.0
"""Seconds until a repository that could not be asked is asked again."""


@dataclass(frozen=True, slots=True, kw_only=True)
class PrebuildPart:
    """What a driver's plan gains: its entries of ``status.ahead``, actions, and the build keys that continue."""

    entries: tuple[AheadStatus, ...] = ()
    actions: tuple[Change, ...] = ()
    needed: frozenset[str] = frozenset()
    requeue_at: float | None = None


def next_target(knowledge: Knowledge, pool: Pool) -> KernelTarget | None:
    """Return the target that nodes of the pool can move to; None if all are there, or nothing is known."""
    if knowledge.newest is None or not pool.behind(knowledge.newest):
        return None
    return pool.target(knowledge.newest)


def images_ahead(snapshot: Snapshot, versions: TemplateVersions) -> Iterator[tuple[DriverContainer, ImageTarget]]:
    """Return the images of kernels that drivers' nodes can move to: the registries are asked for them."""
    for driver in snapshot.drivers:
        found = contained("driver", driver.key, partial(_images_of, snapshot, driver, versions), lambda _error: ())
        yield from ((driver, item) for item in found)


def _images_of(snapshot: Snapshot, driver: DriverContainer, versions: TemplateVersions) -> tuple[ImageTarget, ...]:
    if (spec := follows(driver)) is None:
        return ()
    targets = [next_target(known_of(snapshot, driver, pool), pool) for pool in pools_of(snapshot, driver, spec)]
    items = [resolve_for(snapshot, driver, spec, target, versions) for target in targets if target is not None]
    return tuple(item for item in items if isinstance(item, ImageTarget))


def plan_prebuilds(view: DriverView, spec: DriverSpec, current: Mapping[str, TargetPart]) -> PrebuildPart:
    """Decide for every pool of a driver; ``current`` are the parts of the targets that nodes run, by target id."""
    if follows(view.driver) is None:
        return PrebuildPart()
    parts = [_plan_pool(view, spec, pool, current) for pool in pools_of(view.snapshot, view.driver, spec)]
    times = [part.requeue_at for part in parts if part.requeue_at is not None]
    # Pools that share a repository ask once.
    actions = {str(action): action for part in parts for action in part.actions}
    return PrebuildPart(
        entries=tuple(entry for part in parts for entry in part.entries),
        actions=tuple(actions.values()),
        needed=frozenset().union(*(part.needed for part in parts)),
        requeue_at=min(times, default=None),
    )


def _plan_pool(view: DriverView, spec: DriverSpec, pool: Pool, current: Mapping[str, TargetPart]) -> PrebuildPart:
    knowledge = known_of(view.snapshot, view.driver, pool)
    target = next_target(knowledge, pool)
    part = _part(view, spec, target, current) if target is not None else None
    refusal = _refusal(view, spec, pool)
    status = part.status if part is not None else _nothing_to_build(view, knowledge, pool, refusal)
    due_at = _due_at(knowledge.discovery, pool.repository, now=view.snapshot.now)
    is_running = pool.repository in view.snapshot.running_discoveries
    is_due = view.snapshot.now >= due_at and not is_running and refusal is None
    ask = DiscoverKernels(
        repository=pool.repository,
        namespace=view.driver.namespace,
        registry=spec.registry,
        builder=spec.build.builder,
        proxy=spec.build.proxy,
        ca_config_map=spec.build.ca_config_map,
    )
    times = [part.requeue_at if part is not None else None, due_at if due_at > view.snapshot.now else None]
    nodes = len(pool.behind(knowledge.newest)) if knowledge.newest is not None else 0
    entry = AheadStatus(
        stream=pool.stream,
        base_image=pool.repository.base_image,
        # The operating system identifies an entry of this pool.
        target=replace(status, nodes=nodes, os=pool.example.os),
        looked_up=knowledge.discovery.at,
        error=knowledge.discovery.error,
        error_at=knowledge.discovery.error_at,
    )
    return PrebuildPart(
        entries=(entry,),
        actions=(*([ask] if is_due else []), *(part.actions if part is not None else ())),
        needed=frozenset([status.key] if part is not None and status.key else []),
        requeue_at=min((time for time in times if time is not None), default=None),
    )


def _refusal(view: DriverView, spec: DriverSpec, pool: Pool) -> permissions.Refusal | None:
    """Return why no repository is asked for a pool: what asks is a container of the driver's base image."""
    allowed, image = view.settings.template_versions.permissions, pool.repository.base_image
    rule = resolve_target.mapping_for(spec, pool.example.kernel_version)
    of_image = permissions.of_base_image(image, allowed)
    if rule is None:
        return of_image
    template = resolve_target.shipped_template_for(spec, rule, pool.example)
    return next(iter(permissions.of_target(spec, rule, allowed, base_image=image, template=template)), of_image)


def _due_at(discovery: Discovery, repository: Repository, *, now: float) -> float:
    """Return when a repository is asked again: once a day, spread so that not all are asked at the same moment."""
    if discovery.error_at is not None:
        return min(discovery.error_at, now) + RETRY_SECONDS
    if discovery.at is None:
        return 0.0
    spread = chance_of(hashlib.sha256(str(repository).encode()).hexdigest())
    return min(discovery.at, now) + DAY_SECONDS + RETRY_SECONDS * spread


def _part(view: DriverView, spec: DriverSpec, target: KernelTarget, current: Mapping[str, TargetPart]) -> TargetPart:
    """Plan the image of a target, as for any other."""
    item = resolve_for(view.snapshot, view.driver, spec, target, view.settings.template_versions)
    # If nodes run the kernel already, its recorded version counts, which may differ from this pool's.
    if item is not None and (known := current.get(item.target.id)) is not None:
        return _of_running_target(known)
    if item is None:
        item = SkippedTarget(
            target=target, nodes=(), reason=Reason.NO_NODES,
            message="spec.nodeSelector selects no node on this kernel",
        )  # fmt: skip
    ahead = {entry.target.target: entry.target for entry in previous_ahead(view.driver.status).values()}
    # A failure while some node ran the kernel counts as well.
    part = plan_target(replace(view, before={**view.before, **ahead}), spec, replace(item, nodes=()), present=_prebuilt)
    suspension = view.suspension
    is_held_back = suspension is not None and view.snapshot.now < suspension.probe_at
    # No node waits for it: while builds are suspended it is tried only as a half-open trial.
    return replace(part, actions=()) if is_held_back else part


def _prebuilt(_view: DriverView, _spec: DriverSpec, item: ImageTarget, state: Present, part: TargetPart) -> TargetPart:
    status = replace(
        part.status,
        digest=state.digest,
        key=item.key,
        state=TargetState.READY,
        reason=Reason.BUILT_AHEAD,
        message="built and verified" if isinstance(item, TargetToBuild) else "prebuilt",
    )
    return replace(part, status=status)


def _of_running_target(known: TargetPart) -> TargetPart:
    """Some node runs the kernel already: the target's own plan does everything."""
    status = replace(known.status, ready_nodes=0)
    if status.digest and status.state in (TargetState.READY, TargetState.ROLLING_OUT):
        words = "built and verified" if status.key else "prebuilt"
        status = replace(status, state=TargetState.READY, reason=Reason.BUILT_AHEAD, message=words)
    return replace(known, status=status, actions=(), requeue_at=None)


def _nothing_to_build(
    view: DriverView, knowledge: Knowledge, pool: Pool, refusal: permissions.Refusal | None
) -> TargetStatus:
    """Return why nothing is prebuilt: no kernel is known, or every node runs it."""
    discovery = knowledge.discovery
    if knowledge.newest is not None:
        state, reason, message = TargetState.READY, Reason.NEWEST_KERNEL_RUNS, "no node is on an older kernel"
    elif refusal is not None:
        state, reason, message = TargetState.BLOCKED, Reason.NOT_ALLOWED, str(refusal)
    elif discovery.error_at is not None:
        state, reason, message = TargetState.PENDING, Reason.DISCOVERY_FAILED, discovery.error
    elif discovery.at is not None:
        state, reason = TargetState.PENDING, Reason.NOT_LOOKED_UP
        message = f"{pool.repository} offers no kernel of this stream"
    else:
        state, reason = TargetState.PENDING, Reason.NOT_LOOKED_UP
        message = f"{pool.repository} is being asked which kernels it offers"
    kernel = str(knowledge.newest or "")
    before = previous_ahead(view.driver.status).get(pool.key)
    same = before is not None and (before.target.state, before.target.reason) == (state, reason)
    return TargetStatus(
        target=f"{kernel}/{pool.example.os}/{pool.example.architecture}",
        kernel=kernel,
        os=pool.example.os,
        architecture=pool.example.architecture,
        nodes=0,
        ready_nodes=0,
        state=state,
        reason=reason,
        message=message,
        since=before.target.since if same and before is not None else float(int(view.snapshot.now)),
    )
