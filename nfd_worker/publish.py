"""The publish child: a short-lived process, and the only one that speaks to the API server.

The official client costs 30 MiB, so the resident process never imports it: it spawns this module with a request on
standard input, and gets one line of JSON on standard output. Exit status: 0 published, 1 not published.

Server-side apply makes the Node carry exactly what the request says: what the field manager applied last time and does
not name now is removed by the API server, and what others wrote is never touched. Applying to a Node that does not
exist would create it; the worker's ClusterRole has no ``create``, so that is refused.
"""

import os
import sys
from collections.abc import Mapping
from typing import Any

from kube_api.client import Client
from kube_api.errors import KubeApiError
from kube_api.resources import NODES
from nfd_worker.wire import FIELD_MANAGER, PublishAnswer, PublishRequest


def main() -> int:
    """Publish the request on standard input; the answer goes to standard output."""
    with os.fdopen(0, "rb") as stdin:
        request = PublishRequest.from_bytes(stdin.read())
    try:
        publish(request, Client.from_environment(request.kubeconfig))
        answer = PublishAnswer()
    except KubeApiError as error:
        answer = PublishAnswer(str(error), type(error).__name__, error.retry_after)
    sys.stdout.write(answer.to_line())
    return 0 if answer.is_published else 1


def publish(request: PublishRequest, client: Client) -> None:
    """Apply the request to its Node; reads the Node first only when labels have to be kept.

    Raises:
        KubeApiError: whatever the API server said, or that it did not answer.
    """
    path = NODES.path(name=request.node_name)
    kept = kept_labels(client.get(path), request.keep_prefixes) if request.keep_prefixes else {}
    body = {
        "apiVersion": "v1",
        "kind": "Node",
        "metadata": {
            "name": request.node_name,
            "labels": {**kept, **request.labels},
            "annotations": dict(request.annotations),
        },
    }
    client.apply(path, body, field_manager=FIELD_MANAGER)


def kept_labels(node: Mapping[str, Any], prefixes: tuple[str, ...]) -> dict[str, str]:
    """Pick the labels of a Node that our field manager owns and whose key starts in one of these ways."""
    metadata = node["metadata"]
    labels = metadata.get("labels") or {}
    return {key: labels[key] for key in owned_label_keys(metadata) if key in labels and key.startswith(prefixes)}


def owned_label_keys(metadata: Mapping[str, Any]) -> set[str]:
    """Read from ``managedFields`` which labels our field manager applied (FieldsV1: ``f:`` before each key)."""
    keys: set[str] = set()
    for entry in metadata.get("managedFields") or ():
        if entry.get("manager") == FIELD_MANAGER and entry.get("operation") == "Apply":
            fields = entry.get("fieldsV1", {}).get("f:metadata", {}).get("f:labels", {})
            keys.update(field.removeprefix("f:") for field in fields if field.startswith("f:"))
    return keys


if __name__ == "__main__":
    sys.exit(main())
