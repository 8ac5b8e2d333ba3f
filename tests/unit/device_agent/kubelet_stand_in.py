"""A kubelet for faults that a real one cannot be made to show: registrations refused, late, or without a list."""

import asyncio
from contextlib import suppress
from pathlib import Path
from typing import Any

from grpclib.client import Channel, UnaryStreamMethod
from grpclib.const import Cardinality, Handler, Status
from grpclib.exceptions import GRPCError, StreamTerminatedError
from grpclib.server import Server, Stream

from device_agent.kubelet.channel import KubeletCodec, call
from device_agent.protocol import messages
from device_agent.protocol.messages import Empty, ListAndWatchResponse, RegisterRequest
from device_agent.protocol.wire import Message

SECONDS = 120.0
"""Until a test gives up."""


class Kubelet:
    """Takes registrations in a folder. ``refuses``: how many; ``answers``: whether it answers at all."""

    def __init__(self, folder: Path) -> None:
        self.folder = folder
        self.refuses = 0
        self.answers = True
        self.watches = True
        self.registered: asyncio.Queue[RegisterRequest] = asyncio.Queue()
        self.lists: asyncio.Queue[dict[str, str] | None] = asyncio.Queue()
        self.last = RegisterRequest()
        self.plugins: dict[str, RegisterRequest] = {}
        self.shown: dict[str, dict[str, str]] = {}
        self._has_list = asyncio.Event()
        self._server: Server | None = None
        self._watches: list[asyncio.Task[None]] = []
        self._channels: list[Channel] = []

    def __mapping__(self) -> dict[str, Handler]:
        """Name the methods, as grpclib asks for them."""
        return {messages.REGISTER: Handler(self._register, Cardinality.UNARY_UNARY, RegisterRequest, Empty)}

    async def start(self) -> None:
        """Delete all sockets, as a kubelet does, and listen."""
        for path in self.folder.glob("*.sock"):
            path.unlink()
        self._server = Server([self], codec=KubeletCodec())
        await self._server.start(path=str(self.folder / "kubelet.sock"))

    async def stop(self) -> None:
        """End, and with it all lists that are watched."""
        for watch in self._watches:
            watch.cancel()
        await asyncio.gather(*self._watches, return_exceptions=True)
        for channel in self._channels:
            channel.close()
        self._watches, self._channels = [], []
        if self._server is not None:
            self._server.close()
            await self._server.wait_closed()
            self._server = None
        for _ in range(10):  # the other ends see that
            await asyncio.sleep(0)

    async def next_registration(self) -> RegisterRequest:
        """Wait for a registration."""
        self.last = await asyncio.wait_for(self.registered.get(), SECONDS)
        return self.last

    async def next_list(self) -> dict[str, str] | None:
        """Wait for a list: id -> health; None for the end of a stream."""
        return await asyncio.wait_for(self.lists.get(), SECONDS)

    async def until_shown(self, counts: dict[str, tuple[int, int]]) -> None:
        """Wait until the lists are so: resource -> healthy and all devices, for those that have any."""
        async with asyncio.timeout(SECONDS):
            while self.counts() != counts:
                self._has_list.clear()
                await self._has_list.wait()

    def counts(self) -> dict[str, tuple[int, int]]:
        """Return healthy and all devices of each resource that has any."""
        lists = {name: list(devices.values()) for name, devices in self.shown.items() if devices}
        return {name: (found.count(messages.HEALTHY), len(found)) for name, found in lists.items()}

    async def ask(self, request: RegisterRequest, method: str, message: Message, reply: type[Message]) -> Any:
        """Call a plugin."""
        return await call(str(self.folder / request.endpoint), method, message, reply, SECONDS)

    async def _register(self, stream: Stream[Any, Any]) -> None:
        request = await stream.recv_message()
        assert isinstance(request, RegisterRequest)
        if not self.answers:
            await asyncio.sleep(3600)
        if self.refuses:
            self.refuses -= 1
            raise GRPCError(Status.UNKNOWN, "not today")
        await stream.send_message(Empty())
        self.registered.put_nowait(request)
        self.plugins[request.resource_name] = request
        if self.watches:
            self._watches.append(asyncio.create_task(self._watch(request)))

    async def _watch(self, request: RegisterRequest) -> None:
        channel = Channel(path=str(self.folder / request.endpoint), codec=KubeletCodec())
        self._channels.append(channel)
        method = UnaryStreamMethod[Empty, ListAndWatchResponse](
            channel, messages.LIST_AND_WATCH, Empty, ListAndWatchResponse
        )
        with suppress(StreamTerminatedError):  # the plugin has ended, or its connection
            async with method.open() as stream:
                await stream.send_message(Empty(), end=True)
                async for response in stream:
                    found = {device.id: device.health for device in response.devices}
                    self.lists.put_nowait(found)
                    self.shown[request.resource_name] = found
                    self._has_list.set()
        self.lists.put_nowait(None)
