"""gRPC with the kubelet: the codec of :mod:`device_agent.protocol.wire`, limits, and one call to its socket."""

import asyncio
from typing import Any, TypeVar

from grpclib.client import Channel, UnaryUnaryMethod
from grpclib.config import Configuration
from grpclib.const import Status
from grpclib.encoding.base import CodecBase
from grpclib.exceptions import GRPCError

from device_agent.errors import MalformedMessage
from device_agent.protocol.wire import Message, decode, encode

LIMITS = Configuration(http2_connection_window_size=1 << 20, http2_stream_window_size=1 << 20)
"""What is received is acknowledged when it is read, so that no message can be longer than the window."""

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


async def call(socket: str, method: str, request: Message, reply: type[_Reply], seconds: float) -> _Reply:
    """Make one call of a method that listens on a socket.

    Raises:
        OSError: when nobody listens there.
        GRPCError: when the call is refused.
        TimeoutError: when there is no answer in time.
        StreamTerminatedError: when the connection ends before the answer.
    """
    channel = Channel(path=socket, codec=KubeletCodec(), config=LIMITS)
    try:
        unary = UnaryUnaryMethod[Message, _Reply](channel, method, type(request), reply)
        # Not wait_for: that of Python 3.11 forgets that it was cancelled when the answer comes at the same moment.
        async with asyncio.timeout(seconds):
            return await unary(request)
    finally:
        channel.close()
