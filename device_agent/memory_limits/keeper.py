"""Keeps limits of memory: takes each sample of use, decides, has processes ended, and says so."""

import asyncio
import logging
import math
from collections.abc import Awaitable, Callable, Sequence
from dataclasses import replace
from itertools import islice
from typing import TYPE_CHECKING, NamedTuple, Protocol

from device_agent.boot import seconds_since_boot
from device_agent.gpu_state.ending import Ended, EndRequest
from device_agent.gpu_state.limits import PodLimit
from device_agent.gpu_state.use import KeptLimit, Use
from device_agent.memory_limits.accounts import Account, accounts
from device_agent.memory_limits.by_driver import Refusal, asked_limits, is_by_driver, kept_limits, news, refusal_words
from device_agent.memory_limits.report import MOST_KILLS, Kills, Row, counted, samples, words
from device_agent.memory_limits.watch import HOLDERS_SECONDS, NOTHING, Ending, Sample, Watched, undone, watch
from device_agent.usage.attribution import Allocated, fresh, known_on, known_pods
from device_resources.memory_limits import MemorySettings
from kube_api.text import printable

if TYPE_CHECKING:
    from device_agent.allocations.given import Given

log = logging.getLogger(__name__)

_LOOK_SECONDS = 0.5
_ANSWER_SECONDS = 15.0
"""After which it is not waited any more for what became of a request."""
_LOST_SECONDS = 120.0
"""After which a process whose request was not answered is not looked for any more."""

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

    @property
    def held_at(self) -> float:
        """Return the time before that was asked for, in seconds of CLOCK_BOOTTIME."""
        ...

    def end(self, process: EndRequest) -> bool:
        """Have a process ended; False if nobody can be asked."""
        ...

    def limit(self, limits: tuple[PodLimit, ...]) -> None:
        """Have drivers keep these limits, and no others."""
        ...


class _Asked(NamedTuple):
    """A request under way. ``at``: when it was sent, by which its answer is known."""

    ending: Ending
    at: float


class Keeper:
    """Keeps limits until it is closed. ``usage``: who uses what.

    ``given``: what is remembered of allocations; None while that was not read: what drivers keep stays then.

    ``look``: seconds from one look for a new sample to the next.
    """

    def __init__(
        self,
        usage: Usage,
        given: "Callable[[], Given | None]",
        tell: Tell,
        memory: MemorySettings,
        look: float = _LOOK_SECONDS,
    ) -> None:
        self._usage = usage
        self._given = given
        self._tell = tell
        self._memory = memory
        self._seen: Use | None = None
        self._watched = NOTHING
        self._accounts: tuple[Account, ...] = ()
        self._given_since = math.inf
        self._asked: dict[tuple[int, int], _Asked] = {}
        self._lost: dict[tuple[int, int], _Asked] = {}
        self._ended: dict[tuple[int, int], None] = {}
        self._kills: Kills = {}
        self._kept: frozenset[KeptLimit] = frozenset()
        self._refused: frozenset[Refusal] = frozenset()
        self._failure = ""
        self._look = look
        self._task = asyncio.create_task(self._follow())

    def configure(self, memory: MemorySettings) -> None:
        """Keep what this says from now on. After a dry run each grace begins anew: nobody has heard of an end yet."""
        if self._memory.dry_run and not memory.dry_run:
            self._watched = NOTHING
        if memory != self._memory:  # what is decided by equal settings goes on
            self._memory = memory

    def samples(self) -> dict[str, list[Row]]:
        """Make the samples of the metrics, as :func:`device_agent.memory_limits.report.samples`.

        What is used is not known while there are no new samples, and nothing is while it is not known who has what.
        """
        every = self._accounts if self._usage.held is not None else ()
        if fresh(self._usage.use, seconds_since_boot()) is None:
            every = tuple(replace(one, used=None) for one in every)
        return samples(every, self._kills, {one[:2] for one in self._kept})

    def check(self) -> None:
        """Raise the error with which following has ended: none is expected."""
        if self._task.done():
            self._task.result()

    def stop(self) -> None:
        """Decide nothing any more, from this moment on."""
        self._task.cancel()

    async def close(self) -> None:
        """Stop, and wait for the end of it."""
        self.stop()
        await asyncio.wait([self._task])

    async def _follow(self) -> None:
        while True:
            await asyncio.sleep(self._look)
            use = self._usage.use
            if use is not None and use is not self._seen:
                self._seen = use  # first of all: whatever fails, nothing is decided twice by one sample
                if await self._contained(self._take(use)):
                    self._failure = ""
            self._forget()

    async def _contained(self, work: Awaitable[bool]) -> bool:
        """Do work; an error that nobody has foreseen is logged, and ends neither what is beside it nor what follows."""
        try:
            return await work
        except Exception as error:  # limits would not be kept any more, and nobody would notice
            why = printable(f"{error!r}")
            if why != self._failure:
                log.exception("memory: a sample was not acted on: %s", why)
            self._failure = why
            return False

    async def _take(self, use: Use) -> bool:
        """Act on a sample; returns whether nothing has failed."""
        self._hear(use.ended)
        self._look_for_lost(use)
        before = self._watched
        endings = self._decide(use, self._usage.held)
        # Together: an API server that does not answer makes none of them wait for the others.
        work = [self._act(ending, before) for ending in endings]
        work += [self._say(refusal) for refusal in self._refusals(use)]
        return all(await asyncio.gather(*map(self._contained, work)))

    def _decide(self, use: Use, held: Sequence[Allocated] | None) -> tuple[Ending, ...]:
        self._accounts = ()
        given = self._given()
        found = None if held is None else accounts(use, held, given or {}, self._memory)
        self._accounts = found or ()
        now, held_at = seconds_since_boot(), self._usage.held_at
        self._given_since = min(self._given_since, now) if given is not None else math.inf
        # Else what was set stays. What was given names resources that are not offered yet, as after a start.
        if found is not None and held_at >= self._given_since and now - held_at <= HOLDERS_SECONDS:
            self._usage.limit(asked_limits(use, found, self._memory))
        sample = Sample(at=use.at, accounts=self._left_to_watch(use, found), held_at=self._usage.held_at)
        self._watched, endings = watch(self._watched, sample, seconds_since_boot(), self._memory)
        return endings

    def _left_to_watch(self, use: Use, found: tuple[Account, ...] | None) -> tuple[Account, ...] | None:
        """Return the accounts that drivers do not keep."""
        if found is None:
            return None
        self._kept = kept_limits(use, found, self._kept)
        kept = {one[:2] for one in self._kept}
        return tuple(one for one in found if (one.card, one.pod) not in kept)

    def _refusals(self, use: Use) -> tuple[Refusal, ...]:
        if not is_by_driver(self._memory):
            self._refused = frozenset()
            return ()
        found = news(use.refused, self._accounts, self._refused)
        self._refused |= set(found)
        return found

    async def _say(self, refusal: Refusal) -> bool:
        log.warning("memory: %s", refusal_words(refusal))
        await self._tell(refusal)
        return True

    async def _act(self, ending: Ending, before: Watched) -> bool:
        """Say what is decided and have it done; returns True. ``before``: what was remembered before it was decided."""
        process, memory = ending.process, self._memory
        key = (process.pid, process.start)
        if key in self._asked:  # there is no answer yet
            return True
        log.warning("memory: %s: %s", ending.account.pod, words(ending))
        await self._tell(ending)
        if ending.is_dry_run:
            self._kills = counted(self._kills, ending)
            return True
        at, why = seconds_since_boot(), ""
        if self._memory is not memory:
            why = "the configuration has changed meanwhile"
        elif self._usage.held is None:
            why = "it is not known any more which pod has which device"
        request = EndRequest(ending.account.card, process.uid, process.pid, process.start, at)
        if not why and not self._usage.end(request):
            why = "there is no connection to the container nvml"
        if why:
            log.warning("memory: %s: process %d is not ended, and it is decided again: %s",
                        ending.account.pod, process.pid, why)  # fmt: skip
            self._watched = undone(self._watched, before, ending.account.pod)
        else:
            self._asked[key] = _Asked(ending, at)
        return True

    def _hear(self, answers: Sequence[Ended]) -> None:
        """Take in what became of requests."""
        for one in answers:
            key = (one.pid, one.start)
            if key not in self._asked or self._asked[key].at != one.at:
                continue
            ending = self._asked.pop(key).ending
            if one.why:
                log.warning("memory: %s: not ended: %s", ending.account.pod, one.why)
                continue
            log.warning("memory: %s: process %d was ended", ending.account.pod, one.pid)
            self._count(key, ending)

    def _count(self, key: tuple[int, int], ending: Ending) -> None:
        if key not in self._ended:  # a process that takes its time to end may be killed twice
            self._kills = counted(self._kills, ending)
        self._ended = dict(islice({**self._ended, key: None}.items(), max(0, len(self._ended) - MOST_KILLS), None))

    def _look_for_lost(self, use: Use) -> None:
        """Count processes that are gone, and of which nobody has said whether they were ended, as where NVML hung."""
        listed = {(one.pid, one.start) for card in use.cards for one in card.processes}
        for key in [key for key, asked in self._lost.items() if key not in listed and _is_seen(asked.ending, use)]:
            ending = self._lost.pop(key).ending
            log.warning("memory: %s: process %d is gone, and counts as ended", ending.account.pod, key[0])
            self._count(key, ending)

    def _forget(self) -> None:
        now = seconds_since_boot()
        for key in [key for key, asked in self._asked.items() if asked.at < now - _ANSWER_SECONDS]:
            self._lost[key] = asked = self._asked.pop(key)
            log.warning("memory: %s: the container nvml did not say what became of process %d",
                        asked.ending.account.pod, key[0])  # fmt: skip
        self._lost = {key: asked for key, asked in self._lost.items() if asked.at >= now - _LOST_SECONDS}


def _is_seen(ending: Ending, use: Use) -> bool:
    """Return whether a process of this pod would be listed."""
    known, account = known_pods(use), ending.account
    return any(card.id == account.card and account.pod in known_on(card, known, use) for card in use.cards)
