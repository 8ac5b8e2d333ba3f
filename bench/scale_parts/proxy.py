"""A proxy before the API server, with the API server's certificate: it notes each request of the controller.

It can also end all watches and answer 410 to the next of each collection, as an API server does that has forgotten from
where a watch is to go on: everything is listed anew.
"""

import http.client
import json
import ssl
import threading
import time
from collections import Counter
from collections.abc import Iterable
from contextlib import suppress
from http.server import BaseHTTPRequestHandler, ThreadingHTTPServer
from pathlib import Path
from typing import Any, NamedTuple
from urllib.parse import parse_qs, urlsplit

WRITES = ("POST", "PUT", "PATCH", "DELETE")
_PER_HOP = frozenset({"connection", "transfer-encoding", "keep-alive", "content-length", "date", "server", "host"})
_GONE = json.dumps({"kind": "Status", "code": 410, "reason": "Expired", "message": "too old resource version"}).encode()
_CHUNK = 1 << 16


class Request(NamedTuple):
    """A request, by the monotonic time at which it came."""

    at: float
    verb: str
    path: str

    @property
    def resource(self) -> str:
        """The plural of what it is about."""
        return resource_of(self.path)

    @property
    def is_write(self) -> bool:
        """Whether it changes something other than the Lease."""
        return self.verb in WRITES and self.resource != "leases"


def verb_of(method: str, target: str) -> str:
    """Tell what a request does, in the API server's words for reads: GET, LIST, WATCH."""
    if method != "GET":
        return method
    parts = urlsplit(target)
    query = parse_qs(parts.query)
    if query.get("watch") == ["true"]:
        return "WATCH"
    return "GET" if _words(parts.path)[1] else "LIST"


def resource_of(path: str) -> str:
    """Name the resource that a path is about."""
    return _words(path)[0]


def _words(path: str) -> tuple[str, str]:
    """Split a path into the plural of a resource and the name of an object, empty for a collection."""
    words = path.strip("/").split("/")
    words = words[2:] if words[0] == "api" else words[3:]
    if words[:1] == ["namespaces"] and len(words) > 2:
        words = words[2:]
    return (words[0] if words else path, words[1] if len(words) > 1 else "")


def a_minute(requests: Iterable[Request], seconds: float) -> Counter[str]:
    """Count requests by verb and resource, and make it those of a minute, rounded."""
    counts = Counter(f"{request.verb} {request.resource}" for request in requests)
    return Counter({name: round(count * 60 / seconds) or 1 for name, count in counts.items()})


class _Server(ThreadingHTTPServer):
    daemon_threads = True
    request_queue_size = 64

    def handle_error(self, *_: object) -> None:
        """Say nothing of connections that broke."""


class CountingProxy:
    """Listens on a free port of 127.0.0.1; ``requests`` are in the order in which they came."""

    def __init__(self, port: int, ca_file: Path, certificate: Path, key: Path) -> None:
        self.requests: list[Request] = []
        self._upstream = port
        self._context = ssl.create_default_context(cafile=str(ca_file))
        self._forgotten: set[str] = set()
        self._watches: dict[int, http.client.HTTPSConnection] = {}
        self._lock = threading.Lock()
        self._server = _Server(("127.0.0.1", 0), self._handler())
        context = ssl.SSLContext(ssl.PROTOCOL_TLS_SERVER)
        context.load_cert_chain(certificate, key)
        socket = context.wrap_socket(self._server.socket, server_side=True, do_handshake_on_connect=False)
        self._server.socket = socket
        self.port = self._server.server_port
        threading.Thread(target=self._server.serve_forever, kwargs={"poll_interval": 0.1}, daemon=True).start()

    def close(self) -> None:
        """Stop listening."""
        self._server.shutdown()
        self._server.server_close()

    def since(self, at: float) -> list[Request]:
        """Give what came after a moment."""
        return [request for request in self.requests if request.at >= at]

    def forget(self) -> None:
        """End every watch, and have the next of each collection be too old."""
        with self._lock:
            watched = {request.path for request in self.requests if request.verb == "WATCH"}
            self._forgotten = set(watched)
            connections = list(self._watches.values())
        for connection in connections:
            if connection.sock is not None:
                with suppress(OSError):
                    connection.sock.shutdown(2)

    @property
    def are_all_told(self) -> bool:
        """Whether each collection's watch was refused since :meth:`forget`."""
        return not self._forgotten

    def _is_refused(self, verb: str, path: str) -> bool:
        with self._lock:
            if verb != "WATCH" or path not in self._forgotten:
                return False
            self._forgotten.discard(path)
            return True

    def _handler(self) -> type[BaseHTTPRequestHandler]:
        proxy = self

        class Handler(BaseHTTPRequestHandler):
            protocol_version = "HTTP/1.1"
            wbufsize = _CHUNK
            # Else a body waits for the acknowledgement of its head, for 40 ms.
            disable_nagle_algorithm = True

            def setup(self) -> None:
                super().setup()
                self.upstream = http.client.HTTPSConnection("127.0.0.1", proxy._upstream, context=proxy._context)

            def finish(self) -> None:
                with suppress(OSError):
                    super().finish()
                self.upstream.close()

            def pass_on(self) -> None:
                """Carry out one request."""
                try:
                    proxy._exchange(self, self.upstream)
                except (OSError, http.client.HTTPException):
                    self.close_connection = True

            do_GET = do_POST = do_PUT = do_PATCH = do_DELETE = pass_on  # noqa: N815

            def log_message(self, format: str, *args: Any) -> None:
                """Say nothing."""

        return Handler

    def _exchange(self, request: BaseHTTPRequestHandler, upstream: http.client.HTTPSConnection) -> None:
        verb, path = verb_of(request.command, request.path), urlsplit(request.path).path
        body = request.rfile.read(int(request.headers.get("Content-Length") or 0))
        self.requests.append(Request(time.monotonic(), verb, path))
        if self._is_refused(verb, path):
            _answer(request, 410, _GONE)
            return
        headers = {name: value for name, value in request.headers.items() if name.lower() not in _PER_HOP}
        upstream.request(request.command, request.path, body=body or None, headers=headers)
        if verb == "WATCH":
            self._watches[id(request)] = upstream
        try:
            _copy(upstream.getresponse(), request)
        finally:
            self._watches.pop(id(request), None)


def _answer(request: BaseHTTPRequestHandler, status: int, content: bytes) -> None:
    request.send_response_only(status)
    request.send_header("Content-Type", "application/json")
    request.send_header("Content-Length", str(len(content)))
    request.end_headers()
    request.wfile.write(content)
    request.wfile.flush()


def _copy(answer: http.client.HTTPResponse, request: BaseHTTPRequestHandler) -> None:
    """Pass a response on as it comes."""
    request.send_response_only(answer.status)
    for key, value in answer.getheaders():
        if key.lower() not in _PER_HOP:
            request.send_header(key, value)
    length = answer.getheader("Content-Length")
    request.send_header(*(("Transfer-Encoding", "chunked") if length is None else ("Content-Length", length)))
    request.end_headers()
    request.wfile.flush()
    while chunk := answer.read1(_CHUNK):
        request.wfile.write(chunk if length is not None else b"%x\r\n%s\r\n" % (len(chunk), chunk))
        request.wfile.flush()
    if length is None:
        request.wfile.write(b"0\r\n\r\n")
    request.wfile.flush()
    # Else the connection is not free for the next request.
    answer.close()
