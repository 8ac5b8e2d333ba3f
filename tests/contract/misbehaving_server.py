"""A small HTTP server with one wrong answer for each path: faults that no real API server shows on demand."""

import json
import threading
import time
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from http.server import BaseHTTPRequestHandler, ThreadingHTTPServer
from typing import ClassVar


class Handler(BaseHTTPRequestHandler):
    """Looks the answer up by the request's path."""

    protocol_version = "HTTP/1.1"
    faults: ClassVar[dict[str, Callable[["Handler"], None]]] = {}

    def log_message(self, format: str, *args: object) -> None:
        """Say nothing."""

    def answer(self) -> None:
        """Read the request whole and do what its path asks for."""
        self.rfile.read(int(self.headers.get("Content-Length") or 0))
        self.faults[self.path.partition("?")[0]](self)

    do_GET = do_POST = do_PUT = do_PATCH = do_DELETE = answer  # noqa: N815 - names the library looks for

    def send(self, status: int, body: bytes, **headers: str) -> None:
        """Send a whole answer; a header's ``_`` stands for ``-``."""
        self.send_response(status)
        given = {key.replace("_", "-"): value for key, value in headers.items()}
        for key, value in {"Content-Length": str(len(body)), **given}.items():
            self.send_header(key, value)
        self.end_headers()
        self.wfile.write(body)

    def stream(self, *chunks: bytes, end: bool) -> None:
        """Send chunks as a watch does; without ``end`` the connection breaks off."""
        self.send_response(200)
        self.send_header("Transfer-Encoding", "chunked")
        self.end_headers()
        for chunk in chunks:
            self.wfile.write(f"{len(chunk):x}\r\n".encode() + chunk + b"\r\n")
        if end:
            self.wfile.write(b"0\r\n\r\n")
        self.close_connection = True


def status(code: int, reason: str, message: str = "said the server") -> bytes:
    """Make a metav1.Status."""
    return json.dumps({"kind": "Status", "code": code, "reason": reason, "message": message}).encode()


def event(kind: str, **obj: object) -> bytes:
    """Make one line of a watch."""
    return json.dumps({"type": kind, "object": obj}).encode() + b"\n"


def close(handler: Handler) -> None:
    """Close the connection without a word."""
    handler.close_connection = True


def hang(handler: Handler) -> None:
    """Answer when nobody waits any more."""
    time.sleep(1.0)
    handler.close_connection = True


def nonsense(handler: Handler) -> None:
    """Answer with something that is not HTTP."""
    handler.wfile.write(b"SSH-2.0-OpenSSH_9.2\r\n")
    handler.close_connection = True


ADDED = event("ADDED", metadata={"name": "a", "resourceVersion": "7"})

Handler.faults = {
    "/good": lambda h: h.send(200, b'{"kind": "Node", "metadata": {"name": "a"}}'),
    "/close": close,
    "/hang": hang,
    "/nonsense": nonsense,
    "/bad-gateway": lambda h: h.send(502, b"<html><h1>502 Bad Gateway</h1></html>", Content_Type="text/html"),
    "/login-page": lambda h: h.send(200, b"<html>Please log in</html>", Content_Type="text/html"),
    "/redirect": lambda h: h.send(302, b"", Location="/good"),
    "/cut-json": lambda h: h.send(200, b'{"items": [{"metadata"'),
    "/short-body": lambda h: h.send(200, b'{"a": 1}', Content_Length="5000", Connection="close"),
    "/a-list": lambda h: h.send(200, b"[1, 2]"),
    "/null": lambda h: h.send(200, b"null"),
    "/no-metadata": lambda h: h.send(200, b'{"hello": "world"}'),
    "/deep": lambda h: h.send(200, b"[" * 100_000),
    "/deep-error": lambda h: h.send(500, b"[" * 100_000),
    "/empty": lambda h: h.send(200, b""),
    "/too-many": lambda h: h.send(429, status(429, "TooManyRequests"), Retry_After="7"),
    "/odd-retry": lambda h: h.send(429, b"", Retry_After="\u00b2"),
    "/date-retry": lambda h: h.send(503, b"", Retry_After="Wed, 21 Oct 2015 07:28:00 GMT"),
    "/gone": lambda h: h.send(410, status(410, "Expired")),
    "/watch": lambda h: h.stream(ADDED[:9], ADDED[9:] + b"\n", end=True),
    "/watch-gone": lambda h: h.stream(ADDED, event("ERROR", code=410, reason="Expired", message="too old"), end=True),
    "/watch-timeout": lambda h: h.stream(event("ERROR", code=504, message="Too large resource version"), end=True),
    "/watch-error": lambda h: h.stream(event("ERROR", code=500, message="etcd is away"), end=True),
    "/watch-error-without-code": lambda h: h.stream(event("ERROR", message="?"), end=True),
    "/watch-cut": lambda h: h.stream(ADDED, ADDED[:20], end=False),
    "/watch-half-a-line": lambda h: h.stream(ADDED, ADDED[:20], end=True),
    "/watch-nonsense": lambda h: h.stream(ADDED, b"<html>\n", end=True),
    "/watch-no-event": lambda h: h.stream(ADDED, b'{"hello": 1}\n', end=True),
    "/watch-list": lambda h: h.stream(ADDED, b"[1]\n", end=True),
    "/watch-odd-error": lambda h: h.stream(b'{"type": "ERROR", "object": "no"}\n', end=True),
}


@contextmanager
def misbehaving_server() -> Iterator[str]:
    """Run the server on a free port of 127.0.0.1; returns its URL."""
    server = ThreadingHTTPServer(("127.0.0.1", 0), Handler)
    server.daemon_threads = True
    thread = threading.Thread(target=server.serve_forever, kwargs={"poll_interval": 0.02})
    thread.start()
    try:
        yield f"http://127.0.0.1:{server.server_port}"
    finally:
        server.shutdown()
        thread.join()
        server.server_close()
