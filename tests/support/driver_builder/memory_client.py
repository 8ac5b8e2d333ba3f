"""An API server in memory: it keeps objects as the real one does, as far as the controller can see."""

import json
import marshal
import threading
from collections.abc import Callable, Iterator
from typing import Any, TypeVar

from kube_api.client import MERGE_PATCH, STRATEGIC_MERGE_PATCH, Client, JsonPatch, Listing, Object, WatchEvent
from kube_api.errors import Conflict, Forbidden, Invalid, KubeApiError, TooManyRequests
from kube_api.stored_objects import StoredObjects, has_label
from kube_api.timestamps import timestamp
from tests.support.driver_builder.factories import NOW

_Value = TypeVar("_Value")


class MemoryClient(StoredObjects, Client):
    """An API server's objects by path. ``faults`` are raised by the next requests; ``writes`` are what was changed."""

    def __init__(self) -> None:
        super().__init__()
        self.writes: list[str] = []
        self.faults: list[KubeApiError] = []
        self.forbidden: tuple[str, ...] = ()
        """Parts of the paths that may not be read."""
        self.unpatchable: tuple[str, ...] = ()
        """Paths that may not be patched or created below."""
        self.budgets: set[str] = set()
        """Paths of pods that a PodDisruptionBudget keeps."""
        self.evicted: list[str] = []
        self.clock: Callable[[], float] = lambda: NOW
        self._count = 0
        self._log: list[tuple[int, str, WatchEvent]] = []
        """What watches tell: version, path of the collection, event."""
        self._logged: dict[str, Object] = {}
        self._lock = threading.RLock()

    def get(self, path: str) -> Object:
        """Read an object."""
        self._maybe_fail(path)
        with self._lock:
            return copied(super().get(path))

    def list(
        self, path: str, *, label_selector: str = "", field_selector: str = "", metadata_only: bool = False
    ) -> Listing:
        """Read a collection."""
        self._maybe_fail(path)
        with self._lock:
            found = super().list(
                path, label_selector=label_selector, field_selector=field_selector, metadata_only=metadata_only
            )
            return Listing([copied(obj) for obj in found.items], str(self._count))

    def watch(
        self,
        path: str,
        *,
        resource_version: str,
        label_selector: str = "",
        field_selector: str = "",
        metadata_only: bool = False,
        seconds: int = 240,
    ) -> Iterator[WatchEvent]:
        """Give what has changed since a version, and end; ``catch_up`` says what changed."""
        self._maybe_fail(path)
        assert seconds
        assert not field_selector
        with self._lock:
            events = [
                WatchEvent(event.kind, copied(event.object))
                for version, where, event in self._log
                if version > int(resource_version) and where == path
                if has_label(event.object, label_selector)
            ]
            bookmark = WatchEvent("BOOKMARK", {"metadata": {"resourceVersion": str(self._count)}})
        if metadata_only:
            events = [WatchEvent(kind, {"metadata": obj["metadata"]}) for kind, obj in events]
        return iter((*events, bookmark))

    def catch_up(self) -> None:
        """Log what has changed since the last time, whoever changed it: tests change ``objects`` as they like."""
        with self._lock:
            for path in self._logged.keys() - self.objects.keys():
                self._logs("DELETED", path, self._logged.pop(path))
            for path, obj in self.objects.items():
                before = self._logged.get(path)
                if before is not None and before["metadata"]["uid"] != obj["metadata"]["uid"]:
                    self._logs("DELETED", path, before)
                    before = None
                if before != obj:
                    self._logs("MODIFIED" if before else "ADDED", path, obj)
                    self._logged[path] = copied(obj)

    def _logs(self, kind: str, path: str, obj: Object) -> None:
        self._count += 1
        obj["metadata"]["resourceVersion"] = str(self._count)
        self._log.append((self._count, path.rpartition("/")[0], WatchEvent(kind, copied(obj))))

    def create(self, path: str, body: Object) -> Object:
        """Create an object, or evict a pod."""
        self._maybe_fail()
        if path.endswith("/eviction"):
            return self._evict(path.removesuffix("/eviction"), body["deleteOptions"]["preconditions"]["uid"])
        return self._store(f"{path}/{body['metadata']['name']}", body, fresh=True)

    def _evict(self, path: str, uid: str) -> Object:
        if path in self.budgets:
            raise TooManyRequests(f"POST {path}: 429 TooManyRequests: the disruption budget needs it", status=429)
        self.evicted.append(path)
        return self.delete(path, uid=uid)

    def replace(self, path: str, body: Object) -> Object:
        """Replace an object when its version is the newest."""
        self._maybe_fail()
        with self._lock:
            known = self.get(path)["metadata"]["resourceVersion"]
            if body["metadata"].get("resourceVersion", known) != known:
                raise Conflict(f"PUT {path}: 409", status=409)
            return self._store(path, body)

    def apply(self, path: str, body: Object, *, field_manager: str, force: bool = True) -> Object:
        """Make an object be as in the body; as on the API server, a hook that is left out stays as an empty one."""
        self._maybe_fail()
        assert field_manager
        known = self.objects.get(path)
        asked, there = body["metadata"].get("uid"), known["metadata"]["uid"] if known is not None else None
        # Whoever has made it wrote other fields.
        if asked not in (None, there) or (known is not None and not force):
            raise Conflict(f"PATCH {path}: 409", status=409)
        if _hooks(self.objects.get(path)) - _hooks(body):
            raise Invalid(f"PATCH {path}: 422 lifecycle.preStop: must specify a handler type", status=422)
        return self._store(path, body)

    def patch(self, path: str, body: Object | JsonPatch, *, content_type: str = MERGE_PATCH) -> Object:
        """Merge a patch; a subresource is a part of the object."""
        self._maybe_fail()
        if path in self.unpatchable:
            raise Forbidden(f"PATCH {path}: 403 Forbidden", status=403)
        assert isinstance(body, dict)
        with self._lock:
            path = path.removesuffix("/status")
            known = self.get(path)
            if content_type == STRATEGIC_MERGE_PATCH:
                body = _with_containers(known, body)
            else:
                assert content_type == MERGE_PATCH
            version = (body.get("metadata") or {}).get("resourceVersion")
            if version not in (None, known["metadata"]["resourceVersion"]):
                raise Conflict(f"PATCH {path}: 409", status=409)
            made = self._store(path, merged(known, body))
            if "deletionTimestamp" in made["metadata"] and not made["metadata"].get("finalizers"):
                del self.objects[path]
            return made

    def delete(self, path: str, *, uid: str | None = None, propagation: str = "Background") -> Object:
        """Delete an object: at once, or as soon as its finalizers or its grace period allow."""
        self._maybe_fail()
        assert propagation
        with self._lock:
            known = self.get(path)["metadata"]
            if uid not in (None, known["uid"]):
                raise Conflict(f"DELETE {path}: 409", status=409)
            self.writes.append(f"DELETE {path}")
            if known.get("finalizers") or "/pods/" in path:
                grace = {"deletionGracePeriodSeconds": 30} if "/pods/" in path else {}
                self.objects[path]["metadata"] |= {"deletionTimestamp": "2023-11-14T22:13:20Z", **grace}
                return _with_kind(path, self.objects[path])
            del self.objects[path]
            return {"kind": "Status", "status": "Success", "details": {"uid": known["uid"]}}

    def _store(self, path: str, body: Object, *, fresh: bool = False) -> Object:
        with self._lock:
            known = self.objects.get(path)
            if known is not None and fresh:
                raise Conflict(f"POST {path}: 409", status=409)
            # As over the wire: what is not JSON would be refused, enums become text.
            made = json.loads(json.dumps(body))
            before = known["metadata"] if known else {}
            self._count += 1
            if "/namespaces/" in path:
                made["metadata"]["namespace"] = path.partition("/namespaces/")[2].partition("/")[0]
            made["metadata"]["uid"] = before.get("uid") or made["metadata"].get("uid") or f"uid-{self._count}"
            made["metadata"]["resourceVersion"] = before.get("resourceVersion", "0")
            if "/drivercontainers/" in path:
                is_same = known is not None and made.get("spec") == known.get("spec")
                made["metadata"]["generation"] = before.get("generation", 0) + (0 if is_same else 1)
            made["metadata"]["creationTimestamp"] = before.get("creationTimestamp") or timestamp(self.clock())
            if known is not None and "status" in known:
                made.setdefault("status", known["status"])
            if made != known:
                made["metadata"]["resourceVersion"] = str(self._count)
                self.writes.append(path)
            self.objects[path] = made
            return _with_kind(path, made)

    def _maybe_fail(self, reading: str = "") -> None:
        if any(part in reading for part in self.forbidden):
            raise Forbidden(f"GET {reading}: 403 Forbidden", status=403)
        if self.faults:
            raise self.faults.pop(0)


def _with_kind(path: str, obj: Object) -> Object:
    """Copy an object as an answer: tests leave its kind out."""
    plural = path.split("/")[-2]
    kinds = {"configmaps": "ConfigMap", "daemonsets": "DaemonSet", "drivercontainers": "DriverContainer"}
    return {"kind": kinds.get(plural, plural.removesuffix("s").capitalize()), **copied(obj)}


def _hooks(daemon_set: Object | None) -> set[str]:
    """Name the containers of a DaemonSet that have lifecycle hooks."""
    template: Object = ((daemon_set or {}).get("spec") or {}).get("template") or {}
    return {item["name"] for item in (template.get("spec") or {}).get("containers") or () if "lifecycle" in item}


def _with_containers(known: Object, patch: Object) -> Object:
    """Make a merge patch of a strategic one for containers, which are distinguished by their names."""
    patches = {item["name"]: item for item in patch["spec"]["template"]["spec"]["containers"]}
    containers = known["spec"]["template"]["spec"]["containers"]
    made = [merged(item, patches.get(item["name"], {})) for item in containers]
    return {"spec": {"template": {"spec": {"containers": made}}}}


def copied(value: _Value) -> _Value:
    """Copy plain data, many times faster than ``copy.deepcopy``."""
    plain: Any = value
    made: _Value = marshal.loads(marshal.dumps(plain))  # noqa: S302 - our own data of a moment ago
    return made


def merged(known: Any, patch: Any) -> Any:
    """Return what a merge patch (RFC 7386) makes of plain data."""
    if not isinstance(patch, dict):
        return patch
    made = dict(known) if isinstance(known, dict) else {}
    for key, value in patch.items():
        if value is None:
            made.pop(key, None)
        else:
            made[key] = merged(made.get(key), value)
    return made
