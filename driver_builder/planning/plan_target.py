"""One target of one driver: by what its registry says of its image, what to do and what to say. Pure."""

from collections.abc import Callable, Mapping
from dataclasses import replace
from typing import assert_never

from driver_builder.model.image_state import Absent, Invalid, Present, Unauthorised, Unreachable
from driver_builder.model.kernels import KernelTarget
from driver_builder.planning.desired import Unwanted, Wanted
from driver_builder.planning.plan_build import build
from driver_builder.planning.plan_labels import ready_nodes
from driver_builder.planning.plan_rollout import roll_out
from driver_builder.planning.plan_view import DriverView, TargetPart
from driver_builder.planning.status import Reason, TargetState, TargetStatus
from driver_builder.spec.driver_spec import DriverSpec

WithPresent = Callable[[DriverView, DriverSpec, Wanted, Present, TargetPart], TargetPart]
"""Decides what comes of an image that exists."""

_NoImage = Absent | Unauthorised | Unreachable | Invalid


def plan_target(
    view: DriverView, spec: DriverSpec, item: Wanted | Unwanted, *, present: WithPresent = roll_out
) -> TargetPart:
    """Decide on one target; what its pods prove is counted whatever its image is."""
    ready, doubts = ready_nodes(view, item)
    part = TargetPart(status=_base_status(item, ready), ready=ready, doubts=doubts)
    if isinstance(item, Unwanted):
        status = replace(part.status, state=item.state, reason=item.reason, message=item.message)
        return _since(view, replace(part, status=status))
    state = view.snapshot.images.get(item.image, Unreachable(message="the registry has not been asked yet"))
    if isinstance(state, Present):
        return _since(view, present(view, spec, item, state, part))
    return _since(view, _without_image(view, spec, item, state, part))


def _without_image(view: DriverView, spec: DriverSpec, item: Wanted, state: _NoImage, part: TargetPart) -> TargetPart:
    match state:
        case Absent():
            return build(view, spec, item, part)
        case Unauthorised(message=message):
            return part.blocked(Reason.REGISTRY_UNAUTHORIZED, message)
        case Unreachable(message=message):
            return part.blocked(Reason.REGISTRY_UNREACHABLE, message)
        case Invalid(message=message):
            return part.blocked(Reason.REGISTRY_INVALID, message)
        case _ as never:
            assert_never(never)


def _base_status(item: Wanted | Unwanted, ready: Mapping[str, str]) -> TargetStatus:
    target: KernelTarget = item.target
    return TargetStatus(
        target=target.id,
        kernel=target.kernel_version,
        os=target.os,
        architecture=target.architecture,
        nodes=len(item.nodes),
        ready_nodes=len(ready),
        state=TargetState.PENDING,
        reason="",
        message="",
        image=str(item.image) if isinstance(item, Wanted) else "",
    )


def _since(view: DriverView, part: TargetPart) -> TargetPart:
    before = view.before.get(part.status.target)
    same = before is not None and (before.state, before.reason) == (part.status.state, part.status.reason)
    since = before.since if same and before is not None else float(int(view.snapshot.now))
    return replace(part, status=replace(part.status, since=since))
