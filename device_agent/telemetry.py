"""``/healthz``, ``/readyz`` and ``/metrics``: one request a connection. Connections are few, each has a deadline."""

import asyncio
from contextlib import suppress

from device_agent.errors import ConfigurationError
from kube_api.pages import Pages, answer_request

_MOST_CONNECTIONS = 16
_LONGEST_HEAD = 8192
_SECONDS = 5.0


async def serve(where: int | str, pages: Pages, remedy: str = "") -> asyncio.Server:
    """Listen on a port of all addresses, of which 0 lets the system choose one, or on a Unix socket.

    ``remedy``: how another one is chosen, if not by the flags of ``run``.

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
            writer.transport.abort()  # the client is gone, too slow, or says too much: what it has not read is dropped
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
        remedy = remedy or ("--socket" if isinstance(where, str) else "--port, or 0 for none")
        raise ConfigurationError(
            f"cannot listen on {place}: {error.strerror or error}; choose another with {remedy}"
        ) from error


async def _answer(reader: asyncio.StreamReader, writer: asyncio.StreamWriter, pages: Pages) -> None:
    head = await reader.readuntil(b"\r\n\r\n")
    writer.write(answer_request(head, pages))
    await writer.drain()
