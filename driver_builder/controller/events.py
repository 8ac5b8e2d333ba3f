"""Posts Kubernetes Events; the same news again is counted up, not repeated."""

import hashlib
import logging
from dataclasses import dataclass
from typing import Any

from driver_builder.api.status import Event
from kube_api.client import Writer
from kube_api.errors import Conflict
from kube_api.resources import EVENTS, Resource
from kube_api.text import printable
from kube_api.timestamps import timestamp

COMPONENT = "driver-builder"
_LONGEST_MESSAGE = 1024
_LONGEST_NAME = 253
_CLUSTER_NAMESPACE = "default"
"""Where the API server wants Events about objects that have no namespace."""

logger = logging.getLogger(__name__)

Json = dict[str, Any]


@dataclass(frozen=True, slots=True, kw_only=True)
class Subject:
    """What an Event is about: ``namespace`` is empty for an object of the whole cluster."""

    resource: Resource
    namespace: str
    name: str
    uid: str

    def __str__(self) -> str:
        return f"{self.namespace}/{self.name}" if self.namespace else f"{self.resource.kind} {self.name}"


def post(client: Writer, subject: Subject, event: Event, *, now: float) -> None:
    """Create an Event, or count it up when the same one was posted before.

    Raises:
        KubeApiError: when it cannot be written.
    """
    level = logging.WARNING if event.kind == "Warning" else logging.INFO
    logger.log(level, "%s: %s: %s", subject, event.reason, printable(event.message, _LONGEST_MESSAGE))
    digest = hashlib.sha256(f"{event.reason}\0{event.message}".encode("utf-8", "replace")).hexdigest()[:10]
    namespace = subject.namespace or _CLUSTER_NAMESPACE
    name = f"{subject.name[: _LONGEST_NAME - 1 - len(digest)].rstrip('.-')}.{digest}"
    try:
        client.create(EVENTS.path(namespace=namespace), _body(subject, event, name, namespace, now))
    except Conflict:
        path = EVENTS.path(namespace=namespace, name=name)
        count = int(client.get(path).get("count") or 1) + 1
        client.patch(path, {"count": count, "lastTimestamp": timestamp(now)})


def _body(subject: Subject, event: Event, name: str, namespace: str, now: float) -> Json:
    involved = {
        "apiVersion": subject.resource.api_version,
        "kind": subject.resource.kind,
        "name": subject.name,
        "uid": subject.uid,
    }
    return {
        "apiVersion": EVENTS.api_version,
        "kind": EVENTS.kind,
        "metadata": {"name": name, "namespace": namespace},
        "involvedObject": {**involved, **({"namespace": subject.namespace} if subject.namespace else {})},
        "type": event.kind,
        "reason": event.reason,
        "message": printable(event.message, _LONGEST_MESSAGE),
        "source": {"component": COMPONENT},
        "reportingComponent": COMPONENT,
        "firstTimestamp": timestamp(now),
        "lastTimestamp": timestamp(now),
        "count": 1,
    }
