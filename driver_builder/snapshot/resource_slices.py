"""What drivers of dynamic resource allocation (DRA) offer on nodes, as their ResourceSlices say. Pure.

Of a slice only that matters: whose it is, on which node, and whether there is a device in it. With its devices a slice
may have hundreds of kilobytes.
"""

from dataclasses import dataclass
from datetime import datetime
from typing import Any

Json = dict[str, Any]


@dataclass(frozen=True, slots=True, kw_only=True)
class NodeSlice:
    """A ResourceSlice of one node; ``created_at`` in seconds since the epoch."""

    driver: str
    node: str
    created_at: float = 0.0
    has_devices: bool = True


@dataclass(frozen=True, slots=True, kw_only=True)
class SlicesUnread:
    """Why ResourceSlices are not known: the API server has none (``is_unserved``), or they may not be read."""

    message: str
    is_unserved: bool = False


def read_slice(obj: Json) -> NodeSlice | None:
    """Read a ResourceSlice; None for one that belongs to no single node."""
    spec, created = obj["spec"], obj["metadata"].get("creationTimestamp")
    driver, node = spec.get("driver"), spec.get("nodeName")
    if not (isinstance(driver, str) and isinstance(node, str) and driver and node):
        return None
    return NodeSlice(
        driver=driver,
        node=node,
        created_at=datetime.fromisoformat(created).timestamp() if created else 0.0,
        has_devices=bool(spec.get("devices")),
    )
