"""The agent's own Node, followed by one watch for all that it is asked for, and written to.

What blocks runs in threads; all that is known is the loop's. While the API server is away the last that was asked
stays: devices and their health need no API server.
"""

import asyncio
import logging
from collections.abc import Callable
from typing import Any

from device_agent.node.asked import Asked, SeenNode, parse_node, text_of
from device_agent.node.attempts import READ, Pauses, Troubles
from device_agent.node.mig_state import MigState
from device_agent.node.node_api import NodeApi
from device_agent.node.profile_answer import ProfileAnswer
from device_agent.profiles.verdict import Verdict
from kube_api.client import Client
from kube_api.errors import KubeApiError, NotFound

log = logging.getLogger(__name__)

Json = dict[str, Any]

_STEADY_SECONDS = 30.0
"""A watch that lasted so long was one; what ends earlier is tried again more and more slowly."""
_LONGEST_VERSION = 20


class OwnNode:
    """One Node.

    ``on_asked`` is called in the loop with the profile that is asked for: first, and whenever it changes; None: nobody
    has profiles. ``on_mig`` is called in the loop when :attr:`mig` has changed; None: nobody changes MIG layouts.
    ``pauses`` makes those between attempts to read, and to write.
    """

    def __init__(
        self,
        client: Client,
        name: str,
        on_asked: Callable[[Asked], None] | None,
        pauses: Callable[[], Pauses] = Pauses,
        *,
        on_mig: Callable[[], None] | None = None,
    ) -> None:
        self._api = NodeApi(client, name)
        self._on_asked = on_asked
        self._troubles = Troubles(name)
        self._reading = pauses()
        self._profile = ProfileAnswer(self._api, pauses(), self._troubles)
        self._mig: MigState | None = None
        if on_mig is not None:
            self._mig = MigState(self._api, pauses(), self._troubles, on_seen=on_mig, show=self._saw)
        self._asked: Asked | None = None
        self._newest = 0

    async def follow(self) -> None:
        """Read and answer until cancelled."""
        async with asyncio.TaskGroup() as tasks:
            tasks.create_task(self._read())
            tasks.create_task(self._profile.follow())
            if self._mig is not None:
                tasks.create_task(self._mig.follow())

    def answer(self, verdict: Verdict) -> None:
        """Say what became of what was asked. It is written when it can be, and again when somebody changes it."""
        self._profile.answer(verdict)

    @property
    def asked(self) -> Asked | None:
        """What was asked last; None before the Node was read for the first time."""
        return self._asked

    @property
    def mig(self) -> MigState | None:
        """What the Node says about MIG; None without ``on_mig``."""
        return self._mig

    async def _read(self) -> None:
        loop = asyncio.get_running_loop()

        def listed(node: Json | None) -> None:
            loop.call_soon_threadsafe(self._listed, node)

        def changed(node: Json | None) -> None:
            loop.call_soon_threadsafe(self._changed, node)

        while True:
            began = loop.time()
            try:
                await self._api.watch(listed, changed)
            except KubeApiError as error:
                self._troubles.failed(READ, error)
            if loop.time() - began >= _STEADY_SECONDS:
                self._reading.reset()
            await asyncio.sleep(self._reading.next())

    def _listed(self, node: Json | None) -> None:
        self._newest = 0
        self._saw(node)

    def _changed(self, node: Json | None) -> None:
        """Take what a watch shows, but nothing older than what a response of ours has shown."""
        if node is None or _version(node) >= self._newest:
            self._saw(node)

    def _saw(self, node: Json | None) -> None:
        if node is None:
            self._troubles.failed(READ, NotFound("there is no Node of this name"))
            self._profile.saw(None)
        else:
            self._newest = _version(node)
            if self._troubles.worked(READ):  # what could not be written may be able to now
                self._profile.hurry()
                if self._mig is not None:
                    self._mig.hurry()
            self._ask(parse_node(node))
        if self._mig is not None:
            self._mig.saw(node)

    def _ask(self, seen: SeenNode) -> None:
        if seen.asked != self._asked:
            self._asked = seen.asked
            if self._on_asked is not None:
                log.info("node %s: profile label: %s", self._api.name, seen.asked.key or seen.asked.wish.value)
                self._on_asked(seen.asked)
        self._profile.saw(seen)


def _version(node: Json) -> int:
    """Return the number of a Node's version, by which servers count on; 0 where it has none."""
    text = text_of(node["metadata"].get("resourceVersion")) or ""
    return int(text) if text.isascii() and text.isdigit() and len(text) <= _LONGEST_VERSION else 0
