"""Health and metrics: what is answered, and that nobody who asks can hold up the loop."""

import select
import socket
import time
from collections.abc import Callable, Iterator

import pytest

from kube_api.pages import Page, Pages, health
from nfd_worker.errors import ConfigurationError
from nfd_worker.telemetry import Endpoint

PATIENCE = 120.0
"""Seconds: a test that fails ends."""
PAGES: Pages = {"/healthz": lambda: health(""), "/metrics": lambda: Page("a_metric 1\n")}


@pytest.fixture
def endpoint() -> Iterator[Endpoint]:
    """Listen on a free port."""
    it = Endpoint(0, PAGES)
    yield it
    it.close()


def serve(endpoint: Endpoint, is_done: Callable[[], bool]) -> None:
    """Turn the loop until something is reached."""
    deadline = time.monotonic() + PATIENCE
    while not is_done():
        assert time.monotonic() < deadline
        readers = endpoint.readers()
        for descriptor in select.select(list(readers), [], [], 0.05)[0]:
            readers[descriptor](0.0)


def has_word(client: socket.socket) -> Callable[[], bool]:
    """Tell whether a client has an answer, or the end of its connection."""
    return lambda: bool(select.select([client], [], [], 0)[0])


def connect(endpoint: Endpoint) -> socket.socket:
    """Connect to the endpoint."""
    return socket.create_connection(("127.0.0.1", endpoint.port), timeout=PATIENCE)


def test_metrics_are_served_in_the_text_format(endpoint: Endpoint) -> None:
    """Metrics have the content type of the Prometheus text format."""
    with connect(endpoint) as client:
        client.sendall(b"GET /metrics HTTP/1.1\r\n\r\n")
        serve(endpoint, has_word(client))
        head, _, body = client.recv(4096).partition(b"\r\n\r\n")
    assert b"Content-Type: text/plain; version=0.0.4; charset=utf-8" in head
    assert body == b"a_metric 1\n"


def test_a_request_in_pieces_is_answered(endpoint: Endpoint) -> None:
    """Slow clients are waited for, and the loop goes on."""
    with connect(endpoint) as client:
        client.sendall(b"GET /hea")
        serve(endpoint, lambda: b"GET /hea" in endpoint._requests.values())
        client.sendall(b"lthz HTTP/1.1\r\n\r\n")
        serve(endpoint, has_word(client))
        assert client.recv(4096).endswith(b"\r\n\r\nok\n")


def test_silent_connections_do_not_keep_others_out(endpoint: Endpoint) -> None:
    """The oldest one is dropped for a new one."""
    silent = [connect(endpoint) for _ in range(20)]
    serve(endpoint, has_word(silent[3]))
    with connect(endpoint) as client:
        client.sendall(b"GET /healthz HTTP/1.1\r\n\r\n")
        serve(endpoint, has_word(client))
        assert b"200 OK" in client.recv(4096)
    assert len(endpoint.readers()) <= 17
    for connection in silent:
        connection.close()
    serve(endpoint, lambda: len(endpoint.readers()) == 1)


def test_an_answer_does_not_wait_for_its_reader() -> None:
    """More than a network packet, to somebody who reads only later."""
    endpoint = Endpoint(0, {"/metrics": lambda: Page("x" * 100_000)})
    with socket.socket() as client:
        client.setsockopt(socket.SOL_SOCKET, socket.SO_RCVBUF, 4096)
        client.connect(("127.0.0.1", endpoint.port))
        client.sendall(b"GET /metrics HTTP/1.1\r\n\r\n")
        serve(endpoint, has_word(client))
        assert len(endpoint.readers()) == 1
        received = b"".join(iter(lambda: client.recv(1 << 16), b""))
    endpoint.close()
    assert received.endswith(b"x" * 100_000)


@pytest.mark.parametrize(
    "content", [b"\0" * 20000, b"\xff\xfe\n\n", b"GET " + b"/" * 9000], ids=["zeros", "noise", "long"]
)
def test_nonsense_is_answered_and_dropped(endpoint: Endpoint, content: bytes) -> None:
    """A malformed or endless request ends its connection."""
    with connect(endpoint) as client:
        client.sendall(content)
        serve(endpoint, has_word(client))
        assert len(endpoint.readers()) == 1


def test_a_taken_port_is_a_configuration_error(endpoint: Endpoint) -> None:
    """With hostNetwork that is likely; the message says what to do."""
    with pytest.raises(ConfigurationError, match="choose another with --port, or 0 for none"):
        Endpoint(endpoint.port, PAGES)
