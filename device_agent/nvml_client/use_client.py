"""How much cards are used, as the agent hears it from the container ``nvml``."""

import logging
from collections.abc import Sequence

from device_agent.gpu_state.requests import dump_follow_use
from device_agent.gpu_state.use import Use
from device_agent.gpu_state.use_json import parse_use
from device_agent.nvml_client.lines import Conversation, Lines, Pauses

log = logging.getLogger(__name__)

USUAL = Pauses()


class UseClient:
    """Follows use. ``use``: what was said last, however old it is by now; None: nothing yet."""

    def __init__(self, path: str, pauses: Pauses = USUAL) -> None:
        self.use: Use | None = None
        self._pods: tuple[str, ...] | None = None
        self._silence = ""
        self._lines = Lines(path, pauses, Conversation(self._greeting, parse_use, self._take, self._lose))

    def ask(self, pods: Sequence[str] | None) -> None:
        """Have processes of these pods sampled, NAMESPACE/NAME; None: cards alone."""
        asked = None if pods is None else tuple(pods)
        if asked != self._pods:
            self._pods = asked
            self._lines.send(self._greeting())

    def check(self) -> None:
        """Raise the error with which following has ended: none is expected."""
        self._lines.check()

    async def close(self) -> None:
        """End the connection."""
        await self._lines.close()

    def _greeting(self) -> bytes:
        return dump_follow_use(self._pods)

    def _take(self, use: Use) -> None:
        if self._silence:
            log.info("use: the container nvml answers")
        self.use, self._silence = use, ""

    def _lose(self, why: str) -> None:
        if why != self._silence:
            log.warning("use: %s", why)
            self._silence = why
