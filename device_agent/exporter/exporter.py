"""The exporter at work: listens on its port, and writes pages from what is known when they are asked for."""

import asyncio
import logging
import os
import time
from collections.abc import Callable, Coroutine, Mapping, MutableMapping, Sequence
from typing import TYPE_CHECKING, NamedTuple

from device_agent.boot import seconds_since_boot
from device_agent.config.options import Settings
from device_agent.errors import ConfigurationError
from device_agent.exporter.labels import Host
from device_agent.exporter.ours import Health
from device_agent.exporter.page import known_cards, render_health, render_use, with_lost
from device_agent.exporter.who import Clock, Known, who_page
from device_agent.gpu_state.use import CardUse, Use
from device_agent.telemetry import serve
from device_agent.usage.attribution import Allocated, fresh
from device_agent.usage.watch import UseWatch
from device_resources.exporter import ExporterSettings
from kube_api.pages import Page, health

if TYPE_CHECKING:
    from device_agent.allocations.given import Given

log = logging.getLogger(__name__)

_WHO = "/who"
_PAUSE = 10.0

Pages = MutableMapping[str, Callable[[], Page]]
Do = Callable[[Coroutine[None, None, None]], asyncio.Task[None]]


class _Written(NamedTuple):
    """What was written of a sample, for all who ask before the next one; ``dropped``: series that had no place."""

    use: Use | None
    held: Sequence[Allocated] | None
    host: Host
    text: str
    dropped: int

    def is_of(self, use: Use | None, held: Sequence[Allocated] | None, host: Host) -> bool:
        """Return whether it was made of just these."""
        return self.use is use and self.held is held and self.host == host


class Exporter:
    """Exports what is known. ``pages``: those of the agent, which get ``/who``; ``given``: what was given, and when.

    ``do``: does work that the end of the agent waits for.
    """

    def __init__(self, settings: Settings, pages: Pages, given: "Callable[[], Given]", do: Do) -> None:
        self._settings = settings
        self._pages = pages
        self._given = given
        self._do = do
        self._asked = ExporterSettings()
        self._watch: UseWatch | None = None
        self._listening: asyncio.Task[None] | None = None
        self._written = _Written(None, None, Host("", ""), "", 0)
        self._cards: Mapping[str, CardUse] = {}

    def configure(self, asked: ExporterSettings, usage: UseWatch | None) -> None:
        """Export as this says, from now on, what ``usage`` has seen; without it nothing."""
        before, self._asked = self._asked, asked
        self._watch = usage if asked.enabled else None
        if (before.enabled, before.port) != (self._asked.enabled, self._asked.port):
            self._listen()
        if not self._asked.enabled:
            self._pages.pop(_WHO, None)
        else:
            self._pages[_WHO] = self._who

    def _listen(self) -> None:
        """Listen on the port that is asked for, and no more on the one of before."""
        before, self._listening = self._listening, None
        if before is not None:
            before.cancel()
        if self._asked.enabled:
            self._listening = self._do(self._serve(self._asked.port, before))
        else:
            log.info("exporter: off")

    async def _serve(self, port: int, before: asyncio.Task[None] | None) -> None:
        if before is not None:
            await asyncio.wait([before])
        pages = {"/healthz": lambda: health(""), "/metrics": self._metrics}
        server, said = None, ""
        while server is None:
            try:
                server = await serve(port, pages, "exporter.port")
            except ConfigurationError as error:
                if str(error) != said:
                    log.error("exporter: %s; tried again every %d s", error, _PAUSE)  # noqa: TRY400 - no traceback: the message is for the operator
                said = str(error)
                await asyncio.sleep(_PAUSE)
        log.info("exporter: listens on port %d", port)
        try:
            await asyncio.Event().wait()
        finally:
            server.close()

    # --- what is asked ------------------------------------------------------------------------------------------------

    def _metrics(self) -> Page:
        """Write the page for Prometheus: of what was sampled before, whoever asks how often."""
        watch = self._watch
        if watch is None:
            return Page("the exporter is off\n", is_ok=False)
        watch.check()
        said, now = watch.use, seconds_since_boot()
        use = fresh(said, now)
        written = self._write(use, watch.held)
        state = Health(
            age=None if said is None else now - said.at,
            is_fresh=use is not None,
            knows_holders=watch.held is not None,
            knows_processes=_knows_processes(use) if self._asked.per_pod else None,
            dropped=written.dropped,
        )
        return Page(written.text + render_health(state))

    def _write(self, use: Use | None, held: Sequence[Allocated] | None) -> _Written:
        host = Host(self._asked.hostname_label, self._settings.node_name or os.uname().nodename)
        if not self._written.is_of(use, held, host):
            full = None
            if use is not None:
                full = with_lost(use, self._cards)
                self._cards = known_cards(full)
            self._written = _Written(use, held, host, *render_use(full, held, host))
        return self._written

    def _who(self) -> Page:
        """Write the page for people."""
        watch = self._watch
        if watch is None:
            return Page("the exporter is off\n", is_ok=False)
        now = Clock(seconds_since_boot(), time.time())
        use, problems = fresh(watch.use, now.boot), []
        if watch.held is None:
            problems.append(f"it is not known which pod has which device: {watch.why}")
        if use is None:
            problems.append("it is not known how much cards are used: the container nvml does not say it")
        elif self._asked.per_pod and use.processes:
            problems.append(f"it is not known how much each pod uses: {use.processes}")
        return Page(who_page(Known(watch.held, use, self._given(), tuple(problems)), now))


def _knows_processes(use: Use | None) -> bool:
    return use is not None and use.pods is not None and not use.processes
