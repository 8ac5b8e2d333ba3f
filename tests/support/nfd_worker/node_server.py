"""One Node of an API server in memory: server-side apply, merge patches, field managers and resource versions.

It stands in for :class:`kube_api.client.Client`. What it does is what the real server was seen to do
(``tests/api/test_worker_publish.py`` asks that one the same questions).
"""

from collections.abc import Callable
from copy import deepcopy
from typing import Any, cast

from kube_api.client import Client
from kube_api.errors import Conflict, KubeApiError, NotFound
from kube_api.resources import NODES

Json = dict[str, Any]
PATH = "/api/v1/nodes/n"
TRACKED = ("labels", "annotations")

Key = tuple[str, str]
"""``labels`` or ``annotations``, and the key."""

Owners = dict[tuple[str, str], set[Key]]
"""Field manager and operation -> what it owns."""


class NodeServer:
    """Keeps one Node: a new one, named ``n``, or the given one.

    ``log``: verb and path of each request. ``before`` and ``after``: called with the number of each request, from 1,
    before and after it is served; may raise, or change the Node.
    """

    def __init__(self, node: Json | None = None) -> None:
        self.node: Json = node or {"kind": "Node", "metadata": {"name": "n", "resourceVersion": "1"}}
        self._owners = _read_entries(self.node["metadata"].get("managedFields") or [])
        self.log: list[tuple[str, str]] = []
        self.before: Callable[[int], None] = lambda _: None
        self.after: Callable[[int], None] = lambda _: None

    @property
    def client(self) -> Client:
        """The server as what the publish child holds."""
        return cast(Client, self)

    def get(self, path: str) -> Json:
        """Read the Node."""
        return self._serve("get", path, lambda: None)

    def get_metadata(self, path: str) -> Json:
        """Read the Node's metadata alone."""
        found = self._serve("metadata", path, lambda: None)
        return {"kind": "PartialObjectMetadata", "metadata": found["metadata"]}

    def apply(self, path: str, body: Json, *, field_manager: str, force: bool = True) -> Json:
        """Apply labels and annotations."""
        return self._serve("apply", path, lambda: self._apply(field_manager, body["metadata"], force=force))

    def patch(self, path: str, body: Json) -> Json:
        """Merge a patch; of the status, when the path says so."""
        manager = path.partition("?fieldManager=")[2]
        assert manager
        return self._serve("patch", path.partition("?")[0], lambda: self._patch(path, manager, body))

    def change(self, manager: str, body: Json) -> None:
        """Be somebody else, who merges a patch."""
        self._update(manager, deepcopy(body))

    @property
    def writes(self) -> list[str]:
        """The paths written to, below the Node's."""
        return [path.removeprefix(PATH) for verb, path in self.log if verb in ("apply", "patch")]

    def labels(self) -> Json:
        """Give the labels."""
        return dict(self.node["metadata"].get("labels", {}))

    def annotations(self) -> Json:
        """Give the annotations."""
        return dict(self.node["metadata"].get("annotations", {}))

    def status(self, part: str) -> Json:
        """Give ``capacity`` or ``allocatable``."""
        return dict(self.node.get("status", {}).get(part, {}))

    def taints(self) -> list[Json]:
        """Give the taints."""
        return list(self.node.get("spec", {}).get("taints", []))

    def _serve(self, verb: str, path: str, change: Callable[[], None]) -> Json:
        self.log.append((verb, path))
        self.before(len(self.log))
        if path.removesuffix("/status") != NODES.path(name=self.node["metadata"]["name"]):
            raise NotFound(f"GET {path}: 404 NotFound", status=404)
        change()
        self.after(len(self.log))
        return deepcopy(self.node)

    def _patch(self, path: str, manager: str, body: Json) -> None:
        given = body["metadata"].get("resourceVersion")
        if given != self.node["metadata"]["resourceVersion"]:
            raise Conflict(f"PATCH {path}: 409 Conflict", status=409)
        assert ("spec" if "/status" in path else "status") not in body
        self._update(manager, deepcopy(body))

    def _update(self, manager: str, body: Json) -> None:
        before = deepcopy(self.node)
        entries = body.get("metadata", {}).pop("managedFields", None)
        if entries is not None:
            self._owners = _read_entries(entries)
        _merge(self.node, body)
        old, new = _values(before), _values(self.node)
        changed = {key for key in old.keys() | new.keys() if old.get(key) != new.get(key)}
        self._disown(changed)
        self._owners.setdefault((manager, "Update"), set()).update(changed & new.keys())
        self._finish(before)

    def _apply(self, manager: str, metadata: Json, *, force: bool) -> None:
        before = deepcopy(self.node)
        wanted = _values({"metadata": metadata})
        if not force:
            self._refuse_conflicts(manager, wanted)
        mine = self._owners.get((manager, "Apply"), set())
        self._disown({key for key, value in _values(self.node).items() if wanted.get(key, value) != value})
        self._owners[manager, "Apply"] = set(wanted)
        for field, key in mine - set().union(*self._owners.values()):
            self.node["metadata"][field].pop(key, None)
        for (field, key), value in wanted.items():
            self.node["metadata"].setdefault(field, {})[key] = value
        self._finish(before)

    def _refuse_conflicts(self, manager: str, wanted: dict[Key, str]) -> None:
        present = _values(self.node)
        owners = {
            f".metadata.{field}.{key}": other
            for (other, operation), keys in self._owners.items()
            for field, key in keys
            if (other, operation) != (manager, "Apply") and wanted.get((field, key), "") != present[field, key]
            if (field, key) in wanted
        }
        if owners:
            error = Conflict(f"PATCH: 409 Conflict: Apply failed with {len(owners)} conflicts", status=409)
            error.owners = owners
            raise error

    def _disown(self, keys: set[Key]) -> None:
        for owned in self._owners.values():
            owned.difference_update(keys)

    def _finish(self, before: Json) -> None:
        self._owners = {owner: keys for owner, keys in self._owners.items() if keys}
        metadata = self.node["metadata"]
        metadata["managedFields"] = _write_entries(self._owners)
        metadata["resourceVersion"] = version = before["metadata"]["resourceVersion"]
        if self.node != before:
            metadata["resourceVersion"] = str(int(version) + 1)


def _values(node: Json) -> dict[Key, str]:
    return {(field, key): value for field in TRACKED for key, value in (node["metadata"].get(field) or {}).items()}


def _read_entries(entries: list[Json]) -> Owners:
    return {
        (entry["manager"], entry["operation"]): {
            (field, key.removeprefix("f:"))
            for field in TRACKED
            for key in entry["fieldsV1"].get("f:metadata", {}).get(f"f:{field}", {})
        }
        for entry in entries
    }


def _write_entries(owners: Owners) -> list[Json]:
    entries = []
    for (manager, operation), keys in owners.items():
        fields: Json = {
            f"f:{field}": {f"f:{key}": {} for f, key in sorted(keys) if f == field}
            for field in TRACKED
            if any(f == field for f, _ in keys)
        }
        entries.append({"manager": manager, "operation": operation, "fieldsV1": {"f:metadata": fields}})
    return entries


def _merge(target: Json, patch: Json) -> None:
    """Merge as RFC 7386 says."""
    for key, value in patch.items():
        if value is None:
            target.pop(key, None)
        elif isinstance(value, dict):
            _merge(target.setdefault(key, {}), value)
        else:
            target[key] = deepcopy(value)


def once(number: int, error: KubeApiError) -> Callable[[int], None]:
    """Fail one request."""

    def fail(request: int) -> None:
        if request == number:
            raise error

    return fail
