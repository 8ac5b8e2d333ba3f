"""A web server on this machine for what builds fetch: one folder, as it is, on a free port."""

from __future__ import annotations

import functools
import http.server
import ssl
import threading
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path
from typing import Any


@contextmanager
def served(folder: Path, *, certificate: Path | None = None) -> Iterator[str]:
    """Serve a folder while the block runs; returns the URL of its top, without a slash at its end.

    ``certificate``, without its ending ``.crt`` and ``.key``, is for a server with TLS.
    """
    handler = functools.partial(_Silent, directory=str(folder))
    with _Server(("127.0.0.1", 0), handler) as server:
        if certificate is not None:
            tls = ssl.SSLContext(ssl.PROTOCOL_TLS_SERVER)
            tls.load_cert_chain(f"{certificate}.crt", f"{certificate}.key")
            # A client that refuses the certificate ends its own thread, not the one that accepts.
            server.socket = tls.wrap_socket(server.socket, server_side=True, do_handshake_on_connect=False)
        thread = threading.Thread(target=server.serve_forever, kwargs={"poll_interval": 0.05}, daemon=True)
        thread.start()
        try:
            yield f"{'https' if certificate else 'http'}://127.0.0.1:{server.server_port}"
        finally:
            server.shutdown()
            thread.join()


class _Server(http.server.ThreadingHTTPServer):
    def handle_error(self, *_: object) -> None:
        """Say nothing of clients that are gone, or do not trust us."""


class _Silent(http.server.SimpleHTTPRequestHandler):
    def log_message(self, format: str, *args: Any) -> None:
        """Say nothing."""
