"""From what the sources want to label to one valid, sorted mapping of node labels. Pure.

Naming follows Node Feature Discovery: a name without ``/`` becomes ``feature.node.kubernetes.io/<source>-<name>``; one
with ``/`` stays as it is. What Kubernetes or the operator's allow-list refuses is left out and named in a warning.
"""

import re
from collections.abc import Mapping
from typing import NamedTuple

from kube_api.names import FEATURE_LABEL_PREFIX, is_label_value, is_qualified_name

PROFILE_LABEL_PREFIX = "profile.node.kubernetes.io"

_OWN_NAMESPACES = (FEATURE_LABEL_PREFIX, PROFILE_LABEL_PREFIX)


class LabelWarning(NamedTuple):
    """A label that was left out, and why."""

    source: str
    key: str
    value: str
    reason: str

    def __str__(self) -> str:
        return f"{self.source}: label {self.key}={self.value} left out: {self.reason}"


class LabelSet(NamedTuple):
    """Labels sorted by key, and those that could not become one."""

    labels: Mapping[str, str]
    warnings: tuple[LabelWarning, ...]


def source_prefix(source: str) -> str:
    """Give the beginning that all label keys of a source have."""
    return f"{FEATURE_LABEL_PREFIX}/{source}-"


def label_key(source: str, name: str) -> str:
    """Make the full key of a source's label."""
    return name if "/" in name else source_prefix(source) + name


def make_labels(by_source: Mapping[str, Mapping[str, str]], whitelist: re.Pattern[str]) -> LabelSet:
    """Name, check and sort the labels of all sources; a later source overwrites an earlier one.

    ``whitelist`` is searched for, unanchored, in the part of each key after its namespace; a label that it does not
    allow is left out without a warning, since that is its purpose.
    """
    labels: dict[str, str] = {}
    warnings: list[LabelWarning] = []
    for source, wanted in by_source.items():
        for name, value in wanted.items():
            key = label_key(source, name)
            reason = refusal(key, value)
            if reason is not None:
                warnings.append(LabelWarning(source, key, value, reason))
            elif whitelist.search(key.partition("/")[2]):
                labels[key] = value
    return LabelSet(dict(sorted(labels.items())), tuple(sorted(warnings)))


def refusal(key: str, value: str) -> str | None:
    """Say why this cannot be a node label; None when it can."""
    namespace, slash, _ = key.partition("/")
    if not is_qualified_name(key):
        return "the key is not a qualified name: [namespace/]name with at most 63 of A-Z a-z 0-9 - _ . in the name"
    if not slash:
        return "the key has no namespace"
    if not _is_allowed(namespace):
        return f"the namespace {namespace} belongs to Kubernetes"
    if not is_label_value(value):
        return "the value is not a label value: at most 63 of A-Z a-z 0-9 - _ . with a letter or digit at both ends"
    return None


def _is_allowed(namespace: str) -> bool:
    if any(namespace == own or namespace.endswith(f".{own}") for own in _OWN_NAMESPACES):
        return True
    return not (namespace == "kubernetes.io" or namespace.endswith(".kubernetes.io"))
