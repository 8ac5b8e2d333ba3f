"""One target of one driver: by what its registry says of its image, what to do and what to say. Pure."""

from collections.abc import Callable, Mapping
from dataclasses import replace
from typing import assert_never

from driver_builder.api.driver_spec import DriverSpec
from driver_builder.desired.desired_target import BlockedTarget, DesiredTarget, ImageTarget, SkippedTarget
from driver_builder.model.image_state import Absent, Invalid, NoAnswer, NotAsked, Present, Unauthorized, Unreachable
from driver_builder.model.kernels import KernelTarget
from driver_builder.observed.evidence import NodeEvidence
from driver_builder.planning import image_trust
from driver_builder.planning.actions import ApplyDaemonSet, WidenDaemonSet
from driver_builder.planning.plan_build import blocked, build
from driver_builder.planning.plan_labels import evidence_of
from driver_builder.planning.plan_rollout import roll_out
from driver_builder.planning.plan_view import DriverView, TargetPart
from driver_builder.reasons import Reason, TargetState
from driver_builder.status.status import TargetStatus

WithPresent = Callable[[DriverView, DriverSpec, ImageTarget, Present, TargetPart], TargetPart]
"""Decides what comes of an image that exists."""

_NoImage = Absent | NotAsked | NoAnswer


def plan_target(
    view: DriverView, spec: DriverSpec, item: DesiredTarget, *, present: WithPresent = roll_out
) -> TargetPart:
    """Decide on one target; what its pods prove is counted whatever its image is."""
    return _since(view, _widened(view, item, _decided(view, spec, item, present)))


def _decided(view: DriverView, spec: DriverSpec, item: DesiredTarget, present: WithPresent) -> TargetPart:
    known = evidence_of(view, item)
    before = view.before.get(item.target.id)
    part = TargetPart(status=_base_status(item, known, before), evidence=known)
    if isinstance(item, SkippedTarget | BlockedTarget):
        status = replace(part.status, state=item.state, reason=item.reason, message=item.message)
        return replace(part, status=status)
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
    """Let a DaemonSet that stays as it is keep its nodes when their operating system is updated under their kernel."""
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
    if is_divided or any(isinstance(action, ApplyDaemonSet) for action in part.actions):
        return part
    widen = WidenDaemonSet(
        namespace=existing.namespace,
        name=existing.name,
        uid=existing.uid,
        target=item.target.id,
        os_version=existing.os_version or "",
    )
    return replace(part, actions=(*part.actions, widen))


def _without_image(
    view: DriverView, spec: DriverSpec, item: ImageTarget, state: _NoImage, part: TargetPart
) -> TargetPart:
    match state:
        case Absent(is_fresh=is_fresh):
            return build(view, spec, item, part, may_start=is_fresh)
        case NotAsked():
            return _not_asked(view, spec, item, part)
        case Unauthorized() | Unreachable() | Invalid():
            return blocked(view, item, part, state.reason, state.message)
        case _ as never:
            assert_never(never)


def _not_asked(view: DriverView, spec: DriverSpec, item: ImageTarget, part: TargetPart) -> TargetPart:
    """Keep what was said of the very image: its answer wakes the next pass, and news in between would be none."""
    key = item.key
    if key in view.snapshot.running_builds or key in view.snapshot.failed_builds:
        return build(view, spec, item, part, may_start=False)
    before = view.before.get(part.status.target)
    if before is None or before.image != part.status.image:
        words = f"the registry {item.image.host} has not answered yet"
        return replace(part, status=replace(part.status, reason=NotAsked.reason, message=words))
    status = replace(before, nodes=part.status.nodes, ready_nodes=part.status.ready_nodes)
    return replace(part, status=status)


def _base_status(item: DesiredTarget, known: Mapping[str, NodeEvidence], before: TargetStatus | None) -> TargetStatus:
    """What is so whatever becomes of the target; the digest of its image is kept for as long as it wants the image."""
    target: KernelTarget = item.target
    return TargetStatus(
        target=target.id,
        kernel=target.kernel_version,
        os=target.os,
        architecture=target.architecture,
        nodes=len(item.nodes),
        ready_nodes=sum(found.version is not None for found in known.values()),
        state=TargetState.PENDING,
        reason="",
        message="",
        image=str(item.image) if isinstance(item, ImageTarget) else "",
        digest=image_trust.pin(before, item.image) if isinstance(item, ImageTarget) else "",
    )


def _since(view: DriverView, part: TargetPart) -> TargetPart:
    before = view.before.get(part.status.target)
    same = before is not None and (before.state, before.reason) == (part.status.state, part.status.reason)
    since = before.since if same and before is not None else float(int(view.snapshot.now))
    return replace(part, status=replace(part.status, since=since))
