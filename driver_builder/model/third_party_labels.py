"""Which labels third parties may set on Nodes, through NodeFeature objects. Pure.

The namespaces are those of the worker's labels (:mod:`feature_rules.keys.namespaces`), without ``k8s.io``. What the
controller groups nodes into targets by is the worker's alone: with it, a node could be made one of another kernel.
"""

from functools import lru_cache

from feature_rules.keys.namespaces import NamespaceOptions, Problem, check_label
from kube_api import names

FIELD_MANAGER = "driver-builder-node-features"
"""Who owns these labels in server-side apply; never changes, or the old owner's labels would stay for ever."""

OPTIONS = NamespaceOptions(deny_label_ns=("k8s.io", "*.k8s.io"))
"""Kubernetes reserves these as it does ``kubernetes.io``; upstream does not."""
OF_TARGETS = (names.KERNEL_VERSION_LABEL, names.OS_ID_LABEL, names.OS_VERSION_LABEL)
"""Labels that say which kernel and operating system a node runs."""

_RESERVED = Problem("reserved", "which kernel and operating system a node runs is set by nfd-worker alone")
_OF_KUBERNETES = Problem("ns-not-allowed", "the namespace k8s.io, with all below it, belongs to Kubernetes")
_GUARDED = Problem(
    "guarded", "how GPUs are shared or partitioned is selected by an administrator, not by a NodeFeature"
)
_DYNAMIC = Problem("invalid-value", "the value refers to spec.features, which is not read: write the value itself")
_HERE = {"denied-ns": _OF_KUBERNETES, "guarded": _GUARDED}
"""What is said here in place of a message that names settings of nfd-worker."""


def check(key: str, value: str) -> Problem | None:
    """Return why a third party may not set this label, whose key has a namespace; None when it may."""
    if key in OF_TARGETS:
        return _RESERVED
    problem = check_label(key, value, OPTIONS)
    if problem is not None and problem.reason in _HERE:
        return _HERE[problem.reason]
    is_dynamic = problem is not None and problem.reason == _DYNAMIC.reason and value.startswith("@")
    return _DYNAMIC if is_dynamic else problem


@lru_cache(maxsize=4096)
def is_free(key: str) -> bool:
    """Return whether a third party may set a label with this key."""
    return check(key, "") is None
