"""What the pages of a node's programs answer."""

import pytest

from kube_api.pages import Page, Pages, answer_request, health

PAGES: Pages = {
    "/healthz": lambda: health(""),
    "/readyz": lambda: health("not registered: a"),
    "/metrics": lambda: Page("a_metric 1\n"),
}


@pytest.mark.parametrize(
    ("request_line", "status", "body"),
    [
        (b"GET /healthz HTTP/1.1", "200 OK", "ok\n"),
        (b"GET /readyz HTTP/1.1", "503 Service Unavailable", "not registered: a\n"),
        (b"GET /metrics?x=1 HTTP/1.1", "200 OK", "a_metric 1\n"),
        (b"GET / HTTP/1.1", "404 Not Found", "available: /healthz, /readyz and /metrics\n"),
        (b"GET /\xff HTTP/1.1", "404 Not Found", "available: /healthz, /readyz and /metrics\n"),
        (b"POST /metrics HTTP/1.1", "405 Method Not Allowed", "only GET\n"),
        (b"", "405 Method Not Allowed", "only GET\n"),
        (b"GET", "404 Not Found", "available: /healthz, /readyz and /metrics\n"),
    ],
)
def test_requests_are_answered(request_line: bytes, status: str, body: str) -> None:
    """Every request gets an HTTP answer, a malformed one as well."""
    head, _, content = answer_request(request_line + b"\r\n\r\n", PAGES).decode().partition("\r\n\r\n")
    first, *lines = head.split("\r\n")
    assert (first, content) == (f"HTTP/1.0 {status}", body)
    assert f"Content-Length: {len(content)}" in lines
