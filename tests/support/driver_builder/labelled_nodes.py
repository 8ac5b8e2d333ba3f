"""An API server in memory with NodeFeature objects, and Nodes of which it keeps who owns which label."""

from collections.abc import Callable, Mapping
from typing import Any

from kube_api.client import Object
from kube_api.errors import Forbidden
from kube_api.resources import NODE_FEATURES, NODES
from tests.support.driver_builder.memory_client import MemoryClient, copied
from tests.support.nfd_worker.node_server import NodeServer

Json = dict[str, Any]

NODE_NAME = "nfd.node.kubernetes.io/node-name"


def node_feature(namespace: str, name: str, node: str, labels: Mapping[str, str], **metadata: Any) -> Json:
    """Make an object as the API server gives it, with features that are of no interest."""
    return {
        "apiVersion": NODE_FEATURES.api_version,
        "kind": NODE_FEATURES.kind,
        "metadata": {"namespace": namespace, "name": name, "labels": {NODE_NAME: node}, **metadata},
        "spec": {"features": {"flags": {"cpu.cpuid": {"elements": {"AVX": {}}}}}, "labels": dict(labels)},
    }


class LabelledNodes(MemoryClient):
    """Applies to Nodes as the real server does; ``applied`` are the names of those that were written."""

    def __init__(self) -> None:
        super().__init__()
        self.applied: list[str] = []
        self.before_apply: Callable[[], None] = lambda: None
        """Happens between a decision and its write."""

    def add_node(self, name: str) -> None:
        """Have a Node join."""
        self.create(NODES.path(), {"kind": "Node", "metadata": {"name": name}})

    def put(self, namespace: str, name: str, node: str, labels: Mapping[str, str]) -> None:
        """Make a NodeFeature object, or change it."""
        path = NODE_FEATURES.path(namespace=namespace, name=name)
        super().apply(path, node_feature(namespace, name, node, labels), field_manager="third party")

    def remove(self, namespace: str, name: str) -> None:
        """Delete a NodeFeature object, if it is there."""
        self.objects.pop(NODE_FEATURES.path(namespace=namespace, name=name), None)

    def labels(self, node: str) -> dict[str, str]:
        """Return the labels of a Node."""
        return dict(self.objects[NODES.path(name=node)]["metadata"].get("labels") or {})

    def owners(self, node: str, key: str) -> set[str]:
        """Return who owns a label."""
        entries = self.objects[NODES.path(name=node)]["metadata"].get("managedFields") or []
        return {item["manager"] for item in entries if f"f:{key}" in item["fieldsV1"]["f:metadata"].get("f:labels", {})}

    def events(self) -> list[Json]:
        """Return the Events, in the order of their names."""
        return [obj for path, obj in sorted(self.objects.items()) if "/events/" in path]

    def worker_applies(self, node: str, labels: Mapping[str, str]) -> None:
        """Be nfd-worker, which applies with force."""
        self._served(node, lambda server, path: server.apply(path, _body(node, labels), field_manager="nfd-worker"))

    def somebody_sets(self, node: str, labels: Mapping[str, str | None], manager: str = "kubectl-label") -> None:
        """Be a person, who patches labels; None removes one."""
        self._served(node, lambda server, _: server.change(manager, {"metadata": {"labels": dict(labels)}}))

    def apply(self, path: str, body: Object, *, field_manager: str, force: bool = True) -> Object:
        """Apply labels; without the permission to create a Node."""
        if not path.startswith(f"{NODES.path()}/"):
            return super().apply(path, body, field_manager=field_manager, force=force)
        self._maybe_fail()
        self.before_apply()
        name = body["metadata"]["name"]
        if path not in self.objects or path in self.unpatchable:
            raise Forbidden(f"PATCH {path}: 403 Forbidden", status=403)
        self.applied.append(name)
        return self._served(
            name, lambda server, where: server.apply(where, body, field_manager=field_manager, force=force)
        )

    def _served(self, node: str, change: Callable[[NodeServer, str], object]) -> Object:
        path = NODES.path(name=node)
        with self._lock:
            server = NodeServer(copied(self.objects[path]))
            change(server, path)
            return self._store(path, server.node)


def _body(node: str, labels: Mapping[str, str]) -> Json:
    return {"metadata": {"name": node, **({"labels": dict(labels)} if labels else {})}}
