"""What is asked of the API server about one Node. Requests are made in threads; a watch is one that lasts.

Of a Node its metadata alone are kept.
"""

import logging
import os
from collections.abc import Callable
from contextlib import suppress
from datetime import UTC, datetime
from typing import Any

from device_agent.event import NODES_NAMESPACE, warning
from device_agent.sources.in_thread import in_thread
from kube_api.client import Client
from kube_api.errors import Gone, KubeApiError, Unreachable
from kube_api.resources import EVENTS, NODES

log = logging.getLogger(__name__)

Json = dict[str, Any]

_WATCH_SECONDS = 240


class NodeApi:
    """Requests about the Node ``name``. Each raises a KubeApiError and nothing else."""

    def __init__(self, client: Client, name: str) -> None:
        self._client = client
        self.name = name
        self._path = NODES.path(name=name)

    async def patch(self, patch: Json) -> Json | None:
        """Merge a patch into the Node; return it as it is then, None where the response is not that Node."""
        return self._own(await in_thread(lambda: self._client.patch(self._path, patch), "node answer"))

    async def read(self) -> Json | None:
        """Read the Node."""
        return self._own(await in_thread(lambda: self._client.get_metadata(self._path), "node"))

    async def watch(self, listed: Callable[[Json | None], None], changed: Callable[[Json | None], None]) -> None:
        """List and watch the Node; ends when the watch does. Both are called in a thread; None: it is not there."""
        await in_thread(lambda: self._watch(listed, changed), "node")

    async def warn(self, uid: str, reason: str, message: str) -> None:
        """Write a warning Event about the Node. Where that fails it is logged: label and annotation say the same."""
        at, suffix = datetime.now(UTC).strftime("%Y-%m-%dT%H:%M:%SZ"), os.urandom(8).hex()
        about = {"kind": "Node", "name": self.name, "uid": uid}
        event = warning(about, NODES_NAMESPACE, reason, message, node=self.name, at=at, suffix=suffix)
        path = EVENTS.path(namespace=NODES_NAMESPACE)
        try:
            await in_thread(lambda: self._client.create(path, event), "node event")
        except KubeApiError as error:
            log.warning("node %s: an Event cannot be written: %s", self.name, error)

    def _watch(self, listed: Callable[[Json | None], None], changed: Callable[[Json | None], None]) -> None:
        """As :meth:`watch`. A watch that breaks is none: then it is listed again."""
        selector = f"metadata.name={self.name}"
        listing = self._client.list(NODES.path(), field_selector=selector, metadata_only=True)
        listed(next(filter(None, map(self._own, listing.items)), None))
        seconds = _WATCH_SECONDS + os.urandom(1)[0] // 4
        with suppress(Gone, Unreachable):
            for event in self._client.watch(
                NODES.path(), resource_version=listing.resource_version, field_selector=selector, metadata_only=True,
                seconds=seconds,
            ):  # fmt: skip
                if node := self._own(event.object):  # a bookmark is not
                    changed(None if event.kind == "DELETED" else node)

    def _own(self, node: object) -> Json | None:
        """Return this Node, and no other one: a server, or what is before it, may ignore a selector."""
        metadata = node.get("metadata") if isinstance(node, dict) else None
        return {"metadata": metadata} if isinstance(metadata, dict) and metadata.get("name") == self.name else None
