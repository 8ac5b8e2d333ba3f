"""Status and Events for nodes that keep their driver because they cannot be prepared for another one. Pure.

The conditions are ``Draining``, for what uses the driver, and ``Yielding``, for drivers that depend on it.
"""

from collections.abc import Mapping

from driver_builder.api.status import MAX_LISTED, Json, advised
from driver_builder.base.reasons import Reason
from kube_api.text import first_few


def conditions(undrained: Mapping[str, str], unyielded: Mapping[str, str]) -> tuple[Json, ...]:
    """Write the conditions for nodes with what stayed there; none where there are no such nodes."""
    found = (
        ("Draining", Reason.DRAIN_TIMEOUT, "not drained within spec.rollout.drain.deadline", undrained),
        ("Yielding", Reason.DEPENDENT_NOT_UNLOADED, "not replaced", unyielded),
    )
    return tuple(_condition(*item) for item in found if item[-1])


def _condition(name: str, reason: Reason, words: str, nodes: Mapping[str, str]) -> Json:
    shown = [f"{node}: {why}" for node, why in sorted(nodes.items())]
    message = f"{words}: {first_few(shown, MAX_LISTED, separator='; ')}"
    return {"type": name, "status": "False", "reason": reason, "message": advised(reason, message)}
