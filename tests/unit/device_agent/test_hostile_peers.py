"""Whatever connects to a plugin's socket, the kubelet is served: frames by hand, on a real socket."""

import asyncio
import logging
import os
from collections.abc import Callable, Iterable
from contextlib import suppress
from pathlib import Path

import hpack
import pytest
from grpclib.exceptions import GRPCError, StreamTerminatedError

from device_agent.kubelet.server import MOST_BYTES, MOST_CONNECTIONS
from device_agent.protocol import messages
from device_agent.protocol.messages import AllocateRequest, AllocateResponse, ContainerAllocateRequest
from tests.unit.device_agent.file_devices import Plugin
from tests.unit.device_agent.kubelet_stand_in import SECONDS, Kubelet
from tests.unit.device_agent.test_plugin import play, show

DATA, HEADERS, RESET, SETTINGS, PING, CONTINUATION, UNKNOWN = 0, 1, 3, 4, 6, 9, 0x42
END_STREAM, END_HEADERS = 1, 4


def frame(kind: int, body: bytes = b"", *, flags: int = 0, stream: int = 0) -> bytes:
    """Write a frame of HTTP/2."""
    return len(body).to_bytes(3, "big") + bytes([kind, flags]) + stream.to_bytes(4, "big") + body


HELLO = b"PRI * HTTP/2.0\r\n\r\nSM\r\n\r\n" + frame(SETTINGS)
NO_WINDOW = frame(SETTINGS, b"\x00\x04\x00\x00\x00\x00")


def call(path: str, *messages_: bytes, stream: int = 1, extra: Iterable[tuple[str, str]] = ()) -> bytes:
    """Write a call with what should be its messages."""
    fields = [(":method", "POST"), (":scheme", "http"), (":path", path), (":authority", "x"),
              ("content-type", "application/grpc"), ("te", "trailers"), *extra]  # fmt: skip
    data = b"".join(frame(DATA, item, stream=stream) for item in messages_)
    return frame(HEADERS, hpack.Encoder().encode(fields), flags=END_HEADERS, stream=stream) + data


LONG = b"\x40\x01a\x7f\xff\xff\x03" + b"b" * 16000
PEERS = {
    "nothing": b"",
    "garbage": os.urandom(1 << 17),
    "another protocol": b"GET /metrics HTTP/1.1\r\n\r\n",
    "half a frame": HELLO + b"\x00\xff\xff\x01",
    "a frame that is too long": HELLO + frame(DATA, b"x" * 70000, stream=1),
    "a type that does not exist": HELLO + frame(UNKNOWN, b"x"),
    "data of no call": HELLO + frame(DATA, b"x", stream=7),
    "headers without an end": HELLO
    + frame(HEADERS, b"\x00", stream=1)
    + b"".join(frame(CONTINUATION, LONG, stream=1) for _ in range(500)),
    "headers of a megabyte": HELLO + call("/x", extra=[(f"a{number}", "b" * 4000) for number in range(250)]),
    "many settings": HELLO + b"".join(frame(SETTINGS, b"\x00\x03" + n.to_bytes(4, "big")) for n in range(2000)),
    "many pings": HELLO + b"".join(frame(PING, b"12345678") for _ in range(5000)),
    "calls that are reset": HELLO
    + b"".join(
        call(messages.LIST_AND_WATCH, stream=number) + frame(RESET, b"\0\0\0\x08", stream=number)
        for number in range(1, 1001, 2)
    ),
    "a wrong path": HELLO + call("/v1beta1.DevicePlugin/Nothing", b"\0\0\0\0\0"),
    "wrong metadata": HELLO + call(messages.ALLOCATE, extra=[("x-bin", "!"), ("grpc-timeout", "zz")]),
    "a message of four gigabytes": HELLO + call(messages.ALLOCATE, b"\0\xff\xff\xff\xff" + b"x" * 16000),
    "a message that is none": HELLO + call(messages.ALLOCATE, b"\0\0\0\0\x05\xff\xff\xff\xff\xff"),
    "a compressed message": HELLO + call(messages.ALLOCATE, b"\x01\0\0\0\x05hello"),
    "half a message": HELLO + call(messages.ALLOCATE, b"\0\0\0") + frame(DATA, flags=END_STREAM, stream=1),
    "watchers that read nothing": HELLO
    + NO_WINDOW
    + b"".join(call(messages.LIST_AND_WATCH, b"\0\0\0\0\0", stream=number) for number in range(1, 41, 2)),
}


async def send(plugin: Plugin, data: bytes) -> asyncio.StreamWriter:
    """Connect to a plugin and send what it takes; the connection stays."""
    _, writer = await asyncio.open_unix_connection(plugin.socket)
    writer.write(data)
    with suppress(OSError, TimeoutError):
        async with asyncio.timeout(1):
            await writer.drain()
    return writer


def open_files() -> int:
    """Count what this process has open."""
    return len(os.listdir("/proc/self/fd"))  # noqa: PTH208


async def is_served(kubelet: Kubelet, plugin: Plugin) -> None:
    """Check that the kubelet sees a change, on the connection that it has, and gets a device."""
    before = plugin.registrations["success"]
    for why, health in (("gone", "Unhealthy"), ("", "Healthy")):
        (name,) = await show(plugin, a0=why)
        assert await kubelet.next_list() == {name: health}
    containers = (ContainerAllocateRequest(device_ids=(name,)),)
    answer = await kubelet.ask(
        kubelet.last, messages.ALLOCATE, AllocateRequest(containers=containers), AllocateResponse
    )
    assert answer.containers[0].devices[0].host_path == "/dev/a0"
    assert (plugin.registrations["success"], plugin.is_registered) == (before, True)


def beside(folder: Path, act: Callable[[Kubelet, Plugin], object]) -> None:
    """Run a plugin that a kubelet watches."""

    async def work(kubelet: Kubelet, plugin: Plugin) -> None:
        await show(plugin, a0="")
        await kubelet.start()
        await kubelet.next_registration()
        await kubelet.next_list()
        await act(kubelet, plugin)  # type: ignore[misc]

    play(folder, work)


@pytest.mark.parametrize("sent", PEERS.values(), ids=PEERS)
def test_the_kubelet_is_served_beside_any_peer(tmp_path: Path, sent: bytes, caplog: pytest.LogCaptureFixture) -> None:
    """Its list follows and devices are allocated, while the peer stays and after it is gone; no traceback is logged."""

    async def act(kubelet: Kubelet, plugin: Plugin) -> None:
        writers = [await send(plugin, sent) for _ in range(3)]
        await is_served(kubelet, plugin)
        for writer in writers:
            writer.close()
        await is_served(kubelet, plugin)

    with caplog.at_level(logging.WARNING):
        beside(tmp_path, act)
    assert [record.message for record in caplog.records if record.exc_info] == []


def test_a_message_is_bounded(tmp_path: Path, caplog: pytest.LogCaptureFixture) -> None:
    """A peer that keeps the windows of HTTP/2 would otherwise send any amount, which is kept until it is whole."""

    async def act(kubelet: Kubelet, plugin: Plugin) -> None:
        for size, error in ((MOST_BYTES // 2, GRPCError), (2 * MOST_BYTES, StreamTerminatedError)):
            containers = (ContainerAllocateRequest(device_ids=("x" * size,)),)
            with pytest.raises(error):
                await kubelet.ask(kubelet.last, messages.ALLOCATE, AllocateRequest(containers=containers),
                                  AllocateResponse)  # fmt: skip
        await is_served(kubelet, plugin)

    with caplog.at_level(logging.WARNING):
        beside(tmp_path, act)
    assert f"it sends more than {MOST_BYTES} bytes for its calls" in caplog.text


def test_idle_connections_make_room(tmp_path: Path) -> None:
    """However many come: that of the kubelet stays, and another kubelet finds room."""

    async def act(kubelet: Kubelet, plugin: Plugin) -> None:
        before = open_files()
        writers = [await send(plugin, HELLO) for _ in range(10 * MOST_CONNECTIONS)]
        await is_served(kubelet, plugin)
        assert open_files() - before < 12 * MOST_CONNECTIONS, "both ends of few, one of the rest"
        for writer in writers:
            writer.close()

    beside(tmp_path, act)


def test_a_connection_is_refused_where_each_has_a_call(tmp_path: Path) -> None:
    """The calls stay; when one ends there is room again."""

    async def act(kubelet: Kubelet, plugin: Plugin) -> None:
        watching = HELLO + call(messages.LIST_AND_WATCH, b"\0\0\0\0\0")
        writers = [await send(plugin, watching) for _ in range(MOST_CONNECTIONS - 1)]
        while plugin.service.watchers < MOST_CONNECTIONS:
            await asyncio.sleep(0.01)
        reader, refused = await asyncio.open_unix_connection(plugin.socket)
        async with asyncio.timeout(SECONDS):
            await reader.read()
        refused.close()
        writers[0].close()
        while plugin.service.watchers == MOST_CONNECTIONS:
            await asyncio.sleep(0.01)
        await is_served(kubelet, plugin)
        for writer in writers:
            writer.close()

    beside(tmp_path, act)
