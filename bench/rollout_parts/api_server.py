"""An API server in memory for a fleet that changes: it keeps each object as text, and touches only what is written.

It is a :class:`kube_api.connection.Connection`, so that the controller's own client decodes what it answers. Its own
CPU is counted apart, in ``cpu``: the controller does not pay for it.
"""

import json
import time
from collections import Counter
from collections.abc import Callable, Iterable, Mapping
from typing import Any
from urllib.parse import parse_qs, urlsplit

from bench.scale_parts.fleet import path_of, uid
from bench.scale_parts.proxy import WRITES, resource_of, verb_of
from bench.scale_parts.recorded import Answer
from kube_api.client import APPLY_PATCH, STRATEGIC_MERGE_PATCH
from kube_api.connection import Timeout
from kube_api.resources import PODS
from tests.support.driver_builder.memory_client import merged

Json = dict[str, Any]

_FIRST_VERSION = 1000
_MISSING = json.dumps({"kind": "Status", "code": 404, "reason": "NotFound", "message": "not found"}).encode()


class ApiServer:
    """Objects by collection and name. ``requests`` counts by verb and resource.

    ``wrote`` is called after each write with the path of its collection and the object, ``deletes`` before an object
    is deleted.
    """

    def __init__(self) -> None:
        self.requests: Counter[str] = Counter()
        self.cpu = 0.0
        self.wrote: Callable[[str, Json], None] = lambda _path, _obj: None
        self.deletes: Callable[[str, Json], None] = lambda _path, _obj: None
        self._texts: dict[str, dict[str, bytes]] = {}
        self._events: dict[str, list[bytes]] = {}
        self._version = _FIRST_VERSION

    # ------------------------------------------------------------ what others do

    def load(self, path: str, objects: Iterable[Json]) -> None:
        """Have objects in a collection from the start."""
        texts = self._texts.setdefault(path, {})
        for obj in objects:
            obj["metadata"]["resourceVersion"] = "1"
            texts[obj["metadata"]["name"]] = _text(obj)

    def get(self, path: str, name: str) -> Json:
        """Read an object."""
        obj: Json = json.loads(self._texts[path][name])
        return obj

    def put(self, path: str, obj: Json) -> Json:
        """Create or replace an object; the watch of its collection says so."""
        texts, metadata = self._texts.setdefault(path, {}), obj["metadata"]
        kind = "MODIFIED" if metadata["name"] in texts else "ADDED"
        self._version += 1
        metadata["resourceVersion"] = str(self._version)
        text = texts[metadata["name"]] = _text(obj)
        self._says(path, kind, text)
        return obj

    def remove(self, path: str, name: str) -> None:
        """Take an object away."""
        obj = json.loads(self._texts[path].pop(name))
        self._version += 1
        obj["metadata"]["resourceVersion"] = str(self._version)
        self._says(path, "DELETED", _text(obj))

    @property
    def news(self) -> tuple[str, ...]:
        """The collections of which a watch has something to say."""
        return tuple(path for path, events in self._events.items() if events)

    def _says(self, path: str, kind: str, text: bytes) -> None:
        self._events.setdefault(path, []).append(b'{"type":"%s","object":%s}\n' % (kind.encode(), text))

    # ------------------------------------------------------------ what the controller does

    def send(self, method: str, path: str, *, body: str | None, headers: Mapping[str, str], timeout: Timeout) -> Answer:
        """Answer a request."""
        del timeout
        began = time.process_time()
        parts = urlsplit(path)
        verb = verb_of(method, path)
        self.requests[f"{verb} {resource_of(parts.path)}"] += 1
        try:
            if verb == "WATCH":
                return Answer(b"".join(self._events.pop(parts.path, [])) + self._bookmark())
            if verb == "LIST":
                return Answer(self._page(parts.path, {key: it[0] for key, it in parse_qs(parts.query).items()}))
            content = json.loads(body) if body else {}
            answer = self._object(verb, parts.path, content, headers.get("Content-Type", ""))
            return Answer(_MISSING, 404) if answer is None else Answer(_text(answer))
        finally:
            self.cpu += time.process_time() - began

    def writes(self) -> Counter[str]:
        """Return the requests that change something."""
        return Counter({name: count for name, count in self.requests.items() if name.partition(" ")[0] in WRITES})

    def _bookmark(self) -> bytes:
        bookmark = {"metadata": {"resourceVersion": str(self._version)}}
        return json.dumps({"type": "BOOKMARK", "object": bookmark}).encode() + b"\n"

    def _page(self, path: str, query: Mapping[str, str]) -> bytes:
        every = self._texts.get(path, {})
        field, _, name = query.get("fieldSelector", "").partition("=")
        texts = tuple(every.values()) if field != "metadata.name" else (every[name],) if name in every else ()
        at = int(query.get("continue", "0"))
        until = at + int(query["limit"])
        metadata = {"resourceVersion": str(self._version), "continue": str(until) if until < len(texts) else ""}
        return b'{"metadata":%s,"items":[%s]}' % (json.dumps(metadata).encode(), b",".join(texts[at:until]))

    def _object(self, verb: str, path: str, body: Json, content_type: str) -> Json | None:
        """Do what is asked for with one object; None where it is not there."""
        if resource_of(path) == "events":
            return body
        if verb == "POST":
            return self._write(path, {**body, "metadata": {**body["metadata"], "uid": uid(f"made-{self._version}")}})
        path, _, name = path.removesuffix("/status").rpartition("/")
        known = self.get(path, name) if name in self._texts.get(path, {}) else None
        if content_type == APPLY_PATCH:
            return self._write(path, _applied(known, body, uid(f"made-{self._version}")))
        if known is None or verb == "GET":
            return known
        return self._delete(path, known) if verb == "DELETE" else self._patched(path, known, body, content_type)

    def _patched(self, path: str, known: Json, body: Json, content_type: str) -> Json:
        if content_type == STRATEGIC_MERGE_PATCH:
            raise NotImplementedError(f"strategic merge patch of {path}")
        return self._write(path, merged(known, body))

    def _write(self, path: str, obj: Json) -> Json:
        made = self.put(path, obj)
        self.wrote(path, made)
        return made

    def _delete(self, path: str, known: Json) -> Json:
        """Delete an object; a pod goes when its kubelet says so."""
        self.deletes(path, known)
        if path == path_of(PODS):
            return self.get(path, known["metadata"]["name"])
        self.remove(path, known["metadata"]["name"])
        return {"kind": "Status", "status": "Success", "details": {"uid": known["metadata"]["uid"]}}


def _text(obj: Json) -> bytes:
    return json.dumps(obj, separators=(",", ":")).encode()


def _applied(known: Json | None, body: Json, new_uid: str) -> Json:
    """Make what server-side apply does for the only manager of an object."""
    before = known["metadata"] if known is not None else {"uid": new_uid}
    kept = {key: before[key] for key in ("uid", "creationTimestamp") if key in before}
    return {**(known or {}), **body, "metadata": {**body["metadata"], **kept}}
