"""A proxy that breaks exchanges on purpose: before an API server, a registry or a container engine.

Each request is read whole, and its :class:`~tests.support.soak.faults.Script` says what becomes of it. With a
certificate it speaks TLS to its clients. It speaks TLS to an ``https`` server and passes on whatever identifies the
client, such as a token; an engine's socket is ``unix:///path``.
"""

from __future__ import annotations

import http.client
import json
import socket
import ssl
import struct
import threading
import time
from collections.abc import Callable, Iterator
from contextlib import suppress
from dataclasses import dataclass
from http.server import BaseHTTPRequestHandler, ThreadingHTTPServer
from pathlib import Path
from typing import Any
from urllib.parse import urlsplit

from tests.support.soak.faults import (
    RETRY_AFTER_SECONDS,
    STATUS,
    Exchange,
    Fault,
    Script,
    content_of,
    exchange_of,
)
from tests.support.soak.other_content import corrupted, other_content

DELAY_SECONDS = 3.0
"""Longer than a client of the Lease waits."""
DRIPS, DRIP_SECONDS = 20, 0.15
MAX_BODY = 256 << 20
UPSTREAM_SECONDS = 300.0
STREAMS = frozenset({Exchange.WATCH, Exchange.BUILD})
"""Answers that are passed on as they come."""

_PER_HOP = frozenset({"connection", "transfer-encoding", "keep-alive", "content-length", "date", "server"})
_RESET = struct.pack("ii", 1, 0)
OTHER_DIGEST = "sha256:" + "0" * 64


@dataclass(frozen=True, slots=True, kw_only=True)
class Passed:
    """A request that the server behind the proxy has answered: ``at`` is a moment of the monotonic clock."""

    at: float
    method: str
    target: str
    status: int
    exchange: Exchange
    digest: str
    """What the server called the content, where it is a registry."""


Note = Callable[[Passed], None]


class _Cut(Exception):
    """The exchange ends here, without a word to the client."""


class _Server(ThreadingHTTPServer):
    daemon_threads = True
    request_queue_size = 128

    def handle_error(self, *_: object) -> None:
        """Say nothing of clients that are gone."""


class _UnixConnection(http.client.HTTPConnection):
    def __init__(self, path: str) -> None:
        super().__init__("localhost", timeout=UPSTREAM_SECONDS)
        self._path = path

    def connect(self) -> None:
        self.sock = socket.socket(socket.AF_UNIX)
        self.sock.settimeout(UPSTREAM_SECONDS)
        self.sock.connect(self._path)


class FaultProxy:
    """Listens on a free port of 127.0.0.1 and passes everything on to ``upstream``, but for the faults of ``script``.

    ``ca_file`` is what the server's certificate is checked with, ``certificate`` the proxy's own (``.crt`` and
    ``.key`` beside each other, without the ending). ``note`` is told of each request that the server answered, before
    its client hears of it. Proxies may share a ``script``.
    """

    def __init__(
        self,
        upstream: str,
        *,
        ca_file: str = "",
        certificate: Path | None = None,
        script: Script | None = None,
        note: Note = lambda _passed: None,
    ) -> None:
        self.script = script or Script()
        self._upstream = urlsplit(upstream)
        self._trust = ssl.create_default_context(cafile=ca_file) if ca_file else None
        self._identity = _identity(certificate) if certificate is not None else None
        self._note = note
        self._lock = threading.Lock()
        self._open: set[socket.socket] = set()
        self._silent: list[threading.Event] = []
        self._is_away = threading.Event()
        self._server = _Server(("127.0.0.1", 0), self._handler())
        self._thread = threading.Thread(target=self._server.serve_forever, kwargs={"poll_interval": 0.1}, daemon=True)
        self._thread.start()
        self.host = f"127.0.0.1:{self._server.server_port}"

    def __enter__(self) -> FaultProxy:
        return self

    def __exit__(self, *_: object) -> None:
        self.close()

    def drop(self) -> int:
        """Break all connections of clients that are open now; gives how many there were."""
        with self._lock:
            found = list(self._open)
        for connection in found:
            _reset(connection)
        return len(found)

    def leave(self) -> None:
        """Break every connection, the open ones and new ones, until :meth:`come_back`."""
        self._is_away.set()
        self.drop()

    def come_back(self) -> None:
        """Take connections again."""
        self._is_away.clear()

    def speak(self) -> None:
        """Let silent watches bring what they held back, and all that comes."""
        with self._lock:
            silent, self._silent = self._silent, []
        for event in silent:
            event.set()

    def _wait_in_silence(self) -> None:
        event = threading.Event()
        with self._lock:
            self._silent.append(event)
        event.wait()

    def close(self) -> None:
        """Stop listening, and break what is still open."""
        self.speak()
        self._server.shutdown()
        self._server.server_close()
        self.drop()
        self._thread.join()

    def _connect(self) -> http.client.HTTPConnection:
        if self._upstream.scheme == "unix":
            return _UnixConnection(self._upstream.path)
        if self._trust is not None:
            return http.client.HTTPSConnection(self._upstream.netloc, timeout=UPSTREAM_SECONDS, context=self._trust)
        return http.client.HTTPConnection(self._upstream.netloc, timeout=UPSTREAM_SECONDS)

    def _handler(self) -> type[BaseHTTPRequestHandler]:
        proxy = self

        class Handler(BaseHTTPRequestHandler):
            protocol_version = "HTTP/1.1"
            disable_nagle_algorithm = True

            def setup(self) -> None:
                """Speak TLS in the thread of the connection: a slow client keeps nobody else waiting."""
                if proxy._identity is not None:
                    self.request.settimeout(UPSTREAM_SECONDS)
                    self.request = proxy._identity.wrap_socket(self.request, server_side=True)
                super().setup()
                with proxy._lock:
                    proxy._open.add(self.connection)

            def finish(self) -> None:
                """Forget the connection."""
                with proxy._lock:
                    proxy._open.discard(self.connection)
                with suppress(OSError):
                    super().finish()
                if proxy._identity is not None:
                    self.connection.close()

            def pass_on(self) -> None:
                """Carry out one request, or do what its fault asks for."""
                try:
                    _Hop(proxy, self).carry_out()
                except (_Cut, OSError, http.client.HTTPException, ValueError):
                    self.close_connection = True
                    _reset(self.connection)

            do_GET = do_HEAD = do_POST = do_PUT = do_PATCH = do_DELETE = pass_on  # noqa: N815

            def log_message(self, format: str, *args: Any) -> None:
                """Say nothing."""

        return Handler


class _Hop:
    """One exchange."""

    def __init__(self, proxy: FaultProxy, client: BaseHTTPRequestHandler) -> None:
        self._proxy = proxy
        self._client = client
        self._exchange = exchange_of(client.command, client.path)
        self._is_registry = client.path.startswith("/v2/")

    def carry_out(self) -> None:
        """Do it."""
        body = _body(self._client)
        fault = self._proxy.script.next(self._exchange)
        if fault is Fault.CUT_BEFORE or self._proxy._is_away.is_set():
            raise _Cut
        if fault is Fault.DELAY:
            time.sleep(DELAY_SECONDS)
        if fault in STATUS and not (fault is Fault.GONE and self._exchange is Exchange.WATCH):
            self._answer_instead(fault)
            return
        connection = self._proxy._connect()
        try:
            self._send(connection, body, fault)
            self._answer(connection.getresponse(), fault)
        finally:
            connection.close()

    def _send(self, connection: http.client.HTTPConnection, body: bytes, fault: Fault | None) -> None:
        client = self._client
        connection.putrequest(client.command, client.path, skip_host=True, skip_accept_encoding=True)
        for name, value in client.headers.items():
            if name.lower() not in _PER_HOP:
                connection.putheader(name, value)
        # Of a request without a body it is the head that breaks off.
        is_half = fault is Fault.CUT_MIDWAY
        connection.putheader("Content-Length", str(len(body) + (1 if is_half and not body else 0)))
        connection.putheader("Connection", "close")
        connection.endheaders(body[: len(body) // 2] if is_half else body)
        if is_half:
            raise _Cut

    def _answer(self, answer: http.client.HTTPResponse, fault: Fault | None) -> None:
        if self._exchange in STREAMS and answer.status == 200:
            self._noted(answer)
            self._stream(answer, fault)
            return
        content = answer.read()
        self._noted(answer)
        if fault is Fault.CUT_AFTER:
            raise _Cut
        if fault is Fault.CORRUPT:
            content = corrupted(content)
        kind = content_of(self._client.command, self._client.path, answer.status, content)
        if kind is not None and self._proxy.script.next(kind) is Fault.OTHER_CONTENT:
            content = other_content(content)
        self._head(answer, fault)
        length = answer.getheader("Content-Length", "0") if self._client.command == "HEAD" else str(len(content))
        self._client.send_header("Content-Length", length)
        self._client.end_headers()
        self._write(b"" if self._client.command == "HEAD" else content, fault)

    def _head(self, answer: http.client.HTTPResponse, fault: Fault | None) -> None:
        self._client.send_response_only(answer.status)
        for name, value in answer.getheaders():
            if name.lower() not in _PER_HOP:
                is_other = fault is Fault.OTHER_DIGEST and name.lower() == "docker-content-digest"
                self._client.send_header(name, OTHER_DIGEST if is_other else value)

    def _write(self, content: bytes, fault: Fault | None) -> None:
        if fault is Fault.TRUNCATE:
            self._client.wfile.write(content[: len(content) // 2])
            raise _Cut
        if fault is Fault.DRIP:
            for piece in _pieces(content):
                self._client.wfile.write(piece)
                time.sleep(DRIP_SECONDS)
            return
        self._client.wfile.write(content)

    def _stream(self, answer: http.client.HTTPResponse, fault: Fault | None) -> None:
        """Pass on what comes; a fault follows what came first."""
        if fault is Fault.CUT_AFTER:
            raise _Cut
        self._head(answer, None)
        self._client.send_header("Transfer-Encoding", "chunked")
        self._client.end_headers()
        if fault is Fault.SILENCE:
            self._proxy._wait_in_silence()
        if fault is Fault.GONE:
            self._chunk(_gone_event())
        elif fault is Fault.CORRUPT:
            self._chunk(b'{"type": "MODIFIED", "object": {"metadata": <html>\n')
        while fault is not Fault.GONE and (chunk := answer.read1(1 << 16)):
            if fault is Fault.TRUNCATE:
                self._chunk(chunk[: len(chunk) // 2])
                raise _Cut
            if fault is Fault.DRIP:
                time.sleep(DRIP_SECONDS)
            self._chunk(chunk)
        self._client.wfile.write(b"0\r\n\r\n")

    def _chunk(self, content: bytes) -> None:
        if content:
            self._client.wfile.write(b"%x\r\n%b\r\n" % (len(content), content))

    def _answer_instead(self, fault: Fault) -> None:
        status = STATUS[fault]
        content = _error(status, is_registry=self._is_registry)
        self._client.send_response_only(status)
        self._client.send_header("Content-Type", "application/json")
        self._client.send_header("Content-Length", str(len(content)))
        if fault in (Fault.TOO_MANY, Fault.UNAVAILABLE):
            self._client.send_header("Retry-After", str(RETRY_AFTER_SECONDS))
        self._client.end_headers()
        if self._client.command != "HEAD":
            self._client.wfile.write(content)

    def _noted(self, answer: http.client.HTTPResponse) -> None:
        self._proxy._note(
            Passed(
                at=time.monotonic(),
                method=self._client.command,
                target=self._client.path,
                status=answer.status,
                exchange=self._exchange,
                digest=answer.getheader("Docker-Content-Digest", ""),
            )
        )


def _body(client: BaseHTTPRequestHandler) -> bytes:
    if client.headers.get("Transfer-Encoding", "").lower() == "chunked":
        return b"".join(_chunks(client))
    length = int(client.headers.get("Content-Length") or 0)
    if length > MAX_BODY:
        raise ValueError(f"a body of {length} bytes")
    body = client.rfile.read(length)
    if len(body) < length:
        raise _Cut
    return body


def _chunks(client: BaseHTTPRequestHandler) -> Iterator[bytes]:
    left = MAX_BODY
    while size := int(client.rfile.readline(64), 16):
        left -= size
        if left < 0:
            raise ValueError("a body without an end")
        yield client.rfile.read(size)
        client.rfile.readline(64)
    client.rfile.readline(64)


def _pieces(content: bytes) -> Iterator[bytes]:
    size = max(1, -(-len(content) // DRIPS))
    return (content[at : at + size] for at in range(0, len(content), size))


def _error(status: int, *, is_registry: bool) -> bytes:
    """Make the answer of a server that fails: a registry's errors, or what an API server and an engine have."""
    words = "the soak said so"
    if is_registry:
        code = {401: "UNAUTHORIZED", 429: "TOOMANYREQUESTS"}.get(status, "UNKNOWN")
        return json.dumps({"errors": [{"code": code, "message": words}]}).encode()
    reason = {401: "Unauthorized", 410: "Expired", 429: "TooManyRequests", 503: "ServiceUnavailable"}
    body = {"kind": "Status", "apiVersion": "v1", "status": "Failure", "code": status, "message": words}
    return json.dumps({**body, "reason": reason.get(status, "InternalError")}).encode()


def _gone_event() -> bytes:
    status = {"kind": "Status", "code": 410, "reason": "Expired", "message": "too old resource version"}
    return json.dumps({"type": "ERROR", "object": status}).encode() + b"\n"


def _identity(certificate: Path) -> ssl.SSLContext:
    context = ssl.SSLContext(ssl.PROTOCOL_TLS_SERVER)
    context.load_cert_chain(f"{certificate}.crt", f"{certificate}.key")
    return context


def _reset(connection: socket.socket) -> None:
    with suppress(OSError):
        connection.setsockopt(socket.SOL_SOCKET, socket.SO_LINGER, _RESET)
    with suppress(OSError):
        # An SSL socket's own shutdown() would forget its TLS state under a reader in another thread.
        socket.socket.shutdown(connection, socket.SHUT_RDWR)
