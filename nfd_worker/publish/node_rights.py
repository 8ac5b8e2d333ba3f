"""What the worker may change of a Node, for an admission policy. Pure; from the same settings as what it publishes.

:mod:`feature_rules.keys.namespaces` decides which keys may be on a Node, and this module says the same in CEL. A key
that the worker accepts and the policy does not would refuse all of the Node's labels, so a property test compares both
(``tests/unit/nfd_worker/publish/test_node_rights.py``).
"""

from feature_rules.keys.label_policy import HAS_NAMESPACE, RESERVED, keys_of_namespaces, label_keys
from feature_rules.keys.namespaces import NamespaceOptions
from kube_api.names import BOOT_ID_ANNOTATION, FEATURE_LABEL_PREFIX, KERNEL_VERSION_ANNOTATION
from kube_api.node_policy import NEVER, Keys, NodeRights, any_of, in_namespaces, text_list, text_literal, within
from nfd_worker.publish.ownership import ORIGINS_ANNOTATION
from nfd_worker.publish.take_over import BOOKKEEPING
from nfd_worker.publish.tracking import EXTENDED_RESOURCES, TAINTS, UPSTREAM

PROGRAM = "nfd-worker"

_OWN_ANNOTATIONS = (
    BOOT_ID_ANNOTATION, KERNEL_VERSION_ANNOTATION, ORIGINS_ANNOTATION, *EXTENDED_RESOURCES, *TAINTS,
)  # fmt: skip

_NAME = "k.substring(k.indexOf('/') + 1)"
_IS_FEATURE = in_namespaces(within(FEATURE_LABEL_PREFIX))
_IS_FREE = f"!{in_namespaces(*RESERVED)}"
_BY_RULE = any_of(_IS_FEATURE, f"{HAS_NAMESPACE} && {_IS_FREE}")
_OWN = f"k in {text_list(_OWN_ANNOTATIONS)}"
_BOOKKEEPING = f"{in_namespaces(within(UPSTREAM))} && {_NAME} in {text_list(BOOKKEEPING)}"


def node_rights(options: NamespaceOptions) -> NodeRights:
    """Return what a worker with these settings may change of its Node.

    Whatever they are, it may remove what others of them allowed to set, and what upstream leaves behind.
    """
    resources = _BY_RULE if options.auto_prefix else any_of(_IS_FEATURE, _IS_FREE)
    return NodeRights(
        program=PROGRAM,
        own_node=True,
        labels=_label_keys(options),
        annotations=Keys(
            change=_OWN if options.disable_annotations else any_of(_OWN, _BY_RULE),
            remove=any_of(_OWN, _BOOKKEEPING, _BY_RULE),
        ),
        taints=Keys(change=_BY_RULE if options.enable_taints else NEVER, remove=_BY_RULE),
        resources=Keys(change=NEVER if options.disable_extended_resources else resources, remove=resources),
    )


def _label_keys(options: NamespaceOptions) -> Keys:
    remove = keys_of_namespaces(options._replace(deny_label_ns=()))
    if options.disable_labels:
        return Keys(NEVER, remove)
    change = label_keys(options)
    if options.label_whitelist:
        change = f"{_NAME}.matches({text_literal(options.label_whitelist)})\n&& ({change})"
    return Keys(change, remove)
