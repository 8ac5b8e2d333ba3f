"""Extended resources of a Node: the patch of ``nodes/status`` that brings them in line. Pure.

What a kubelet does with them (``MachineInfo`` in ``pkg/kubelet/nodestatus/setters.go``): at each update of the status
it keeps every name in ``capacity`` that it does not know and copies it to ``allocatable``. From ``allocatable`` it
drops names that ``capacity`` has no longer, but only extended resources proper: with ``kubernetes.io/`` in its name, as
ours have, one counts as native. So:

- Both maps are written, in one patch. Were ``allocatable`` left to the kubelet, as upstream does, a kubelet that has
  read the Node before we remove a resource could add it to ``allocatable`` after that, and nobody would take it out.
- Both maps are cleared. Else the scheduler goes on counting a resource that is gone.
- Once written, ``allocatable`` is the kubelet's word and is not compared.

The names are tracked in an annotation, not by server-side apply: a kubelet that co-owns a field keeps it there. The API
server lets a patch of the status change annotations, so name and tracking are written at once.
"""

from collections.abc import Mapping
from itertools import chain

from nfd_worker.node_state import Change, Json, NodeState
from nfd_worker.quantity import parse_quantity
from nfd_worker.tracking import EXTENDED_RESOURCES, contested, format_names, parse_names, tracked


def resources_patch(node: NodeState, wanted: Mapping[str, str], upstream: Mapping[str, tuple[str, ...]]) -> Change:
    """Compute what has to change in the status.

    ``upstream``: what is taken over: tracking annotation -> names of the resources.
    """
    said = tracked(node, EXTENDED_RESOURCES)
    if said.is_foreign and EXTENDED_RESOURCES not in upstream:
        return Change({}, (contested(node, EXTENDED_RESOURCES, "extended resource"),) if wanted else ())
    status = _status(
        node, wanted, gone={*parse_names(said.text), *chain.from_iterable(upstream.values())} - wanted.keys()
    )
    annotations: Json = {key: None for key in upstream if key in node.annotations and key != EXTENDED_RESOURCES}
    if (text := format_names(wanted)) != said.text:
        annotations[EXTENDED_RESOURCES] = text or None
    body: Json = {"status": status} if status else {}
    return Change(body | ({"metadata": {"annotations": annotations}} if annotations else {}))


def names_of_ours(node: NodeState) -> tuple[str, ...]:
    """Name the extended resources that we have set."""
    said = tracked(node, EXTENDED_RESOURCES)
    return () if said.is_foreign else parse_names(said.text)


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
