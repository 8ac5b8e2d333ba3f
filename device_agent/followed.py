"""One source while it is followed: when it is looked at, and the resources that it has the agent offer.

Each source has a task of its own, so that one that takes its time, or never answers, holds up no other.
"""

import asyncio
import logging
from collections.abc import Callable, Iterator, Sequence
from contextlib import suppress
from typing import TYPE_CHECKING

from device_agent.config.config_file import Description
from device_agent.config.options import Settings
from device_agent.kubelet.plugin import Plugin
from device_agent.metrics import ResourceCounts
from device_agent.served import Served
from device_agent.sources.source import Source

if TYPE_CHECKING:
    from device_agent.allocations.given import Given
    from device_agent.allocations.remembered import Allocations
    from device_agent.sources.files.notes import Notes

log = logging.getLogger(__name__)

_SETTLE_SECONDS = 0.05
"""A device comes with several events at once; they are looked at together."""
_CLOSE_SECONDS = 5.0


class Followed:
    """A source and its resources. ``on_look`` is called when it was looked at.

    ``beside``: all that are followed; what one of them offers no other one does, as the kubelet knows a resource once.
    ``given``: remembers what was given, for the resources where that is checked. ``notes``: where it need not be, but
    limits of memory need what is known; None: they do not.
    """

    def __init__(
        self,
        source: Source,
        settings: Settings,
        beside: Sequence["Followed"],
        on_look: Callable[[], None],
        given: "Allocations | None" = None,
    ) -> None:
        self.source = source
        self._served: dict[str, Served] = {}
        self.has_looked = False
        self._settings = settings
        self._beside = beside
        self.given = given
        self.notes: Notes | None = None
        self._refused: set[str] = set()
        self._on_look = on_look
        self._loop = asyncio.get_running_loop()
        self._looked_at = self._loop.time()
        self._woken = asyncio.Event()
        self._is_stopping = False
        self._task: asyncio.Task[None] | None = None
        self._look: asyncio.Future[None] | None = None
        source.start(self._woken.set)

    def configure(self, description: Description) -> None:
        """Let the source have what the configuration file describes now."""
        self.source.configure(description)
        self._name_new()
        for name, served in self.offers().items():
            if self.source.resources[name] is None:
                served.forget()
        self._woken.set()

    def note(self, notes: "Notes | None") -> None:
        """Have shares that are given noted from now on, or no more."""
        self.notes = notes
        for served in self._served.values():
            self._have_noted(served.plugin)

    def _have_noted(self, plugin: Plugin) -> None:
        plugin.service.note = None if self.notes is None else self.notes.note

    @property
    def waiting(self) -> "tuple[Allocations, ...]":
        """Return what is still to be read of what was given."""
        return tuple(one for one in (self.given, self.notes) if one is not None and one.given is None)

    def remembered(self) -> "Given":
        """Return what is remembered of what was given, as far as it was read."""
        given = (self.given.given if self.given is not None else None) or {}
        if self.notes is None:
            return given
        offers = {name: served.plugin.service.devices for name, served in self.offers().items()}
        shares = {(name, key): one.unit.shares for name, devices in offers.items() for key, one in devices.items()}
        return {**given, **(self.notes.known(shares) or {})}

    def wake(self) -> None:
        """Look soon."""
        self._woken.set()

    def nudge(self) -> None:
        """Look at once whether registrations still stand."""
        for served in self._served.values():
            served.plugin.nudge()

    def follow(self, tasks: asyncio.TaskGroup) -> None:
        """Look at the source and offer what it has, until stopped."""
        self._task = tasks.create_task(self._follow(tasks))

    def seconds_since_look(self) -> float:
        """Return how long ago the last look has ended, or the first one was due."""
        return self._loop.time() - self._looked_at

    def offers(self) -> dict[str, Served]:
        """Return what is offered now; a resource that is just leaving is not."""
        known = self.source.resources
        return {name: served for name, served in self._served.items() if name in known}

    def counts(self) -> Iterator[ResourceCounts]:
        """Count for the metrics."""
        for name, served in self.offers().items():
            yield served.counts(self.source.commands(name))

    async def stop(self) -> None:
        """Give up a look that is under way, and leave the kubelet."""
        self._is_stopping = True
        self._woken.set()
        if self._look is not None:
            self._look.cancel()
        if self._task is not None:
            await asyncio.wait([self._task])
        await asyncio.gather(self._close(), *(served.stop() for served in self._served.values()))

    async def _close(self) -> None:
        with suppress(TimeoutError):
            async with asyncio.timeout(_CLOSE_SECONDS):
                await self.source.close()

    async def _follow(self, tasks: asyncio.TaskGroup) -> None:
        while not self._is_stopping:
            self._woken.clear()
            await self._drop_gone()
            if not await self._looks():
                return
            await self._offer(tasks)
            self._report_registered()
            self._on_look()
            with suppress(TimeoutError):
                async with asyncio.timeout(self._settings.interval):
                    await self._woken.wait()
                await asyncio.sleep(_SETTLE_SECONDS)

    async def _looks(self) -> bool:
        """Look; False if that was given up because the agent stops."""
        if self._is_stopping:
            return False
        self._look = asyncio.ensure_future(self.source.look())
        try:
            await self._look
        except asyncio.CancelledError:
            if not self._is_stopping:
                raise
            return False
        self._looked_at = self._loop.time()
        self.has_looked = True
        return True

    async def _offer(self, tasks: asyncio.TaskGroup) -> None:
        """Offer what the source has and nothing else. It was looked at first: the kubelet's first list is right."""
        await self._drop_gone()
        self._name_new()
        for name, units in tuple(self.source.resources.items()):
            if units is not None and name in self._served:
                await self._served[name].show(units, self.source.traits(name))
                self._served[name].keep_registered(tasks, self._settings.interval)

    def _report_registered(self) -> None:
        plugins = {name: served.plugin for name, served in self.offers().items()}
        taken = frozenset(name for name, plugin in plugins.items() if plugin.rival)
        self.source.registered(frozenset(name for name, plugin in plugins.items() if plugin.is_registered), taken)

    async def _drop_gone(self) -> None:
        known = self.source.resources
        gone = [name for name in self._served if name not in known]
        await asyncio.gather(*(self._served[name].stop() for name in gone))
        for name in gone:
            del self._served[name]
        for other in self._beside if gone else ():
            if other is not self:
                other.wake()

    def _name_new(self) -> None:
        refused: set[str] = set()
        for name in [name for name in self.source.resources if name not in self._served]:
            owner = next((other.source.name for other in self._beside if name in other._served), None)
            if owner is None:
                traits = self.source.traits(name)
                plugin = Plugin(name, self._settings.plugin_dir, self.wake, traits, self.given)
                self._have_noted(plugin)
                self._served[name] = Served(plugin)
                continue
            refused.add(name)
            if name not in self._refused:
                log.error("%s: not offered for %s: it is offered for %s already", name, self.source.name, owner)
        self._refused = refused
