"""What the controller writes to Nodes, for an admission policy. Pure.

Labels that say which driver is proven and which stages follow, which image a node gets in a wave and which kernel it
may boot; third parties' labels, where these are honoured; and annotations that say in which boot it was proven, what is
loaded, how validations ended, who works there, and what became of a drain that a device agent asked for. While a driver
is replaced or not proven yet: our taints. While it is replaced: labels that keep the DaemonSets of others away, and
those of drivers that depend on it. On nodes outside its selector: the label that keeps its own pods away. Everything
else in ``spec``, and ``status``, is never written.
"""

from textwrap import indent

from driver_builder.api.spec_rules import PAUSE_LABEL
from driver_builder.model import third_party_labels
from driver_builder.objects import loaded, validated
from driver_builder.objects.stage_labels import Stage
from driver_builder.prebuild import upgrade_labels
from feature_rules.keys.label_policy import keys_of_namespaces, label_keys
from kube_api.names import (
    DRAIN_REQUEST_ANNOTATION,
    DRAIN_STATE_ANNOTATION,
    DRAINING_ANNOTATION,
    GROUP,
    LOCK_ANNOTATION,
    PENDING_PREFIX,
    UPGRADING_TAINT,
    YIELDING_ANNOTATION,
)
from kube_api.node_policy import Keys, NodeRights, any_of, literal, matches, text_list

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
_DRAIN_STATE = f"{literal(DRAIN_STATE_ANNOTATION)}$"
_DRAIN_REQUEST = f"{literal(DRAIN_REQUEST_ANNOTATION)}$"
_YIELDING = f"{literal(YIELDING_ANNOTATION)}$"
_PENDING = f"{literal(PENDING_PREFIX)}[^/]+$"
_PENDING_TAINT = f"{literal(GROUP)}/[^/.]+[.][^/]+$"
_PAUSE = f"{PAUSE_LABEL}$"


def _of_third_parties(keys: str) -> str:
    return f"!(k in {text_list(third_party_labels.OF_TARGETS)})\n&& (\n{indent(keys, '  ')}\n)"


_THIRD_PARTIES = Keys(
    change=_of_third_parties(label_keys(third_party_labels.OPTIONS)),
    remove=_of_third_parties(keys_of_namespaces(third_party_labels.OPTIONS)),
)


def node_rights(*, third_parties: bool) -> NodeRights:
    """Return what the controller may change of any Node; ``third_parties`` says whether it sets their labels."""
    own = matches(_READY, _WAVE, _YIELD, _STAGES, _READY_FOR, _PAUSE)
    labels = Keys(own, own)
    if third_parties:
        labels = Keys(any_of(own, _THIRD_PARTIES.change), any_of(own, _THIRD_PARTIES.remove))
    own_annotations = (_READY, _STAGE_RECORDS, _LOADED, _VALIDATED, _LOCK, _DRAINING, _DRAIN_STATE, _YIELDING, _PENDING)
    annotations = matches(*own_annotations)
    taints = matches(f"{literal(UPGRADING_TAINT)}$", _PENDING_TAINT)
    return NodeRights(
        program=PROGRAM,
        labels=labels,
        # A request that a device agent has left goes with the lock that it left.
        annotations=Keys(annotations, matches(*own_annotations, _DRAIN_REQUEST)),
        taints=Keys(taints, taints),
    )
