"""The pages that a node's programs serve to probes and to Prometheus: one HTTP/1.0 request, answered. Pure.

``http.server`` would cost a resident process several MiB. Each program has its own way to its sockets.
"""

from collections.abc import Callable, Mapping
from typing import NamedTuple


class Page(NamedTuple):
    """The content of a page; one that is not ``is_ok`` fails the probe that asked for it."""

    text: str
    is_ok: bool = True


Pages = Mapping[str, Callable[[], Page]]
"""By path, what makes the page."""


def health(why: str) -> Page:
    """Return the page of a probe: why it fails, empty if it does not."""
    return Page(f"{why}\n", is_ok=False) if why else Page("ok\n")


def answer_request(request: bytes, pages: Pages) -> bytes:
    """Answer one request, given its head."""
    words = request.split(b"\r\n", 1)[0].split()
    path = words[1].partition(b"?")[0].decode(errors="replace") if len(words) > 1 else ""
    if words[:1] != [b"GET"]:
        return _response("405 Method Not Allowed", "only GET\n")
    if path not in pages:
        *others, last = pages
        return _response("404 Not Found", f"available: {', '.join(others)} and {last}\n")
    page = pages[path]()
    return _response("200 OK" if page.is_ok else "503 Service Unavailable", page.text)


def _response(status: str, body: str) -> bytes:
    content = body.encode()
    head = (
        f"HTTP/1.0 {status}\r\nContent-Type: text/plain; version=0.0.4; charset=utf-8\r\n"
        f"Content-Length: {len(content)}\r\nConnection: close\r\n\r\n"
    )
    return head.encode() + content
