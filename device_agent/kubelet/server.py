"""The gRPC server of a plugin's socket: whatever connects there, the kubelet is served on.

Only root may open the socket, but a probe, a scanner or a mistake may be root's: connections are few, those without a
call make room for new ones, and what is no HTTP/2 ends its own connection alone.
"""

import logging
from asyncio import BaseTransport
from typing import Any

from grpclib.protocol import H2Protocol
from grpclib.server import Server

log = logging.getLogger(__name__)

MOST_CONNECTIONS = 16
"""A kubelet has one, and for a moment another one."""


class PluginServer(Server):
    """A server with few connections."""

    def __init__(self, *args: Any, **kwargs: Any) -> None:
        super().__init__(*args, **kwargs)
        self.peers: dict[_Peer, None] = {}
        """In the order in which they came."""

    def _protocol_factory(self) -> H2Protocol:
        made = super()._protocol_factory()
        return _Peer(self.peers, made.handler, made.config, made.h2_config)


class _Peer(H2Protocol):
    """One connection, among all that the server has."""

    def __init__(self, peers: "dict[_Peer, None]", *args: Any) -> None:
        super().__init__(*args)
        self._peers = peers

    def connection_made(self, transport: BaseTransport) -> None:
        """Make room for a connection, or refuse it where each has a call."""
        super().connection_made(transport)
        if len(self._peers) >= MOST_CONNECTIONS:
            idle = next((peer for peer in self._peers if not peer.processor.streams), self)
            self._peers.pop(idle, None)
            idle.processor.close("too many connections")
            if idle is self:
                return
        self._peers[self] = None

    def data_received(self, data: bytes) -> None:
        """Take what came; what the libraries do not understand ends the connection."""
        try:
            super().data_received(data)
        except Exception as error:  # noqa: BLE001 - of a peer, whatever it sends
            log.warning("a connection is closed: what it sends is not understood (%s)", type(error).__name__)
            self.processor.close("not understood")

    def connection_lost(self, exc: BaseException | None) -> None:
        """Forget a connection that has ended."""
        self._peers.pop(self, None)
        super().connection_lost(exc)
