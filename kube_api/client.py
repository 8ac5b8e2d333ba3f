"""Verbs of the API server over plain dicts: get, list, watch, create, apply, patch, delete. No domain words.

Objects go in and come out as the server's JSON, because the typed models of the official client cost two
thirds of its memory and refuse valid manifests (``cpu: 1``). The official client still does what it does best: finding
and refreshing credentials, TLS, proxies, pooling.
"""

import json
from collections.abc import Iterator, Mapping
from contextlib import closing
from typing import Any, NamedTuple, Protocol, Self

from kube_api.connection import Connection, Response, Timeout
from kube_api.credentials import connect
from kube_api.errors import Gone, KubeApiError, Unreachable, from_response

Object = dict[str, Any]
JsonPatch = list[Object]
"""Operations of RFC 6902."""

METADATA_ONLY = "application/json;as=PartialObjectMetadataList;g=meta.k8s.io;v=v1"
METADATA_OF_ONE = "application/json;as=PartialObjectMetadata;g=meta.k8s.io;v=v1"

MERGE_PATCH = "application/merge-patch+json"
STRATEGIC_MERGE_PATCH = "application/strategic-merge-patch+json"
"""For the server's own kinds: items of lists are merged by their names."""
JSON_PATCH = "application/json-patch+json"
APPLY_PATCH = "application/apply-patch+yaml"

_EVENT_TYPES = ("ADDED", "MODIFIED", "DELETED", "BOOKMARK", "ERROR")

MAX_LOG_LINE = 64 << 10
"""Bytes. A kubelet cuts lines at 16 KiB, and joins them again for readers of its logs."""


class Listing(NamedTuple):
    """A collection at one moment: watch from ``resource_version``."""

    items: list[Object]
    resource_version: str


class WatchEvent(NamedTuple):
    """One change: ``kind`` is ADDED, MODIFIED, DELETED or BOOKMARK."""

    kind: str
    object: Object


class Reader(Protocol):
    """Can read one object: a :class:`Client`, or a cache of what one has read."""

    def get(self, path: str) -> Object:
        """Read one object."""


class Collections(Reader, Protocol):
    """Can also read and watch collections: a :class:`Client`, or objects that were read from one."""

    def list(
        self, path: str, *, label_selector: str = "", field_selector: str = "", metadata_only: bool = False
    ) -> Listing:
        """Read a collection."""

    def pages(
        self,
        path: str,
        *,
        label_selector: str = "",
        field_selector: str = "",
        metadata_only: bool = False,
        limit: int = 500,
    ) -> Iterator[Listing]:
        """Read a collection, page by page."""

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
        """Give changes after a version."""


class Writer(Reader, Protocol):
    """Can write objects: a :class:`Client`, or one that records what was written."""

    def list(self, path: str, *, field_selector: str = "") -> Listing:
        """Read a collection."""

    def create(self, path: str, body: Object) -> Object:
        """Create an object in a collection."""

    def replace(self, path: str, body: Object) -> Object:
        """Replace an object."""

    def apply(self, path: str, body: Object, *, field_manager: str, force: bool = True) -> Object:
        """Server-side apply."""

    def patch(self, path: str, body: Object | JsonPatch, *, content_type: str = MERGE_PATCH) -> Object:
        """Patch an object."""

    def delete(self, path: str, *, uid: str | None = None, propagation: str = "Background") -> Object:
        """Delete an object."""


class Client:
    """A connection to one API server; safe to share between threads.

    Every method raises a :class:`kube_api.errors.KubeApiError` and nothing else.
    """

    def __init__(self, connection: Connection, *, timeout_seconds: float = 30.0) -> None:
        self._connection = connection
        self._timeout_seconds = timeout_seconds

    @classmethod
    def from_environment(
        cls, kubeconfig: str | None = None, *, timeout_seconds: float = 30.0, once: bool = False
    ) -> Self:
        """Connect as kubectl would: the given kubeconfig, else the pod's service account, else the default kubeconfig.

        ``once`` is for a process that sends one or two requests and ends.

        Raises:
            Unreachable: no usable credentials were found; the message names the searched places.
        """
        return cls(connect(kubeconfig, once=once), timeout_seconds=timeout_seconds)

    def get(self, path: str) -> Object:
        """Read one object."""
        return self._json("GET", path)

    def get_metadata(self, path: str) -> Object:
        """Read one object's PartialObjectMetadata, or the whole of it from a server that has none."""
        return self._json("GET", path, accept=f"{METADATA_OF_ONE},application/json")

    def get_dated(self, path: str) -> tuple[Object, str]:
        """Read one object, and the server's time as the response's ``Date`` has it; empty without that header."""
        answer = self._send("GET", path, query={})
        date = answer.header("Date") or ""
        return _parsed(f"GET {path}", _content(f"GET {path}", answer)), date

    def list(
        self, path: str, *, label_selector: str = "", field_selector: str = "", metadata_only: bool = False
    ) -> Listing:
        """Read a collection, in pages of 500.

        ``metadata_only`` requests names, labels and annotations alone: a tenth of the bytes of a full Node.
        """
        items: list[Object] = []
        version = ""
        for page in self.pages(
            path, label_selector=label_selector, field_selector=field_selector, metadata_only=metadata_only
        ):
            items += page.items
            version = page.resource_version
        return Listing(items, version)

    def pages(
        self,
        path: str,
        *,
        label_selector: str = "",
        field_selector: str = "",
        metadata_only: bool = False,
        limit: int = 500,
    ) -> Iterator[Listing]:
        """Read a collection as it was at one moment, page by page, of which one is in memory at a time.

        Raises:
            Gone: when the pages took so long that the server has forgotten that moment: begin again.
        """
        query = {"labelSelector": label_selector, "fieldSelector": field_selector, "limit": str(limit)}
        accept = METADATA_ONLY if metadata_only else "application/json"
        while True:
            page = self._json("GET", path, query=query, accept=accept)
            metadata = page.get("metadata")
            if not isinstance(metadata, dict):
                raise Unreachable(f"GET {path}: the response is not a list of objects: is this an API server?")
            yield Listing(page.get("items") or [], metadata.get("resourceVersion", ""))
            query["continue"] = metadata.get("continue", "")
            if not query["continue"]:
                return

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
        """Yield changes after ``resource_version`` until the server ends the watch, at the latest after ``seconds``.

        When this returns, the server has accepted the watch.

        Raises:
            Gone: when ``resource_version`` is too old: list again. Also raised later, by the iterator.
        """
        query = {
            "watch": "true",
            "allowWatchBookmarks": "true",
            "resourceVersion": resource_version,
            "labelSelector": label_selector,
            "fieldSelector": field_selector,
            "timeoutSeconds": str(seconds),
        }
        accept = METADATA_OF_ONE if metadata_only else "application/json"
        answer = self._send("GET", path, query=query, accept=accept, timeout=(10.0, seconds + 30.0))
        return _events(path, answer)

    def create(self, path: str, body: Object) -> Object:
        """Create an object in a collection; Conflict if the name exists."""
        return self._json("POST", path, body=body)

    def replace(self, path: str, body: Object) -> Object:
        """Replace an object; Conflict if its resourceVersion is not the newest."""
        return self._json("PUT", path, body=body)

    def apply(self, path: str, body: Object, *, field_manager: str, force: bool = True) -> Object:
        """Server-side apply: own exactly the fields in ``body``; fields left out since the last apply are removed."""
        query = {"fieldManager": field_manager, "force": "true" if force else "false"}
        return self._json("PATCH", path, query=query, body=body, content_type=APPLY_PATCH)

    def patch(self, path: str, body: Object | JsonPatch, *, content_type: str = MERGE_PATCH) -> Object:
        """Patch an object: a JSON merge patch, or a list of JSON patch operations."""
        return self._json("PATCH", path, body=body, content_type=content_type)

    def delete(self, path: str, *, uid: str | None = None, propagation: str = "Background") -> Object:
        """Delete an object; with ``uid`` only if it is still the same object.

        Returns the object if it goes later (a grace period, finalizers), else a Status.
        """
        options: Object = {"apiVersion": "v1", "kind": "DeleteOptions", "propagationPolicy": propagation}
        if uid is not None:
            options["preconditions"] = {"uid": uid}
        return self._json("DELETE", path, body=options)

    def get_text(self, path: str, *, query: Mapping[str, str] | None = None) -> str:
        """Read an endpoint that answers with text: a pod's log, the metrics of a program."""
        return self._read("GET", path, query=query or {}, accept="*/*").decode(errors="replace")

    def follow(
        self, path: str, *, query: Mapping[str, str] | None = None, silence_seconds: float = 5.0
    ) -> Iterator[str]:
        """Yield the lines of an endpoint that answers with text as they come (a pod's log), until it ends.

        Of a line longer than MAX_LOG_LINE only about that much is returned.

        Raises:
            Unreachable: also when nothing comes for ``silence_seconds``, so that the caller can check the pod.
        """
        answer = self._send("GET", path, query=query or {}, accept="*/*", timeout=(10.0, silence_seconds))
        with closing(answer):
            for line in _lines(f"GET {path}", answer, longest=MAX_LOG_LINE):
                yield line.decode(errors="replace")

    def _json(
        self,
        method: str,
        path: str,
        *,
        query: Mapping[str, str] | None = None,
        body: Object | JsonPatch | None = None,
        content_type: str = "application/json",
        accept: str = "application/json",
    ) -> Object:
        content = self._read(method, path, query=query or {}, body=body, content_type=content_type, accept=accept)
        return _parsed(f"{method} {path}", content)

    def _read(
        self,
        method: str,
        path: str,
        *,
        query: Mapping[str, str],
        accept: str,
        body: Object | JsonPatch | None = None,
        content_type: str = "application/json",
    ) -> bytes:
        answer = self._send(method, path, query=query, accept=accept, body=body, content_type=content_type)
        return _content(f"{method} {path}", answer)

    def _send(
        self,
        method: str,
        path: str,
        *,
        query: Mapping[str, str],
        body: Object | JsonPatch | None = None,
        content_type: str = "application/json",
        accept: str = "application/json",
        timeout: Timeout | None = None,
    ) -> Response:
        words = _encode({key: value for key, value in query.items() if value})
        headers = {"Accept": accept, "User-Agent": "driverwright"}
        if body is not None:
            headers["Content-Type"] = content_type
        try:
            answer = self._connection.send(
                method, f"{path}?{words}" if words else path, body=None if body is None else json.dumps(body),
                headers=headers, timeout=timeout or self._timeout_seconds,
            )  # fmt: skip
            if answer.status < 300:
                return answer
            with closing(answer):
                content = answer.read()
        except Unreachable as error:
            raise Unreachable(f"{method} {path}: no response from the API server: {error}") from error
        raise from_response(f"{method} {path}", answer.status, content, answer.header("Retry-After"))


def _content(request: str, answer: Response) -> bytes:
    try:
        with closing(answer):
            return answer.read()
    except Unreachable as error:
        raise Unreachable(f"{request}: the response was cut off: {error}") from error


def _parsed(request: str, content: bytes) -> Object:
    try:
        answer = json.loads(content)
    except (ValueError, RecursionError) as error:
        raise Unreachable(f"{request}: the response is not JSON: {error}") from error
    if not isinstance(answer, dict):
        raise Unreachable(f"{request}: the response is not an object: is this an API server?")
    return answer


def _encode(query: Mapping[str, str]) -> str:
    text = "".join((*query, *query.values())).replace("-", "")
    if (text.isascii() and text.isalnum()) or not text:
        return "&".join(f"{key}={value}" for key, value in query.items())
    from urllib.parse import urlencode  # noqa: PLC0415 - slow to import, and the publish child has no use for it

    return urlencode(query)


def _lines(request: str, answer: Response, *, longest: int | None = None) -> Iterator[bytes]:
    """Split a body at newlines, as soon as each line is whole; the last one may lack its newline.

    Of a line in many chunks ``longest`` bytes are kept, then those of the last chunk.
    """
    rest = b""
    try:
        for chunk in answer.chunks():
            *lines, rest = (rest[:longest] + chunk).split(b"\n")
            yield from (line for line in lines if line.strip())
    except Unreachable as error:
        raise Unreachable(f"{request}: {error}") from error
    if rest.strip():
        yield rest


def _events(path: str, answer: Response) -> Iterator[WatchEvent]:
    with closing(answer):
        for line in _lines(f"WATCH {path}", answer):
            yield _event(path, line)


def _event(path: str, line: bytes) -> WatchEvent:
    """Read one line of a watch.

    Raises:
        KubeApiError: the error that the server reports in it, or Unreachable for a line that is not an event.
    """
    try:
        event = json.loads(line)
        kind, obj = event["type"], event["object"]
        code = int(obj.get("code") or 500) if kind == "ERROR" else 0
        is_event = kind in _EVENT_TYPES and (kind == "ERROR" or isinstance(obj["metadata"], dict))
    except (ValueError, KeyError, TypeError, AttributeError, RecursionError) as error:
        raise Unreachable(f"WATCH {path}: {line[:300]!r} is not a watch event") from error
    if not is_event:
        raise Unreachable(f"WATCH {path}: {line[:300]!r} is not a watch event")
    if kind == "ERROR":
        raise _watch_error(path, code, obj)
    return WatchEvent(kind, obj)


def _watch_error(path: str, code: int, status: Object) -> KubeApiError:
    error = from_response(f"WATCH {path}", code, json.dumps(status))
    return Gone(str(error), status=410, reason="Expired") if code in (410, 504) else error
