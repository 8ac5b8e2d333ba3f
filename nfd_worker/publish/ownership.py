"""What of a Node is ours, and what of it has to stay although it is not wanted now. Pure.

What could not be read since the worker's start has no last good state: whether the Node's part of it is still true is
unknown. So that part is applied again as it is: the labels of a source, known by their keys, and what a file or a rule
made, known by a record on the Node. It is an annotation, written together with what it is about
(docs/decisions/0070-record-of-origins.md).
"""

import json
from collections.abc import Iterable, Mapping
from itertools import chain
from typing import NamedTuple

from kube_api.names import GROUP
from nfd_worker.labels.node_content import NO_ORIGINS, NodeContent, Origins, Unknown
from nfd_worker.publish.extended_resources import names_of_ours
from nfd_worker.publish.node_state import NodeState
from nfd_worker.publish.node_taints import taints_of_ours
from nfd_worker.publish.take_over import Leftovers, leftovers

ORIGINS_ANNOTATION = f"{GROUP}/origins"
"""On a Node, by nfd_worker: which feature file, rule file or rule made which keys, as JSON."""

LONGEST_RECORD = 1 << 15
"""Characters; all annotations of a Node may have 256 KiB together."""

BEFORE = "?"
"""Stands in the record for the unknown origin of what was there before the record."""

_FEATURE_FILES = "features.d/"

_BOOKKEEPING = (f"{GROUP}/",)
"""Boot id and kernel version: every scan makes them, or they are absent."""


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


class Kept(NamedTuple):
    """What of ours stays: all keys that begin with one of ``prefixes``, and those of these origins."""

    prefixes: tuple[str, ...]
    origins: Origins

    def has(self, key: str) -> bool:
        """Whether a label, annotation, extended resource or taint of ours with this key stays."""
        is_ours_anew = key.startswith(_BOOKKEEPING)
        return not is_ours_anew and (
            key.startswith(self.prefixes) or any(key in keys for keys in self.origins.values())
        )


def kept_for(unknown: Unknown, recorded: Origins | None, ours: NodeContent, wanted: Origins = NO_ORIGINS) -> Kept:
    """Return what stays because its origin could not be read; ``recorded`` is the Node's record of origins, if any.

    A file that could not be read or used holds what the record says it made. Rules hold of it what they may still want:
    those that look at a source that is unknown, or at the features of such a file. Without a record anything may have
    been made by anybody, but for what has an origin in ``wanted``: that is known from now on, and goes when its origin
    does not want it any more.
    """
    claimed = set(chain.from_iterable(wanted.values()))
    if recorded is None:
        keys = {*ours.labels, *ours.annotations, *ours.extended_resources, *(taint.key for taint in ours.taints)}
        known = (*unknown.known_prefixes, *_BOOKKEEPING)
        return Kept(
            unknown.prefixes, {BEFORE: tuple(sorted(key for key in keys - claimed if not key.startswith(known)))}
        )
    held = {origin for origin in recorded if origin == BEFORE or _is_named(origin, unknown.origins)}
    has_files = any(origin.startswith(_FEATURE_FILES) for origin in held)
    origins = {origin: keys for origin, keys in recorded.items() if origin in held}
    for origin, keys in (*unknown.rules.items(), *(unknown.file_rules.items() if has_files else ())):
        if origin in recorded and origin not in held:
            may_want = recorded[origin] if keys is None else set(recorded[origin]).intersection(keys)
            origins[origin] = tuple(sorted({*origins.get(origin, ()), *may_want}))
    if BEFORE in origins:
        origins[BEFORE] = tuple(key for key in origins[BEFORE] if key not in claimed)
    return Kept(unknown.prefixes, dict(sorted(origins.items())))


def _is_named(origin: str, names: Iterable[str]) -> bool:
    return any(origin == name or (name.endswith("/") and origin.startswith(name)) for name in names)


def with_kept(wanted: NodeContent, ours: NodeContent, kept: Kept) -> NodeContent:
    """Add to what is wanted whatever of ours stays."""
    set_anew = {(taint.key, taint.effect) for taint in wanted.taints}
    taints = (taint for taint in ours.taints if (taint.key, taint.effect) not in set_anew)
    return NodeContent(
        labels={**_kept(ours.labels, kept), **wanted.labels},
        annotations={**_kept(ours.annotations, kept), **wanted.annotations},
        extended_resources={**_kept(ours.extended_resources, kept), **wanted.extended_resources},
        taints=(*(taint for taint in taints if kept.has(taint.key)), *wanted.taints),
    )


def with_kept_origins(wanted: Origins, kept: Kept) -> Origins:
    """Add to the record what stays, so that it still does the next time."""
    origins = sorted({*wanted, *kept.origins})
    return {origin: tuple(sorted({*wanted.get(origin, ()), *kept.origins.get(origin, ())})) for origin in origins}


def parse_origins(text: str | None) -> Origins | None:
    """Read the record of origins; None when it is missing or unreadable."""
    try:
        record = json.loads(text or "")
        return {str(origin): tuple(map(str, keys)) for origin, keys in record.items()}
    except (ValueError, TypeError, AttributeError, RecursionError):
        return None


def format_origins(origins: Origins) -> str:
    """Write the record; empty for none, and where it would be too long for an annotation."""
    text = json.dumps(origins, default=dict, separators=(",", ":"), sort_keys=True) if origins else ""
    return text if len(text) <= LONGEST_RECORD else ""


def applied_fields(content: NodeContent, origins: Origins) -> dict[str, dict[str, str]]:
    """Return the labels and annotations that our field manager applies, the record of origins among them."""
    record = format_origins(origins)
    annotations = {**content.annotations, **({ORIGINS_ANNOTATION: record} if record else {})}
    return {"labels": dict(content.labels), "annotations": annotations}


def _pick(values: Mapping[str, str], keys: Iterable[str]) -> dict[str, str]:
    return {key: values[key] for key in sorted(set(keys)) if key in values}


def _kept(values: Mapping[str, str], kept: Kept) -> dict[str, str]:
    return {key: value for key, value in values.items() if kept.has(key)}
