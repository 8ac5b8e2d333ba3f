"""What the controller writes to Nodes, for an admission policy: its keys in the table, and those of others. Pure.

Others' are third parties' labels, where these are honoured, and the labels by which operators deploy. Everything else
in ``spec``, and ``status``, is never written.
"""

from textwrap import indent

from driver_builder.api.spec_rules import PAUSE_LABEL
from driver_builder.model import third_party_labels
from driver_builder.objects.node_keys import NODE_KEYS, Kind, Writer
from feature_rules.keys.label_policy import keys_of_namespaces, label_keys
from kube_api.node_policy import Keys, NodeRights, any_of, matches, text_list

PROGRAM = Writer.BUILDER.value


def _of_third_parties(keys: str) -> str:
    return f"!(k in {text_list(third_party_labels.OF_TARGETS)})\n&& (\n{indent(keys, '  ')}\n)"


_THIRD_PARTIES = Keys(
    change=_of_third_parties(label_keys(third_party_labels.OPTIONS)),
    remove=_of_third_parties(keys_of_namespaces(third_party_labels.OPTIONS)),
)


def node_rights(*, third_parties: bool) -> NodeRights:
    """Return what the controller may change of any Node; ``third_parties`` says whether it sets their labels."""
    own = matches(*_written(Kind.LABEL), f"{PAUSE_LABEL}$")
    labels = Keys(own, own)
    if third_parties:
        labels = Keys(any_of(own, _THIRD_PARTIES.change), any_of(own, _THIRD_PARTIES.remove))
    annotations, taints = _written(Kind.ANNOTATION), matches(*_written(Kind.TAINT))
    return NodeRights(
        program=PROGRAM,
        labels=labels,
        # A request that a device agent has left goes with the lock that it left.
        annotations=Keys(matches(*annotations), matches(*annotations, *_removed(Kind.ANNOTATION))),
        taints=Keys(taints, taints),
    )


def _written(kind: Kind) -> tuple[str, ...]:
    return tuple(row.pattern for row in NODE_KEYS if row.kind is kind and Writer.BUILDER in row.writers)


def _removed(kind: Kind) -> tuple[str, ...]:
    return tuple(row.pattern for row in NODE_KEYS if row.kind is kind and Writer.BUILDER in row.removers)
