"""A fleet in files, and a connection that answers from them as an API server does: pages, watches, a few writes.

What it answers is text, as on the wire, and is made when it is asked for: of the fleet a process that uses it holds
what its own code keeps, and no more.
"""

import json
from collections import Counter
from collections.abc import Iterator, Mapping
from pathlib import Path
from typing import Any
from urllib.parse import parse_qs, urlsplit

from bench.scale_parts.fleet import RESOURCES, Fleet, path_of
from kube_api.connection import Timeout

Json = dict[str, Any]

IMAGES = "images.json"
_FIRST_VERSION = 1000


def write(fleet: Fleet, folder: Path) -> dict[str, tuple[int, int]]:
    """Write a fleet into files; gives how many objects of each kind there are, and their bytes."""
    sizes: dict[str, tuple[int, int]] = {}
    for resource in RESOURCES:
        count = 0
        path = folder / f"{resource.plural}.jsonl"
        with path.open("w") as file:
            for obj in fleet.objects(resource):
                obj["metadata"]["resourceVersion"] = "1"
                file.write(json.dumps(obj, separators=(",", ":")) + "\n")
                count += 1
        sizes[resource.plural] = (count, path.stat().st_size)
    images = {str(image): labels for image, labels in fleet.registries.images.items()}
    (folder / IMAGES).write_text(json.dumps(images))
    return sizes


class Answer:
    """A response that is there already."""

    def __init__(self, content: bytes, status: int = 200) -> None:
        self._content = content
        self.status = status

    def header(self, name: str) -> str | None:
        """Give no header."""
        del name
        return None

    def read(self) -> bytes:
        """Give all."""
        return self._content

    def chunks(self) -> Iterator[bytes]:
        """Give all at once."""
        yield self._content

    def close(self) -> None:
        """Nothing is open."""


class RecordedConnection:
    """A :class:`kube_api.connection.Connection` to a fleet in ``folder``.

    ``requests`` counts by verb and resource. Statuses of drivers are kept, all other writes are accepted and forgotten:
    a fleet at rest has none.
    """

    def __init__(self, folder: Path) -> None:
        self.requests: Counter[str] = Counter()
        self._files = {path_of(resource): folder / f"{resource.plural}.jsonl" for resource in RESOURCES}
        self._events: dict[str, list[bytes]] = {}
        self._statuses: dict[str, Json] = {}
        self._version = _FIRST_VERSION

    def changes(self, path: str, obj: Json) -> None:
        """Let an object of a collection have changed: the next watch says so."""
        self._version += 1
        obj["metadata"]["resourceVersion"] = str(self._version)
        self._events.setdefault(path, []).append(json.dumps({"type": "MODIFIED", "object": obj}).encode() + b"\n")

    def first(self, path: str) -> Json:
        """Give the first object of a collection."""
        with self._files[path].open("rb") as file:
            obj: Json = json.loads(file.readline())
        return obj

    def send(self, method: str, path: str, *, body: str | None, headers: Mapping[str, str], timeout: Timeout) -> Answer:
        """Answer a request."""
        del headers, timeout
        parts = urlsplit(path)
        query = {key: values[0] for key, values in parse_qs(parts.query).items()}
        verb = _verb(method, parts.path, query, self._files)
        self.requests[f"{verb} {_plural(parts.path, self._files)}"] += 1
        if verb == "WATCH":
            return Answer(b"".join(self._events.pop(parts.path, [])) + self._bookmark())
        if verb == "LIST":
            return Answer(self._page(parts.path, query))
        return Answer(json.dumps(self._object(parts.path, json.loads(body) if body else {})).encode())

    def _bookmark(self) -> bytes:
        self._version += 1
        bookmark = {"metadata": {"resourceVersion": str(self._version)}}
        return json.dumps({"type": "BOOKMARK", "object": bookmark}).encode() + b"\n"

    def _page(self, path: str, query: Mapping[str, str]) -> bytes:
        """Give a page of a listing; its token is where the next begins in the file."""
        if path not in self._files:
            return b'{"metadata":{"resourceVersion":"1"},"items":[]}'
        with self._files[path].open("rb") as file:
            file.seek(int(query.get("continue", "0")))
            lines = [line for line in (file.readline() for _ in range(int(query["limit"]))) if line]
            at, is_more = file.tell(), bool(file.readline())
        metadata = {"resourceVersion": str(self._version), "continue": str(at) if is_more else ""}
        items = b",".join(line.rstrip() for line in lines)
        return b'{"metadata":%s,"items":[%s]}' % (json.dumps(metadata).encode(), items)

    def _object(self, path: str, change: Json) -> Json:
        collection, _, name = path.removesuffix("/status").rpartition("/")
        known = next((obj for obj in self._all(collection) if obj["metadata"]["name"] == name), None)
        if known is None:
            return change
        if "status" in change:
            self._version += 1
            self._statuses[path.removesuffix("/status")] = change["status"]
            known["metadata"]["resourceVersion"] = str(self._version)
        return {**known, "status": self._statuses.get(path.removesuffix("/status"), known.get("status"))}

    def _all(self, collection: str) -> Iterator[Json]:
        if collection in self._files:
            with self._files[collection].open() as file:
                yield from map(json.loads, file)


def _verb(method: str, path: str, query: Mapping[str, str], collections: Mapping[str, Path]) -> str:
    if method != "GET":
        return method
    is_listing = path in collections or "limit" in query
    return ("WATCH" if "watch" in query else "LIST") if is_listing else "GET"


def _plural(path: str, collections: Mapping[str, Path]) -> str:
    known = [collection for collection in collections if path.startswith(collection)]
    return (known[0] if known else path).rpartition("/")[2]
