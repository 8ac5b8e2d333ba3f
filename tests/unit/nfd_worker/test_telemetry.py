"""Health and metrics: what is answered, and that nobody who asks can hold up the loop."""

import select
import socket
from collections.abc import Iterator

import pytest

from nfd_worker.config import Settings
from nfd_worker.cycle import run_cycle
from nfd_worker.errors import ConfigurationError
from nfd_worker.telemetry import Endpoint, Metrics, answer_request
from nfd_worker.wire import PublishAnswer
from tests.unit.nfd_worker.trees import recorded


@pytest.fixture
def endpoint() -> Iterator[Endpoint]:
    """Listen on a free port."""
    it = Endpoint(0, Metrics("n"))
    yield it
    it.close()


def serve(endpoint: Endpoint, rounds: int = 10) -> None:
    """Turn the loop until nothing happens any more."""
    for _ in range(rounds):
        readers = endpoint.readers()
        ready, _, _ = select.select(list(readers), [], [], 0.05)
        for descriptor in ready:
            readers[descriptor](0.0)


def connect(endpoint: Endpoint) -> socket.socket:
    """Connect to the endpoint."""
    return socket.create_connection(("127.0.0.1", endpoint.port), timeout=5)


@pytest.mark.parametrize(
    ("request_line", "status"),
    [
        (b"GET /healthz HTTP/1.1", b"200 OK"),
        (b"GET /metrics?x=1 HTTP/1.1", b"200 OK"),
        (b"GET / HTTP/1.1", b"404 Not Found"),
        (b"POST /metrics HTTP/1.1", b"405 Method Not Allowed"),
        (b"", b"405 Method Not Allowed"),
        (b"GET", b"404 Not Found"),
    ],
)
def test_requests_are_answered(request_line: bytes, status: bytes) -> None:
    """Nonsense gets an answer, too."""
    assert answer_request(request_line + b"\r\n\r\n", Metrics("n")).startswith(b"HTTP/1.0 " + status)


def test_metrics_count_cycles_labels_failures_and_publishes() -> None:
    """The names are upstream's where it has one."""
    metrics = Metrics("node-1")
    report = run_cycle(recorded("arm64-cloud"), Settings(), {})
    metrics.saw_cycle(report._replace(seconds=0.02, failed={"pci": "why"}))
    metrics.saw_answer(PublishAnswer(), 100)
    metrics.saw_answer(PublishAnswer("no"), 100)
    lines = metrics.render().splitlines()
    name = "nfd_worker_feature_discovery_duration_seconds"
    assert f'{name}_bucket{{node="node-1",le="0.01"}} 0' in lines
    assert f'{name}_bucket{{node="node-1",le="0.025"}} 1' in lines
    assert f'{name}_count{{node="node-1"}} 1' in lines
    assert f"nfd_worker_labels {len(report.labels)}" in lines
    assert 'nfd_worker_source_failed{source="pci"} 1' in lines
    assert 'nfd_worker_publish_total{result="failure"} 1' in lines
    assert 'nfd_worker_publish_total{result="success"} 1' in lines
    assert "nfd_worker_publish_bytes_total 200" in lines


def test_a_request_in_pieces_is_answered(endpoint: Endpoint) -> None:
    """Only the end of the first line counts."""
    with connect(endpoint) as client:
        client.sendall(b"GET /hea")
        serve(endpoint, 3)
        client.sendall(b"lthz HTTP/1.1\r\n\r\n")
        serve(endpoint, 3)
        assert client.recv(4096).endswith(b"\r\n\r\nok\n")


def test_silent_connections_do_not_keep_others_out(endpoint: Endpoint) -> None:
    """The oldest one is dropped for a new one."""
    silent = [connect(endpoint) for _ in range(20)]
    serve(endpoint, 40)
    with connect(endpoint) as client:
        client.sendall(b"GET /healthz HTTP/1.1\r\n\r\n")
        serve(endpoint)
        assert b"200 OK" in client.recv(4096)
    assert len(endpoint.readers()) <= 17
    for connection in silent:
        connection.close()
    serve(endpoint, 40)
    assert len(endpoint.readers()) == 1


def test_a_taken_port_is_a_configuration_error(endpoint: Endpoint) -> None:
    """With hostNetwork that is likely; the message says what to do."""
    with pytest.raises(ConfigurationError, match="choose another with --port, or 0 for none"):
        Endpoint(endpoint.port, Metrics("n"))
