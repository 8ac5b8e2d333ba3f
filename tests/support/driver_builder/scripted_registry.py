"""An HTTP server that answers by a script, for what a real registry cannot be made to do on demand."""

import hashlib
import json
import ssl
import threading
from collections.abc import Callable, Iterator, Mapping
from contextlib import contextmanager
from dataclasses import dataclass, field
from http.server import BaseHTTPRequestHandler, ThreadingHTTPServer
from typing import Any
from urllib.parse import parse_qs, urlsplit


@dataclass(frozen=True, kw_only=True)
class Request:
    """One request as it arrived; ``path`` without the query."""

    method: str
    path: str
    query: str
    headers: Mapping[str, str]
    body: bytes


@dataclass(frozen=True, kw_only=True)
class Reply:
    """What is answered."""

    status: int = 200
    headers: Mapping[str, str] = field(default_factory=dict)
    body: bytes = b""


Script = Callable[[Request], Reply]


@dataclass(frozen=True, kw_only=True)
class ScriptedRegistry:
    """Where the server listens, and what it was asked."""

    host: str
    requests: list[Request]


@contextmanager
def scripted_registry(script: Script, *, tls: ssl.SSLContext | None = None) -> Iterator[ScriptedRegistry]:
    """Serve ``script`` on a free port of this machine while the block runs; with ``tls`` as HTTPS."""
    requests: list[Request] = []

    class Handler(BaseHTTPRequestHandler):
        protocol_version = "HTTP/1.1"
        # Header and body are written apart: a client that delays its acknowledgements would hold the body back.
        disable_nagle_algorithm = True

        def answer(self) -> None:
            """Pass on, note down and answer one request."""
            body = self.rfile.read(int(self.headers.get("Content-Length") or 0))
            url = urlsplit(self.path)
            request = Request(
                method=self.command, path=url.path, query=url.query, headers=dict(self.headers), body=body
            )
            requests.append(request)
            reply = script(request)
            self.send_response(reply.status)
            for name, value in reply.headers.items():
                self.send_header(name, value)
            if "Content-Length" not in reply.headers:
                self.send_header("Content-Length", str(len(reply.body)))
            self.end_headers()
            self.wfile.write(b"" if self.command == "HEAD" else reply.body)

        do_GET = do_HEAD = do_POST = do_PUT = do_DELETE = answer  # noqa: N815  # names that http.server looks for

        def log_message(self, *_: object) -> None:
            """Say nothing on standard error."""

    server = ThreadingHTTPServer(("127.0.0.1", 0), Handler)
    if tls is not None:
        server.socket = tls.wrap_socket(server.socket, server_side=True)
    thread = threading.Thread(target=server.serve_forever, kwargs={"poll_interval": 0.02}, daemon=True)
    thread.start()
    try:
        yield ScriptedRegistry(host=f"127.0.0.1:{server.server_address[1]}", requests=requests)
    finally:
        server.shutdown()
        server.server_close()
        thread.join()


class MemoryRegistry:
    """A script that keeps blobs, manifests and tags; with ``keeps_referrers`` it is one of OCI distribution 1.1.

    With ``page`` it lists so many tags at once; without ``deletes`` it removes nothing; with ``keeps_tags`` it removes
    the one name that it is told, as crane's registry does.
    """

    def __init__(
        self, *, keeps_referrers: bool = False, deletes: bool = True, keeps_tags: bool = False, page: int = 1000
    ) -> None:
        self.blobs: dict[str, bytes] = {}
        self.manifests: dict[str, tuple[str, bytes]] = {}
        self.keeps_referrers = keeps_referrers
        self.deletes = deletes
        self.keeps_tags = keeps_tags
        self.page = page

    def __call__(self, request: Request) -> Reply:
        """Answer one request."""
        _, kind, name = request.path.rsplit("/", 2)
        if request.method == "POST":
            return Reply(status=202, headers={"Location": f"{request.path}1"})
        if request.method == "PUT":
            return self._put(request, kind, name)
        if request.method == "DELETE":
            return self._delete(name)
        if kind == "tags" or (kind == "referrers" and self.keeps_referrers):
            return self._tags(request) if kind == "tags" else self._referrers(name)
        media_type, body = self.manifests.get(name, ("", b"")) if kind == "manifests" else ("", b"")
        body = self.blobs.get(name, b"") if kind == "blobs" else body
        if body:
            return Reply(body=body, headers={"Content-Type": media_type})
        code = "MANIFEST_UNKNOWN" if kind == "manifests" else "BLOB_UNKNOWN"
        return Reply(status=404, body=json.dumps({"errors": [{"code": code, "message": "unknown"}]}).encode())

    def manifest(self, reference: str) -> dict[str, Any]:
        """A manifest as JSON."""
        content: dict[str, Any] = json.loads(self.manifests[reference][1])
        return content

    @property
    def tags(self) -> list[str]:
        """All tags, in their order."""
        return sorted(name for name in self.manifests if not name.startswith("sha256:"))

    def _delete(self, digest: str) -> Reply:
        if not self.deletes:
            return Reply(status=405, body=b'{"errors": [{"code": "UNSUPPORTED", "message": "not enabled"}]}')
        gone = self.manifests.get(digest)
        if gone is None:
            return Reply(status=404, body=b'{"errors": [{"code": "MANIFEST_UNKNOWN", "message": "unknown"}]}')
        self.manifests = {
            name: known
            for name, known in self.manifests.items()
            if (name != digest if self.keeps_tags else known != gone)
        }
        return Reply(status=202)

    def _tags(self, request: Request) -> Reply:
        (last,) = parse_qs(request.query).get("last", [""])
        rest = [tag for tag in self.tags if tag > last]
        shown = rest[: self.page]
        more = {"Link": f'<{request.path}?last={shown[-1]}>; rel="next"'} if len(rest) > len(shown) else {}
        return Reply(body=json.dumps({"name": "x", "tags": shown or None}).encode(), headers=more)

    def _referrers(self, digest: str) -> Reply:
        subjects = {
            name: json.loads(body).get("subject") or {}
            for name, (_, body) in self.manifests.items()
            if name.startswith("sha256:")
        }
        listed = [{"digest": name} for name, subject in subjects.items() if subject.get("digest") == digest]
        return Reply(body=json.dumps({"schemaVersion": 2, "manifests": listed}).encode())

    def _put(self, request: Request, kind: str, name: str) -> Reply:
        digest = f"sha256:{hashlib.sha256(request.body).hexdigest()}"
        if kind == "uploads":
            assert parse_qs(request.query)["digest"] == [digest]
            self.blobs[digest] = request.body
            return Reply(status=201)
        assert not name.startswith("sha256:") or name == digest
        self.manifests[name] = self.manifests[digest] = (request.headers["Content-Type"], request.body)
        subject = json.loads(request.body).get("subject")
        shown = {"OCI-Subject": subject["digest"]} if subject and self.keeps_referrers else {}
        return Reply(status=201, headers=shown)
