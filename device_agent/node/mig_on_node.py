"""What a Node says about MIG, and the patch that changes it. Pure; nothing in a Node makes this fail."""

import json
from collections.abc import Mapping
from typing import Any

from device_agent.mig.values import NodeMig, NodeWrite
from device_agent.node.asked import MAX_ANSWER, mapping, text_of
from kube_api.names import (
    DRAIN_REQUEST_ANNOTATION,
    DRAIN_STATE_ANNOTATION,
    GPU_DEPLOY_PREFIX,
    LOCK_ANNOTATION,
    MIG_ANNOTATION,
    MIG_CONFIG_LABEL,
    MIG_STATE_LABEL,
    REBOOT_REQUIRED_LABEL,
)
from kube_api.text import bounded_message, bounded_token

Json = dict[str, Any]

REASON = "MIGChangeFailed"
MAX_DEPLOY = 64
"""Labels of NVIDIA's GPU Operator that are looked at; it has a dozen."""


def parse_mig(node: Mapping[str, Any]) -> NodeMig:
    """Read a Node, or its metadata alone."""
    metadata = mapping(node.get("metadata"))
    labels, annotations = mapping(metadata.get("labels")), mapping(metadata.get("annotations"))
    return NodeMig(
        asked=_label(labels, MIG_CONFIG_LABEL),
        state=_label(labels, MIG_STATE_LABEL),
        record=_annotation(annotations, MIG_ANNOTATION),
        lock=_annotation(annotations, LOCK_ANNOTATION),
        drain_request=_annotation(annotations, DRAIN_REQUEST_ANNOTATION),
        drain_state=_annotation(annotations, DRAIN_STATE_ANNOTATION),
        reboot_required=_label(labels, REBOOT_REQUIRED_LABEL),
        deploy=_deploy(labels),
        resource_version=bounded_token(text_of(metadata.get("resourceVersion")) or ""),
        uid=bounded_token(text_of(metadata.get("uid")) or ""),
    )


def mig_patch(write: NodeWrite) -> Json:
    """Make the merge patch; the server refuses it where the Node is another one by now."""
    changed = {"labels": write.labels, "annotations": write.annotations}
    fields = {name: dict(values) for name, values in changed.items() if values}
    return {"metadata": {"resourceVersion": write.resource_version, **fields}}


def event_of(write: NodeWrite, before: NodeMig | None) -> str | None:
    """Return the message of an Event, bounded; None without one, or where the Node showed the same before."""
    if write.event is None:
        return None
    message = bounded_message(write.event)
    shown = _message(before.record) if before is not None and before.record else None
    return None if shown is not None and message in (shown, bounded_message(shown)) else message


def _message(record: str) -> str | None:
    try:
        return text_of(mapping(json.loads(record)).get("message"))
    except (ValueError, RecursionError):
        return None


def _deploy(labels: Mapping[str, Any]) -> dict[str, str]:
    keys = sorted(key for key in labels if key.startswith(GPU_DEPLOY_PREFIX))[:MAX_DEPLOY]
    return {key: value for key in keys if (value := _label(labels, key)) is not None}


def _label(labels: Mapping[str, Any], key: str) -> str | None:
    value = text_of(labels.get(key))
    return None if value is None else bounded_token(value)


def _annotation(annotations: Mapping[str, Any], key: str) -> str | None:
    value = text_of(annotations.get(key))
    # JSON may have halves of characters, which nothing could write again.
    return None if value is None else value[:MAX_ANSWER].encode(errors="replace").decode()
