"""Take a Node over from an upstream Node Feature Discovery: what it left, and the patch that ends its ownership. Pure.

Our labels are applied first, so whatever both programs want is never absent. Then one patch removes what upstream
tracked and we do not want, upstream's own annotations, and upstream's share in ``managedFields`` of what is now ours:
as long as ``nfd-master`` co-owns a label, server-side apply would never remove it. What another program applies as well
stays, as that program's. Once that is done nothing is left over, and taking over again changes nothing.
"""

import re
from collections.abc import Iterable, Mapping
from typing import NamedTuple

from kube_api.names import is_qualified_name
from nfd_worker.labels.node_content import NodeContent
from nfd_worker.publish.node_state import Json, NodeState, disown
from nfd_worker.publish.tracking import EXTENDED_RESOURCES, TAINTS, UPSTREAM, parse_names, parse_taints
from nfd_worker.publish.wire import FIELD_MANAGER

_UPSTREAM_MANAGER = "nfd-master"
BOOKKEEPING = (
    "feature-labels", "feature-annotations", "extended-resources", "taints", "master.version", "worker.version",
)  # fmt: skip
"""Names of upstream's own annotations, without ``[<instance>.]nfd.node.kubernetes.io/``."""

_ANNOTATION = re.compile(rf"(?:[^/]+\.)?{re.escape(UPSTREAM)}/({'|'.join(map(re.escape, BOOKKEEPING))})")
_SHARED = (EXTENDED_RESOURCES, TAINTS)
_NO_NAMES: Mapping[str, tuple[str, ...]] = {}


class Leftovers(NamedTuple):
    """What upstream left on a Node.

    ``labels``, ``annotations``: full keys. ``extended_resources``: tracking annotation -> full names.
    ``taints``: how many. ``bookkeeping``: upstream's own annotations; empty when upstream was never here.
    """

    labels: frozenset[str] = frozenset()
    annotations: frozenset[str] = frozenset()
    extended_resources: Mapping[str, tuple[str, ...]] = _NO_NAMES
    taints: int = 0
    bookkeeping: frozenset[str] = frozenset()

    def __str__(self) -> str:
        counts = {
            "labels": len(self.labels),
            "annotations": len(self.annotations),
            "extended resources": sum(map(len, self.extended_resources.values())),
            "taints": self.taints,
        }
        return ", ".join(f"{number} {what}" for what, number in counts.items() if number) or "nothing but annotations"


def leftovers(node: NodeState) -> Leftovers:
    """Read what upstream tracks in its annotations ``[<instance>.]nfd.node.kubernetes.io/...``.

    Those for extended resources and taints we write as well; they are left over when they say something else.
    """
    words: dict[str, list[str]] = {}
    for key in node.annotations:
        if (found := _ANNOTATION.fullmatch(key)) and not _is_ours(node, key):
            words.setdefault(found[1], []).append(key)
    return Leftovers(
        labels=_names(node, words.get("feature-labels", ())),
        annotations=_names(node, words.get("feature-annotations", ())),
        extended_resources={key: parse_names(node.annotations[key]) for key in words.get("extended-resources", ())},
        taints=sum(len(parse_taints(node.annotations[key])) for key in words.get("taints", ())),
        bookkeeping=frozenset(key for keys in words.values() for key in keys),
    )


def take_over_patch(node: NodeState, found: Leftovers, wanted: NodeContent) -> Json:
    """Compute the metadata that ends upstream's part in the Node, as a merge patch; empty when it has none."""
    labels = wanted.labels.keys() | node.applied_by_others("labels")
    annotations = wanted.annotations.keys() | node.applied_by_others("annotations")
    gone = (found.bookkeeping | found.annotations) & node.annotations.keys() - annotations
    managers = {_UPSTREAM_MANAGER} | node.writers(found.bookkeeping)
    entries = disown(node.managers, managers, labels=labels, annotations=annotations)
    parts: Json = {
        "labels": dict.fromkeys(found.labels & node.labels.keys() - labels),
        "annotations": dict.fromkeys(gone - {record.shared for record in _SHARED}),
        "managedFields": entries if entries != list(node.managers) else [],
    }
    metadata = {name: part for name, part in parts.items() if part}
    return {"metadata": metadata} if metadata else {}


def hand_back_patch(node: NodeState) -> Json:
    """Compute the metadata that leaves to upstream what it tracks, as a merge patch; empty where none of it is ours.

    Upstream writes, and owns, no label that has the right value already: removed with ours, it would be absent until
    upstream looks at the Node again.
    """
    found = leftovers(node)
    entries = disown(
        node.managers, {FIELD_MANAGER}, labels=found.labels, annotations=found.annotations, operation="Apply"
    )
    # An empty list changes nothing for the API server.
    return {"metadata": {"managedFields": entries or [{}]}} if entries != list(node.managers) else {}


def _is_ours(node: NodeState, key: str) -> bool:
    return any(key == record.shared and not record.is_foreign(node) for record in _SHARED)


def _names(node: NodeState, annotations: Iterable[str]) -> frozenset[str]:
    names = (name for key in annotations for name in parse_names(node.annotations[key]))
    return frozenset(name for name in names if is_qualified_name(name))
