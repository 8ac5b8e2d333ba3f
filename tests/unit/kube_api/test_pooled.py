"""Answers over kept connections: a watch is read as it comes, however the server frames it."""

import socket
import threading
from collections.abc import Iterator
from contextlib import contextmanager

import pytest
import urllib3

from kube_api.client import Client
from kube_api.errors import Unreachable
from kube_api.pooled import PooledConnection

EVENT = b'{"type":"BOOKMARK","object":{"metadata":{"resourceVersion":"7"}}}\n'


@contextmanager
def server(head: bytes, *parts: bytes, goes_on: threading.Event) -> Iterator[Client]:
    """Serve one answer: each part after the first waits until the one before was read."""
    listener = socket.create_server(("127.0.0.1", 0))

    def serve() -> None:
        connection, _ = listener.accept()
        with connection:
            connection.recv(1 << 16)
            connection.sendall(head + parts[0])
            for part in parts[1:]:
                assert goes_on.wait(60)
                connection.sendall(part)

    thread = threading.Thread(target=serve)
    thread.start()
    address = f"http://127.0.0.1:{listener.getsockname()[1]}"
    with urllib3.PoolManager() as pool:
        yield Client(PooledConnection(address, pool, dict))
    goes_on.set()
    thread.join()
    listener.close()


def chunk(data: bytes) -> bytes:
    """Frame a chunk."""
    return b"%x\r\n%s\r\n" % (len(data), data)


@pytest.mark.parametrize(
    ("head", "first", "last"),
    [
        pytest.param(b"Transfer-Encoding: chunked\r\n\r\n", chunk(EVENT), chunk(EVENT) + chunk(b""), id="chunks"),
        pytest.param(b"Connection: close\r\n\r\n", EVENT, EVENT, id="up to the end of the connection"),
    ],
)
def test_a_watch_is_read_as_it_comes(head: bytes, first: bytes, last: bytes) -> None:
    """The second event is sent only after the first one was read."""
    goes_on = threading.Event()
    with server(b"HTTP/1.1 200 OK\r\n" + head, first, last, goes_on=goes_on) as client:
        events = client.watch("/api/v1/nodes", resource_version="1")
        assert next(events).kind == "BOOKMARK"
        goes_on.set()
        assert [event.kind for event in events] == ["BOOKMARK"]


def test_an_answer_that_is_cut_is_no_end() -> None:
    """Less than was announced is an error, not a shorter answer."""
    head = b"HTTP/1.1 200 OK\r\nContent-Length: 1000\r\n\r\n"
    with server(head, EVENT, goes_on=threading.Event()) as client:
        events = client.watch("/api/v1/nodes", resource_version="1")
        assert next(events).kind == "BOOKMARK"
        with pytest.raises(Unreachable):
            next(events)


@pytest.mark.parametrize(
    ("date", "expected"), [(b"Date: Tue, 14 Nov 2023 22:13:20 GMT\r\n", "Tue, 14 Nov 2023 22:13:20 GMT"), (b"", "")]
)
def test_an_object_may_come_with_the_time_of_the_server(date: bytes, expected: str) -> None:
    """As the header has it; empty without one."""
    body = b'{"minor":"31"}'
    head = b"HTTP/1.1 200 OK\r\n" + date + b"Content-Length: %d\r\n\r\n" % len(body)
    with server(head, body, goes_on=threading.Event()) as client:
        assert client.get_dated("/version") == ({"minor": "31"}, expected)
