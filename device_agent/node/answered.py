"""What the agent writes to its Node about its profile: a patch of two keys, and an Event on failure. Pure."""

import json
from collections.abc import Iterable
from typing import Any

from device_agent.node.asked import SeenNode, parse_failure
from device_agent.profiles.verdict import Verdict
from kube_api.names import GPU_PROFILE_ANNOTATION, GPU_PROFILE_STATE_LABEL
from kube_api.text import MAX_TOKEN, bounded_message, printable

Json = dict[str, Any]

REASON = "GPUProfileFailed"
MAX_RESOURCES = 100
_MAX_RESOURCE = 317
"""Characters of a qualified name: 253 before the slash, 63 behind it."""


def bounded(verdict: Verdict) -> Verdict:
    """Make all of a verdict printable and bounded; twice is the same as once."""
    return Verdict(
        asked=printable(verdict.asked, MAX_TOKEN),
        applied=printable(verdict.applied, MAX_TOKEN),
        message=bounded_message(verdict.message),
        resources=_names(verdict.resources),
        has_failed=verdict.has_failed,
    )


def answer_patch(verdict: Verdict, seen: SeenNode) -> Json | None:
    """Make the merge patch of a Node with this answer; None if the Node already says so."""
    verdict = bounded(verdict)
    text = _annotation(verdict)
    if (seen.state, seen.answer) == (verdict.state, text):
        return None
    labels, annotations = {GPU_PROFILE_STATE_LABEL: verdict.state}, {GPU_PROFILE_ANNOTATION: text}
    return {"metadata": {"labels": labels, "annotations": annotations}}


def failure(verdict: Verdict) -> tuple[str, str] | None:
    """Return what an Event is about: what is asked, and the message; None for a success."""
    verdict = bounded(verdict)
    return (verdict.asked, verdict.message) if verdict.has_failed else None


def is_news(verdict: Verdict, seen: SeenNode) -> bool:
    """Return whether this is a failure that the Node does not show yet, as it was before the answer."""
    found = failure(verdict)
    return found is not None and found != parse_failure(seen)


def words_of(verdict: Verdict) -> str:
    """Say what failed, for an Event with :data:`REASON`."""
    verdict = bounded(verdict)
    return f"profile {verdict.asked or 'default'}: {verdict.message}"


def _names(names: Iterable[str]) -> tuple[str, ...]:
    return tuple(sorted({printable(name, _MAX_RESOURCE) for name in names} - {""})[:MAX_RESOURCES])


def _annotation(verdict: Verdict) -> str:
    answer = {
        "asked": verdict.asked,
        "applied": verdict.applied,
        "message": verdict.message,
        "resources": verdict.resources,
    }
    return json.dumps(answer, separators=(",", ":"))
