"""Clients of the agent's pages that keep nothing."""

import asyncio

from device_agent.telemetry import serve
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
