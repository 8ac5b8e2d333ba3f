"""What of a Node is ours, and what of it has to stay although it is not wanted now. Pure.

A source that could not be read since the worker's start has no last good features: nobody knows whether what the Node
says of it is still true. So it is applied again as it is, and what may go is told by prefixes of keys.
"""

from collections.abc import Iterable, Mapping
from itertools import chain

from kube_api.names import GROUP
from nfd_worker.extended_resources import names_of_ours
from nfd_worker.node_content import NodeContent
from nfd_worker.node_state import NodeState
from nfd_worker.node_taints import taints_of_ours
from nfd_worker.take_over import Leftovers, leftovers

_BOOKKEEPING = (f"{GROUP}/",)
"""Boot id and kernel version: said anew by every scan, or not at all."""


def content_of_ours(node: NodeState, *, take_over: bool) -> NodeContent:
    """Read what of the Node is ours, or becomes ours by taking over."""
    upstream = leftovers(node) if take_over else Leftovers()
    resources = chain(names_of_ours(node), *upstream.extended_resources.values())
    return NodeContent(
        labels=_pick(node.labels, node.applied("labels") | upstream.labels),
        annotations=_pick(node.annotations, node.applied("annotations") | upstream.annotations),
        extended_resources=_pick(node.capacity, resources),
        taints=taints_of_ours(node, take_over=take_over),
    )


def with_kept(wanted: NodeContent, ours: NodeContent, known_prefixes: tuple[str, ...]) -> NodeContent:
    """Add to what is wanted whatever of ours nobody knows better about: its key begins with no known prefix."""
    known = (*known_prefixes, *_BOOKKEEPING)
    set_anew = {(taint.key, taint.effect) for taint in wanted.taints}
    kept = (taint for taint in ours.taints if (taint.key, taint.effect) not in set_anew)
    return NodeContent(
        labels={**_unknown(ours.labels, known), **wanted.labels},
        annotations={**_unknown(ours.annotations, known), **wanted.annotations},
        extended_resources={**_unknown(ours.extended_resources, known), **wanted.extended_resources},
        taints=(*(taint for taint in kept if not taint.key.startswith(known)), *wanted.taints),
    )


def _pick(values: Mapping[str, str], keys: Iterable[str]) -> dict[str, str]:
    return {key: values[key] for key in sorted(set(keys)) if key in values}


def _unknown(values: Mapping[str, str], known: tuple[str, ...]) -> dict[str, str]:
    return {key: value for key, value in values.items() if not key.startswith(known)}
