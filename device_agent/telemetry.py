"""``/healthz``, ``/readyz`` and ``/metrics``: HTTP/1.0, one request a connection.

``http.server`` would cost the resident process several MiB. Connections are few, and each has a deadline.
"""

import asyncio
from collections.abc import Callable
from contextlib import suppress
from typing import NamedTuple

from device_agent.errors import ConfigurationError

_MOST_CONNECTIONS = 16
_LONGEST_HEAD = 8192
_SECONDS = 5.0


class Pages(NamedTuple):
    """What is served. ``trouble``: why the agent is not healthy. ``missing``: what it is not ready for."""

    trouble: Callable[[], str]
    missing: Callable[[], str]
    metrics: Callable[[], str]


def answer_request(head: bytes, pages: Pages) -> bytes:
    """Answer one HTTP request, given its head."""
    words = head.split(b"\r\n", 1)[0].split()
    path = words[1].partition(b"?")[0] if len(words) > 1 else b""
    if words[:1] != [b"GET"]:
        return _response("405 Method Not Allowed", "only GET\n")
    if path in (b"/healthz", b"/readyz"):
        why = pages.trouble() if path == b"/healthz" else pages.missing()
        return _response("503 Service Unavailable", f"{why}\n") if why else _response("200 OK", "ok\n")
    if path == b"/metrics":
        return _response("200 OK", pages.metrics())
    return _response("404 Not Found", "available: /healthz, /readyz and /metrics\n")


def _response(status: str, body: str) -> bytes:
    content = body.encode()
    head = (
        f"HTTP/1.0 {status}\r\nContent-Type: text/plain; version=0.0.4; charset=utf-8\r\n"
        f"Content-Length: {len(content)}\r\nConnection: close\r\n\r\n"
    )
    return head.encode() + content


async def serve(where: int | str, pages: Pages) -> asyncio.Server:
    """Listen on a port of all addresses, of which 0 lets the system choose one, or on a Unix socket.

    Raises:
        ConfigurationError: when it cannot be had.
    """
    slots = asyncio.Semaphore(_MOST_CONNECTIONS)

    async def answer(reader: asyncio.StreamReader, writer: asyncio.StreamWriter) -> None:
        try:
            if not slots.locked():
                async with slots, asyncio.timeout(_SECONDS):
                    await _answer(reader, writer, pages)
        except (OSError, TimeoutError, asyncio.IncompleteReadError, asyncio.LimitOverrunError):
            pass  # the client is gone, too slow, or says too much
        finally:
            writer.close()
            with suppress(OSError):
                await writer.wait_closed()

    try:
        if isinstance(where, str):
            return await asyncio.start_unix_server(answer, where, limit=_LONGEST_HEAD)
        return await asyncio.start_server(answer, None, where, limit=_LONGEST_HEAD)
    except OSError as error:
        place = f"socket {where}" if isinstance(where, str) else f"port {where}"
        remedy = "--socket" if isinstance(where, str) else "--port, or 0 for none"
        raise ConfigurationError(
            f"cannot listen on {place}: {error.strerror or error}; choose another with {remedy}"
        ) from error


async def _answer(reader: asyncio.StreamReader, writer: asyncio.StreamWriter, pages: Pages) -> None:
    head = await reader.readuntil(b"\r\n\r\n")
    writer.write(answer_request(head, pages))
    await writer.drain()
