"""What the agent does with the use of cards: it exports it, and keeps limits of memory. Imported only then."""

import asyncio
import logging
from collections.abc import Callable, Coroutine, MutableMapping, Sequence
from dataclasses import replace
from typing import TYPE_CHECKING

from device_agent.config.config_file import Description
from device_agent.config.options import Settings
from device_agent.exporter.exporter import Exporter
from device_agent.followed import Followed
from device_agent.metrics import write
from device_agent.sources.in_thread import in_thread
from device_agent.sources.said import Said
from device_agent.usage.attribution import Resources
from device_agent.usage.watch import UseWatch
from device_resources.exporter import ExporterSettings
from device_resources.memory_limits import MemorySettings
from kube_api.pages import Page
from kube_api.text import printable

if TYPE_CHECKING:
    from device_agent.allocations.given import Allocation, Given
    from device_agent.memory_limits.keeper import Keeper
    from device_agent.memory_limits.tell import Create

    Connect = Callable[[], Create | None]
    """Makes what creates objects; None without a token."""

log = logging.getLogger(__name__)

_PAUSE = 2.0
"""Seconds until what could not be read is read again."""
_DESCRIPTIONS = {
    "memory_limit_bytes": ("gauge", "What a pod may use of a shared card."),
    "memory_limit_kept": ("gauge", "1: the card's driver keeps this limit by itself."),
    "memory_limit_unknown": ("gauge", "1: the pod shares the card, and what it may use is not known: it has no limit."),
    "memory_used_bytes": ("gauge", "What a pod uses of a card, as far as the card knows it."),
    "memory_kills_total": ("counter", "Processes that were ended, or would have been with dryRun."),
}


class Monitoring:
    """Follows the use of the resources of ``followed``. ``pages``: those of the agent, which get ``/who``."""

    def __init__(
        self,
        settings: Settings,
        followed: Sequence[Followed],
        pages: MutableMapping[str, Callable[[], Page]],
        connect: "Connect",
    ) -> None:
        self._settings = settings
        self._followed = followed
        self._connect = connect
        self._usage: UseWatch | None = None
        self._exporter = Exporter(settings, pages, self._given, self._do)
        self._keeper: Keeper | None = None
        self._is_stopping = False
        self._tasks: set[asyncio.Task[None]] = set()
        self._loading: asyncio.Task[None] | None = None

    @property
    def trouble(self) -> str:
        """Say what has ended that goes on as long as the agent does: a restart helps."""
        for what, one in (("who has which device is", self._usage), ("limits of memory are", self._keeper)):
            try:
                if one is not None:
                    one.check()
            except Exception as error:  # noqa: BLE001 - whatever it is: a probe has to hear of it
                return printable(f"{what} not followed any more: {error!r}")
        return ""

    def configure(self, description: Description) -> None:
        """Export and limit as this says, from now on."""
        exporter, memory = description.exporter or ExporterSettings(), description.memory or MemorySettings()
        exporter = replace(exporter, per_pod=exporter.per_pod or memory.is_on)  # who is limited is seen
        usage = self._usage
        if description.is_monitored:
            usage = usage or UseWatch(self._settings, self._resources)
            if self._loading is None or self._loading.done():  # also of sources that were added meanwhile
                self._loading = self._do(self._load_given())
            usage.ask_processes(exporter.per_pod)
        self._exporter.configure(exporter, usage)
        self._limit(memory, usage)
        if usage is not None and not description.is_monitored:
            self._do(usage.close())
            usage = None
            if self._loading is not None:
                self._loading.cancel()
                self._loading = None
        self._usage = usage

    def metrics(self) -> str:
        """Write what is limited."""
        if self._usage is not None:
            self._usage.check()
        if self._keeper is None:
            return ""
        self._keeper.check()
        found = self._keeper.samples()
        return write((name, kind, description, found[name]) for name, (kind, description) in _DESCRIPTIONS.items())

    async def stop(self) -> None:
        """End what was started."""
        self._is_stopping = True
        self.configure(Description())
        while self._tasks:
            await asyncio.wait(self._tasks)

    def _limit(self, memory: MemorySettings, usage: UseWatch | None) -> None:
        keeper = self._keeper
        if usage is None or not memory.is_on:
            if keeper is not None:
                keeper.stop()  # at once: it would ask for limits again
                self._do(keeper.close())
                self._keeper = None
            if usage is not None and not self._is_stopping:
                usage.limit(())  # a restart of the agent lifts no limits
        elif keeper is not None:
            keeper.configure(memory)
        else:
            self._keeper = self._keep(memory, usage)

    def _keep(self, memory: MemorySettings, usage: UseWatch) -> "Keeper":
        from device_agent.memory_limits.keeper import Keeper  # noqa: PLC0415 - only with limits
        from device_agent.memory_limits.tell import Teller  # noqa: PLC0415 - as above

        create = self._connect()
        if create is None:
            log.info("memory: decisions are in this log alone: there is no token of a service account, or a proxy")
        return Keeper(usage, self._given_if_read, Teller(create, self._settings.node_name), memory)

    def _do(self, work: Coroutine[None, None, None]) -> asyncio.Task[None]:
        """Do work that the end of the agent waits for."""
        task = asyncio.create_task(work)
        self._tasks.add(task)
        task.add_done_callback(self._tasks.discard)
        return task

    def _resources(self) -> Resources:
        """Return what is offered, and the names of what was given before, which a container may have still."""
        given: Resources = {name: {} for name, _ in self._given()}
        offered = {n: served.plugin.service.devices for one in self._followed for n, served in one.offers().items()}
        return {**given, **offered}

    def _given(self) -> "Given":
        found: dict[tuple[str, str], Allocation] = {}
        for one in self._followed:
            found |= one.remembered()
        return found

    def _given_if_read(self) -> "Given | None":
        is_read = all(one.given is None or one.given.given is not None for one in self._followed)
        return self._given() if is_read else None

    async def _load_given(self) -> None:
        """Read what containers have, since when and in how many shares, as far as it was remembered."""
        say = Said(log, "use")
        while waiting := [given for one in self._followed for given in one.waiting]:
            for given in waiting:
                try:
                    await in_thread(given.load, "monitoring")
                except (OSError, RuntimeError) as error:  # the latter where no thread can be started
                    why = getattr(error, "strerror", None) or error
                    say(given.path, f"cannot read what was given in {given.path}: {why}; it is tried again")
                    await asyncio.sleep(_PAUSE)
