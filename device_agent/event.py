"""What the agent writes as an Event. Pure."""

from typing import Any

Json = dict[str, Any]

NODES_NAMESPACE = "default"
"""Where the API server wants Events about objects that have no namespace."""

_PROGRAM = "device-agent"
_LONGEST_NAME = 253


def warning(about: Json, namespace: str, reason: str, message: str, *, node: str, at: str, suffix: str) -> Json:
    """Make the Event of something that goes wrong.

    Args:
        about: kind, name and uid of the object that it is about, and its namespace if it has one.
        namespace: the Event's own.
        reason: one word, in CamelCase.
        message: a sentence for people, printable and bounded.
        node: the Node's name.
        at: the time, as RFC 3339 writes it.
        suffix: lower-case letters and digits, at most 20, that no other Event of this object has.
    """
    name = about["name"][: _LONGEST_NAME - 1 - len(suffix)].rstrip(".-")
    return {
        "apiVersion": "v1",
        "kind": "Event",
        "metadata": {"name": f"{name}.{suffix}", "namespace": namespace},
        "involvedObject": {"apiVersion": "v1", **about},
        "type": "Warning",
        "reason": reason,
        "message": message,
        "source": {"component": _PROGRAM, "host": node},
        "reportingComponent": _PROGRAM,
        "firstTimestamp": at,
        "lastTimestamp": at,
        "count": 1,
    }
