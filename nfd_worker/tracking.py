"""The annotations that say which extended resources and taints of a Node are ours. Pure.

Labels and annotations need none: server-side apply keeps their owner in ``managedFields``. The keys and formats are
those of upstream's nfd-master, so each program can take over from the other.
"""

from collections.abc import Iterable
from typing import NamedTuple

from kube_api.names import FEATURE_LABEL_PREFIX
from nfd_worker.node_content import EFFECTS, Taint
from nfd_worker.node_state import NodeState

NAMESPACE = "nfd.node.kubernetes.io"
EXTENDED_RESOURCES = f"{NAMESPACE}/extended-resources"
TAINTS = f"{NAMESPACE}/taints"

_PREFIX = f"{FEATURE_LABEL_PREFIX}/"


class Tracked(NamedTuple):
    """What an annotation tracks: its text, and whether another program wrote it."""

    text: str
    is_foreign: bool


def tracked(node: NodeState, annotation: str) -> Tracked:
    """Read a tracking annotation.

    It is ours unless ``managedFields`` name another writer: they can be lost, and then it was more probably we.
    """
    return Tracked(node.annotations.get(annotation, ""), bool(node.writers((annotation,))))


def contested(node: NodeState, annotation: str, what: str) -> str:
    """Say that another program tracks on this Node what we would have to."""
    writers = ", ".join(sorted(node.writers((annotation,))))
    return (
        f"no {what} is set on node {node.name}: its annotation {annotation} was written by {writers}; "
        "stop that program and run with --take-over"
    )


def parse_names(text: str) -> tuple[str, ...]:
    """Read ``a,b,vendor.example/c``: names without a namespace are in feature.node.kubernetes.io."""
    names = (name.strip() for name in text.split(","))
    return tuple(name if "/" in name else _PREFIX + name for name in names if name)


def format_names(keys: Iterable[str]) -> str:
    """Undo :func:`parse_names`, sorted."""
    return ",".join(sorted(key.removeprefix(_PREFIX) for key in keys))


def parse_taints(text: str) -> tuple[Taint, ...]:
    """Read ``key=value:Effect,key:Effect``; what is no taint is left out."""
    return tuple(taint for part in text.split(",") if (taint := _parse_taint(part.strip())) is not None)


def format_taints(taints: Iterable[Taint]) -> str:
    """Undo :func:`parse_taints`."""
    return ",".join(map(str, taints))


def _parse_taint(text: str) -> Taint | None:
    pair, _, effect = text.rpartition(":")
    key, _, value = pair.partition("=")
    return Taint(key, value, effect) if key and effect in EFFECTS else None
