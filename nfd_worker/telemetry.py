"""``/healthz`` and ``/metrics`` on a raw socket in the daemon's loop.

``http.server`` and ``prometheus_client`` would double the resident process. What is spoken here is HTTP/1.0: one
request a connection, answered as soon as its first line is there.
"""

import socket
from collections.abc import Callable, Mapping
from contextlib import suppress
from functools import partial

from nfd_worker import __version__
from nfd_worker.cycle import CycleReport
from nfd_worker.errors import ConfigurationError
from nfd_worker.wire import PublishAnswer

BUCKETS = (0.01, 0.025, 0.05, 0.1, 0.25, 0.5, 1.0)
"""Upper bounds in seconds of the discovery histogram; those of Node Feature Discovery."""

_MOST_CONNECTIONS = 16
_LONGEST_REQUEST = 4096


class Metrics:
    """Counts what the worker does, in the Prometheus text format (version 0.0.4)."""

    def __init__(self, node_name: str) -> None:
        self._node_name = node_name
        self._buckets = [0] * len(BUCKETS)
        self._cycles = 0
        self._seconds = 0.0
        self._labels = 0
        self._failed: Mapping[str, str] = {}
        self._attempts: dict[str, int] = {"success": 0, "failure": 0}
        self._bytes = 0

    def saw_cycle(self, report: CycleReport) -> None:
        """Count a discovery cycle."""
        self._cycles += 1
        self._seconds += report.seconds
        self._labels = len(report.labels)
        self._failed = report.failed
        for number, bound in enumerate(BUCKETS):
            self._buckets[number] += report.seconds <= bound

    def saw_answer(self, answer: PublishAnswer, request_bytes: int) -> None:
        """Count an attempt to publish."""
        self._attempts["success" if answer.is_published else "failure"] += 1
        self._bytes += request_bytes

    def render(self) -> str:
        """Write all metrics out."""
        name = "nfd_worker_feature_discovery_duration_seconds"
        node = f'node="{self._node_name}"'
        lines = [
            "# TYPE nfd_worker_build_info gauge",
            f'nfd_worker_build_info{{version="{__version__}"}} 1',
            f"# TYPE {name} histogram",
            *(f'{name}_bucket{{{node},le="{bound:g}"}} {n}' for bound, n in zip(BUCKETS, self._buckets, strict=True)),
            f'{name}_bucket{{{node},le="+Inf"}} {self._cycles}',
            f"{name}_sum{{{node}}} {self._seconds:.6f}",
            f"{name}_count{{{node}}} {self._cycles}",
            "# TYPE nfd_worker_labels gauge",
            f"nfd_worker_labels {self._labels}",
            "# TYPE nfd_worker_source_failed gauge",
            *(f'nfd_worker_source_failed{{source="{source}"}} 1' for source in sorted(self._failed)),
            "# TYPE nfd_worker_publish_total counter",
            *(f'nfd_worker_publish_total{{result="{result}"}} {n}' for result, n in sorted(self._attempts.items())),
            "# TYPE nfd_worker_publish_bytes_total counter",
            f"nfd_worker_publish_bytes_total {self._bytes}",
        ]
        return "\n".join(lines) + "\n"


def answer_request(request: bytes, metrics: Metrics) -> bytes:
    """Answer one HTTP request, given at least its first line."""
    words = request.split(b"\r\n", 1)[0].split()
    path = words[1].partition(b"?")[0] if len(words) > 1 else b""
    if words[:1] != [b"GET"]:
        return _response("405 Method Not Allowed", "only GET\n")
    if path == b"/healthz":
        return _response("200 OK", "ok\n")
    if path == b"/metrics":
        return _response("200 OK", metrics.render())
    return _response("404 Not Found", "there are /healthz and /metrics\n")


def _response(status: str, body: str) -> bytes:
    content = body.encode()
    head = (
        f"HTTP/1.0 {status}\r\nContent-Type: text/plain; version=0.0.4; charset=utf-8\r\n"
        f"Content-Length: {len(content)}\r\nConnection: close\r\n\r\n"
    )
    return head.encode() + content


class Endpoint:
    """Listens on a port of all addresses; 0 lets the system choose one (``port`` says which)."""

    def __init__(self, port: int, metrics: Metrics) -> None:
        self._metrics = metrics
        try:
            self._listener = _listen(port)
        except OSError as error:
            raise ConfigurationError(
                f"cannot listen on port {port}: {error.strerror}; choose another with --port, or 0 for none"
            ) from error
        self._connections: dict[int, socket.socket] = {}
        self._requests: dict[int, bytes] = {}

    @property
    def port(self) -> int:
        """The port that is listened on."""
        return int(self._listener.getsockname()[1])

    def readers(self) -> Mapping[int, Callable[[float], None]]:
        """Name the file descriptors to wait for, and what to call when one is ready."""
        connections = {descriptor: partial(self._read, descriptor) for descriptor in self._connections}
        return {self._listener.fileno(): self._accept, **connections}

    def close(self) -> None:
        """Stop listening."""
        for connection in (*self._connections.values(), self._listener):
            connection.close()

    def _accept(self, _now: float) -> None:
        try:
            connection, _ = self._listener.accept()
        except OSError:
            return  # gone again before we came to it
        connection.setblocking(False)
        if len(self._connections) >= _MOST_CONNECTIONS:
            self._drop(next(iter(self._connections)))
        self._connections[connection.fileno()] = connection

    def _read(self, descriptor: int, _now: float) -> None:
        connection = self._connections.get(descriptor)
        if connection is None:
            return  # dropped in favour of a newer one since the poll
        try:
            chunk = connection.recv(_LONGEST_REQUEST)
        except BlockingIOError:
            return
        except OSError:
            self._drop(descriptor)
            return
        request = self._requests.get(descriptor, b"") + chunk
        self._requests[descriptor] = request
        if chunk and b"\n" not in request and len(request) < _LONGEST_REQUEST:
            return
        with suppress(OSError):  # whoever asked may be gone
            connection.sendall(answer_request(request, self._metrics))
        self._drop(descriptor)

    def _drop(self, descriptor: int) -> None:
        self._requests.pop(descriptor, None)
        self._connections.pop(descriptor).close()


def _listen(port: int) -> socket.socket:
    if socket.has_dualstack_ipv6():
        listener = socket.create_server(("", port), family=socket.AF_INET6, dualstack_ipv6=True)
    else:
        listener = socket.create_server(("", port))
    listener.setblocking(False)
    return listener
