"""Which keys and values a Node may carry: the rules of Kubernetes, of Node Feature Discovery and of the admin. Pure.

Kubernetes keeps ``kubernetes.io`` and all below it for itself, but for ``feature.node.kubernetes.io`` and, for labels,
``profile.node.kubernetes.io``, and what is below these two. ``driverwright.io`` is ours: no rule and no feature file
may say that a driver is ready. Any other namespace is free, as far as ``denyLabelNs`` does not take labels out of it;
single keys in it are guarded.
"""

from collections.abc import Mapping
from typing import NamedTuple, TypeVar

from feature_rules.model import EFFECTS, Taint
from feature_rules.regexps import is_found
from kube_api.names import FEATURE_LABEL_PREFIX, GROUP, is_label_value, is_qualified_name
from kube_api.quantity import parse_quantity

PROFILE_LABEL_PREFIX = "profile.node.kubernetes.io"

LONGEST_ANNOTATION = 1024
"""Bytes; Kubernetes would take more, upstream does not."""

KUBERNETES = "kubernetes.io"

GUARDED = ("nvidia.com/device-plugin.config", "nvidia.com/mig.config")
"""Beginnings of label keys by which an admin chooses how a node's GPUs are shared and partitioned.

A rule that set one would decide what pods get; only ``extraLabelNs`` with the whole key allows it.
"""

_V = TypeVar("_V")


class NamespaceOptions(NamedTuple):
    """What the admin allows; the defaults are upstream's.

    ``deny_label_ns``: namespaces that may have no labels; ``*.x`` stands for all that end in ``.x``.
    ``extra_label_ns``: namespaces that may have labels in spite of that, and of Kubernetes' own claim; also whole keys
    that begin as one of :data:`GUARDED`.
    ``label_whitelist``: an RE2 expression, searched for in the name of every label; the empty one lets all pass.
    ``source_label_whitelist``: another, for labels of sources alone (with custom rules and feature files).
    ``auto_prefix``: whether a key without a namespace gets ``feature.node.kubernetes.io/``.
    """

    deny_label_ns: tuple[str, ...] = ()
    extra_label_ns: tuple[str, ...] = ()
    label_whitelist: str = ""
    source_label_whitelist: str = ""
    enable_taints: bool = False
    disable_labels: bool = False
    disable_annotations: bool = False
    disable_extended_resources: bool = False
    auto_prefix: bool = True


class Problem(NamedTuple):
    """Why something cannot be on a Node: one word for the metric, and a sentence for people."""

    reason: str
    message: str


_INVALID_KEY = Problem(
    "invalid-key",
    "the key is not a qualified name: [namespace/]name with at most 63 of A-Z a-z 0-9 - _ . in the name",
)
_UNPREFIXED = Problem("unprefixed", "the key has no namespace: write example.com/name")
_INVALID_VALUE = Problem(
    "invalid-value",
    "the value must be empty or at most 63 of A-Z a-z 0-9 - _ . with a letter or digit at both ends",
)
_OURS = Problem("ns-not-allowed", f"the namespace {GROUP} is reserved for driverwright; choose another")
_GUARDED = Problem(
    "guarded", "this key selects how GPUs are shared or partitioned; to allow it, add the whole key to extraLabelNs"
)


def check_label(key: str, value: str, options: NamespaceOptions) -> Problem | None:
    """Return why this cannot be a label; None when it can. The whitelists are not asked (:func:`is_whitelisted`)."""
    # The value counts in an extra namespace, too: the API server would refuse the whole Node for one bad value.
    problem = check_label_syntax(key, value)
    if problem is not None:
        return problem
    namespace, slash, _ = key.rpartition("/")
    if not slash and options.auto_prefix:
        return _UNPREFIXED
    if _is_within(namespace, GROUP):
        return _OURS
    if key.startswith(GUARDED):
        return None if key in options.extra_label_ns else _GUARDED
    return None if namespace in options.extra_label_ns else _check_label_namespace(namespace, options)


def check_label_syntax(key: str, value: str) -> Problem | None:
    """Return why Kubernetes would not take this as a label's key and value, without regard to namespaces."""
    if not is_qualified_name(key):
        return _INVALID_KEY
    return None if is_label_value(value) else _INVALID_VALUE


def check_annotation(key: str, value: str) -> Problem | None:
    """Return why this cannot be an annotation; None when it can."""
    if not is_qualified_name(key):
        return _INVALID_KEY
    if "/" not in key:
        return _UNPREFIXED
    problem = _check_namespace(key)
    if problem is not None:
        return problem
    try:
        length = len(value.encode())
    except UnicodeEncodeError:
        return Problem("invalid-value", "the value is not Unicode: it holds half of a surrogate pair")
    if length > LONGEST_ANNOTATION:
        return Problem("too-long", f"the value has {length} bytes; at most {LONGEST_ANNOTATION} are allowed")
    return None


def check_extended_resource(key: str, value: str) -> Problem | None:
    """Return why this cannot be an extended resource; None when it can.

    A key without a namespace passes, as upstream lets it when automatic prefixes are off.
    """
    if not is_qualified_name(key):
        return _INVALID_KEY
    problem = _check_namespace(key)
    if problem is not None:
        return problem
    quantity = parse_quantity(value)
    if quantity is None:
        return Problem("invalid-value", "the value is not a quantity such as 4, 10k or 2Gi")
    if quantity.nanos < 0:
        return Problem("invalid-value", "a resource cannot be negative")
    if not quantity.is_whole and "/" in key and f"{KUBERNETES}/" not in key:
        # The API server checks exactly this, and would refuse all other resources together with it.
        return Problem("invalid-value", "an extended resource must be a whole number")
    return None


def check_taint(taint: Taint) -> Problem | None:
    """Return why this cannot be a taint; None when it can."""
    if not is_qualified_name(taint.key):
        return _INVALID_KEY
    if "/" not in taint.key:
        return _UNPREFIXED
    problem = _check_namespace(taint.key)
    if problem is not None:
        return problem
    if taint.effect not in EFFECTS:
        return Problem("invalid-effect", f"the effect {taint.effect!r} is not one of {', '.join(EFFECTS)}")
    return None if is_label_value(taint.value) else _INVALID_VALUE


def is_whitelisted(key: str, whitelist: str) -> bool:
    """Return whether an allow-list lets a label pass; it sees the part after the namespace.

    Raises:
        MatchError: when the expression is not valid; whoever reads it from a configuration checks that there.
    """
    return not whitelist or is_found(whitelist, key.partition("/")[2] or key)


def add_prefixes(wanted: Mapping[str, _V]) -> dict[str, _V]:
    """Put ``feature.node.kubernetes.io/`` before keys without a namespace; a key that is there in full already wins."""
    prefixed = {f"{FEATURE_LABEL_PREFIX}/{key}": value for key, value in wanted.items() if "/" not in key}
    return prefixed | {key: value for key, value in wanted.items() if "/" in key}


def _check_label_namespace(namespace: str, options: NamespaceOptions) -> Problem | None:
    if _is_within(namespace, FEATURE_LABEL_PREFIX) or _is_within(namespace, PROFILE_LABEL_PREFIX):
        return None  # Upstream's documentation: these cannot be denied.
    if _is_within(namespace, KUBERNETES):
        return _of_kubernetes(namespace)
    for denied in options.deny_label_ns:
        if namespace.endswith(denied.lstrip("*")) if denied.startswith("*") else namespace == denied:
            return Problem("denied-ns", f"denyLabelNs forbids {denied}; extraLabelNs could allow {namespace}")
    return None


def _check_namespace(key: str) -> Problem | None:
    namespace, slash, _ = key.partition("/")
    if _is_within(namespace, GROUP):
        return _OURS
    if not slash or not _is_within(namespace, KUBERNETES) or _is_within(namespace, FEATURE_LABEL_PREFIX):
        return None
    return _of_kubernetes(namespace)


def _of_kubernetes(namespace: str) -> Problem:
    return Problem("ns-not-allowed", f"the namespace {namespace} belongs to Kubernetes")


def _is_within(namespace: str, parent: str) -> bool:
    return namespace == parent or namespace.endswith(f".{parent}")
