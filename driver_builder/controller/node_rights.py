"""What the controller writes to Nodes, for an admission policy. Pure.

Labels that say which driver is proven and which kernel a node may boot, and annotations that say in which boot it was
proven, what is loaded, and who works there. While a driver is replaced: our taint, and labels that keep the DaemonSets
of others away. Everything else in ``spec``, and ``status``, is never written.
"""

from driver_builder.api.rollout_settings import PAUSE_LABEL
from driver_builder.objects import loaded
from driver_builder.upgrades import upgrade_labels
from kube_api.names import DRAINING_ANNOTATION, GROUP, LOCK_ANNOTATION, UPGRADING_TAINT
from kube_api.node_policy import Keys, NodeRights, literal, matches

PROGRAM = "driver-builder"

_READY = f"{literal(GROUP)}/[^/]+[.]ready$"
_READY_FOR = f"{literal(upgrade_labels.PREFIX)}[^/]+$"
_LOADED = f"{literal(loaded.PREFIX)}[^/]+$"
_LOCK = f"{literal(LOCK_ANNOTATION)}$"
_DRAINING = f"{literal(DRAINING_ANNOTATION)}$"
_PAUSE = f"{PAUSE_LABEL}$"


def node_rights() -> NodeRights:
    """Return what the controller may change of any Node."""
    labels, annotations = matches(_READY, _READY_FOR, _PAUSE), matches(_READY, _LOADED, _LOCK, _DRAINING)
    taints = matches(f"{literal(UPGRADING_TAINT)}$")
    return NodeRights(
        program=PROGRAM,
        labels=Keys(labels, labels),
        annotations=Keys(annotations, annotations),
        taints=Keys(taints, taints),
    )
