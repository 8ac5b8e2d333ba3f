"""What a pod has that runs the worker: a service account's files, and an API server with TLS at the address it is told.

The files lie where the kubelet mounts them, in a mount namespace of this process's own: nothing of it stays.
"""

import ctypes
import json
import os
import ssl
import threading
import time
from http.server import BaseHTTPRequestHandler, HTTPServer
from pathlib import Path
from typing import Any

from testbed.pki import CertificateAuthority

_NEW_MOUNTS, _NEW_USER = 0x00020000, 0x10000000
_RECURSIVE, _PRIVATE = 1 << 14, 1 << 18
"""Constants of <sched.h> and <sys/mount.h>."""

IMAGES = 50
"""How many images the Node names, each by a tag and a digest: most of the bytes of a Node."""


def leave_mounts() -> None:
    """Give this process an empty /run of its own. Call it before any thread is started."""
    libc = ctypes.CDLL(None, use_errno=True)
    if libc.unshare(_NEW_MOUNTS) and libc.unshare(_NEW_USER | _NEW_MOUNTS):
        raise OSError(ctypes.get_errno(), "cannot leave the mount namespace")
    for source, target, kind, flags in (b"none", b"/", None, _RECURSIVE | _PRIVATE), (b"tmpfs", b"/run", b"tmpfs", 0):
        if libc.mount(source, target, kind, ctypes.c_ulong(flags), None):
            raise OSError(ctypes.get_errno(), f"cannot mount {target.decode()}")


def start_api_server(folder: Path) -> dict[str, str]:
    """Start the API server and mount an account for it; gives the environment of a pod's container."""
    authority = CertificateAuthority(folder / "pki")
    pair = authority.issue_files("server", "kube-apiserver", hosts=["127.0.0.1"])
    context = ssl.SSLContext(ssl.PROTOCOL_TLS_SERVER)
    context.load_cert_chain(f"{pair}.crt", f"{pair}.key")
    server = HTTPServer(("127.0.0.1", 0), ApiServer)
    server.socket = context.wrap_socket(server.socket, server_side=True)
    threading.Thread(target=server.serve_forever, daemon=True).start()
    account = Path("/run/secrets/kubernetes.io/serviceaccount")
    account.mkdir(parents=True)
    (account / "token").write_text("x" * 1000)
    (account / "ca.crt").write_bytes(authority.file.read_bytes())
    address = {"KUBERNETES_SERVICE_HOST": "127.0.0.1", "KUBERNETES_SERVICE_PORT": str(server.server_port)}
    return {"PATH": os.environ["PATH"], "PYTHONDONTWRITEBYTECODE": "1", "NODE_NAME": "bench", **address}


def _stored(applied: dict[str, Any]) -> dict[str, Any]:
    """Give the metadata of a Node after an apply of it, with the owners of its fields, as a real server has it."""
    owned: dict[str, dict[str, Any]] = {
        f"f:{name}": {f"f:{key}": {} for key in applied.get(name, {})} for name in ("labels", "annotations")
    }
    entry = {"manager": "nfd-worker", "operation": "Apply", "apiVersion": "v1", "fieldsType": "FieldsV1"}
    entries = [{**entry, "time": "2026-01-01T00:00:00Z", "fieldsV1": {"f:metadata": owned}}]
    return {"uid": "0f5a8a0e-3a39-4f0d-8f3b-2f0bb0a2a7d1", "resourceVersion": "1", **applied, "managedFields": entries}


def _node(metadata: dict[str, Any], *, metadata_only: bool) -> bytes:
    if metadata_only:
        kind = {"apiVersion": "meta.k8s.io/v1", "kind": "PartialObjectMetadata"}
        return json.dumps({**kind, "metadata": metadata}).encode()
    digest = "sha256:" + "0123456789abcdef" * 4
    images = [f"registry.example/team/image-{number}" for number in range(IMAGES)]
    status = {"images": [{"names": [f"{name}@{digest}", f"{name}:1.0"], "sizeBytes": 1 << 27} for name in images]}
    return json.dumps({"apiVersion": "v1", "kind": "Node", "metadata": metadata, "status": status}).encode()


class ApiServer(BaseHTTPRequestHandler):
    """Keeps what is applied to its Node, and notes when each request came and how many bytes it had.

    ``sent``: the bytes of the last answer.
    """

    protocol_version = "HTTP/1.1"
    received: list[tuple[float, str, int]] = []  # noqa: RUF012 - one server in this process
    node: dict[str, Any] = {"name": "bench"}  # noqa: RUF012 - as above
    sent = 0

    def do_PATCH(self) -> None:
        """Take a patch; the Node is what was sent."""
        ApiServer.node = _stored(json.loads(self.rfile.read(int(self.headers["Content-Length"])))["metadata"])
        self._answer()

    def do_GET(self) -> None:
        """Give the Node, or its metadata alone."""
        self._answer()

    def _answer(self) -> None:
        size = len(self.requestline) + len("\r\n") + len(bytes(self.headers)) + int(self.headers["Content-Length"] or 0)
        self.received.append((time.monotonic(), self.command, size))
        body = _node(self.node, metadata_only="PartialObjectMetadata" in (self.headers["Accept"] or ""))
        ApiServer.sent = len(body)
        self.send_response(200)
        self.send_header("Content-Type", "application/json")
        self.send_header("Content-Length", str(len(body)))
        self.end_headers()
        self.wfile.write(body)

    def log_message(self, *_arguments: object) -> None:
        """Say nothing."""
