"""One target of one driver: by its image's state, what to do and what to report. Pure."""

from collections.abc import Callable
from dataclasses import replace
from typing import assert_never

from driver_builder.api.driver_container import DriverContainer
from driver_builder.api.driver_spec import DriverSpec
from driver_builder.api.status import TargetStatus
from driver_builder.base.reasons import Reason, TargetState
from driver_builder.model.build import BuildRequest
from driver_builder.model.image_state import Absent, Invalid, NoAnswer, NotAsked, Present, Unauthorized, Unreachable
from driver_builder.model.kernels import KernelTarget
from driver_builder.nodes import held_out
from driver_builder.nodes.changes import ApplyObject, PatchNode, PatchObject, StartBuild
from driver_builder.nodes.lanes import is_placing, release
from driver_builder.nodes.plan_labels import evidence_of, usual_evidence
from driver_builder.nodes.plan_view import DriverView, TargetPart
from driver_builder.objects import manifests
from driver_builder.objects.slots import Place
from driver_builder.rollout import image_trust
from driver_builder.rollout.plan_rollout import roll_out
from driver_builder.rollout.remade import remade, rolled_out_to
from driver_builder.rollout.retries import with_failures
from driver_builder.targets.desired_target import (
    BlockedTarget,
    DesiredTarget,
    Exporter,
    ImageTarget,
    PrebuiltTarget,
    SkippedTarget,
    TargetToBuild,
)
from kube_api import names
from kube_api.resources import DAEMON_SETS

WithPresent = Callable[[DriverView, DriverSpec, ImageTarget, Present, TargetPart], TargetPart]
"""Decides what follows from an image that exists."""

_NoImage = Absent | NotAsked | NoAnswer


def plan_target(
    view: DriverView, spec: DriverSpec, item: DesiredTarget, *, present: WithPresent = roll_out
) -> TargetPart:
    """Decide on one target; its pods' evidence counts whatever the state of its image."""
    part = _with_rolled_out(view, spec, item, _decided(view, spec, item, present))
    return with_since(view, _released(view, item, _widened(view, item, part)))


def _with_rolled_out(view: DriverView, spec: DriverSpec, item: DesiredTarget, part: TargetPart) -> TargetPart:
    """Remember what nodes have, and make the DaemonSet of it anew where it is missing."""
    if not item.nodes or isinstance(item, SkippedTarget):
        return part.with_status(rolled_out=None)
    rolled_out = rolled_out_to(view, item)
    part = part.with_status(rolled_out=rolled_out)
    missing = remade(view, spec, item, rolled_out) if isinstance(item, TargetToBuild) else None
    if missing is None:
        return part
    # Nodes keep what they have: nothing else comes to them, and from none pods have to be kept.
    staying = (it for it in part.actions if not isinstance(it, ApplyObject | PatchObject | PatchNode))
    return replace(part, actions=(*staying, missing), is_remade=True)


def _decided(view: DriverView, spec: DriverSpec, item: DesiredTarget, present: WithPresent) -> TargetPart:
    known, before = evidence_of(view, item), view.before.get(item.target.id)
    # An ordinary node is ready.
    unready = len(view.weighed(item)) - sum(found.version is not None for found in known.values())
    status = _base_status(item, len(item.nodes) - unready, before)
    part = TargetPart(status=status, evidence=known, usual=usual_evidence(view, item))
    if isinstance(item, SkippedTarget | BlockedTarget):
        return part.with_status(state=item.state, reason=item.reason, message=item.message)
    state = view.snapshot.image(view.driver.key, item.image)
    conflict = next((found for found in view.conflicts if not set(item.nodes).isdisjoint(found.nodes)), None)
    if isinstance(state, Present) and conflict is not None:
        return part.blocked(Reason.MODULE_CONFLICT, f"{conflict}; that driver keeps it there")
    if isinstance(state, Present):
        refusal = image_trust.refusal(view.snapshot, view.driver, spec, item, state, before=before)
        if refusal is not None:
            return part.blocked(refusal.reason, refusal.message)
        return present(view, spec, item, state, part)
    return _without_image(view, spec, item, state, part)


def _widened(view: DriverView, item: DesiredTarget, part: TargetPart) -> TargetPart:
    """Let an unchanged DaemonSet keep its nodes when their operating system is updated under their kernel.

    An annotation keeps the version that was in its selector.
    """
    existing = view.daemon_sets.get(item.target.short_hash)
    if (
        existing is None
        or not existing.selects_os_version
        or not item.nodes
        or part.status.state is TargetState.SKIPPED
    ):
        return part
    others = (found for found in view.daemon_sets.values() if found is not existing)
    is_divided = (
        item.selects_os_version if isinstance(item, ImageTarget) else any(it.kernel == existing.kernel for it in others)
    )
    if is_divided or any(isinstance(action, ApplyObject) for action in part.actions):
        return part
    widen = PatchObject(
        resource=DAEMON_SETS,
        namespace=existing.namespace,
        name=existing.name,
        uid=existing.uid,
        target=item.target.id,
        why="keep nodes whose operating system is updated",
        body={
            "metadata": {"annotations": {manifests.OS_VERSION_ANNOTATION: existing.os_version or ""}},
            "spec": {"template": {"spec": {"nodeSelector": {names.OS_VERSION_LABEL: None}}}},
        },
    )
    return replace(part, actions=(*part.actions, widen))


def _released(view: DriverView, item: DesiredTarget, part: TargetPart) -> TargetPart:
    """Let the only DaemonSet of a target be for all of its nodes again, whatever is known of its image."""
    existing = view.daemon_sets.get(item.target.short_hash)
    is_placed = any(map(is_placing, part.actions))
    if existing is None or is_placed or item.target.short_hash in view.pairs:
        return part
    is_left = existing.slot.place is not Place.ALL
    kept_out = held_out.keep_out_exposed(view, item.nodes, existing, existing) if is_left else ()
    if kept_out:
        others = (action for action in part.actions if action not in kept_out)
        return replace(part, actions=(*others, *kept_out))
    return replace(part, actions=(*part.actions, *release(view, item.target.id, existing)))


def _without_image(
    view: DriverView, spec: DriverSpec, item: ImageTarget, state: _NoImage, part: TargetPart
) -> TargetPart:
    match state:
        case Absent(is_fresh=is_fresh):
            return _build(view, spec, item, part, may_start=is_fresh)
        case NotAsked():
            return _not_asked(view, spec, item, part)
        case Unauthorized() | Unreachable() | Invalid():
            return _blocked(view, item, part, state.reason, state.message)
        case _ as never:
            assert_never(never)


def _not_asked(view: DriverView, spec: DriverSpec, item: ImageTarget, part: TargetPart) -> TargetPart:
    """Keep what was reported of this image: its answer starts the next reconcile, and there is no news until then."""
    key = item.key
    if key in view.snapshot.running_builds or key in view.snapshot.failed_builds:
        return _build(view, spec, item, part, may_start=False)
    before = view.before.get(part.status.target)
    if before is None or before.image != part.status.image:
        words = f"the registry {item.image.host} has not answered yet"
        return part.with_status(reason=NotAsked.reason, message=words)
    status = replace(before, nodes=part.status.nodes, ready_nodes=part.status.ready_nodes)
    return replace(part, status=status)


def _build(
    view: DriverView, spec: DriverSpec, item: ImageTarget, part: TargetPart, *, may_start: bool = True
) -> TargetPart:
    """The registry proved that the image does not exist: build it, wait for it, or wait for the next try.

    ``may_start`` is false if that proof is old: the registry is being asked, and its answer starts the next reconcile.
    """
    if isinstance(item, PrebuiltTarget):
        words = f"{item.image} does not exist"
        return part.with_status(state=TargetState.FAILED, reason=Reason.IMAGE_MISSING, message=words)
    key, seen = item.request.key, view.snapshot
    if (verdict := _not_applicable(view, key, part)) is not None:
        return verdict
    exporters = _exporters(view, item)
    if isinstance(exporters, str):
        state, reason = TargetState.BUILDING, Reason.WAITING_FOR_DEPENDENCY
        return part.with_status(key=key, state=state, reason=reason, message=exporters)
    status, retry_at = with_failures(view, key, part.status)
    is_known, is_queued = key in seen.running_builds, key in seen.queued_builds
    if not is_known or (is_queued and seen.queued_builds[key] != len(item.nodes)):
        if not is_known and retry_at is not None and seen.now < retry_at:
            return replace(part, status=status, requeue_at=retry_at)
        build = start_build(view.driver, spec, item, item.request, waiting=len(item.nodes), exporters=exporters)
        part = replace(part, actions=(build,) if may_start else ())
        if may_start and item.target.short_hash in view.daemon_sets:
            # The registry proved that it lost what was rolled out: what is built now is the next pin.
            status = replace(status, digest="")
    if (suspension := view.suspension) is not None and (is_queued or not is_known):
        part = replace(part, status=status).blocked(Reason.BUILDS_SUSPENDED, suspension.why)
        # A due half-open trial is started by this reconcile, or the previous one still runs and reports its end.
        return replace(part, requeue_at=suspension.probe_at if suspension.probe_at > seen.now else None)
    message = _building_words(view, item, status)
    status = replace(status, state=TargetState.BUILDING, reason=Reason.KERNEL_MISMATCH, message=message)
    return replace(part, status=status)


def _exporters(view: DriverView, item: TargetToBuild) -> tuple[Exporter, ...] | str:
    """Return the images whose symbols the build gets, with their digests; or which of them does not exist yet."""
    states = [(exporter, view.snapshot.image(exporter.driver, exporter.image)) for exporter in item.exporters]
    missing = next((pair for pair in states if not isinstance(pair[1], Present)), None)
    if missing is not None:
        exporter, state = missing
        why = (
            "does not exist yet" if isinstance(state, Absent) else "is not known to exist: its registry did not say so"
        )
        return f"the image of driver {exporter.driver}, whose symbols the build needs, {why}"
    return tuple(replace(exporter, digest=state.digest) for exporter, state in states if isinstance(state, Present))


def _blocked(view: DriverView, item: ImageTarget, part: TargetPart, reason: Reason, message: str) -> TargetPart:
    """Report why the registry does not say whether the image exists, and keep what is known of its builds.

    A result that the driver is not for the kernel stands, and a build that failed just now is reported first.
    """
    key = item.key
    if not key:
        return part.blocked(reason, message)
    if (verdict := _not_applicable(view, key, part)) is not None:
        return verdict
    status, _ = with_failures(view, key, part.status)
    known = replace(part, status=status)
    return known if key in view.snapshot.failed_builds else known.blocked(reason, message)


def _not_applicable(view: DriverView, key: str, part: TargetPart) -> TargetPart | None:
    """Report what an earlier build of this key said: that the driver is not for the kernel. It is not built again.

    Another key may be another version, so it is built.
    """
    fresh, before = view.snapshot.failed_builds.get(key), view.before.get(part.status.target)
    words = None
    if fresh is not None:
        words = fresh.message if fresh.reason == Reason.NOT_APPLICABLE else None
    elif before is not None and before.key == key and before.state is TargetState.NOT_APPLICABLE:
        words = before.message
    if words is None:
        return None
    state, reason = TargetState.NOT_APPLICABLE, Reason.NOT_APPLICABLE
    return part.with_status(key=key, state=state, reason=reason, message=words)


def _building_words(view: DriverView, item: ImageTarget, status: TargetStatus) -> str:
    words = f"building for {item.target.kernel_version}"
    if not status.failures:
        return words
    before = view.before.get(status.target)
    if before is not None and before.state is TargetState.BUILDING and before.failures == status.failures:
        # The same try, already reported: quoting it would grow the message with every reconcile.
        return before.message
    if before is not None and before.state is TargetState.BLOCKED:
        return f"{words} (try {status.failures + 1})"
    return f"{words} (try {status.failures + 1}; last failure: {status.message})"


def start_build(
    driver: DriverContainer,
    spec: DriverSpec,
    item: ImageTarget,
    request: BuildRequest,
    *,
    waiting: int = 0,
    exporters: tuple[Exporter, ...] = (),
) -> StartBuild:
    """Make the action that builds an image, as the spec wants it built; ``waiting`` is how many nodes wait for it."""
    return StartBuild(
        namespace=driver.namespace,
        request=request,
        image=item.image,
        registry=spec.registry,
        waiting=waiting,
        exporters=exporters,
        builder=spec.build.builder,
        build_secrets=spec.build.secrets,
        resources=spec.build.resources,
        tolerations=spec.tolerations,
        owner=driver.uid,
        proxy=spec.build.proxy,
        ca_config_map=spec.build.ca_config_map,
    )


def _base_status(item: DesiredTarget, ready_nodes: int, before: TargetStatus | None) -> TargetStatus:
    """The status of a target before its image is looked at; its digest is kept while the target wants the image.

    It is kept as well while nothing can be wanted: a tag that moves in the meantime is not believed afterwards.
    """
    target: KernelTarget = item.target
    kept = before if isinstance(item, BlockedTarget) else None
    return TargetStatus(
        target=target.id,
        kernel=target.kernel_version,
        os=target.os,
        architecture=target.architecture,
        nodes=len(item.nodes),
        ready_nodes=ready_nodes,
        state=TargetState.PENDING,
        reason="",
        message="",
        image=str(item.image) if isinstance(item, ImageTarget) else kept.image if kept is not None else "",
        digest=image_trust.pin(before, item.image) if isinstance(item, ImageTarget) else kept.digest if kept else "",
        since=before.since if before is not None else 0.0,
    )


def with_since(view: DriverView, part: TargetPart) -> TargetPart:
    """Return a part with the time since when its state and reason are what they are."""
    before = view.before.get(part.status.target)
    same = before is not None and (before.state, before.reason) == (part.status.state, part.status.reason)
    since = before.since if same and before is not None else float(int(view.snapshot.now))
    return part if part.status.since == since else part.with_status(since=since)
