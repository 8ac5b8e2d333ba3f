"""Status and Events for nodes that could not be drained: the condition ``Draining``. Pure."""

from collections.abc import Mapping

from driver_builder.reasons import Reason
from driver_builder.status.status import MAX_LISTED, Json, advised
from kube_api.text import first_few

CONDITION = "Draining"


def condition(undrained: Mapping[str, str]) -> Json | None:
    """Write the condition for nodes that keep their driver, with the pods that stayed; None where there are none."""
    if not undrained:
        return None
    shown = [f"{node}: {why}" for node, why in sorted(undrained.items())]
    words = f"not drained within spec.rollout.drain.deadline: {first_few(shown, MAX_LISTED, separator='; ')}"
    return {
        "type": CONDITION,
        "status": "False",
        "reason": Reason.DRAIN_TIMEOUT,
        "message": advised(Reason.DRAIN_TIMEOUT, words),
    }
