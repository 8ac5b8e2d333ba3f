"""The annotations that say which extended resources and taints of a Node are ours. Pure.

Labels and annotations need none: server-side apply keeps their owner in ``managedFields``. That cannot be relied on for
what is patched: the API server merges the entries of the oldest plain updates when there are many.

What counts is our own annotation. The same text also goes into the annotation that upstream's nfd-master tracks by:
tools read it there, and if upstream is installed again it removes our taints as if they were its own. Where upstream's
annotation says something else, upstream is at work, and it is left alone unless we take over.
"""

from collections.abc import Iterable
from typing import NamedTuple

from feature_rules.model import EFFECTS, Taint
from kube_api.names import FEATURE_LABEL_PREFIX, GROUP
from nfd_worker.publish.node_state import Json, NodeState

UPSTREAM = "nfd.node.kubernetes.io"
"""Prefix of upstream's own annotations."""

_PREFIX = f"{FEATURE_LABEL_PREFIX}/"


class Record(NamedTuple):
    """The two annotations: ``own`` is ours alone, ``shared`` is upstream's."""

    own: str
    shared: str

    def text(self, node: NodeState, *, take_over: bool) -> str:
        """Read what is tracked as ours, with what upstream tracks if that is taken over."""
        keys = (self.own, self.shared) if take_over else (self.own,)
        return ",".join(filter(None, (node.annotations.get(key) for key in keys)))

    def is_foreign(self, node: NodeState) -> bool:
        """Return whether upstream's annotation is there and differs from ours."""
        shared = node.annotations.get(self.shared, "")
        return shared not in ("", node.annotations.get(self.own, ""))

    def patch(self, node: NodeState, text: str, *, take_over: bool) -> Json:
        """Return which annotations have to change for this text to be tracked; an empty one needs none."""
        keys = (self.own,) if self.is_foreign(node) and not take_over else (self.own, self.shared)
        return {key: text or None for key in keys if node.annotations.get(key, "") != text}


EXTENDED_RESOURCES = Record(f"{GROUP}/extended-resources", f"{UPSTREAM}/extended-resources")
TAINTS = Record(f"{GROUP}/taints", f"{UPSTREAM}/taints")


def tracked_on(node: NodeState) -> dict[str, str]:
    """Return our own annotations of both kinds."""
    return {
        record.own: node.annotations[record.own]
        for record in (EXTENDED_RESOURCES, TAINTS)
        if record.own in node.annotations
    }


def parse_names(text: str) -> tuple[str, ...]:
    """Read ``a,b,vendor.example/c``: names without a namespace are in feature.node.kubernetes.io."""
    names = (name.strip() for name in text.split(","))
    return tuple(name if "/" in name else _PREFIX + name for name in names if name)


def format_names(keys: Iterable[str]) -> str:
    """Undo :func:`parse_names`, sorted."""
    return ",".join(sorted(key.removeprefix(_PREFIX) for key in keys))


def parse_taints(text: str) -> tuple[Taint, ...]:
    """Read ``key=value:Effect,key:Effect``; what is not a taint is left out."""
    return tuple(taint for part in text.split(",") if (taint := _parse_taint(part.strip())) is not None)


def format_taints(taints: Iterable[Taint]) -> str:
    """Undo :func:`parse_taints`."""
    return ",".join(map(str, taints))


def _parse_taint(text: str) -> Taint | None:
    pair, _, effect = text.rpartition(":")
    key, _, value = pair.partition("=")
    return Taint(key, value, effect) if key and effect in EFFECTS else None
