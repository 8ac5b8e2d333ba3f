"""Which labels third parties' NodeFeature objects give a node, and which are refused. Pure.

The first that wants a label has it: namespaces in the order of the allow-list, in a namespace objects by their names. A
label that another field manager owns is that one's, unless both want the same value: nfd-worker's labels win, and so do
those of people and kubelets. This is what the API server decides on an apply without force, known beforehand. What is
owned together with another manager stays owned, with that one's value, also while an object wants another.

A namespace that could not be read removes and changes nothing: what is ours on the node stays as it is.
"""

from collections.abc import Iterable, Iterator, Mapping, Sequence
from dataclasses import dataclass, field
from types import MappingProxyType

from driver_builder.model import third_party_labels
from driver_builder.model.third_party_labels import FIELD_MANAGER
from driver_builder.node_features.node_feature import MOST_LABELS, NodeFeature
from driver_builder.snapshot.inventory import Node
from feature_rules.keys.namespaces import add_prefixes
from kube_api.text import quoted

MOST_LABELS_OF_A_NODE = 1000
"""Of third parties; whoever reads Nodes reads all of them."""

MOST_OBJECTS_OF_A_NODE = 20
"""Upstream's worker makes one, each further program another."""

_LONGEST_QUOTE = 80
_NONE: Mapping[str, str] = MappingProxyType({})
_TOO_MANY = f"all its labels: a node may have {MOST_OBJECTS_OF_A_NODE} objects, and so many come first"

View = Sequence[NodeFeature] | None
"""The objects of a namespace for one node; None while it is not known which there are."""


@dataclass(frozen=True, slots=True, kw_only=True)
class Refusal:
    """A label of an object that the node does not get, and why; without a key, of many."""

    feature: NodeFeature
    key: str = ""
    value: str = ""
    message: str

    def __str__(self) -> str:
        """Quote the label, cut and printable, and say why."""
        label = f"{quoted(self.key, _LONGEST_QUOTE)}={quoted(self.value, _LONGEST_QUOTE)}: " if self.key else ""
        return f"{label}{self.message}"


@dataclass(frozen=True, slots=True, kw_only=True)
class Decision:
    """What is applied to a node, sorted, and what is refused, object by object."""

    labels: Mapping[str, str] = field(default_factory=dict)
    refusals: tuple[Refusal, ...] = ()


def applied(node: Node) -> dict[str, str]:
    """Return the labels of third parties that were applied to a node, and still are as they were applied."""
    keys = (owner.keys for owner in node.label_owners if owner.manager == FIELD_MANAGER)
    return {key: node.labels[key] for key in next(keys, ()) if key in node.labels}


def decide(node: Node, views: Iterable[View], taken: Mapping[str, str] = _NONE) -> Decision:
    """Decide on all labels of a node.

    ``views`` are those of the allowed namespaces, in their order. ``taken``: labels of which the API server has just
    said that somebody else owns them, and who.
    """
    labels: dict[str, str] = {}
    owners: dict[str, NodeFeature | None] = {}
    refusals: list[Refusal] = []
    held, others = applied(node), _other_owners(node)
    objects = 0
    for view in views:
        if view is None:
            for key, value in held.items():
                if key not in labels:
                    labels[key], owners[key] = value, None
            continue
        for feature in sorted(view, key=lambda item: item.name):
            objects += 1
            if objects > MOST_OBJECTS_OF_A_NODE:
                refusals.append(Refusal(feature=feature, message=_TOO_MANY))
                continue
            for key, value in _named(feature):
                forbidden = _forbidden(key, value)
                theirs = "" if forbidden else _of_others(node.labels.get(key), key, value, others, taken)
                problem = forbidden or theirs or _claimed(labels, owners, key, value)
                if problem:
                    refusals.append(Refusal(feature=feature, key=key, value=value, message=problem))
                elif key not in labels:
                    labels[key], owners[key] = value, feature
                is_shared = theirs and key in held and key not in taken
                if is_shared and key not in labels and len(labels) < MOST_LABELS_OF_A_NODE:
                    # The other one's value stands, and stays when that one lets it go: then ours can be set.
                    labels[key], owners[key] = held[key], None
            if feature.omitted:
                message = f"an object may have {MOST_LABELS} labels, and this one has {feature.omitted} more"
                refusals.append(Refusal(feature=feature, message=message))
    return Decision(labels=dict(sorted(labels.items())), refusals=tuple(refusals))


def _named(feature: NodeFeature) -> Iterator[tuple[str, str]]:
    yield from sorted(add_prefixes(feature.labels).items())


def _forbidden(key: str, value: str) -> str:
    """Say why nobody's object may give any node this label; empty if it may."""
    found = third_party_labels.check(key, value)
    return "" if found is None else found.message


def _of_others(now: str | None, key: str, value: str, others: Mapping[str, str], taken: Mapping[str, str]) -> str:
    """Say who else owns this label of a node, with another value; empty if nobody does. ``now`` is its value there."""
    other = taken.get(key) or others.get(key, "")
    is_theirs = key in taken or (other and now != value)
    # Without their value, which may change often: each other message is another Event.
    return f"field manager {other!r} has set another value" if is_theirs else ""


def _other_owners(node: Node) -> dict[str, str]:
    """Return who else owns labels of a node; of several, the first by name."""
    owners = (owner for owner in reversed(node.label_owners) if owner.manager != FIELD_MANAGER)
    return {key: owner.manager for owner in owners for key in owner.keys}


def _claimed(labels: Mapping[str, str], owners: Mapping[str, NodeFeature | None], key: str, value: str) -> str:
    """Say who comes before and wants another value; empty where nobody does, or it is not known who."""
    if key not in labels:
        full = len(labels) >= MOST_LABELS_OF_A_NODE
        return f"the node has {MOST_LABELS_OF_A_NODE} labels of NodeFeature objects already" if full else ""
    first = owners[key]
    return f"NodeFeature {first} comes first, and sets it to {labels[key]!r}" if first and labels[key] != value else ""
