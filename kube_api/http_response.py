"""Responses of HTTP/1.1, as far as an API server sends them: parsed from whatever gives bytes, and strictly. Pure.

``http.client`` reads everything that was ever sent, and to that end imports the package ``email``: ten milliseconds of
CPU and 5 MiB for each publish child (docs/decisions/0092-own-http-exchange.md). What is not understood to the letter
here is an error: two sides that read a response differently is how responses are forged.
"""

from collections.abc import Callable, Iterator, Mapping
from typing import NamedTuple

MAX_HEAD = 1 << 16
"""Bytes of a status line with its headers, and of the trailers of a chunked body."""

MAX_INTERIM = 8
"""How many responses of the kind "go on" (1xx) may come before the real one."""

_MAX_SIZE_LINE = 1 << 10
"""Bytes of the line before a chunk; its extensions have no meaning."""

_MAX_SIZE_DIGITS = 15
_CHUNK = 1 << 16
_LINE_END, _HEAD_END = b"\r\n", b"\r\n\r\n"
_TOKEN = frozenset(b"!#$%&'*+-.^_`|~0123456789abcdefghijklmnopqrstuvwxyzABCDEFGHIJKLMNOPQRSTUVWXYZ")
_DIGITS = frozenset(b"0123456789")
_HEX_DIGITS = frozenset(b"0123456789abcdefABCDEF")
_WITHOUT_BODY = frozenset({204, 304})


class MalformedResponse(Exception):
    """The response is not HTTP, was cut off, or is larger than it may be; the message says which."""


class Head(NamedTuple):
    """Status and headers; names in lower case, several values of one name with a comma between them."""

    status: int
    headers: Mapping[str, str]
    is_http_1_0: bool = False


def parse_head(content: bytes) -> Head:
    """Read a status line and headers, without the empty line that ends them.

    Raises:
        MalformedResponse: when it is neither HTTP/1.0 nor HTTP/1.1, or a header is not one.
    """
    status_line, *lines = content.split(_LINE_END)
    version, _, rest = status_line.partition(b" ")
    code, _, _ = rest.partition(b" ")
    if version not in (b"HTTP/1.1", b"HTTP/1.0") or len(code) != len("200") or not _DIGITS.issuperset(code):
        raise MalformedResponse(f"{status_line[:80]!r} is not a status line of HTTP/1.1")
    headers: dict[str, str] = {}
    for line in lines:
        name, colon, value = line.partition(b":")
        if not colon or not name or not _TOKEN.issuperset(name) or b"\r" in value or b"\n" in value or b"\0" in value:
            raise MalformedResponse(f"{line[:80]!r} is not a header")
        key, text = name.decode("ascii").lower(), value.strip(b" \t").decode("latin-1")
        headers[key] = f"{headers[key]}, {text}" if key in headers else text
    return Head(int(code), headers, version == b"HTTP/1.0")


class ResponseReader:
    """Reads one response; ``receive`` gives the next bytes, at most so many as it is asked for, and none at the end."""

    def __init__(self, receive: Callable[[int], bytes]) -> None:
        self._receive = receive
        self._rest = b""

    def read_head(self) -> Head:
        """Read to the end of the head, past those of interim responses.

        Raises:
            MalformedResponse: as :func:`parse_head`; also when it is cut off or does not end.
        """
        for _ in range(MAX_INTERIM):
            head = parse_head(self._take_to(_HEAD_END, MAX_HEAD, "the head of the response"))
            if head.status >= 200:
                return head
            if head.status == 101:
                raise MalformedResponse("the server changes to a protocol that it was not asked for")
        raise MalformedResponse(f"more than {MAX_INTERIM} interim responses")

    def chunks(self, head: Head) -> Iterator[bytes]:
        """Yield the body as it comes.

        Raises:
            MalformedResponse: when it is cut off, or does not say where it ends.
        """
        coding, length = head.headers.get("transfer-encoding"), head.headers.get("content-length")
        if head.status in _WITHOUT_BODY:
            return iter(())
        if coding is None:
            return self._to_the_end() if length is None else self._sized(_parse_length(length))
        if coding.lower() != "chunked" or head.is_http_1_0 or length is not None:
            raise MalformedResponse(f"the end of the body is not known: Transfer-Encoding {coding[:80]!r}")
        return self._chunked()

    def _sized(self, length: int) -> Iterator[bytes]:
        left = length
        while left:
            chunk = self._take(left)
            if not chunk:
                raise MalformedResponse(f"the body was cut off after {length - left} of {length} bytes")
            left -= len(chunk)
            yield chunk

    def _to_the_end(self) -> Iterator[bytes]:
        while chunk := self._take(_CHUNK):
            yield chunk

    def _chunked(self) -> Iterator[bytes]:
        while size := _parse_size(self._take_to(_LINE_END, _MAX_SIZE_LINE, "the size of a chunk")):
            yield from self._sized(size)
            self._take_to(_LINE_END, len(_LINE_END), "the end of a chunk")
        left = MAX_HEAD
        while trailer := self._take_to(_LINE_END, left, "the end of the body"):
            left = max(left - len(trailer), len(_LINE_END))

    def _take(self, most: int) -> bytes:
        """Give what is there, at most so much; nothing at the end."""
        content = self._rest or self._receive(min(most, _CHUNK))
        self._rest = content[most:]
        return content[:most]

    def _take_to(self, end: bytes, most: int, what: str) -> bytes:
        """Give what stands before ``end``, which is taken, too; both together have at most so many bytes."""
        start = 0
        while (found := self._rest.find(end, start, most)) < 0:
            if len(self._rest) >= most:
                raise MalformedResponse(f"{what} has more than {most} bytes")
            start = max(0, len(self._rest) - len(end) + 1)
            received = self._receive(_CHUNK)
            if not received:
                raise MalformedResponse(f"the connection was closed within {what}")
            self._rest += received
        content, self._rest = self._rest[:found], self._rest[found + len(end) :]
        return content


def _parse_length(text: str) -> int:
    digits = text.encode("latin-1")
    if not digits or len(digits) > _MAX_SIZE_DIGITS or not _DIGITS.issuperset(digits):
        raise MalformedResponse(f"the length of the body is not a number: {text[:80]!r}")
    return int(digits)


def _parse_size(line: bytes) -> int:
    digits = line.partition(b";")[0].strip(b" \t")
    if not digits or len(digits) > _MAX_SIZE_DIGITS or not _HEX_DIGITS.issuperset(digits):
        raise MalformedResponse(f"the size of a chunk is not a number: {line[:80]!r}")
    return int(digits, 16)
