"""What the controller writes to Nodes, for an admission policy. Pure.

Labels that say which driver is proven and which stages follow, which image a node gets in a wave and which kernel it
may boot, and annotations that say in which boot it was proven, what is loaded, how validations ended, and who works
there. While a driver is replaced: our taint, and labels that keep the DaemonSets of others away. Everything else in
``spec``, and ``status``, is never written.
"""

from driver_builder.api.rollout_settings import PAUSE_LABEL
from driver_builder.objects import loaded, validated
from driver_builder.objects.stage_labels import Stage
from driver_builder.upgrades import upgrade_labels
from kube_api.names import DRAINING_ANNOTATION, GROUP, LOCK_ANNOTATION, UPGRADING_TAINT
from kube_api.node_policy import Keys, NodeRights, literal, matches

PROGRAM = "driver-builder"

_READY = f"{literal(GROUP)}/[^/]+[.]ready$"
_WAVE = f"{literal(GROUP)}/[^/]+[.]wave$"
_READY_FOR = f"{literal(upgrade_labels.PREFIX)}[^/]+$"
_STAGES = f"{literal(GROUP)}/[^/]+[.]({'|'.join(Stage)})$"
_STAGE_RECORDS = f"{literal(GROUP)}/[^/]+[.]({Stage.RUN}|{Stage.PLGOK})$"
_LOADED = f"{literal(loaded.PREFIX)}[^/]+$"
_VALIDATED = f"{literal(validated.PREFIX)}[^/]+$"
_LOCK = f"{literal(LOCK_ANNOTATION)}$"
_DRAINING = f"{literal(DRAINING_ANNOTATION)}$"
_PAUSE = f"{PAUSE_LABEL}$"


def node_rights() -> NodeRights:
    """Return what the controller may change of any Node."""
    labels = matches(_READY, _WAVE, _STAGES, _READY_FOR, _PAUSE)
    annotations = matches(_READY, _STAGE_RECORDS, _LOADED, _VALIDATED, _LOCK, _DRAINING)
    taints = matches(f"{literal(UPGRADING_TAINT)}$")
    return NodeRights(
        program=PROGRAM,
        labels=Keys(labels, labels),
        annotations=Keys(annotations, annotations),
        taints=Keys(taints, taints),
    )
