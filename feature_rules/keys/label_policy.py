"""Which keys may be labels of a Node, in CEL for an admission policy: what ``namespaces`` decides. Pure.

A key that a program writes and its policy does not allow would refuse all labels of the request, so property tests
compare both: ``tests/unit/nfd_worker/publish/test_node_rights.py``, and that of the controller's rights.
"""

from collections.abc import Iterable
from textwrap import indent

from feature_rules.keys.namespaces import GUARDED, KUBERNETES, PROFILE_LABEL_PREFIX, NamespaceOptions, check_label
from kube_api.names import FEATURE_LABEL_PREFIX, GROUP, is_qualified_name
from kube_api.node_policy import any_of, in_namespaces, literal, matches, text_list, within

HAS_NAMESPACE = "k.contains('/')"
RESERVED = (within(KUBERNETES), within(GROUP))
"""Namespaces in which nobody sets a key but by an exception."""


def label_keys(options: NamespaceOptions) -> str:
    """Write what :func:`feature_rules.keys.namespaces.check_label` decides on a key, as a condition on ``k``."""
    is_guarded = matches(*map(literal, GUARDED))
    others = f"!{is_guarded}\n&& (\n{indent(keys_of_namespaces(options), '  ')}\n)"
    allowed = [key for key in options.extra_label_ns if key.startswith(GUARDED) and is_qualified_name(key)]
    return any_of(f"k in {text_list(allowed)}", others) if allowed else others


def keys_of_namespaces(options: NamespaceOptions) -> str:
    """Write the same without regard to guarded keys: releases without them may have set one, which has to go."""
    extra = (literal(name) for name in options.extra_label_ns if _is_namespace(name) and not _is_ours(name))
    always = in_namespaces(within(FEATURE_LABEL_PREFIX), within(PROFILE_LABEL_PREFIX), *extra)
    free = f"!{in_namespaces(*RESERVED, *_denied(options.deny_label_ns))}"
    takes_bare_names = check_label("name", "", options) is None
    return any_of(always, free if takes_bare_names else f"{HAS_NAMESPACE} && {free}")


def _denied(names: Iterable[str]) -> Iterable[str]:
    """Make expressions of RE2 of denyLabelNs; an entry that no valid key can match is left out."""
    for name in names:
        suffix = name.lstrip("*") if name.startswith("*") else name
        if name.startswith("*") and _is_namespace(suffix or "a"):
            yield f"[^/]*{literal(suffix)}"
        elif _is_namespace(name):
            yield literal(name)


def _is_namespace(text: str) -> bool:
    """Return whether a text has only characters that the namespace of a valid key can have."""
    return bool(text) and all(letter.isascii() and (letter.isalnum() or letter in ".-") for letter in text)


def _is_ours(namespace: str) -> bool:
    return namespace == GROUP or namespace.endswith(f".{GROUP}")
