"""What the status of a pod says of its containers, in the kubelet's own words. Pure."""

from collections.abc import Iterable
from typing import Any

from kube_api.timestamps import parse_timestamp

Json = dict[str, Any]


def container_of(statuses: Iterable[Json] | None, name: str) -> Json:
    """Return the status of a container, empty without one."""
    return next((status for status in statuses or () if status["name"] == name), {})


def trouble_of(status: Json) -> str:
    """Return why a pod's container does not run (a pull that fails, a crash), or nothing."""
    for container in (*(status.get("initContainerStatuses") or ()), *(status.get("containerStatuses") or ())):
        waiting = (container.get("state") or {}).get("waiting") or {}
        if waiting.get("reason") and waiting["reason"] not in ("PodInitializing", "ContainerCreating"):
            return f"{waiting['reason']}: {waiting.get('message', '')}".strip(": ")
    return ""


def time_of(text: Any) -> float | None:
    """Read a time; None for what is none."""
    try:
        return parse_timestamp(text)
    except (ValueError, TypeError):
        return None
