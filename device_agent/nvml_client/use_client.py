"""How much cards are used, as the agent hears it from the container ``nvml``."""

import logging
from collections.abc import Sequence

from device_agent.gpu_state.ending import EndRequest
from device_agent.gpu_state.limits import PodLimit
from device_agent.gpu_state.requests import END, FOLLOW_USE, dump_request
from device_agent.gpu_state.use import Use
from device_agent.gpu_state.use_json import LONGEST_USE, parse_use
from device_agent.nvml_client.lines import Conversation, Lines, Pauses

log = logging.getLogger(__name__)


class UseClient:
    """Follows use. ``use``: what was said last, however old it is by now; None: nothing yet."""

    def __init__(self, path: str, pauses: Pauses) -> None:
        self.use: Use | None = None
        self._pods: tuple[str, ...] | None = None
        self._limits: tuple[PodLimit, ...] | None = None
        self._silence = ""
        self._no_processes = ""
        conversation = Conversation(self._greeting, parse_use, LONGEST_USE, self._take, self._lose)
        self._lines = Lines(path, pauses, conversation)

    def ask(self, pods: Sequence[str] | None) -> None:
        """Have processes of these pods sampled, NAMESPACE/NAME; None: cards alone."""
        asked = None if pods is None else tuple(pods)
        if asked != self._pods:
            self._pods = asked
            self._lines.send(self._greeting())

    def limit(self, limits: tuple[PodLimit, ...]) -> None:
        """Have drivers keep these limits and no others, at most MOST_POD_LIMITS. Until it is called nothing changes."""
        if limits != self._limits:
            self._limits = limits
            self._lines.send(self._greeting())

    def end(self, process: EndRequest) -> bool:
        """Have a process ended, if it still is what this says; what became of it is said with the use.

        False: there is no connection, and nobody was asked.
        """
        return self._lines.send(dump_request(END, process=process))

    def check(self) -> None:
        """Raise the error with which following has ended: none is expected."""
        self._lines.check()

    async def close(self) -> None:
        """End the connection."""
        await self._lines.close()

    def _greeting(self) -> bytes:
        return dump_request(FOLLOW_USE, self._pods, limits=self._limits)

    def _take(self, use: Use) -> None:
        if self._silence:
            log.info("use: the container nvml answers")
        if use.processes and use.processes != self._no_processes:
            log.warning("use: no process can be said to be of a pod: %s", use.processes)
        self.use, self._silence, self._no_processes = use, "", use.processes

    def _lose(self, why: str) -> None:
        if why != self._silence:
            log.warning("use: %s", why)
            self._silence = why
