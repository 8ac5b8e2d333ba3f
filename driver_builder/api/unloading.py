"""Conditions for nodes that a driver leaves, and for those that keep it because they cannot be prepared. Pure.

``Unloading`` is for the former, ``Draining`` for what uses the driver, ``Yielding`` for drivers that depend on it.
"""

from collections.abc import Mapping
from dataclasses import dataclass, field

from driver_builder.api.status import MAX_LISTED, Json, advising
from driver_builder.base.reasons import Reason
from kube_api.text import first_few

CONDITION = "Unloading"


@dataclass(frozen=True, slots=True, kw_only=True)
class Unloading:
    """Nodes that the driver leaves, each with its message: under way, in use, or loaded until the next boot."""

    waiting: Mapping[str, str] = field(default_factory=dict)
    in_use: Mapping[str, str] = field(default_factory=dict)
    stays: Mapping[str, str] = field(default_factory=dict)
    dependents: tuple[str, ...] = ()
    """Other drivers that depend on the driver: its removal has not begun."""


def condition(unloading: Unloading) -> Json | None:
    """Write the condition; None while the driver leaves no node."""
    if unloading.dependents:
        words = (
            f"the driver stays on its nodes, because others depend on it: {first_few(unloading.dependents, MAX_LISTED)}"
        )
        return advising(CONDITION, False, Reason.WAITING_FOR_DEPENDENTS, words)
    stays = _listed("its modules stay loaded until the node reboots", unloading.stays)
    if unloading.in_use:
        words = "; ".join(part for part in (_listed("not unloaded yet", unloading.in_use), stays) if part)
        return advising(CONDITION, True, Reason.IN_USE, words)
    if unloading.waiting:
        count = len(unloading.waiting)
        words = f"the driver is being unloaded from {count} {'node' if count == 1 else 'nodes'}"
        return advising(CONDITION, True, Reason.UNLOADING, "; ".join(part for part in (words, stays) if part))
    return advising(CONDITION, False, Reason.STAYS_LOADED, stays) if stays else None


def is_said(unloading: Unloading, status: Json) -> bool:
    """Return whether a status already has this condition."""
    wanted = condition(unloading)
    said = next((item for item in status.get("conditions") or () if item.get("type") == CONDITION), None)
    return wanted is None or (said is not None and all(said.get(key) == value for key, value in wanted.items()))


def of_kept(undrained: Mapping[str, str], unyielded: Mapping[str, str]) -> tuple[Json, ...]:
    """Write the conditions for nodes that keep their driver, with what stayed there; none without such nodes."""
    found = (
        ("Draining", Reason.DRAIN_TIMEOUT, "not drained within spec.rollout.drain.deadline", undrained),
        ("Yielding", Reason.DEPENDENT_NOT_UNLOADED, "not replaced", unyielded),
    )
    return tuple(advising(name, False, why, _listed(words, nodes)) for name, why, words, nodes in found if nodes)


def _listed(words: str, nodes: Mapping[str, str]) -> str:
    if not nodes:
        return ""
    shown = [f"{name}: {why}" if why else name for name, why in sorted(nodes.items())]
    return f"{words}: {first_few(shown, MAX_LISTED, separator='; ')}"
