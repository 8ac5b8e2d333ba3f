"""Extended resources of a Node: the patch of ``nodes/status`` that brings them in line. Pure.

What a kubelet does with them (``MachineInfo`` in ``pkg/kubelet/nodestatus/setters.go``): at each update of the status
it keeps every name in ``capacity`` that it does not know and copies it to ``allocatable``. From ``allocatable`` it
drops names that ``capacity`` has no longer, but not ours: with ``kubernetes.io/`` in it a name counts as native. So:

- Both maps are written, in one patch. Were ``allocatable`` left to the kubelet, as upstream does, a kubelet that has
  read the Node before we remove a resource could add it to ``allocatable`` after that, and nothing would remove it.
- Both maps are cleared. Else the scheduler goes on counting a resource that is gone.
- Once written, ``allocatable`` is the kubelet's word and is not compared.

The names are tracked in annotations, not by server-side apply: a kubelet that co-owns a field keeps it there. The API
server lets a patch of the status change annotations, so resource and tracking are written at once.
"""

from collections.abc import Mapping
from itertools import chain

from kube_api.quantity import parse_quantity
from nfd_worker.publish.node_state import Json, NodeState
from nfd_worker.publish.tracking import EXTENDED_RESOURCES, format_names, parse_names


def resources_patch(node: NodeState, wanted: Mapping[str, str], upstream: Mapping[str, tuple[str, ...]]) -> Json:
    """Compute what has to change in the status; empty when the Node is as it should be.

    A resource that somebody else has set to just what we want is not ours later, as with server-side apply.
    ``upstream``: what is taken over: tracking annotation -> names of the resources.
    """
    before = {*names_of_ours(node), *chain.from_iterable(upstream.values())}
    ours = {key for key, value in wanted.items() if key in before or not _is_equal(node.capacity.get(key), value)}
    status = _status(node, wanted, gone=before - wanted.keys())
    shared = EXTENDED_RESOURCES.shared
    annotations: Json = {key: None for key in upstream if key != shared and key in node.annotations}
    annotations |= EXTENDED_RESOURCES.patch(node, format_names(ours), take_over=shared in upstream)
    body: Json = {"status": status} if status else {}
    return body | ({"metadata": {"annotations": annotations}} if annotations else {})


def names_of_ours(node: NodeState) -> tuple[str, ...]:
    """Name the extended resources that we have set."""
    return parse_names(EXTENDED_RESOURCES.text(node, take_over=False))


def _status(node: NodeState, wanted: Mapping[str, str], *, gone: set[str]) -> Json:
    changed = {key: value for key, value in wanted.items() if not _is_equal(node.capacity.get(key), value)}
    missing = {key: value for key, value in wanted.items() if key not in node.allocatable}
    parts = {
        "capacity": changed | dict.fromkeys(gone & node.capacity.keys()),
        "allocatable": missing | changed | dict.fromkeys(gone & node.allocatable.keys()),
    }
    return {name: part for name, part in parts.items() if part}


def _is_equal(one: str | None, other: str) -> bool:
    return one is not None and parse_quantity(one) == parse_quantity(other)
