"""The gRPC server of a plugin's socket: whatever connects there, the kubelet is served on.

Only root may open the socket, but a probe, a scanner or a mistake may be root's: connections are few, those without a
call make room for new ones, and what is no HTTP/2 ends its own connection alone.
"""

import logging
from asyncio import BaseTransport, Event, Transport
from typing import Any, cast

from grpclib.protocol import H2Protocol
from grpclib.server import Server

log = logging.getLogger(__name__)

MOST_CONNECTIONS = 16
"""A kubelet has one, and for a moment another one."""
MOST_BYTES = 1 << 22
"""Of the calls that a connection has under way, which are read whole; a kubelet asks for one allocation at a time."""


class PluginServer(Server):
    """A server with few connections."""

    def __init__(self, *args: Any, **kwargs: Any) -> None:
        super().__init__(*args, **kwargs)
        self.peers: dict[_Peer, None] = {}
        """In the order in which they came."""
        self.has_none = Event()
        self.has_none.set()

    def close(self) -> None:
        """End all connections, too: the kubelet sees so that its list has ended."""
        super().close()
        for peer in tuple(self.peers):
            peer.transport.close()

    async def wait_closed(self) -> None:
        """Wait for all connections, too: each ends when its peer has read what was sent."""
        await super().wait_closed()
        await self.has_none.wait()

    def abort(self) -> None:
        """End the connections whose peers do not read."""
        for peer in tuple(self.peers):
            peer.transport.abort()

    def _protocol_factory(self) -> H2Protocol:
        made = super()._protocol_factory()
        return _Peer(self, made.handler, made.config, made.h2_config)


class _Peer(H2Protocol):
    """One connection, among all that the server has."""

    transport: Transport

    def __init__(self, server: PluginServer, *args: Any) -> None:
        super().__init__(*args)
        self._server = server

    def connection_made(self, transport: BaseTransport) -> None:
        """Make room for a connection, or refuse it where each has a call."""
        super().connection_made(transport)
        self.transport = cast(Transport, transport)
        peers = self._server.peers
        if len(peers) >= MOST_CONNECTIONS:
            idle = next((peer for peer in peers if not peer.processor.streams), self)
            peers.pop(idle, None)
            idle.processor.close("too many connections")
            idle.transport.abort()
            if idle is self:
                return
        peers[self] = None
        self._server.has_none.clear()

    def data_received(self, data: bytes) -> None:
        """Take what came; what the libraries do not understand, and what is too long, ends the connection."""
        try:
            super().data_received(data)
        except Exception as error:  # noqa: BLE001 - of a peer, whatever it sends
            log.warning("a connection is closed: what it sends is not understood (%s)", type(error).__name__)
            self.processor.close("not understood")
        # grpclib waits for as many bytes as a message is said to have, and has the peer send them.
        if sum(stream.data_received for stream in self.processor.streams.values()) > MOST_BYTES:
            log.warning("a connection is closed: it sends more than %d bytes for its calls", MOST_BYTES)
            self.processor.close("too long")
            self.transport.abort()

    def connection_lost(self, exc: BaseException | None) -> None:
        """Forget a connection that has ended."""
        self._server.peers.pop(self, None)
        if not self._server.peers:
            self._server.has_none.set()
        super().connection_lost(exc)
