"""What the controller writes to Nodes, for an admission policy. Pure.

Labels that say which driver is proven, which image a node gets in a wave and which kernel it may boot, and annotations
that say in which boot it was proven, what is loaded, and how its validation ended. Taints, ``spec`` and ``status`` of a
Node are never written.
"""

from driver_builder.objects import loaded, validated
from driver_builder.upgrades import upgrade_labels
from kube_api.names import GROUP
from kube_api.node_policy import Keys, NodeRights, literal, matches

PROGRAM = "driver-builder"

_READY = f"{literal(GROUP)}/[^/]+[.]ready$"
_WAVE = f"{literal(GROUP)}/[^/]+[.]wave$"
_READY_FOR = f"{literal(upgrade_labels.PREFIX)}[^/]+$"
_LOADED = f"{literal(loaded.PREFIX)}[^/]+$"
_VALIDATED = f"{literal(validated.PREFIX)}[^/]+$"


def node_rights() -> NodeRights:
    """Return what the controller may change of any Node."""
    labels, annotations = matches(_READY, _WAVE, _READY_FOR), matches(_READY, _LOADED, _VALIDATED)
    return NodeRights(program=PROGRAM, labels=Keys(labels, labels), annotations=Keys(annotations, annotations))
