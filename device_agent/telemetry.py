"""``/healthz``, ``/readyz`` and ``/metrics``: one request a connection. Connections are few, each has a deadline.

A new connection takes the place of the one that is idle for longest: whoever opens many and says nothing keeps no probe
and no Prometheus out.
"""

import asyncio
from contextlib import suppress

from device_agent.errors import ConfigurationError
from kube_api.pages import Pages, answer_request

MOST_CONNECTIONS = 16
_LONGEST_HEAD = 8192
_SECONDS = 5.0


async def serve(where: int | str, pages: Pages, remedy: str = "", seconds: float = _SECONDS) -> asyncio.Server:
    """Listen on a port of all addresses, of which 0 lets the system choose one, or on a Unix socket.

    ``remedy``: how another one is chosen, if not by the flags of ``run``. ``seconds``: what a client has for all.

    Raises:
        ConfigurationError: when it cannot be had.
    """
    clients = _Clients()

    async def answer(reader: asyncio.StreamReader, writer: asyncio.StreamWriter) -> None:
        clients.note(writer)
        try:
            async with asyncio.timeout(seconds):
                head = await reader.readuntil(b"\r\n\r\n")
                clients.note(writer)
                writer.write(answer_request(head, pages))
                await writer.drain()
        except (OSError, TimeoutError, asyncio.IncompleteReadError, asyncio.LimitOverrunError):
            writer.transport.abort()  # the client is gone, too slow, or says too much: what it has not read is dropped
        finally:
            clients.forget(writer)
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


class _Clients:
    """Open connections, the one that has done nothing for longest first: it makes room."""

    def __init__(self) -> None:
        self._open: dict[asyncio.StreamWriter, None] = {}

    def note(self, writer: asyncio.StreamWriter) -> None:
        """Note that a client has done something."""
        self.forget(writer)
        self._open[writer] = None
        if len(self._open) > MOST_CONNECTIONS:
            idle = next(iter(self._open))
            self.forget(idle)
            idle.transport.abort()

    def forget(self, writer: asyncio.StreamWriter) -> None:
        """Forget a client that has its answer, or gets none."""
        self._open.pop(writer, None)
