"""What the controller writes to Nodes, for an admission policy. Pure.

Labels that say which driver is proven and which stages follow, which image a node gets in a wave and which kernel it
may boot, and annotations that say in which boot it was proven, what is loaded, how validations ended, and who works
there. While a driver is replaced or not proven yet: our taints. While it is replaced: labels that keep the DaemonSets
of others away, and those of drivers that depend on it. On nodes outside its selector: the label that keeps its own pods
away. Everything else in ``spec``, and ``status``, is never written.
"""

from driver_builder.api.rollout_settings import PAUSE_LABEL
from driver_builder.objects import loaded, validated
from driver_builder.objects.stage_labels import Stage
from driver_builder.upgrades import upgrade_labels
from kube_api.names import (
    DRAINING_ANNOTATION,
    GROUP,
    LOCK_ANNOTATION,
    PENDING_PREFIX,
    UPGRADING_TAINT,
    YIELDING_ANNOTATION,
)
from kube_api.node_policy import Keys, NodeRights, literal, matches

PROGRAM = "driver-builder"

_READY = f"{literal(GROUP)}/[^/]+[.]ready$"
_WAVE = f"{literal(GROUP)}/[^/]+[.]wave$"
_YIELD = f"{literal(GROUP)}/[^/]+[.]yield$"
_READY_FOR = f"{literal(upgrade_labels.PREFIX)}[^/]+$"
_STAGES = f"{literal(GROUP)}/[^/]+[.]({'|'.join(Stage)})$"
_STAGE_RECORDS = f"{literal(GROUP)}/[^/]+[.]({Stage.RUN}|{Stage.PLUG}|{Stage.PLGOK})$"
_LOADED = f"{literal(loaded.PREFIX)}[^/]+$"
_VALIDATED = f"{literal(validated.PREFIX)}[^/]+$"
_LOCK = f"{literal(LOCK_ANNOTATION)}$"
_DRAINING = f"{literal(DRAINING_ANNOTATION)}$"
_YIELDING = f"{literal(YIELDING_ANNOTATION)}$"
_PENDING = f"{literal(PENDING_PREFIX)}[^/]+$"
_PENDING_TAINT = f"{literal(GROUP)}/[^/.]+[.][^/]+$"
_PAUSE = f"{PAUSE_LABEL}$"


def node_rights() -> NodeRights:
    """Return what the controller may change of any Node."""
    labels = matches(_READY, _WAVE, _YIELD, _STAGES, _READY_FOR, _PAUSE)
    annotations = matches(_READY, _STAGE_RECORDS, _LOADED, _VALIDATED, _LOCK, _DRAINING, _YIELDING, _PENDING)
    taints = matches(f"{literal(UPGRADING_TAINT)}$", _PENDING_TAINT)
    return NodeRights(
        program=PROGRAM,
        labels=Keys(labels, labels),
        annotations=Keys(annotations, annotations),
        taints=Keys(taints, taints),
    )
