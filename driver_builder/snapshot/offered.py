"""Which resources a node's device agent says that it offers, or that containers still have: an annotation. Pure.

A node writes it: it is bounded, and names outside the domain of our agent's profiles are left out, so that a node gets
nothing by them.
"""

import json
import sys
from collections.abc import Mapping

from device_resources.resource import NVIDIA_DOMAIN
from driver_builder.objects.node_keys import LONGEST
from kube_api.names import GPU_PROFILE_ANNOTATION, is_qualified_name

MAX_NAMES = 100


def offered_on(annotations: Mapping[str, str]) -> tuple[str, ...]:
    """Return the names in a Node's annotations, each once and sorted; empty where none can be read."""
    text = annotations.get(GPU_PROFILE_ANNOTATION, "")
    if not text or len(text) > LONGEST[GPU_PROFILE_ANNOTATION]:
        return ()
    try:
        said = json.loads(text)
    except (ValueError, RecursionError):
        return ()
    names = said.get("resources") if isinstance(said, dict) else None
    listed = names[:MAX_NAMES] if isinstance(names, list) else ()
    # Thousands of nodes have the same few.
    return tuple(sorted({sys.intern(name) for name in listed if _is_ours(name)}))


def _is_ours(name: object) -> bool:
    return isinstance(name, str) and name.startswith(NVIDIA_DOMAIN) and is_qualified_name(name)
