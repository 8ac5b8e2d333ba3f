"""The two DaemonSets that a target has during a wave: names, labels, and which nodes they are for. Pure.

Mostly a target has one DaemonSet, for all of its nodes. A wave adds a second one in the other slot, for the nodes that
have the wave label with its name (``driverwright.io/<namespace>.<name>.wave``); the first one keeps the image of before
for all others. When the wave ends, the one that is left is for all nodes again
(docs/decisions/0099-two-daemonsets-in-a-wave.md).
"""

from collections.abc import Iterable, Mapping
from dataclasses import dataclass
from enum import StrEnum
from typing import Any

Json = dict[str, Any]

FIRST, SECOND = "", "b"
"""The slots. Objects in the first one have the names that a target's objects always had."""
_MARK = f"-{SECOND}"


class Place(StrEnum):
    """Which nodes of its target a DaemonSet is for."""

    ALL = "all"
    MOVED = "moved"
    """Those with the wave label that names it."""
    OTHERS = "others"
    """All but those with the label that names the other one."""


def other(slot: str) -> str:
    """Return the slot that is free while a target has one DaemonSet."""
    return FIRST if slot == SECOND else SECOND


def name_in(target_hash: str, slot: str) -> str:
    """Return the value of the target label, which names target and slot."""
    return f"{target_hash}{_MARK}" if slot == SECOND else target_hash


def parse_name(value: str) -> tuple[str, str]:
    """Return the short hash of the target and the slot that the value of a target label names."""
    return (value.removesuffix(_MARK), SECOND) if value.endswith(_MARK) else (value, FIRST)


@dataclass(frozen=True, slots=True)
class Slot:
    """Where a DaemonSet stands: its slot, and the nodes that it is for."""

    name: str = FIRST
    place: Place = Place.ALL


ONLY = Slot()


def affinity(label: str, named: str, place: Place, yields: str) -> Json:
    """Return the affinity of pods by the wave label ``label``, whose value for moved nodes is ``named``.

    ``yields`` is a label of nodes that the pods keep away from.
    """
    expressions: list[Json] = []
    if place is not Place.ALL:
        expressions.append({"key": label, "operator": "In" if place is Place.MOVED else "NotIn", "values": [named]})
    expressions.append({"key": yields, "operator": "DoesNotExist"})
    term = {"matchExpressions": expressions}
    return {"nodeAffinity": {"requiredDuringSchedulingIgnoredDuringExecution": {"nodeSelectorTerms": [term]}}}


def place_of(pod_spec: Mapping[str, Any], label: str) -> Place:
    """Read from a pod's affinity, as :func:`affinity` writes it, which nodes it is for."""
    for item in _expressions(pod_spec):
        if item.get("key") == label and item.get("operator") in ("In", "NotIn"):
            return Place.MOVED if item["operator"] == "In" else Place.OTHERS
    return Place.ALL


def _expressions(pod_spec: Mapping[str, Any]) -> Iterable[Mapping[str, Any]]:
    on_nodes = (pod_spec.get("affinity") or {}).get("nodeAffinity") or {}
    required = on_nodes.get("requiredDuringSchedulingIgnoredDuringExecution") or {}
    return (item for term in required.get("nodeSelectorTerms") or () for item in term.get("matchExpressions") or ())
