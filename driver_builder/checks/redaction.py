"""Takes out of objects of the cluster what a report must not have, and what nobody reads. Pure.

What looks like a secret within a text is found by the redactor of build logs, which is an argument. Here is what needs
the shape of an object: values of variables, fields with the name of a secret, copies of whole manifests.
"""

import re
from collections.abc import Callable, Mapping
from typing import Any

from driver_builder.model.setting import ENVIRONMENT_PREFIX
from kube_api import names

Redact = Callable[[str], str]
Json = dict[str, Any]

HIDDEN = "***"
MAX_LINES = 200
"""Lines of one text in an object, such as a termination message."""

_SECRET = re.compile(r"(?i)(?:pass|pwd|secret|token|credential|auth|api_?key|private_?key)")
_REFERENCES = re.compile(r"\w*(?:[sS]ecretRef|[sS]ecretName)")
_PLAIN_VARIABLES = re.compile(
    rf"(?:{ENVIRONMENT_PREFIX}\w+|DOCKER_(?:HOST|TLS_VERIFY|CERT_PATH)|POD_NAMESPACE|(?:https?|no|all)_proxy)",
    re.IGNORECASE,
)
"""Variables whose values are settings; a password in the URL of one is found by the redactor."""
_DROPPED = frozenset({"managedFields", "kubectl.kubernetes.io/last-applied-configuration", "selfLink"})
_OURS = re.compile(rf"(?:[\w.-]+\.)?{re.escape(names.GROUP)}/.*")
_LABELS = re.compile(r"(?:[\w.-]+\.)?kubernetes\.io/.*")
"""Labels of features, and of kernel, architecture and host by the kubelet."""


def redacted(value: Any, redact: Redact, *, hides_variables: bool = True) -> Any:
    """Return a copy of plain data without secrets: every text redacted, and no value of a field named like a secret.

    Without ``hides_variables`` those that are in it may be there.
    """
    if isinstance(value, str):
        return _text(value, redact)
    if isinstance(value, list | tuple):
        return [redacted(item, redact, hides_variables=hides_variables) for item in value]
    if isinstance(value, Mapping):
        if hides_variables and isinstance(value.get("name"), str) and isinstance(value.get("value"), str):
            return {**value, "value": variable(value["name"], value["value"], redact)}
        return {
            _text(str(key), redact): _field(str(key), item, redact, hides_variables=hides_variables)
            for key, item in value.items()
            if key not in _DROPPED
        }
    return value


def variable(name: str, value: str, redact: Redact) -> str:
    """Return what a report says of a variable: the value of our settings alone."""
    is_setting = _PLAIN_VARIABLES.fullmatch(name) and not _SECRET.search(name)
    return _text(value, redact) if is_setting else HIDDEN


def arguments(words: list[str] | tuple[str, ...], redact: Redact) -> list[str]:
    """Return the arguments of a program, without what follows a flag named like a secret."""
    shown: list[str] = []
    for word in words:
        before = shown[-1] if shown else ""
        is_value = before.startswith("-") and "=" not in before and _SECRET.search(before) is not None
        flag, equals, _ = word.partition("=")
        has_value = word.startswith("-") and equals and _SECRET.search(flag) is not None
        shown.append(HIDDEN if is_value else f"{flag}={HIDDEN}" if has_value else _text(word, redact))
    return shown


def node(obj: Json) -> Json:
    """Reduce a Node to its labels and annotations that are ours or of features, its conditions and its taints."""
    metadata, spec, status = obj["metadata"], obj.get("spec") or {}, obj.get("status") or {}
    return {
        "name": metadata["name"],
        "labels": {
            key: text
            for key, text in (metadata.get("labels") or {}).items()
            if _OURS.fullmatch(key) or _LABELS.fullmatch(key)
        },
        "annotations": {
            key: text
            for key, text in (metadata.get("annotations") or {}).items()
            if names.GROUP in key.partition("/")[0]
        },
        "unschedulable": bool(spec.get("unschedulable")),
        "taints": spec.get("taints") or [],
        "conditions": status.get("conditions") or [],
        "nodeInfo": {
            key: text
            for key, text in (status.get("nodeInfo") or {}).items()
            if key in ("kernelVersion", "osImage", "architecture", "kubeletVersion", "containerRuntimeVersion")
        },
    }


def _field(key: str, value: Any, redact: Redact, *, hides_variables: bool) -> Any:
    if isinstance(value, str) and _SECRET.search(key) and not _REFERENCES.fullmatch(key):
        return HIDDEN
    if key in ("args", "command") and isinstance(value, list):
        return arguments([str(word) for word in value], redact)
    return redacted(value, redact, hides_variables=hides_variables)


def _text(text: str, redact: Redact) -> str:
    lines = text.splitlines()
    return "\n".join(redact(line) for line in lines[:MAX_LINES]) if lines else ""
