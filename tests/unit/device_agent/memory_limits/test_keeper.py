"""The keeper at work: samples come, decisions are told, and processes are ended once."""

import asyncio
import logging
from collections.abc import Awaitable, Callable
from dataclasses import replace

import pytest

from device_agent.allocations.given import Given
from device_agent.boot import seconds_since_boot
from device_agent.gpu_state.ending import Ended, EndRequest
from device_agent.gpu_state.limits import PodLimit
from device_agent.gpu_state.use import KeptLimit, Use
from device_agent.memory_limits.by_driver import Refusal
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
        self.limits: tuple[PodLimit, ...] = ()
        self.kept: tuple[KeptLimit, ...] = ()
        self.refused: dict[str, str] = {}

    def limit(self, limits: tuple[PodLimit, ...]) -> None:
        """Note the limits that drivers are to keep."""
        self.limits = limits

    def end(self, process: EndRequest) -> None:
        """Note a request."""
        self.requests.put_nowait(process)

    async def samples(self, *ended: Ended, seconds: float = 2.5) -> None:
        """Say for a while that a pod uses 30 GiB of a card of 40, of which it may use 20."""
        end = seconds_since_boot() + seconds
        while seconds_since_boot() < end:
            self.use = use(card(BIG, process(8, 1, B)), at=seconds_since_boot())._replace(
                ended=ended, kept=self.kept, refused=self.refused
            )
            await asyncio.sleep(0.1)


def keep(
    act: Callable[[Keeper, Usage, list[Ending | Refusal]], Awaitable[None]], settings: MemorySettings = SETTINGS
) -> None:
    """Keep limits of two pods that share a card, and act."""
    told: list[Ending | Refusal] = []
    given: Given = given_as(2, f"{CARD}::0", f"{CARD}::1")

    async def tell(ending: Ending | Refusal) -> None:
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

    async def act(keeper: Keeper, usage: Usage, told: list[Ending | Refusal]) -> None:
        sampling = asyncio.create_task(usage.samples())
        request = await usage.requests.get()
        assert request == EndRequest(CARD, UIDS[A], BIG.pid, BIG.start)
        assert [one.process for one in told if isinstance(one, Ending)] == [BIG]
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

    async def act(keeper: Keeper, usage: Usage, told: list[Ending | Refusal]) -> None:
        await usage.samples(seconds=2.0)
        await usage.samples(Ended(BIG.pid, BIG.start, "process 7 has ended"), seconds=0.7)
        assert kills(keeper) == []
        assert told

    with caplog.at_level(logging.WARNING):
        keep(act)
    assert "not ended: process 7 has ended" in caplog.text


def test_a_dry_run_asks_for_nothing() -> None:
    """The Event and the count alone, once."""

    async def act(keeper: Keeper, usage: Usage, told: list[Ending | Refusal]) -> None:
        await usage.samples(seconds=3.5)
        assert usage.requests.empty()
        assert [one.is_dry_run for one in told if isinstance(one, Ending)] == [True]
        assert kills(keeper) == [1]

    keep(act, replace(SETTINGS, dry_run=True))


def test_nothing_is_decided_while_the_kubelet_does_not_say_who_has_what() -> None:
    """Whatever is sampled."""

    async def act(keeper: Keeper, usage: Usage, told: list[Ending | Refusal]) -> None:
        usage.held = None
        await usage.samples(seconds=2.5)
        assert usage.requests.empty()
        assert told == []
        assert keeper.samples()["memory_limit_bytes"] == []

    keep(act)


BY_DRIVER = replace(SETTINGS, mode=MemoryMode.DRIVER)
LIMITS = (PodLimit(CARD, A, 20 * GIB), PodLimit(CARD, B, 20 * GIB))


def test_what_the_driver_keeps_is_not_watched() -> None:
    """The driver gets the limits of both pods; the gauge says which it keeps, and nobody is ended."""

    async def act(keeper: Keeper, usage: Usage, told: list[Ending | Refusal]) -> None:
        usage.kept = (KeptLimit(*LIMITS[0][:3]),)
        await usage.samples(seconds=2.5)
        assert usage.limits == LIMITS
        assert (usage.requests.empty(), told) == (True, [])
        assert [labels["pod"] for labels, _ in keeper.samples()["memory_limit_kept"]] == ["a"]
        keeper.configure(SETTINGS)
        await usage.samples(seconds=0.7)
        assert list(usage.limits) == []

    keep(act, BY_DRIVER)


def test_what_the_driver_does_not_keep_is_watched_and_said_once(caplog: pytest.LogCaptureFixture) -> None:
    """As in mode watch."""

    async def act(keeper: Keeper, usage: Usage, told: list[Ending | Refusal]) -> None:
        usage.kept = (KeptLimit(*LIMITS[1][:3]),)
        usage.refused = {CARD: "this driver has no memory limits"}
        await usage.samples(seconds=2.5)
        assert (await usage.requests.get()).pid == BIG.pid
        assert keeper.samples()["memory_limit_kept"][0][0]["pod"] == "b"
        assert [one for one in told if isinstance(one, Refusal)] == [Refusal(CARD, "this driver has no memory limits")]

    with caplog.at_level(logging.WARNING):
        keep(act, BY_DRIVER)
    assert caplog.text.count("the agent watches them: this driver has no memory limits") == 1


def test_a_dry_run_sets_nothing() -> None:
    """The driver would have allocations of pods fail that do not fail today."""

    async def act(keeper: Keeper, usage: Usage, told: list[Ending | Refusal]) -> None:
        usage.limits = LIMITS
        await usage.samples(seconds=2.5)
        assert (list(usage.limits), usage.requests.empty(), len(told)) == ([], True, 1)
        assert keeper.samples()["memory_limit_kept"] == []

    keep(act, replace(BY_DRIVER, dry_run=True))
