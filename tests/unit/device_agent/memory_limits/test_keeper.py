"""The keeper at work: samples come, decisions are told, and processes are ended once."""

import asyncio
import logging
from collections.abc import Awaitable, Callable
from dataclasses import replace

import pytest

from device_agent.allocations.given import Given
from device_agent.boot import seconds_since_boot
from device_agent.gpu_state.ending import Ended, EndRequest
from device_agent.gpu_state.use import Use
from device_agent.memory_limits.keeper import Keeper
from device_agent.memory_limits.watch import Ending
from device_agent.usage.attribution import Allocated
from device_resources.memory_limits import MemoryMode, MemorySettings
from tests.unit.device_agent.kubelet_stand_in import SECONDS
from tests.unit.device_agent.memory_limits.examples import CARD, GIB, UIDS, A, B, card, given_as, held, process, use

SETTINGS = MemorySettings(mode=MemoryMode.WATCH, grace_seconds=1)
BIG = process(7, 30)


class Usage:
    """Who uses what, as a test says it."""

    def __init__(self) -> None:
        self.use: Use | None = None
        self.held: tuple[Allocated, ...] | None = (held(f"{CARD}::0"), held(f"{CARD}::1", B))
        self.requests: asyncio.Queue[EndRequest] = asyncio.Queue()

    def end(self, process: EndRequest) -> None:
        """Note a request."""
        self.requests.put_nowait(process)

    async def samples(self, *ended: Ended, seconds: float = 2.5) -> None:
        """Say for a while that a pod uses 30 GiB of a card of 40, of which it may use 20."""
        end = seconds_since_boot() + seconds
        while seconds_since_boot() < end:
            self.use = use(card(BIG, process(8, 1, B)), at=seconds_since_boot())._replace(ended=ended)
            await asyncio.sleep(0.1)


def keep(act: Callable[[Keeper, Usage, list[Ending]], Awaitable[None]], settings: MemorySettings = SETTINGS) -> None:
    """Keep limits of two pods that share a card, and act."""
    told: list[Ending] = []
    given: Given = given_as(2, f"{CARD}::0", f"{CARD}::1")

    async def tell(ending: Ending) -> None:
        told.append(ending)

    async def work() -> None:
        usage = Usage()
        keeper = Keeper(usage, lambda: given, tell, settings)
        try:
            async with asyncio.timeout(SECONDS):
                await act(keeper, usage, told)
                keeper.check()
        finally:
            await keeper.close()

    asyncio.run(work())


def kills(keeper: Keeper) -> list[float]:
    """Return the counts of ended processes."""
    return [value for _, value in keeper.samples()["memory_kills_total"]]


def test_the_process_is_named_by_all_that_it_is_known_by(caplog: pytest.LogCaptureFixture) -> None:
    """The Event comes before the request; it is counted when the container says that it was ended."""

    async def act(keeper: Keeper, usage: Usage, told: list[Ending]) -> None:
        sampling = asyncio.create_task(usage.samples())
        request = await usage.requests.get()
        assert request == EndRequest(CARD, UIDS[A], BIG.pid, BIG.start)
        assert [one.process for one in told] == [BIG]
        assert kills(keeper) == []
        await sampling
        await usage.samples(Ended(BIG.pid, BIG.start), seconds=0.7)
        assert kills(keeper)[0] >= 1
        limits = {labels["pod"]: value for labels, value in keeper.samples()["memory_limit_bytes"]}
        assert limits == {"a": 20 * GIB, "b": 20 * GIB}

    with caplog.at_level(logging.WARNING):
        keep(act)
    assert "process 7 was ended" in caplog.text


def test_a_refusal_is_logged_and_not_counted(caplog: pytest.LogCaptureFixture) -> None:
    """As where the process has ended by itself."""

    async def act(keeper: Keeper, usage: Usage, told: list[Ending]) -> None:
        await usage.samples(seconds=2.0)
        await usage.samples(Ended(BIG.pid, BIG.start, "process 7 has ended"), seconds=0.7)
        assert kills(keeper) == []
        assert told

    with caplog.at_level(logging.WARNING):
        keep(act)
    assert "not ended: process 7 has ended" in caplog.text


def test_a_dry_run_asks_for_nothing() -> None:
    """The Event and the count alone, once."""

    async def act(keeper: Keeper, usage: Usage, told: list[Ending]) -> None:
        await usage.samples(seconds=3.5)
        assert usage.requests.empty()
        assert [one.is_dry_run for one in told] == [True]
        assert kills(keeper) == [1]

    keep(act, replace(SETTINGS, dry_run=True))


def test_nothing_is_decided_while_the_kubelet_does_not_say_who_has_what() -> None:
    """Whatever is sampled."""

    async def act(keeper: Keeper, usage: Usage, told: list[Ending]) -> None:
        usage.held = None
        await usage.samples(seconds=2.5)
        assert usage.requests.empty()
        assert told == []
        assert keeper.samples()["memory_limit_bytes"] == []

    keep(act)
