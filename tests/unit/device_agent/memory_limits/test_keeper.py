"""The keeper at work: samples come, decisions are told, and processes are ended once."""

import asyncio
import logging
from collections.abc import Awaitable, Callable
from dataclasses import replace

import pytest

from device_agent.allocations.given import Given
from device_agent.boot import seconds_since_boot
from device_agent.gpu_state.ending import MOST_ENDED, Ended, EndRequest
from device_agent.gpu_state.limits import PodLimit
from device_agent.gpu_state.use import KeptLimit, Use
from device_agent.memory_limits.by_driver import Refusal
from device_agent.memory_limits.keeper import Keeper
from device_agent.memory_limits.watch import HOLDERS_SECONDS, Ending
from device_agent.usage.attribution import FRESH_SECONDS, Allocated
from device_resources.memory_limits import MemoryMode, MemorySettings
from tests.unit.device_agent.kubelet_stand_in import SECONDS
from tests.unit.device_agent.memory_limits.examples import CARD, GIB, UIDS, A, B, card, given_as, held, process, use

SETTINGS = MemorySettings(mode=MemoryMode.WATCH, grace_seconds=1)
BIG = process(7, 30)


class Usage:
    """Who uses what, as a test says it. ``answers``: what became of requests, by PID; another one is not answered."""

    def __init__(self) -> None:
        self.use: Use | None = None
        self.held: tuple[Allocated, ...] | None = (held(f"{CARD}::0"), held(f"{CARD}::1", B))
        self.holders_age = 0.0
        self.is_connected = True
        self.answers: dict[int, str] = {}
        self.requests: asyncio.Queue[EndRequest] = asyncio.Queue()
        self.ended: tuple[Ended, ...] = ()
        self.limits: tuple[PodLimit, ...] | None = None
        self.kept: tuple[KeptLimit, ...] = ()
        self.refused: dict[str, str] = {}
        self.big = BIG

    def limit(self, limits: tuple[PodLimit, ...]) -> None:
        """Note the limits that drivers are to keep."""
        self.limits = limits

    @property
    def held_at(self) -> float:
        """Say that the kubelet was asked so long ago."""
        return seconds_since_boot() - self.holders_age

    def end(self, process: EndRequest) -> bool:
        """Note a request."""
        if self.is_connected:
            self.requests.put_nowait(process)
            if process.pid in self.answers:
                answer = Ended(process.pid, process.start, process.at, self.answers[process.pid])
                self.ended = (*self.ended, answer)[-MOST_ENDED:]
        return self.is_connected

    def sample(self) -> None:
        """Say that a pod uses 30 GiB of a card of 40, of which it may use 20, unless a test says another process."""
        found = use(card(self.big, process(8, 1, B)), at=seconds_since_boot())
        self.use = found._replace(ended=self.ended, kept=self.kept, refused=self.refused)

    async def samples(self, seconds: float) -> None:
        """Say so for a while."""
        end = seconds_since_boot() + seconds
        while seconds_since_boot() < end:
            self.sample()
            await asyncio.sleep(0.03)

    async def until(self, is_so: Callable[[], bool]) -> None:
        """Say so until something has happened."""
        while not is_so():
            self.sample()
            await asyncio.sleep(0.03)


class Told:
    """What was told. ``begins``: is called before each ending is."""

    def __init__(self) -> None:
        self.endings: list[Ending] = []
        self.refusals: list[Refusal] = []
        self.begins: Callable[[], None] = lambda: None

    async def __call__(self, ending: Ending | Refusal) -> None:
        """Note a decision, or a card whose driver keeps no limits."""
        if isinstance(ending, Refusal):
            self.refusals.append(ending)
            return
        self.begins()
        self.endings.append(ending)


Act = Callable[[Keeper, Usage, Told], Awaitable[None]]
GIVEN: Given = given_as(2, f"{CARD}::0", f"{CARD}::1")


def keep(act: Act, settings: MemorySettings = SETTINGS, given: Callable[[], Given | None] = lambda: GIVEN) -> None:
    """Keep limits of two pods that share a card, and act."""

    async def work() -> None:
        usage, told = Usage(), Told()
        keeper = Keeper(usage, given, told, settings, look=0.01)
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

    async def act(keeper: Keeper, usage: Usage, told: Told) -> None:
        await usage.until(lambda: not usage.requests.empty())
        request = usage.requests.get_nowait()
        assert request == EndRequest(CARD, UIDS[A], BIG.pid, BIG.start, request.at)
        assert [one.process for one in told.endings] == [BIG]
        await usage.samples(1.3)
        assert (usage.requests.qsize(), kills(keeper)) == (0, [])  # it is not asked again before it has answered
        limits = {labels["pod"]: value for labels, value in keeper.samples()["memory_limit_bytes"]}
        assert limits == {"a": 20 * GIB, "b": 20 * GIB}

    keep(act)

    async def answered(keeper: Keeper, usage: Usage, _told: Told) -> None:
        usage.answers[BIG.pid] = ""
        await usage.until(lambda: kills(keeper) == [1])

    with caplog.at_level(logging.WARNING):
        keep(answered)
    assert "process 7 was ended" in caplog.text


def test_a_process_that_takes_its_time_to_end_is_counted_once() -> None:
    """It is sent SIGKILL in each grace, and answers of before are no answers."""

    async def act(keeper: Keeper, usage: Usage, _told: Told) -> None:
        usage.answers[BIG.pid] = ""
        await usage.until(lambda: usage.requests.qsize() == 3)
        await usage.samples(seconds=1.0)
        assert kills(keeper) == [1]

    keep(act)


@pytest.mark.parametrize(
    "answer", [pytest.param("", id="to the second request"), pytest.param("it has ended", id="none")]
)
def test_a_process_that_nobody_has_spoken_of_counts_when_it_is_gone(
    answer: str, monkeypatch: pytest.MonkeyPatch, caplog: pytest.LogCaptureFixture
) -> None:
    """As where NVML hangs after the kill: it is killed once more, or has ended by then. It counts once."""
    monkeypatch.setattr("device_agent.memory_limits.keeper._ANSWER_SECONDS", 0.2)

    async def act(keeper: Keeper, usage: Usage, _told: Told) -> None:
        await usage.until(lambda: "did not say what became of process 7" in caplog.text)
        await usage.samples(0.2)
        assert kills(keeper) == [], "it is listed still"
        usage.answers[BIG.pid] = answer
        await usage.until(lambda: usage.requests.qsize() == 2)
        usage.big = process(9, 1)
        await usage.until(lambda: kills(keeper) == [1])
        await usage.samples(1.3)
        assert kills(keeper) == [1]

    with caplog.at_level(logging.WARNING):
        keep(act)


def test_more_answers_than_are_kept_are_no_loss() -> None:
    """Old ones of the same process are no answers to a new request, and are pushed out by its own."""

    async def act(keeper: Keeper, usage: Usage, _told: Told) -> None:
        usage.ended = tuple(Ended(BIG.pid, BIG.start, float(at), "NVML hangs") for at in range(MOST_ENDED))
        usage.answers[BIG.pid] = ""
        await usage.until(lambda: kills(keeper) == [1])

    keep(act)


def test_a_refusal_is_logged_and_not_counted(caplog: pytest.LogCaptureFixture) -> None:
    """As where the process has ended by itself."""

    async def act(keeper: Keeper, usage: Usage, _told: Told) -> None:
        usage.answers[BIG.pid] = "process 7 has ended"
        await usage.until(lambda: "not ended: process 7 has ended" in caplog.text)
        assert kills(keeper) == []

    with caplog.at_level(logging.WARNING):
        keep(act)


def test_a_dry_run_asks_for_nothing() -> None:
    """The Event and the count alone, once."""

    async def act(keeper: Keeper, usage: Usage, told: Told) -> None:
        await usage.samples(seconds=2.3)
        assert usage.requests.empty()
        assert [one.is_dry_run for one in told.endings] == [True]
        assert kills(keeper) == [1]

    keep(act, replace(SETTINGS, dry_run=True))


def test_after_a_dry_run_the_grace_begins_anew() -> None:
    """Whoever is over the limit by then has not been warned of an end."""

    async def act(keeper: Keeper, usage: Usage, told: Told) -> None:
        await usage.until(lambda: bool(told.endings))
        keeper.configure(SETTINGS)
        began = seconds_since_boot()
        await usage.until(lambda: not usage.requests.empty())
        assert usage.requests.get_nowait().at >= began + SETTINGS.grace_seconds

    keep(act, replace(SETTINGS, dry_run=True))


def test_a_dry_run_that_begins_while_an_event_is_written_ends_nothing() -> None:
    """The API server may take its time; what was decided is decided again by the new configuration."""

    async def act(keeper: Keeper, usage: Usage, told: Told) -> None:
        told.begins = lambda: keeper.configure(replace(SETTINGS, dry_run=True))
        await usage.until(lambda: len(told.endings) == 2)
        assert [one.is_dry_run for one in told.endings] == [False, True]
        await usage.samples(seconds=1.3)
        assert usage.requests.empty()

    keep(act)


def test_a_kubelet_that_goes_while_an_event_is_written_ends_nothing() -> None:
    """Nobody can say then that the pod still has the card."""

    async def act(_keeper: Keeper, usage: Usage, told: Told) -> None:
        def go() -> None:
            usage.held = None

        told.begins = go
        await usage.until(lambda: bool(told.endings))
        await usage.samples(seconds=1.3)
        assert usage.requests.empty()

    keep(act)


def test_a_request_that_cannot_be_sent_is_decided_again(caplog: pytest.LogCaptureFixture) -> None:
    """At the next sample, and not after another grace."""
    grace = replace(SETTINGS, grace_seconds=2)

    async def act(_keeper: Keeper, usage: Usage, told: Told) -> None:
        usage.is_connected = False
        await usage.until(lambda: bool(told.endings))
        await asyncio.sleep(0.1)
        usage.is_connected = True
        usage.sample()  # no other one follows
        assert (await usage.requests.get()).pid == BIG.pid

    with caplog.at_level(logging.WARNING):
        keep(act, grace)
    assert (
        "process 7 is not ended, and it is decided again: there is no connection to the container nvml" in caplog.text
    )


@pytest.mark.parametrize(
    "where", [pytest.param("given", id="while it decides"), pytest.param("tell", id="while it acts")]
)
def test_an_error_that_nobody_has_foreseen_ends_one_sample(where: str, caplog: pytest.LogCaptureFixture) -> None:
    """It is logged with its trace, once; the next sample is acted on, and no sample is twice."""
    failures = {"given": 0, "tell": 0, where: 2}

    def fail(name: str) -> None:
        if failures[name]:
            failures[name] -= 1
            raise RuntimeError("can't start new thread")

    def given() -> Given:
        fail("given")
        return GIVEN

    async def act(keeper: Keeper, usage: Usage, told: Told) -> None:
        told.begins = lambda: fail("tell")
        usage.sample()
        await asyncio.sleep(0.2)
        keeper.check()
        await usage.until(lambda: not usage.requests.empty())
        assert failures[where] == 0
        assert len(told.endings) == 1

    with caplog.at_level(logging.WARNING):
        keep(act, given=given)
    assert caplog.text.count("a sample was not acted on: RuntimeError") in (1, 2)
    assert "Traceback" in caplog.text


def test_nothing_is_decided_while_the_kubelet_does_not_say_who_has_what() -> None:
    """Whatever is sampled."""

    async def act(keeper: Keeper, usage: Usage, told: Told) -> None:
        usage.held = None
        await usage.samples(seconds=1.3)
        assert usage.requests.empty()
        assert told.endings == []
        assert keeper.samples()["memory_limit_bytes"] == []

    keep(act)


def test_nothing_is_decided_by_what_the_kubelet_said_long_ago() -> None:
    """The metrics do not flicker for that."""

    async def act(keeper: Keeper, usage: Usage, told: Told) -> None:
        usage.holders_age = HOLDERS_SECONDS + 1
        await usage.samples(seconds=1.3)
        assert usage.requests.empty()
        assert told.endings == []
        assert [value for _, value in keeper.samples()["memory_used_bytes"]] == [30 * GIB, GIB]

    keep(act)


def test_what_is_used_is_not_known_without_new_samples() -> None:
    """As while the container nvml is away: the limits stay, as long as it is known who has what."""

    async def act(keeper: Keeper, usage: Usage, _told: Told) -> None:
        await usage.until(lambda: bool(keeper.samples()["memory_used_bytes"]))
        assert usage.use is not None
        usage.use = usage.use._replace(at=seconds_since_boot() - FRESH_SECONDS - 1)
        found = keeper.samples()
        assert (len(found["memory_used_bytes"]), len(found["memory_limit_bytes"])) == (0, 2)
        usage.held = None
        assert keeper.samples()["memory_limit_bytes"] == []

    keep(act)


BY_DRIVER = replace(SETTINGS, mode=MemoryMode.DRIVER)
LIMITS = (PodLimit(CARD, A, 20 * GIB, uid=UIDS[A]), PodLimit(CARD, B, 20 * GIB, uid=UIDS[B]))


def test_what_the_driver_keeps_is_not_watched() -> None:
    """The driver gets the limits of both pods; the gauge says which it keeps, and nobody is ended."""

    async def act(keeper: Keeper, usage: Usage, told: Told) -> None:
        usage.kept, usage.big = (KeptLimit(*LIMITS[0][:3]),), process(7, 15)
        await usage.until(lambda: bool(keeper.samples()["memory_limit_kept"]))
        usage.big = BIG  # the driver counts less than NVML
        await usage.samples(1.5)
        assert usage.limits == LIMITS
        assert (usage.requests.empty(), told.endings, told.refusals) == (True, [], [])
        assert [labels["pod"] for labels, _ in keeper.samples()["memory_limit_kept"]] == ["a"]
        keeper.configure(SETTINGS)
        await usage.until(lambda: usage.limits == ())

    keep(act, BY_DRIVER)


def test_what_a_pod_had_before_the_driver_kept_its_limit_is_watched() -> None:
    """The driver takes nothing back."""

    async def act(keeper: Keeper, usage: Usage, told: Told) -> None:  # noqa: ARG001 - as the others have it
        usage.kept = (KeptLimit(*LIMITS[0][:3]),)
        await usage.until(lambda: not usage.requests.empty())
        assert usage.requests.get_nowait().pid == BIG.pid

    keep(act, BY_DRIVER)


def test_while_it_is_not_read_what_was_given_no_limit_is_taken_back() -> None:
    """As after a restart of the agent: drivers keep what they were asked for before."""

    async def act(keeper: Keeper, usage: Usage, told: Told) -> None:  # noqa: ARG001 - as the others have it
        await usage.samples(0.5)
        assert usage.limits is None

    keep(act, BY_DRIVER, given=lambda: None)


def test_limits_are_taken_back_only_by_what_was_asked_after_what_was_given_was_read() -> None:
    """What was given names resources that are not offered yet: without that, their pods seem to have nothing."""
    read: list[Given] = []

    async def act(keeper: Keeper, usage: Usage, told: Told) -> None:  # noqa: ARG001 - as the others have it
        usage.held, usage.holders_age = (), 1.0
        read.append(GIVEN)
        await usage.samples(0.5)
        assert usage.limits is None
        usage.holders_age = 0.0
        await usage.until(lambda: usage.limits == ())

    keep(act, BY_DRIVER, given=lambda: read[0] if read else None)


def test_what_the_driver_does_not_keep_is_watched_and_said_once(caplog: pytest.LogCaptureFixture) -> None:
    """As in mode watch."""
    why = "this driver has no memory limits"

    async def act(keeper: Keeper, usage: Usage, told: Told) -> None:
        usage.kept = (KeptLimit(*LIMITS[1][:3]),)
        usage.refused = {CARD: why}
        await usage.until(lambda: not usage.requests.empty())
        assert usage.requests.get_nowait().pid == BIG.pid
        assert [labels["pod"] for labels, _ in keeper.samples()["memory_limit_kept"]] == ["b"]
        assert told.refusals == [Refusal(CARD, why)]

    with caplog.at_level(logging.WARNING):
        keep(act, BY_DRIVER)
    assert caplog.text.count(f"the agent watches them: {why}") == 1


def test_a_dry_run_sets_nothing() -> None:
    """The driver would have allocations of pods fail that do not fail today."""

    async def act(keeper: Keeper, usage: Usage, told: Told) -> None:
        await usage.until(lambda: bool(told.endings))
        assert (usage.limits, usage.requests.empty()) == ((), True)
        assert keeper.samples()["memory_limit_kept"] == []

    keep(act, replace(BY_DRIVER, dry_run=True))
