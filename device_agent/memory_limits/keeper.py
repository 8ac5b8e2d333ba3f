"""Keeps limits of memory: takes each sample of use, decides, has processes ended, and says so."""

import asyncio
import logging
from collections.abc import Awaitable, Callable, Mapping, Sequence
from typing import TYPE_CHECKING, NamedTuple, Protocol

from device_agent.boot import seconds_since_boot
from device_agent.gpu_state.ending import Ended, EndRequest
from device_agent.gpu_state.limits import PodLimit
from device_agent.gpu_state.use import Use
from device_agent.memory_limits.accounts import Account, accounts
from device_agent.memory_limits.by_driver import Refusal, asked_limits, is_by_driver, kept_accounts, news, refusal_words
from device_agent.memory_limits.report import Kills, Row, counted, samples, words
from device_agent.memory_limits.watch import NOTHING, Ending, Sample, watch
from device_agent.usage.attribution import Allocated
from device_resources.memory_limits import MemorySettings

if TYPE_CHECKING:
    from device_agent.allocations.given import Given

log = logging.getLogger(__name__)

_LOOK_SECONDS = 0.5
_ANSWER_SECONDS = 15.0
"""After which it is not waited any more for what became of a request."""

Tell = Callable[[Ending | Refusal], Awaitable[None]]
"""Writes the Event of a decision, or of a card whose driver keeps no limits.

It returns soon, whether that could be written or not.
"""


class Usage(Protocol):
    """Who uses what, as :class:`device_agent.usage.watch.UseWatch` says it."""

    @property
    def use(self) -> Use | None:
        """Return what was said last."""
        ...

    @property
    def held(self) -> tuple[Allocated, ...] | None:
        """Return what containers have; None where that is not known."""
        ...

    def end(self, process: EndRequest) -> None:
        """Have a process ended."""
        ...

    def limit(self, limits: tuple[PodLimit, ...]) -> None:
        """Have drivers keep these limits, and no others."""
        ...


class _Asked(NamedTuple):
    """A request under way. ``before``: how many answers about the same process there were when it was sent."""

    ending: Ending
    at: float
    before: int


class Keeper:
    """Keeps limits until it is closed. ``usage``: who uses what; ``given``: what is remembered of allocations."""

    def __init__(self, usage: Usage, given: "Callable[[], Given]", tell: Tell, memory: MemorySettings) -> None:
        self._usage = usage
        self._given = given
        self._tell = tell
        self._memory = memory
        self._seen: Use | None = None
        self._watched = NOTHING
        self._accounts: tuple[Account, ...] = ()
        self._asked: dict[tuple[int, int], _Asked] = {}
        self._kills: Kills = {}
        self._kept: frozenset[tuple[str, str]] = frozenset()
        self._refused: Mapping[str, str] = {}
        self._task = asyncio.create_task(self._follow())

    def configure(self, memory: MemorySettings) -> None:
        """Keep what this says from now on."""
        self._memory = memory

    def samples(self) -> dict[str, list[Row]]:
        """Make the samples of the metrics, as :func:`device_agent.memory_limits.report.samples`."""
        return samples(self._accounts, self._kills, self._kept)

    def check(self) -> None:
        """Raise the error with which following has ended: none is expected."""
        if self._task.done():
            self._task.result()

    async def close(self) -> None:
        """Decide nothing any more."""
        self._task.cancel()
        await asyncio.wait([self._task])

    async def _follow(self) -> None:
        while True:
            await asyncio.sleep(_LOOK_SECONDS)
            use, held = self._usage.use, self._usage.held
            if use is not None and use is not self._seen:
                self._seen = use
                self._hear(use.ended)
                # Together: an API server that does not answer makes none of them wait for the others.
                await asyncio.gather(*(self._act(ending, use.ended) for ending in self._decide(use, held)),
                                     *(self._say(refusal) for refusal in self._refusals(use)))  # fmt: skip
            self._forget()

    def _decide(self, use: Use, held: Sequence[Allocated] | None) -> tuple[Ending, ...]:
        found = None if held is None else accounts(use, held, self._given(), self._memory)
        self._accounts = found or ()
        sample = Sample(at=use.at, accounts=self._left_to_watch(use, found))
        self._watched, endings = watch(self._watched, sample, seconds_since_boot(), self._memory)
        return endings

    def _left_to_watch(self, use: Use, found: tuple[Account, ...] | None) -> tuple[Account, ...] | None:
        """Have drivers keep what they can, and return the accounts that they do not keep; these are watched."""
        self._kept = kept_accounts(use, found or ())
        if found is None:  # what was set stays
            return None
        self._usage.limit(asked_limits(use, found, self._memory))
        return tuple(one for one in found if (one.card, one.pod) not in self._kept)

    def _refusals(self, use: Use) -> tuple[Refusal, ...]:
        found = news(use.refused, self._refused)
        self._refused = {**self._refused, **use.refused} if is_by_driver(self._memory) else {}
        return found

    async def _say(self, refusal: Refusal) -> None:
        log.warning("memory: %s", refusal_words(refusal))
        await self._tell(refusal)

    async def _act(self, ending: Ending, answers: Sequence[Ended]) -> None:
        log.warning("memory: %s: %s", ending.account.pod, words(ending))
        await self._tell(ending)
        if ending.is_dry_run:
            self._kills = counted(self._kills, ending)
            return
        process = ending.process
        key = (process.pid, process.start)
        self._asked[key] = _Asked(ending, seconds_since_boot(), _count(answers, key))
        self._usage.end(EndRequest(ending.account.card, process.uid, process.pid, process.start))

    def _hear(self, answers: Sequence[Ended]) -> None:
        """Take in what became of requests."""
        for key, asked in list(self._asked.items()):
            if _count(answers, key) > asked.before:
                del self._asked[key]
                why = next(one.why for one in reversed(answers) if one[:2] == key)
                if why:
                    log.warning("memory: %s: not ended: %s", asked.ending.account.pod, why)
                else:
                    self._kills = counted(self._kills, asked.ending)
                    log.warning("memory: %s: process %d was ended", asked.ending.account.pod, key[0])

    def _forget(self) -> None:
        late = seconds_since_boot() - _ANSWER_SECONDS
        for key in [key for key, asked in self._asked.items() if asked.at < late]:
            log.warning("memory: %s: the container nvml did not say what became of process %d",
                        self._asked.pop(key).ending.account.pod, key[0])  # fmt: skip


def _count(answers: Sequence[Ended], key: tuple[int, int]) -> int:
    return sum(one[:2] == key for one in answers)
