"""The proxy of the soak does what it is told to, on a plain server, a TLS server and a socket."""

from __future__ import annotations

import http.client
import json
import select
import socketserver
import ssl
import threading
from collections.abc import Iterator
from contextlib import contextmanager
from http.server import BaseHTTPRequestHandler, ThreadingHTTPServer
from pathlib import Path
from typing import ClassVar

import pytest

from driver_builder.model.images import MODULES_LABEL
from testbed.pki import CertificateAuthority
from tests.support.soak import fault_proxy
from tests.support.soak.fault_proxy import OTHER_DIGEST, FaultProxy, Passed
from tests.support.soak.faults import Exchange, Fault, PlannedFault, Script, content_of, exchange_of
from tests.support.soak.other_content import corrupted, other_content

pytestmark = [pytest.mark.long]

CONTENT = json.dumps({"items": list(range(100))}).encode()
DIGEST = "sha256:" + "a" * 64


class Echo(BaseHTTPRequestHandler):
    """Answers with JSON, or with a stream where it is asked for one, and remembers what it was sent."""

    protocol_version = "HTTP/1.1"
    seen: ClassVar[list[tuple[str, str, bytes, str]]] = []

    def log_message(self, format: str, *args: object) -> None:
        """Say nothing."""

    def address_string(self) -> str:
        """Name the client: one of a socket has no address."""
        return ""

    def answer(self) -> None:
        """Answer."""
        length = int(self.headers.get("Content-Length") or 0)
        body = self.rfile.read(length)
        if len(body) < length:
            self.close_connection = True
            return
        self.seen.append((self.command, self.path, body, self.headers.get("Authorization", "")))
        self.send_response_only(200)
        self.send_header("Docker-Content-Digest", DIGEST)
        if "watch=true" in self.path:
            self.send_header("Transfer-Encoding", "chunked")
            self.end_headers()
            for line in (b'{"type": "ADDED"}\n', b'{"type": "DELETED"}\n'):
                self.wfile.write(b"%x\r\n%b\r\n" % (len(line), line))
            self.wfile.write(b"0\r\n\r\n")
            return
        self.send_header("Content-Length", str(len(CONTENT)))
        self.end_headers()
        if self.command != "HEAD":
            self.wfile.write(CONTENT)

    do_GET = do_HEAD = do_POST = do_PUT = answer  # noqa: N815 - names the library looks for


@contextmanager
def running(server: socketserver.BaseServer) -> Iterator[None]:
    """Serve for a while."""
    thread = threading.Thread(target=server.serve_forever, kwargs={"poll_interval": 0.02})
    thread.start()
    try:
        yield
    finally:
        server.shutdown()
        thread.join()
        server.server_close()


@pytest.fixture
def server() -> Iterator[str]:
    """A plain server's URL."""
    Echo.seen.clear()
    made = ThreadingHTTPServer(("127.0.0.1", 0), Echo)
    with running(made):
        yield f"http://127.0.0.1:{made.server_port}"


@pytest.fixture
def noted() -> list[Passed]:
    """What the proxy says that passed."""
    return []


@pytest.fixture
def proxy(server: str, noted: list[Passed], monkeypatch: pytest.MonkeyPatch) -> Iterator[FaultProxy]:
    """A proxy before the plain server."""
    monkeypatch.setattr(fault_proxy, "DELAY_SECONDS", 0.01)
    monkeypatch.setattr(fault_proxy, "DRIP_SECONDS", 0.001)
    with FaultProxy(server, note=noted.append) as made:
        yield made


def plan(proxy: FaultProxy, fault: Fault, *on: Exchange) -> None:
    """Let the next exchange, or the next of some classes, have a fault."""
    proxy.script.arm([PlannedFault(fault=fault, on=frozenset(on or Exchange))])


def ask(proxy: FaultProxy, method: str = "GET", path: str = "/v2/x", body: bytes | None = None) -> tuple[int, bytes]:
    """Send one request."""
    connection = http.client.HTTPConnection(proxy.host, timeout=30)
    try:
        connection.request(method, path, body=body, headers={"Authorization": "Bearer me"})
        answer = connection.getresponse()
        return answer.status, answer.read()
    finally:
        connection.close()


def test_without_faults_everything_passes(proxy: FaultProxy, noted: list[Passed]) -> None:
    """Method, target, body and who the client is."""
    assert ask(proxy, "PUT", "/v2/x?a=b", b"content") == (200, CONTENT)
    assert ask(proxy, "HEAD") == (200, b"")
    assert Echo.seen == [("PUT", "/v2/x?a=b", b"content", "Bearer me"), ("HEAD", "/v2/x", b"", "Bearer me")]
    assert [(item.method, item.status, item.digest) for item in noted] == [("PUT", 200, DIGEST), ("HEAD", 200, DIGEST)]


def test_a_connection_is_kept_for_further_requests(proxy: FaultProxy) -> None:
    """As the server behind it would."""
    connection = http.client.HTTPConnection(proxy.host, timeout=30)
    for _ in range(3):
        connection.request("POST", "/v2/x", body=iter([b"one", b"two"]), encode_chunked=True,
                           headers={"Transfer-Encoding": "chunked"})  # fmt: skip
        assert connection.getresponse().read() == CONTENT
    connection.close()
    assert [body for _, _, body, _ in Echo.seen] == [b"onetwo"] * 3


@pytest.mark.parametrize("fault", [Fault.CUT_BEFORE, Fault.CUT_MIDWAY, Fault.CUT_AFTER], ids=str)
def test_an_exchange_that_is_cut_has_no_answer(proxy: FaultProxy, fault: Fault) -> None:
    """Only one that is cut afterwards is carried out, and the next one is answered."""
    plan(proxy, fault)
    with pytest.raises((http.client.HTTPException, OSError)):
        ask(proxy, "POST", body=b"content")
    assert [body for _, _, body, _ in Echo.seen] == ([b"content"] if fault is Fault.CUT_AFTER else [])
    assert ask(proxy) == (200, CONTENT)


def test_a_truncated_answer_says_how_long_it_was_to_be(proxy: FaultProxy) -> None:
    """So that a client notices."""
    plan(proxy, Fault.TRUNCATE)
    with pytest.raises((http.client.IncompleteRead, ConnectionResetError)):
        ask(proxy)


def test_a_corrupt_answer_is_no_json(proxy: FaultProxy) -> None:
    """It has the same length."""
    plan(proxy, Fault.CORRUPT)
    status, content = ask(proxy)
    assert (status, len(content)) == (200, len(CONTENT))
    with pytest.raises(ValueError, match="Expecting value"):
        json.loads(content)


@pytest.mark.parametrize("content", [b"[1]", b"\x1f\x8b" + bytes(40), b"x"], ids=["json", "binary", "one byte"])
def test_corrupt_content_has_its_length_alone(content: bytes) -> None:
    """Whatever it is."""
    assert corrupted(content) != content
    assert len(corrupted(content)) == len(content)


CONFIG = {"config": {"Labels": {MODULES_LABEL: json.dumps([{"name": "edu", "identity": "abc1"}])}}, "os": "linux"}


def test_other_content_is_another_manifest_or_other_modules() -> None:
    """Both have the form of what they replace."""
    manifest = {"schemaVersion": 2, "config": {"digest": "d"}, "layers": [], "annotations": {"a": "b"}}
    other = json.loads(other_content(json.dumps(manifest).encode()))
    assert {**other, "annotations": {"a": "b"}} == manifest != other
    labels = json.loads(other_content(json.dumps(CONFIG).encode()))["config"]["Labels"]
    assert json.loads(labels[MODULES_LABEL]) == [{"name": "edu", "identity": "1cba"}]


def test_a_fault_of_content_waits_for_content_of_its_kind(proxy: FaultProxy) -> None:
    """Other requests go before it."""
    plan(proxy, Fault.OTHER_CONTENT, Exchange.MANIFEST)
    answers = [ask(proxy, method, f"/v2/x/{kind}/y")[1] for method, kind in (("HEAD", "manifests"), ("GET", "blobs"))]
    assert answers == [b"", CONTENT]
    assert json.loads(ask(proxy, path="/v2/x/manifests/y")[1]) == json.loads(other_content(CONTENT))
    assert proxy.script.is_done


@pytest.mark.parametrize(
    ("method", "target", "status", "content", "exchange"),
    [
        ("GET", "/v2/x/manifests/1.0.0-abc", 200, b"{}", Exchange.MANIFEST),
        ("GET", "/v2/x/blobs/sha256:0", 200, b"{}", Exchange.CONFIG),
        ("GET", "/v2/x/blobs/sha256:0", 200, b"\x1f\x8b", None),
        ("GET", "/v2/x/manifests/1.0.0-abc", 404, b"{}", None),
        ("HEAD", "/v2/x/manifests/1.0.0-abc", 200, b"", None),
        ("GET", "/v2/", 200, b"{}", None),
    ],
)
def test_content_has_classes(method: str, target: str, status: int, content: bytes, exchange: Exchange | None) -> None:
    """What a registry gives is a manifest, a config, or neither."""
    assert content_of(method, target, status, content) is exchange


def test_another_digest_is_claimed_for_the_same_content(proxy: FaultProxy) -> None:
    """Only the header changes."""
    plan(proxy, Fault.OTHER_DIGEST)
    connection = http.client.HTTPConnection(proxy.host, timeout=30)
    connection.request("GET", "/v2/x")
    answer = connection.getresponse()
    assert (answer.getheader("Docker-Content-Digest"), answer.read()) == (OTHER_DIGEST, CONTENT)
    connection.close()


@pytest.mark.parametrize("fault", [Fault.DELAY, Fault.DRIP], ids=str)
def test_a_slow_exchange_is_whole(proxy: FaultProxy, fault: Fault) -> None:
    """It only takes longer."""
    plan(proxy, fault)
    assert ask(proxy) == (200, CONTENT)
    assert proxy.script.is_done


@pytest.mark.parametrize(
    ("fault", "status"), [(Fault.UNAUTHORIZED, 401), (Fault.GONE, 410), (Fault.TOO_MANY, 429), (Fault.UNAVAILABLE, 503)]
)
def test_an_error_is_answered_in_the_place_of_the_server(proxy: FaultProxy, fault: Fault, status: int) -> None:
    """In the words of a registry or of an API server."""
    plan(proxy, fault)
    plan(proxy, fault)
    assert "errors" in json.loads(ask(proxy, path="/v2/x")[1])
    assert (ask(proxy, path="/api/v1/nodes")[0], Echo.seen) == (status, [])


def watch(proxy: FaultProxy) -> list[bytes]:
    """Read a watch to its end."""
    return ask(proxy, path="/api/v1/nodes?watch=true")[1].splitlines()


def test_a_watch_is_passed_on(proxy: FaultProxy) -> None:
    """Line by line."""
    assert watch(proxy) == [b'{"type": "ADDED"}', b'{"type": "DELETED"}']


def test_a_watch_may_say_that_it_is_too_old(proxy: FaultProxy) -> None:
    """As an event, after the server accepted it."""
    plan(proxy, Fault.GONE)
    (line,) = watch(proxy)
    assert (json.loads(line)["type"], json.loads(line)["object"]["code"]) == ("ERROR", 410)


def test_a_watch_may_break_in_a_line(proxy: FaultProxy) -> None:
    """And say no more."""
    plan(proxy, Fault.TRUNCATE)
    with pytest.raises((http.client.IncompleteRead, ConnectionResetError)):
        watch(proxy)


def test_a_silent_watch_is_open_and_brings_nothing_until_it_speaks(proxy: FaultProxy) -> None:
    """Then it brings what it held back."""
    plan(proxy, Fault.SILENCE, Exchange.WATCH)
    connection = http.client.HTTPConnection(proxy.host, timeout=30)
    connection.request("GET", "/api/v1/nodes?watch=true")
    answer = connection.getresponse()
    assert (answer.status, select.select([connection.sock], [], [], 0.1)[0]) == (200, [])
    # It falls silent only after its head was sent.
    while not select.select([connection.sock], [], [], 0.01)[0]:
        proxy.speak()
    assert answer.read().splitlines() == [b'{"type": "ADDED"}', b'{"type": "DELETED"}']
    connection.close()


def test_who_is_away_breaks_all_connections(proxy: FaultProxy) -> None:
    """The open ones, too, until it is back."""
    connection = http.client.HTTPConnection(proxy.host, timeout=30)
    connection.request("GET", "/v2/x")
    connection.getresponse().read()
    assert proxy.drop() == 1
    with pytest.raises((http.client.HTTPException, OSError)):
        connection.getresponse().read()
    connection.close()
    proxy.leave()
    with pytest.raises((http.client.HTTPException, OSError)):
        ask(proxy)
    proxy.come_back()
    assert ask(proxy) == (200, CONTENT)


def test_tls_on_both_sides(tmp_path: Path, noted: list[Passed]) -> None:
    """Each side has a certificate of its own authority, and is cut as a plain one is."""
    Echo.seen.clear()
    behind, before = CertificateAuthority(tmp_path / "behind"), CertificateAuthority(tmp_path / "before")
    context = ssl.SSLContext(ssl.PROTOCOL_TLS_SERVER)
    pair = behind.issue_files("server", "server", hosts=["127.0.0.1"])
    context.load_cert_chain(f"{pair}.crt", f"{pair}.key")
    made = ThreadingHTTPServer(("127.0.0.1", 0), Echo)
    made.socket = context.wrap_socket(made.socket, server_side=True)
    identity = before.issue_files("proxy", "proxy", hosts=["127.0.0.1"])
    trust = ssl.create_default_context(cafile=str(before.file))
    url = f"https://127.0.0.1:{made.server_port}"
    with (
        running(made),
        FaultProxy(url, ca_file=str(behind.file), certificate=identity, note=noted.append) as proxy,
    ):
        for fault in (None, Fault.CUT_AFTER, Fault.DRIP):
            if fault:
                plan(proxy, fault)
            connection = http.client.HTTPSConnection(proxy.host, timeout=30, context=trust)
            connection.request("GET", "/api/v1/nodes", headers={"Authorization": "Bearer me"})
            if fault is Fault.CUT_AFTER:
                with pytest.raises((http.client.HTTPException, OSError)):
                    connection.getresponse()
            else:
                assert connection.getresponse().read() == CONTENT
            connection.close()
    assert len(noted) == 3
    assert {who for *_, who in Echo.seen} == {"Bearer me"}


class _SocketServer(socketserver.ThreadingUnixStreamServer):
    daemon_threads = True


def test_an_engine_behind_a_socket(tmp_path: Path) -> None:
    """Its clients come by TCP."""
    Echo.seen.clear()
    made = _SocketServer(str(tmp_path / "engine.sock"), Echo)
    with running(made), FaultProxy(f"unix://{tmp_path}/engine.sock") as proxy:
        assert ask(proxy, path="/v1.41/images/a/b:c/get") == (200, CONTENT)


@pytest.mark.parametrize(
    ("method", "target", "exchange"),
    [
        ("PUT", "/apis/coordination.k8s.io/v1/namespaces/n/leases/driver-builder", Exchange.LEASE),
        ("GET", "/api/v1/nodes?watch=true&resourceVersion=7", Exchange.WATCH),
        ("GET", "/api/v1/nodes?limit=500", Exchange.LIST),
        ("GET", "/apis/driverwright.io/v1alpha1/namespaces/n/drivercontainers/edu", Exchange.READ),
        ("PATCH", "/api/v1/nodes/a", Exchange.WRITE),
        ("HEAD", "/v2/n/edu/manifests/1.0.0-abc", Exchange.READ),
        ("PUT", "/v2/n/edu/manifests/1.0.0-abc", Exchange.WRITE),
        ("POST", "/v1.41/build?t=x", Exchange.BUILD),
        ("GET", "/v1.41/images/driverwright-image/abc:latest/get", Exchange.SAVE),
        ("GET", "/v1.41/images/driverwright-image/abc:latest/json", Exchange.READ),
    ],
)
def test_exchanges_have_classes(method: str, target: str, exchange: Exchange) -> None:
    """By which faults are planned."""
    assert exchange_of(method, target) is exchange


def test_a_fault_waits_for_an_exchange_of_its_class() -> None:
    """And for those before it; faults of other classes do not wait for it."""
    script = Script()
    late = PlannedFault(fault=Fault.DELAY, on=frozenset({Exchange.READ}), skip=1)
    script.arm([late, PlannedFault(fault=Fault.GONE, on=frozenset({Exchange.WATCH}))])
    assert script.next(Exchange.WRITE) is None
    assert script.next(Exchange.WATCH) is Fault.GONE
    assert [script.next(Exchange.READ) for _ in range(3)] == [None, Fault.DELAY, None]
    assert script.is_done
    assert [item.fault for item in script.delivered] == [Fault.GONE, Fault.DELAY]
