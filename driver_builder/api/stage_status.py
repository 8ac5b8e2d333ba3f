"""How far the stages of a driver are: ``status.stages`` and the condition ``Stages``. Pure."""

from collections.abc import Mapping
from dataclasses import dataclass
from typing import Any

from driver_builder.api.status import Json, advising
from driver_builder.api.status import condition as made
from driver_builder.base.reasons import Reason
from kube_api.text import bounded_message

CONDITION = "Stages"
_COUNTS = {"valid": "validNodes", "run": "runNodes", "plug": "plugNodes", "plgok": "plgokNodes"}


@dataclass(frozen=True, slots=True, kw_only=True)
class StageStatus:
    """How many nodes have the label of each stage, and why not all of those that are proven have the last one."""

    valid: int = 0
    run: int = 0
    plug: int = 0
    plgok: int = 0
    reason: str = Reason.STAGES_READY
    message: str = ""


def previous_stages(status: Mapping[str, Any]) -> StageStatus | None:
    """Read ``status.stages``; None without them, or if they have another shape."""
    entry = status.get("stages")
    if not entry:
        return None
    try:
        counts = {name: int(entry[key]) for name, key in _COUNTS.items()}
        return StageStatus(reason=str(entry["reason"]), message=str(entry["message"]), **counts)
    except (KeyError, ValueError, TypeError, AttributeError):
        return None


def render_stages(found: StageStatus) -> Json:
    """Write ``status.stages``."""
    counts = {key: getattr(found, name) for name, key in _COUNTS.items()}
    return {**counts, "reason": str(found.reason), "message": bounded_message(found.message)}


def condition(found: StageStatus) -> Json:
    """Write the condition."""
    is_done = found.reason == Reason.STAGES_READY
    return (made if is_done else advising)(CONDITION, is_done, found.reason, found.message)
