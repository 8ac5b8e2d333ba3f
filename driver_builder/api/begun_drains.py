"""``status.draining``: the nodes that a driver has begun to drain, and what their paused labels were. Pure.

The same stands on the Node, in an annotation that people and tools may remove: here it stands a second time, so that
labels are restored and the deadline counts whatever becomes of the annotation.
"""

from collections.abc import Mapping
from dataclasses import dataclass, field
from typing import Any

from kube_api.timestamps import parse_timestamp, timestamp

Json = dict[str, Any]

MAX_NODES = 1000


@dataclass(frozen=True, slots=True, kw_only=True)
class BegunDrain:
    """Since when a node is drained, and the values that paused labels had."""

    since: int = 0
    labels: Mapping[str, str] = field(default_factory=dict)


def previous_drains(status: Mapping[str, Any]) -> dict[str, BegunDrain]:
    """Read ``status.draining`` by node; entries of another shape are dropped."""
    known: dict[str, BegunDrain] = {}
    entries = status.get("draining")
    for node, entry in entries.items() if isinstance(entries, Mapping) else ():
        try:
            labels = {str(key): str(value) for key, value in (entry.get("labels") or {}).items()}
            known[str(node)] = BegunDrain(since=int(parse_timestamp(entry.get("startTime")) or 0), labels=labels)
        except (ValueError, TypeError, AttributeError, OverflowError):
            continue
    return known


def render_drains(drains: Mapping[str, BegunDrain]) -> Json:
    """Write ``status.draining``."""
    return {
        node: {"startTime": timestamp(found.since), **({"labels": dict(found.labels)} if found.labels else {})}
        for node, found in sorted(drains.items())[:MAX_NODES]
    }
