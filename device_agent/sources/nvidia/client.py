"""The state of the GPUs, as the agent hears it from the container ``nvml``."""

import asyncio
import logging
from collections.abc import Callable
from contextlib import suppress
from typing import NamedTuple

from device_agent.gpu_state.mig_change import MigChange
from device_agent.gpu_state.requests import CHANGE_MIG, FOLLOW, MAKE_NODES, dump_request
from device_agent.gpu_state.state import OK, State
from device_agent.gpu_state.state_json import LONGEST_LINE, parse_state
from device_agent.nvml_client.lines import Conversation, Lines, Pauses
from device_agent.sources.nvidia.roster import is_read

log = logging.getLogger(__name__)


class Timing(NamedTuple):
    """Seconds. ``silence``: until a container that says nothing counts as one that does not answer.

    ``first_delay``, ``longest_delay``: between connections. ``first_state``: how long the first look waits for a state.
    ``users``: while a change of profiles waits, from one look at who has devices to the next.
    ``first_ask``: how long the first look waits for what the Node asks for, where nothing is known of before.
    ``moment``: how long a look waits for profiles; ``slow``: after which they count as ones that cannot be read.
    """

    silence: float = 35.0
    first_delay: float = 0.2
    longest_delay: float = 5.0
    first_state: float = 10.0
    users: float = 2.0
    first_ask: float = 10.0
    moment: float = 1.0
    slow: float = 10.0


USUAL = Timing()
"""As it is with a container whose signs of life come every ten seconds."""


class Heard(NamedTuple):
    """What the container said.

    ``state``: its last state; None if it has never said any. ``silence``: why that counts no more, empty if it does.
    """

    state: State | None = None
    silence: str = "the container nvml has not answered yet"

    @property
    def current(self) -> State | None:
        """Return the state that counts now."""
        return None if self.silence else self.state

    @property
    def trouble(self) -> str:
        """Say why the GPUs of the state may not be given; empty if they may."""
        state = self.current
        if state is None or is_read(state):
            return self.silence
        if state.status == OK:
            return "the driver was loaded anew, and its GPUs are being read"
        return state.reason or f"NVML is {state.status}"


class NvmlClient:
    """Follows the container; ``heard`` has what it said. ``wake`` is called when that has changed."""

    def __init__(self, path: str, timing: Timing, wake: Callable[[], None]) -> None:
        self.heard = Heard()
        self._timing = timing
        self._wake = wake
        self._has_heard = asyncio.Event()
        self._makes_nodes = False
        pauses = Pauses(timing.silence, timing.first_delay, timing.longest_delay)
        conversation = Conversation(self._greeting, parse_state, LONGEST_LINE, self._take, self._lose)
        self._lines = Lines(path, pauses, conversation)

    async def first_state(self) -> None:
        """Wait for the first state, but not for ever."""
        with suppress(TimeoutError):
            async with asyncio.timeout(self._timing.first_state):
                await self._has_heard.wait()

    def check(self) -> None:
        """Raise the error with which following has ended: none is expected."""
        self._lines.check()

    def make_nodes(self) -> None:
        """Have device nodes made from now on, also by a container that starts later."""
        if not self._makes_nodes:
            self._makes_nodes = True
            self._lines.send(dump_request(MAKE_NODES))

    def change_mig(self, change: MigChange) -> bool:
        """Have the MIG instances of a card changed; what became of it is said with the state.

        False: there is no connection, and nobody was asked.
        """
        return self._lines.send(dump_request(CHANGE_MIG, change=change))

    async def close(self) -> None:
        """End the connection."""
        await self._lines.close()

    def _greeting(self) -> bytes:
        return dump_request(FOLLOW) + (dump_request(MAKE_NODES) if self._makes_nodes else b"")

    def _take(self, state: State) -> None:
        if self.heard.silence:
            log.info("nvidia: the container nvml answers")
        self.heard = Heard(state, "")
        self._has_heard.set()
        self._wake()

    def _lose(self, why: str) -> None:
        if why != self.heard.silence:
            log.warning("nvidia: %s", why)
            self.heard = self.heard._replace(silence=why)
            self._wake()
