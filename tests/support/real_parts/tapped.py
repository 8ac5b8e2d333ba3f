"""A proxy before an API server or a registry, which sees each write pass and may end its sender at that very moment.

How a controller is killed at a boundary: the write is done, and nobody hears the answer.
"""

from __future__ import annotations

import errno
import http.client
import json
import re
import ssl
import threading
import time
from collections.abc import Callable, Iterator
from contextlib import suppress
from http.server import BaseHTTPRequestHandler, ThreadingHTTPServer
from typing import Any
from urllib.parse import urlsplit

from kube_api import names

WRITES = ("POST", "PUT", "PATCH", "DELETE")
ANY_PORT = ("127.0.0.1", 0)
_PER_HOP = frozenset({"connection", "transfer-encoding", "keep-alive"})
_FREE_SECONDS = 300.0
_FIRST = ("lock", "taint", "wave", "validated", "ready", "draining")
"""What a patch of a Node in detail is named by first."""

Seen = Callable[[str], bool]
"""Told the name of each write after it was carried out; True: its sender gets no answer."""
WriteName = Callable[[str, str, bytes, int], str]
"""Names a write by method, path, body and the status of the answer; empty for what is none."""


class _Server(ThreadingHTTPServer):
    daemon_threads = True

    def handle_error(self, *_: object) -> None:
        """Say nothing of senders that are gone."""


class Tap:
    """Listens on a free port of this machine and passes everything on to ``upstream`` (http or https).

    ``coming`` is told the name of each write before it is carried out, and may take its time. An address ``at`` which
    another run of the tests has is waited for. ``name`` names writes, as :func:`write_name` does.
    """

    def __init__(
        self,
        upstream: str,
        seen: Seen,
        *,
        ca_file: str = "",
        coming: Callable[[str], object] = lambda _name: None,
        at: tuple[str, int] = ANY_PORT,
        name: WriteName | None = None,
    ) -> None:
        self._upstream = urlsplit(upstream)
        self._context = ssl.create_default_context(cafile=ca_file) if ca_file else None
        self._seen = seen
        self._coming = coming
        self._name = name or write_name
        self._open: set[http.client.HTTPConnection] = set()
        self._server = _listening(at, self._handler())
        self._thread = threading.Thread(target=self._server.serve_forever, kwargs={"poll_interval": 0.05}, daemon=True)
        self._thread.start()
        self.host = f"{at[0]}:{self._server.server_port}"

    def close(self) -> None:
        """Stop listening, and break what is still open."""
        self._server.shutdown()
        self._server.server_close()
        for connection in list(self._open):
            # Its own thread may close it at this moment.
            with suppress(OSError, AttributeError):
                connection.sock.shutdown(2)
        self._thread.join()

    def _connect(self) -> http.client.HTTPConnection:
        where = self._upstream.netloc
        if self._context is not None:
            return http.client.HTTPSConnection(where, timeout=60, context=self._context)
        return http.client.HTTPConnection(where, timeout=60)

    def _handler(self) -> type[BaseHTTPRequestHandler]:
        tap = self

        class Handler(BaseHTTPRequestHandler):
            protocol_version = "HTTP/1.1"

            def pass_on(self) -> None:
                """Carry out one request."""
                connection = tap._connect()
                tap._open.add(connection)
                try:
                    tap._exchange(self, connection)
                except (OSError, http.client.HTTPException):
                    # One of the two went away: that is what this is for.
                    self.close_connection = True
                finally:
                    tap._open.discard(connection)
                    connection.close()

            do_GET = do_HEAD = do_POST = do_PUT = do_PATCH = do_DELETE = pass_on  # noqa: N815

            def log_message(self, format: str, *args: Any) -> None:
                """Say nothing."""

        return Handler

    def _exchange(self, request: BaseHTTPRequestHandler, connection: http.client.HTTPConnection) -> None:
        body = request.rfile.read(int(request.headers.get("Content-Length") or 0))
        self._coming(self._name(request.command, request.path, body, 200))
        headers = {name: value for name, value in request.headers.items() if name.lower() not in _PER_HOP}
        connection.request(request.command, request.path, body=body or None, headers=headers)
        answer = connection.getresponse()
        content = b"" if _is_watch(request.path) else answer.read()
        name = self._name(request.command, request.path, body, answer.status)
        if name and self._seen(name):
            request.close_connection = True
            return
        request.send_response(answer.status)
        for key, value in answer.getheaders():
            if key.lower() not in _PER_HOP | {"content-length", "date", "server"}:
                request.send_header(key, value)
        if _is_watch(request.path):
            request.send_header("Connection", "close")
            request.end_headers()
            while chunk := answer.read1(1 << 16):
                request.wfile.write(chunk)
            request.close_connection = True
            return
        length = answer.getheader("Content-Length") if request.command == "HEAD" else str(len(content))
        request.send_header("Content-Length", length or "0")
        request.end_headers()
        request.wfile.write(content)


def _listening(at: tuple[str, int], handler: type[BaseHTTPRequestHandler]) -> _Server:
    end = time.monotonic() + _FREE_SECONDS
    while True:
        try:
            return _Server(at, handler)
        except OSError as error:
            if error.errno != errno.EADDRINUSE or time.monotonic() > end:
                raise
        time.sleep(0.5)


def _is_watch(path: str) -> bool:
    return "watch=" in urlsplit(path).query


def write_name(method: str, path: str, body: bytes, status: int) -> str:
    """Name a write by what it does, the same in every run; empty for a read, a failure, or the Lease's renewal."""
    path = urlsplit(path).path
    if method not in WRITES or status >= 400 or "/leases" in path:
        return ""
    if path.startswith("/v2/"):
        return _registry_write(method, path, body)
    kind, _, rest = re.sub(
        r"^.*?/(?=(?:nodes|drivercontainers|daemonsets|pods|events|configmaps)\b)", "", path
    ).partition("/")
    if rest.endswith("/eviction"):
        return "evict a pod"
    if kind == "drivercontainers":
        return "write the status" if rest.endswith("/status") else "write the finalizer"
    verbs = {"POST": "post", "PUT": "write", "PATCH": "write", "DELETE": "delete"}
    return f"{verbs[method]} {kind}"


def _registry_write(method: str, path: str, body: bytes) -> str:
    _, kind, name = path.rsplit("/", 2)
    if kind != "manifests":
        return "begin a blob" if method == "POST" else "push a blob"
    if name.startswith("sha256:"):
        return "push the manifest of a document" if b'"subject"' in body else "push the manifest"
    return "list a document" if name.startswith("sha256-") else "tag the image"


def write_in_detail(method: str, path: str, body: bytes, status: int) -> str:
    """Name a write as :func:`write_name` does, with what a Node gets and loses, and what a pod is for."""
    name = write_name(method, path, body, status)
    if name == "write nodes":
        return " ".join((name, *sorted(dict.fromkeys(_changes(json.loads(body))), key=_rank)))
    if name in ("post pods", "delete pods"):
        purpose = re.search(r"-(pull|validate|unload)-[0-9a-f]+", f"{urlsplit(path).path} {body.decode()}")
        return f"{name} {purpose[1]}" if purpose else name
    return name


def words_of(name: str) -> list[str]:
    """Return what a write in detail is, one by one: one patch may carry what are two in another run."""
    kind, _, words = name.partition(" nodes ")
    return [f"node {word}" for word in words.split()] if kind == "write" and words else [name]


def _rank(word: str) -> tuple[int, str]:
    return (_FIRST.index(word[1:]) if word[1:] in _FIRST else len(_FIRST)), word


def _changes(node: dict[str, Any]) -> Iterator[str]:
    """Yield what a patch of a Node sets and removes: the last word of each key."""
    metadata = node.get("metadata") or {}
    for kind in ("labels", "annotations"):
        for key, value in (metadata.get(kind) or {}).items():
            prefix, _, word = key.partition("/")
            own = prefix.removesuffix(f".{names.GROUP}") if prefix.endswith(f".{names.GROUP}") else word
            yield f"{'-' if value is None else '+'}{own.rpartition('.')[2]}"
    if "taints" in (node.get("spec") or {}):
        yield f"{'+' if node['spec']['taints'] else '-'}taint"
