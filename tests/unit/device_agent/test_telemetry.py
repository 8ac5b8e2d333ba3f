"""Clients of the agent's pages that keep nothing."""

import asyncio

from device_agent.telemetry import MOST_CONNECTIONS, serve
from kube_api.pages import Page
from testbed.ports import free_ports
from tests.unit.device_agent.kubelet_stand_in import SECONDS

LARGE = Page("x" * (64 << 20))


def test_what_a_client_does_not_read_is_dropped() -> None:
    """After its deadline nothing waits for it any more, and the page is kept for nobody."""

    async def work() -> None:
        (port,) = free_ports(1)
        server = await serve(port, {"/metrics": lambda: LARGE})
        before = len(asyncio.all_tasks())
        try:
            async with asyncio.timeout(SECONDS):
                _reader, writer = await asyncio.open_connection("::1", port, limit=1 << 10)
                writer.write(b"GET /metrics HTTP/1.0\r\n\r\n")
                while len(asyncio.all_tasks()) == before:
                    await asyncio.sleep(0.01)
                while len(asyncio.all_tasks()) > before:
                    await asyncio.sleep(0.1)
                writer.transport.abort()
        finally:
            server.close()

    asyncio.run(work())


def test_a_new_client_takes_the_place_of_the_one_that_is_idle_for_longest() -> None:
    """Many that say nothing keep nobody out; of those the first is dropped, and one that is reading is not."""

    async def work() -> None:
        (port,) = free_ports(1)
        server = await serve(port, {"/metrics": lambda: LARGE, "/healthz": lambda: Page("ok\n")}, seconds=SECONDS)
        try:
            async with asyncio.timeout(SECONDS):
                reading, writer = await asyncio.open_connection("::1", port, limit=1 << 10)
                idle = [await asyncio.open_connection("::1", port) for _ in range(MOST_CONNECTIONS - 1)]
                writer.write(b"GET /metrics HTTP/1.0\r\n\r\n")
                assert (await reading.readuntil(b"\r\n")).endswith(b"200 OK\r\n")
                reader, asking = await asyncio.open_connection("::1", port)
                asking.write(b"GET /healthz HTTP/1.0\r\n\r\n")
                assert (await reader.read()).endswith(b"ok\n")
                first, *others = idle
                assert await is_closed(first)
                assert not any(reader.at_eof() for reader, _ in others)
                assert len(await reading.readexactly(len(LARGE.text))) == len(LARGE.text)
                for _, each in [*idle, (reading, writer), (reader, asking)]:
                    each.transport.abort()
        finally:
            server.close()

    asyncio.run(work())


async def is_closed(client: tuple[asyncio.StreamReader, asyncio.StreamWriter]) -> bool:
    """Wait for the end of a connection."""
    try:
        return not await client[0].read()
    except ConnectionError:
        return True
