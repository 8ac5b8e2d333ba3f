"""Single parts of ``bench/scale.py``: what is counted and written beside a real API server."""

import base64
import json
import ssl
import threading
from collections.abc import Iterator
from datetime import datetime
from http.server import BaseHTTPRequestHandler, ThreadingHTTPServer
from pathlib import Path
from typing import Any

import pytest
import urllib3

from bench.scale_parts import etcd, process, pushed, real
from bench.scale_parts.controller_process import STARTED, first_build
from bench.scale_parts.proxy import CountingProxy, Request, a_minute, resource_of, verb_of
from bench.scale_parts.typed import pages
from driver_builder.model.images import ImageRef
from kube_api.resources import NODES, PODS
from testbed.pki import CertificateAuthority

Json = dict[str, Any]


@pytest.mark.parametrize(
    ("method", "target", "said"),
    [
        pytest.param("GET", "/api/v1/nodes?limit=50", "LIST nodes", id="all of a cluster"),
        pytest.param("GET", "/api/v1/nodes?watch=true&resourceVersion=1", "WATCH nodes", id="a watch"),
        pytest.param("GET", "/api/v1/namespaces/a/pods?limit=200", "LIST pods", id="all of a namespace"),
        pytest.param("GET", "/api/v1/namespaces/a/configmaps/b", "GET configmaps", id="one of the core"),
        pytest.param("GET", "/api/v1/namespaces/a", "GET namespaces", id="a namespace"),
        pytest.param("PATCH", "/api/v1/nodes/a", "PATCH nodes", id="a change of a node"),
        pytest.param("PUT", "/apis/coordination.k8s.io/v1/namespaces/a/leases/b", "PUT leases", id="one of a group"),
        pytest.param(
            "PATCH", "/apis/x.io/v1/namespaces/a/drivers/b/status", "PATCH drivers", id="a part of one of a group"
        ),
    ],
)
def test_a_request_is_named_by_what_it_does(method: str, target: str, said: str) -> None:
    """In the API server's words."""
    path = target.partition("?")[0]
    assert f"{verb_of(method, target)} {resource_of(path)}" == said


def test_requests_are_counted_for_a_minute() -> None:
    """By verb and resource; what is rare is not counted as nothing."""
    lease = Request(0.0, "PUT", "/apis/coordination.k8s.io/v1/namespaces/a/leases/b")
    node = Request(0.0, "PATCH", "/api/v1/nodes/a")
    assert a_minute([lease] * 60 + [node], 120.0) == {"PUT leases": 30, "PATCH nodes": 1}
    assert (lease.is_write, node.is_write) == (False, True)


def test_the_first_build_is_read_from_the_log() -> None:
    """The time at which its line was written; later ones count, too."""
    words = "INFO driver_builder.builds.build_queue: build 0123456789abcdef0123: starting a/b for c"
    log = f"2026-11-23 10:00:00,000 INFO x: acting\n2026-11-23 10:00:01,250 {words}\n2026-11-23 10:00:09,000 {words}\n"
    assert first_build(log) == datetime(2026, 11, 23, 10, 0, 1, 250_000).astimezone().timestamp()
    assert len(STARTED.findall(log)) == 2


def _named(count: int, size: int) -> Iterator[Json]:
    for number in range(count):
        metadata = {"name": f"n{number}", "resourceVersion": "7", "uid": "u"}
        yield {"kind": "Node", "metadata": metadata, "filling": "x" * size}


@pytest.mark.parametrize(
    ("count", "size", "lengths"),
    [
        pytest.param(0, 10, [], id="nothing"),
        pytest.param(300, 10, [120, 120, 60], id="many small ones"),
        pytest.param(3, 500_000, [1, 1, 1], id="few that are large"),
    ],
)
def test_transactions_keep_etcds_limits(count: int, size: int, lengths: list[int]) -> None:
    """Of operations, and of bytes."""
    assert [len(batch) for batch in etcd.batches(etcd.puts(NODES, _named(count, size)))] == lengths


def test_an_object_is_written_where_the_api_server_looks_for_it() -> None:
    """Without its version, which is etcd's to give."""
    (put,) = etcd.puts(PODS, _named(1, 1))
    decoded = {key: base64.b64decode(value).decode() for key, value in put["requestPut"].items()}
    assert decoded["key"] == "/registry/pods/driverwright/n0"
    assert json.loads(decoded["value"])["metadata"] == {"name": "n0", "uid": "u"}


def test_an_image_has_one_digest() -> None:
    """What the model says of an image is what a registry that it was pushed to says."""
    registries, image = pushed.Registries(), ImageRef("r.io", "a", "t")
    registries.images[image] = {"b": "2", "a": "1"}
    manifest, config = pushed.image_of(registries.images[image])
    assert pushed.image_of({"b": "2", "a": "1"}) == (manifest, config)
    assert json.loads(config)["config"]["Labels"] == {"a": "1", "b": "2"}


def test_pages_end_with_the_file_or_at_the_most(tmp_path: Path) -> None:
    """No object is in two of them."""
    path = tmp_path / "nodes.jsonl"
    path.write_text("".join(f'{{"n":{number}}}\n' for number in range(7)))
    assert [[item["n"] for item in json.loads(page)["items"]] for page in pages(path, 3, 6)] == [[0, 1, 2], [3, 4, 5]]
    assert sum(len(json.loads(page)["items"]) for page in pages(path, 3)) == 7


def test_outliers_are_left_out() -> None:
    """One sample in ten, the highest."""
    assert real.without_outliers([1.0] * 9 + [500.0]) == 1.0
    assert real.without_outliers([1.0, 3.0]) == 2.0


def test_a_process_has_memory_and_cpu_time() -> None:
    """This one has both, and never held less than it does."""
    assert 1 < process.resident_mib() <= process.peak_mib()
    assert process.cpu_seconds() > 0


class _ApiServer(BaseHTTPRequestHandler):
    """Tells a watch of one thing, and goes on with it until the connection ends."""

    protocol_version = "HTTP/1.1"
    ended = threading.Event()

    def do_GET(self) -> None:
        """Answer a watch with a line, all else with what was asked."""
        if "watch=true" not in self.path:
            content = self.path.encode()
            self.send_response(200)
            self.send_header("Content-Length", str(len(content)))
            self.end_headers()
            self.wfile.write(content)
            return
        self.send_response(200)
        self.send_header("Transfer-Encoding", "chunked")
        self.end_headers()
        self.wfile.write(b"4\r\nnews\r\n")
        self.rfile.read(1)
        self.ended.set()

    def log_message(self, *_: object) -> None:
        """Say nothing."""


@pytest.fixture
def proxy(tmp_path: Path) -> Iterator[tuple[CountingProxy, Path]]:
    """Start a proxy before a server with TLS; gives its authority, too."""
    authority = CertificateAuthority(tmp_path / "pki")
    pair = authority.issue_files("server", "kube-apiserver", hosts=["127.0.0.1"])
    certificate, key = Path(f"{pair}.crt"), Path(f"{pair}.key")
    context = ssl.SSLContext(ssl.PROTOCOL_TLS_SERVER)
    context.load_cert_chain(certificate, key)
    server = ThreadingHTTPServer(("127.0.0.1", 0), _ApiServer)
    server.daemon_threads = True
    server.socket = context.wrap_socket(server.socket, server_side=True)
    threading.Thread(target=server.serve_forever, daemon=True).start()
    made = CountingProxy(server.server_port, authority.file, certificate, key)
    yield made, authority.file
    made.close()
    server.shutdown()
    server.server_close()


def test_the_proxy_forgets_watches_once(proxy: tuple[CountingProxy, Path]) -> None:
    """A watch passes as it comes; after ``forget`` it ends, the next one is too old, and the one after that passes."""
    counting, ca_file = proxy
    pool = urllib3.PoolManager(ca_certs=str(ca_file), cert_reqs="CERT_REQUIRED")
    address = f"https://127.0.0.1:{counting.port}/api/v1/pods"
    assert pool.request("GET", f"{address}/a").data == b"/api/v1/pods/a"
    watch = pool.request("GET", f"{address}?watch=true", preload_content=False, retries=False)
    events = watch.stream(4)
    assert next(events) == b"news"
    counting.forget()
    assert not counting.are_all_told
    with pytest.raises(urllib3.exceptions.HTTPError):
        list(events)
    assert pool.request("GET", f"{address}?watch=true", retries=False).status == 410
    assert counting.are_all_told
    again = pool.request("GET", f"{address}?watch=true", preload_content=False, retries=False)
    assert next(again.stream(4)) == b"news"
    again.close()
    assert [request.verb for request in counting.requests] == ["GET", "WATCH", "WATCH", "WATCH"]
