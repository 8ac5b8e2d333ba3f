"""A NodeFeature object as it is kept: whose it is, for which node, and its labels. ``spec.features`` is dropped. Pure.

Place in the flow: the follower of each allowed namespace reads with it. Such an object has 100 kB and more, of which a
few hundred bytes are kept.
"""

import sys
from collections.abc import Mapping
from dataclasses import dataclass, field
from typing import Any

from driver_builder.snapshot.node_labels import NodeLabels

NODE_NAME_LABEL = "nfd.node.kubernetes.io/node-name"
"""On a NodeFeature object: the node that it is for. One without it is for none, and is not even listed."""

MOST_LABELS = 500
"""Of an object; upstream's own worker, which finds most, makes about 150."""
_LONGEST_KEY = 317
"""Characters of a qualified name with a namespace; one that is longer is cut, and refused."""
_LONGEST_VALUE = 63


@dataclass(frozen=True, slots=True, kw_only=True)
class NodeFeature:
    """What is read of an object."""

    namespace: str
    name: str
    uid: str
    node: str
    """The name of the node that it is for."""
    labels: Mapping[str, str] = field(default_factory=dict)
    """As they are written: neither prefixed nor checked, but bounded."""
    omitted: int = 0
    """How many labels it has beyond MOST_LABELS."""

    def __str__(self) -> str:
        """Name it in messages."""
        return f"{self.namespace}/{self.name}"


def read_node_feature(obj: Mapping[str, Any]) -> NodeFeature | None:
    """Read an object; None for one that names no node."""
    metadata, spec = obj["metadata"], obj.get("spec")
    node = (metadata.get("labels") or {}).get(NODE_NAME_LABEL)
    if not node:
        return None
    given = spec.get("labels") if isinstance(spec, dict) else None
    labels = sorted(given.items()) if isinstance(given, dict) else []
    return NodeFeature(
        namespace=sys.intern(metadata["namespace"]),
        name=metadata["name"],
        uid=metadata.get("uid", ""),
        node=sys.intern(node),
        # Thousands of nodes have the same keys, and mostly the same values.
        labels=NodeLabels(
            {
                sys.intern(key[: _LONGEST_KEY + 1]): sys.intern(value[: _LONGEST_VALUE + 1])
                for key, value in labels[:MOST_LABELS]
                if isinstance(value, str)
            }
        ),
        omitted=max(0, len(labels) - MOST_LABELS),
    )
