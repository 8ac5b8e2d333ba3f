"""GPUs by profiles: which profile counts, read beside the looks, and what it makes of the GPUs.

While it is not known what the Node asks for, the profile counts that was in force before the agent started: an API
server that is away rearranges no GPU.
"""

import asyncio
from collections.abc import Callable
from contextlib import suppress
from dataclasses import replace

from device_agent.profiles.current import Current, ProfileFolder
from device_agent.profiles.report import report_of
from device_agent.profiles.strategy import Sorted
from device_agent.profiles.verdict import Verdict
from device_agent.sources.nvidia.client import Timing
from device_agent.sources.nvidia.units import Offer, View, offer_listed
from device_agent.sources.profile_reading import ProfileReading
from device_agent.sources.sharing import Sharing
from device_resources.nvidia import MigStrategy


class Profiled:
    """Profiles at work. ``sharing``: what they make of the GPUs. ``folder``: where they are.

    ``usual``: the names of resources that other plugins have for the same GPUs.
    """

    def __init__(self, sharing: Sharing, folder: ProfileFolder, wake: Callable[[], None], timing: Timing) -> None:
        self.sharing = sharing
        self.usual: tuple[str, ...] = ()
        self._timing = timing
        self._wake = wake
        self._asked: str | None = ""
        self._has_asked = asyncio.Event()
        self._before = ""
        self._reading = ProfileReading(folder, wake, moment=timing.moment, slow=timing.slow)
        self._reading_of = ""
        self._decided: str | None = None

    def expect(self) -> None:
        """Have what was in force before count until the first :meth:`ask`."""
        self._asked = None

    def ask(self, key: str) -> None:
        """Have the profile with this key count from the next look on; empty: the default one."""
        if key != self._asked:
            self._asked = key
            self._has_asked.set()
            self._wake()

    @property
    def answer(self) -> Verdict | None:
        """Say what became of the profile that is asked for; None until it was looked at for what is asked now."""
        return self.sharing.verdict if self._asked is not None and self._decided == self._asked else None

    @property
    def in_force(self) -> str:
        """Return the key to keep; where no GPU is known, that of the profile that the node's files follow. Or none."""
        answer = self.answer
        return self.sharing.good.key or (answer.asked if answer is not None and not answer.has_failed else "")

    async def begin(self, before: str) -> None:
        """Take the key that was in force before; where there is none, wait for what is asked, but not for ever."""
        self._before = before
        if self._asked is None and not before:
            with suppress(TimeoutError):
                async with asyncio.timeout(self._timing.first_ask):
                    await self._has_asked.wait()

    async def read(self) -> Current | None:
        """Read the profile that counts; None where the disk has not answered yet, though it has a while left for it."""
        asked = self._reading_of = self._before if self._asked is None else self._asked
        return await self._reading.read(asked, "" if self.sharing.good.key else self._before)

    def offer(self, current: Current | None, cards: Sorted, view: View) -> Offer:
        """Go one step towards what counts, and say what is offered then; without it all stays as it is."""
        self.usual = tuple(cards.by(MigStrategy.MIXED).resources)
        if current is not None:
            self.sharing.advance(current, cards, view.strategy)
            self._decided = self._reading_of
        elif self._decided is None:
            # Not even an empty list: which resources there will be is not known. Nor what was ever given: of a GPU and
            # its instances each may have been once.
            return Offer(resources={})
        strategy = self.sharing.good.profile.mig_strategy or view.strategy
        return offer_listed(cards, replace(view, strategy=strategy), self.sharing.listing)

    def report(self, cards: Sorted, default: MigStrategy) -> bytes | None:
        """Say what nfd-worker is to read; None while it is not known which profile is in force."""
        is_known = cards.cards and (self.sharing.good.key or self.sharing.verdict.has_failed)
        return report_of(self.sharing.good.profile, cards, default) if is_known else None

    async def close(self) -> None:
        """End what is under way."""
        await self.sharing.close()
        await self._reading.close()
