"""Responses as they may come from a network, or from whoever answers in the API server's place."""

import http.client
import io
from collections.abc import Callable
from itertools import pairwise
from typing import Any, cast

import pytest
from hypothesis import given
from hypothesis import strategies as st

from kube_api.http_response import MAX_HEAD, MAX_INTERIM, Head, MalformedResponse, ResponseReader, parse_head

OK = b"HTTP/1.1 200 OK\r\n"


def receiver(*pieces: bytes) -> Callable[[int], bytes]:
    """Give pieces as a socket does: at most so many bytes, fewer than asked for, and nothing at the end."""
    left = [piece for piece in pieces if piece]

    def receive(most: int) -> bytes:
        assert most > 0, "a socket would give nothing, and that would be the end"
        if not left:
            return b""
        given, rest = left[0][:most], left[0][most:]
        left[:1] = [rest] if rest else []
        return given

    return receive


def read(*pieces: bytes) -> tuple[Head, bytes]:
    """Read a response to its end."""
    reader = ResponseReader(receiver(*pieces))
    head = reader.read_head()
    return head, b"".join(reader.chunks(head))


CHUNKED = OK + b"Transfer-Encoding: chunked\r\n\r\n"


@pytest.mark.parametrize(
    ("response", "body"),
    [
        pytest.param(OK + b"Content-Length: 4\r\n\r\nbody and more", b"body", id="by its length"),
        pytest.param(OK + b"Content-Length: 0\r\n\r\n", b"", id="empty"),
        pytest.param(OK + b"\r\nto the end", b"to the end", id="without a length"),
        pytest.param(b"HTTP/1.0 200 OK\r\n\r\nto the end", b"to the end", id="HTTP/1.0"),
        pytest.param(b"HTTP/1.1 200\r\nContent-Length: 2\r\n\r\n{}", b"{}", id="no reason"),
        pytest.param(b"HTTP/1.1 204 No Content\r\n\r\nno body", b"", id="no content"),
        pytest.param(CHUNKED + b"4\r\nbody\r\n2\r\n!!\r\n0\r\n\r\n", b"body!!", id="chunked"),
        pytest.param(CHUNKED + b"0004;name=value\r\nbody\r\n0\r\nTrailer: x\r\n\r\n", b"body", id="extras of chunks"),
        pytest.param(
            OK + b"TRANSFER-ENCODING:Chunked\r\n\r\nA\r\n0123456789\r\n0\r\n\r\n", b"0123456789", id="letters"
        ),
        pytest.param(b"HTTP/1.1 100 Continue\r\n\r\n" + OK + b"Content-Length: 1\r\n\r\nx", b"x", id="100 first"),
        pytest.param(
            b"HTTP/1.1 103 Early Hints\r\nLink: x\r\n\r\n" * (MAX_INTERIM - 1) + OK + b"Content-Length: 1\r\n\r\nx",
            b"x",
            id="hints first",
        ),
    ],
)
def test_a_response_is_read_to_its_end(response: bytes, body: bytes) -> None:
    """Whether it comes in one piece or byte by byte."""
    head, content = read(response)
    assert (head.status // 100, content) == (2, body)
    assert read(*(response[n : n + 1] for n in range(len(response)))) == (head, body)


FAULTS = {
    "nothing": b"",
    "another protocol": b"SSH-2.0-OpenSSH_9.2\r\n\r\n",
    "TLS": b"\x15\x03\x01\x00\x02\x02\x46\r\n\r\n",
    "HTTP/2": b"HTTP/2 200\r\n\r\n",
    "HTTP/0.9": b"<html>\r\n\r\n",
    "no status": b"HTTP/1.1 OK\r\n\r\n",
    "a status of four digits": b"HTTP/1.1 2000 OK\r\n\r\n",
    "a signed status": b"HTTP/1.1 +20 OK\r\n\r\n",
    "a head that is cut off": OK + b"Content-Length: 4\r\n",
    "a head without an end": OK + b"X: " + b"x" * MAX_HEAD,
    "headers without an end": OK + b"X: x\r\n" * MAX_HEAD,
    "a header without a colon": OK + b"Content-Length 4\r\n\r\nbody",
    "a header without a name": OK + b": 4\r\n\r\nbody",
    "a blank before the colon": OK + b"Content-Length : 4\r\n\r\nbody",
    "a header on two lines": OK + b"X: a\r\n Content-Length: 4\r\n\r\nbody",
    "a bare newline in a header": OK + b"X: a\nContent-Length: 4\r\n\r\nbody",
    "a bare return in a header": OK + b"X: a\rContent-Length: 4\r\n\r\nbody",
    "a body that is cut off": OK + b"Content-Length: 5\r\n\r\nbody",
    "a length that is no number": OK + b"Content-Length: four\r\n\r\nbody",
    "a negative length": OK + b"Content-Length: -4\r\n\r\nbody",
    "a digit of another script": OK + b"Content-Length: \xb2\r\n\r\nbody",
    "an endless length": OK + b"Content-Length: " + b"9" * 5000 + b"\r\n\r\nbody",
    "two lengths": OK + b"Content-Length: 4\r\nContent-Length: 5\r\n\r\nbody!",
    "a length of chunks": OK + b"Content-Length: 4\r\nTransfer-Encoding: chunked\r\n\r\n4\r\nbody\r\n0\r\n\r\n",
    "a coding nobody asked for": OK + b"Transfer-Encoding: gzip\r\n\r\nbody",
    "two codings": OK + b"Transfer-Encoding: gzip, chunked\r\n\r\n0\r\n\r\n",
    "chunks in HTTP/1.0": b"HTTP/1.0 200 OK\r\nTransfer-Encoding: chunked\r\n\r\n0\r\n\r\n",
    "chunks that are cut off": CHUNKED + b"4\r\nbody\r\n",
    "a chunk that is cut off": CHUNKED + b"8\r\nbody",
    "a chunk longer than it says": CHUNKED + b"3\r\nbody\r\n0\r\n\r\n",
    "a size that is no number": CHUNKED + b"body\r\n",
    "no size": CHUNKED + b"\r\nbody\r\n0\r\n\r\n",
    "a size with a prefix": CHUNKED + b"0x4\r\nbody\r\n0\r\n\r\n",
    "a size with a sign": CHUNKED + b"+4\r\nbody\r\n0\r\n\r\n",
    "a size with an underscore": CHUNKED + b"1_0\r\nbody\r\n0\r\n\r\n",
    "an endless size": CHUNKED + b"4" * 5000,
    "an endless extension": CHUNKED + b"4;" + b"x" * 5000,
    "trailers without an end": CHUNKED + b"0\r\n" + b"X: x\r\n" * MAX_HEAD,
    "no end of the chunks": CHUNKED + b"0\r\n",
    "a protocol nobody asked for": b"HTTP/1.1 101 Switching Protocols\r\nUpgrade: x\r\n\r\n",
    "always going on": b"HTTP/1.1 100 Continue\r\n\r\n" * 100,
}


@pytest.mark.parametrize("fault", FAULTS)
def test_what_is_not_understood_to_the_letter_is_an_error(fault: str) -> None:
    """And nothing else: no other exception, no body that another would read otherwise."""
    response = FAULTS[fault]
    with pytest.raises(MalformedResponse):
        read(response)
    with pytest.raises(MalformedResponse):
        read(*(response[n : n + 7] for n in range(0, len(response), 7)))


def test_no_more_is_read_than_the_bounds_allow() -> None:
    """A server that never stops ends in an error after a head's worth of bytes."""
    received = 0

    def endless(most: int) -> bytes:
        nonlocal received
        received += most
        return b"x" * most

    with pytest.raises(MalformedResponse, match="the head of the response has more than"):
        ResponseReader(endless).read_head()
    assert received <= 2 * MAX_HEAD


def test_headers_of_one_name_are_joined() -> None:
    """In their order; names are the same in capitals."""
    head = parse_head(b"HTTP/1.1 429 Too Many\r\nRetry-After:  7 \r\nx: a\r\nX: b")
    assert head == Head(429, {"retry-after": "7", "x": "a, b"})


_LINES = st.sampled_from([
    OK, b"HTTP/1.0 503 Away\r\n", b"HTTP/1.1 100 Continue\r\n\r\n", b"Content-Length: 4\r\n", b"Content-Length: 0\r\n",
    b"Transfer-Encoding: chunked\r\n", b"transfer-encoding:\tchunked \r\n", b"X: y\r\n", b" folded\r\n", b"\r\n", b"\n",
    b"4\r\nbody\r\n", b"0\r\n\r\n", b"0\r\n", b"4\r\n", b"body", b"5;x\r\nbody!\r\n",
])  # fmt: skip
_RESPONSES = st.lists(_LINES | st.binary(max_size=4), max_size=10).map(b"".join)
_LIKELY = st.builds(bytes.__add__, st.just(OK), _RESPONSES)


@given(_LIKELY | _RESPONSES, st.lists(st.integers(0, 100), max_size=5))
def test_where_the_pieces_end_makes_no_difference(response: bytes, cuts: list[int]) -> None:
    """What is read, and whether it can be read, is a matter of the bytes."""
    edges = [0, *sorted(cuts), len(response) + 100]
    pieces = [response[start:end] for start, end in pairwise(edges)]
    assert _outcome(response) == _outcome(*pieces)


@given(_LIKELY | _RESPONSES)
def test_what_is_read_is_what_the_standard_library_reads(response: bytes) -> None:
    """It understands more; what both understand, they understand alike."""
    ours = _outcome(response)
    if ours is not None:
        assert ours == _standard(response)


def _outcome(*pieces: bytes) -> tuple[int, bytes] | None:
    try:
        head, body = read(*pieces)
    except MalformedResponse:
        return None
    return head.status, body


class _Socket:
    def __init__(self, response: bytes) -> None:
        self._response = response

    def makefile(self, *_: Any) -> io.BytesIO:
        return io.BytesIO(self._response)


def _standard(response: bytes) -> tuple[int, bytes]:
    reader = http.client.HTTPResponse(cast(Any, _Socket(response)), method="GET")
    reader.begin()
    return reader.status, reader.read()
