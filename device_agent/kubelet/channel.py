"""gRPC with the kubelet: the codec of :mod:`device_agent.protocol.wire`, limits, and one call to its socket."""

import asyncio
from asyncio import BaseTransport, Transport
from typing import Any, TypeVar, cast

from grpclib.client import Channel, UnaryUnaryMethod
from grpclib.config import Configuration
from grpclib.const import Status
from grpclib.encoding.base import CodecBase
from grpclib.exceptions import GRPCError, StreamTerminatedError
from grpclib.protocol import H2Protocol

from device_agent.errors import MalformedMessage
from device_agent.protocol.wire import Message, decode, encode

LIMITS = Configuration(http2_connection_window_size=1 << 20, http2_stream_window_size=1 << 20)
"""What is received is acknowledged when it is read, so that no message can be longer than the window."""

MOST_BYTES = 1 << 20
"""Of an answer that is short."""

_Reply = TypeVar("_Reply", bound=Message)


class KubeletCodec(CodecBase):
    """Encodes and decodes messages."""

    __content_subtype__ = "proto"

    def encode(self, message: Any, message_type: Any) -> bytes:  # noqa: ARG002 - the name that grpclib calls
        """Write a message."""
        return encode(message)

    def decode(self, data: bytes, message_type: Any) -> Any:
        """Read a message, or refuse the call."""
        try:
            return decode(data, message_type)
        except MalformedMessage as error:
            raise GRPCError(Status.INVALID_ARGUMENT, f"cannot read the message: {error}") from error


class _Connection(H2Protocol):
    """A connection that ends when more has come than ``most`` bytes: grpclib itself reads messages of any length."""

    def __init__(self, most: int, *args: Any) -> None:
        super().__init__(*args)
        self._room = most

    def connection_made(self, transport: BaseTransport) -> None:
        """Remember what to end."""
        super().connection_made(transport)
        self._transport = cast(Transport, transport)

    def data_received(self, data: bytes) -> None:
        """Take what came."""
        self._room -= len(data)
        if self._room >= 0:
            super().data_received(data)
        else:
            self._transport.abort()

    def connection_lost(self, exc: BaseException | None) -> None:
        """Say why it has ended."""
        if self._room >= 0:
            super().connection_lost(exc)
        else:
            self.processor.close("the answer is too long")


class _Channel(Channel):
    def __init__(self, socket: str, most: int) -> None:
        super().__init__(path=socket, codec=KubeletCodec(), config=LIMITS)
        self._most = most

    def _protocol_factory(self) -> H2Protocol:
        made = super()._protocol_factory()
        return _Connection(self._most, made.handler, made.config, made.h2_config)

    async def __connect__(self) -> H2Protocol:
        """Connect; grpclib ends with an AttributeError where the other end has gone before anything was asked."""
        made = await super().__connect__()
        if made.connection.is_closing():
            raise StreamTerminatedError("Connection lost")
        return made


async def call(
    socket: str, method: str, request: Message, reply: type[_Reply], seconds: float, *, most: int = MOST_BYTES
) -> _Reply:
    """Make one call of a method that listens on a socket. ``most``: bytes that may come, with those of HTTP.

    Raises:
        OSError: when nobody listens there.
        GRPCError: when the call is refused.
        TimeoutError: when there is no answer in time.
        StreamTerminatedError: when the connection ends before the answer, or it is too long.
    """
    channel = _Channel(socket, most)
    try:
        unary = UnaryUnaryMethod[Message, _Reply](channel, method, type(request), reply)
        # Not wait_for: that of Python 3.11 forgets that it was cancelled when the answer comes at the same moment.
        async with asyncio.timeout(seconds):
            return await unary(request)
    finally:
        channel.close()
