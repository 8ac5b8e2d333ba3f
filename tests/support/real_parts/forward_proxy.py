"""A proxy on this machine as builds are given one: CONNECT for https, absolute URLs for http, by name and password.

All names are those of one server: a client that does not ask the proxy cannot resolve them.
"""

from __future__ import annotations

import base64
import http.client
import http.server
import socket
import threading
from collections.abc import Iterator
from contextlib import contextmanager, suppress
from dataclasses import dataclass, field
from urllib.parse import urlsplit

SECONDS = 60.0


@dataclass(frozen=True, slots=True)
class ForwardProxy:
    """Its address, and what it was asked for: the hosts that clients named, or ``refused`` without the password."""

    url: str
    asked: list[str] = field(default_factory=list)


@contextmanager
def forward_proxy(server: str, *, username: str, password: str) -> Iterator[ForwardProxy]:
    """Give a proxy while the block runs; ``server`` is the URL that all names lead to."""
    expected = "Basic " + base64.b64encode(f"{username}:{password}".encode()).decode()
    target = urlsplit(server)
    address = (target.hostname or "", target.port or 0)
    asked: list[str] = []

    class Handler(http.server.BaseHTTPRequestHandler):
        # A client that gives its password once it is asked does that in the same connection.
        protocol_version = "HTTP/1.1"

        def _may(self, host: str) -> bool:
            if self.headers.get("Proxy-Authorization") == expected:
                asked.append(host)
                return True
            asked.append("refused")
            self.send_response(407)
            self.send_header("Proxy-Authenticate", 'Basic realm="proxy"')
            self.send_header("Content-Length", "0")
            self.end_headers()
            return False

        def do_CONNECT(self) -> None:
            """Connect a client with the server, until one of them ends."""
            if not self._may(self.path.rpartition(":")[0]):
                return
            with socket.create_connection(address, timeout=SECONDS) as upstream:
                self.send_response(200)
                self.end_headers()
                self.connection.settimeout(SECONDS)
                back = threading.Thread(target=_pump, args=(upstream, self.connection), daemon=True)
                back.start()
                _pump(self.connection, upstream)
                back.join()
            self.close_connection = True

        def do_GET(self) -> None:
            """Fetch a URL for a client."""
            url = urlsplit(self.path)
            if not self._may(url.hostname or ""):
                return
            upstream = http.client.HTTPConnection(*address, timeout=SECONDS)
            upstream.request("GET", f"{url.path}?{url.query}" if url.query else url.path)
            answer = upstream.getresponse()
            content = answer.read()
            self.send_response(answer.status)
            self.send_header("Content-Length", str(len(content)))
            self.end_headers()
            self.wfile.write(content)
            upstream.close()

        def log_message(self, *_: object) -> None:
            """Say nothing."""

    with http.server.ThreadingHTTPServer(("127.0.0.1", 0), Handler) as proxy:
        thread = threading.Thread(target=proxy.serve_forever, kwargs={"poll_interval": 0.05}, daemon=True)
        thread.start()
        try:
            yield ForwardProxy(f"http://127.0.0.1:{proxy.server_port}", asked)
        finally:
            proxy.shutdown()
            thread.join()


def _pump(source: socket.socket, sink: socket.socket) -> None:
    """Pass on what comes, until it ends."""
    with suppress(OSError):
        while chunk := source.recv(65536):
            sink.sendall(chunk)
    with suppress(OSError):
        sink.shutdown(socket.SHUT_WR)
