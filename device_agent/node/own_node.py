"""The agent's own Node, followed and answered. What blocks runs in threads; all that is known is the loop's.

While the API server is away the last that was asked stays: devices and their health need no API server.
"""

import asyncio
import logging
import os
from collections.abc import Callable
from contextlib import suppress
from datetime import UTC, datetime

from device_agent.event import NODES_NAMESPACE
from device_agent.node.answered import answer_patch, bounded, failure, failure_event, is_news
from device_agent.node.asked import Asked, SeenNode, is_named, parse_node
from device_agent.profiles.verdict import Verdict
from device_agent.sources.in_thread import in_thread
from kube_api.client import Client
from kube_api.errors import Forbidden, Gone, KubeApiError, NotFound, Unauthorized, Unreachable
from kube_api.resources import EVENTS, NODES

log = logging.getLogger(__name__)

_WATCH_SECONDS = 240
_STEADY_SECONDS = 30.0
"""A watch that lasted so long was one; what ends earlier is tried again more and more slowly."""
_CALM_SECONDS = 600.0
"""Who changed an answer back longer ago than this is not fought with."""

_READ, _WRITE = "read", "write"
_WAITS = {
    _READ: "label changes wait, because it cannot be read",
    _WRITE: "the answer about its profile cannot be written",
}
_AGAIN = {_READ: "it is read again", _WRITE: "the answer about its profile is written"}


class Pauses:
    """Seconds until the next attempt: doubling from ``first`` to ``longest``.

    Each is up to a quarter less, so that nodes do not come back as one.
    """

    def __init__(self, first: float = 1.0, longest: float = 300.0) -> None:
        self._first, self._longest = first, longest
        self._next = first

    def reset(self) -> None:
        """Begin with the first again."""
        self._next = self._first

    def next(self) -> float:
        """Give the next pause."""
        pause, self._next = self._next, min(self._longest, 2 * self._next)
        return pause * (1 - os.urandom(1)[0] / 1024)


class OwnNode:
    """One Node. ``on_asked`` is called in the loop with what is asked: first, and whenever it changes.

    ``pauses`` makes those between attempts to read, and to write.
    """

    def __init__(
        self, client: Client, name: str, on_asked: Callable[[Asked], None], pauses: Callable[[], Pauses] = Pauses
    ) -> None:
        self._client = client
        self._name = name
        self._on_asked = on_asked
        self._reading, self._writing = pauses(), pauses()
        self._asked: Asked | None = None
        self._seen: SeenNode | None = None
        self._verdict: Verdict | None = None
        self._reported: tuple[str, str] | None = None
        self._woken, self._hurried = asyncio.Event(), asyncio.Event()
        self._troubles: dict[str, set[str]] = {}

    async def follow(self) -> None:
        """Read and answer until cancelled."""
        async with asyncio.TaskGroup() as tasks:
            tasks.create_task(self._read())
            tasks.create_task(self._write())

    def answer(self, verdict: Verdict) -> None:
        """Say what became of what was asked. It is written when it can be, and again when somebody changes it."""
        verdict = bounded(verdict)
        if verdict != self._verdict:
            self._verdict = verdict
            self._hurried.set()
            self._woken.set()

    @property
    def asked(self) -> Asked | None:
        """What was asked last; None before the Node was read for the first time."""
        return self._asked

    # --- reading ------------------------------------------------------------------------------------------------------

    async def _read(self) -> None:
        loop = asyncio.get_running_loop()

        def found(seen: SeenNode | None) -> None:
            loop.call_soon_threadsafe(self._saw, seen)

        while True:
            began = loop.time()
            try:
                await in_thread(lambda: self._watch(found), "node")
            except KubeApiError as error:
                self._failed(_READ, error)
            if loop.time() - began >= _STEADY_SECONDS:
                self._reading.reset()
            await asyncio.sleep(self._reading.next())

    def _watch(self, found: Callable[[SeenNode | None], None]) -> None:
        """List and watch; ends when the watch does. In a thread.

        Raises:
            KubeApiError: the Node cannot be read. A watch that breaks is none: then it is listed again.
        """
        selector = f"metadata.name={self._name}"
        listing = self._client.list(NODES.path(), field_selector=selector, metadata_only=True)
        found(next((parse_node(item) for item in listing.items if is_named(item, self._name)), None))
        seconds = _WATCH_SECONDS + os.urandom(1)[0] // 4
        with suppress(Gone, Unreachable):
            for event in self._client.watch(
                NODES.path(), resource_version=listing.resource_version, field_selector=selector, metadata_only=True,
                seconds=seconds,
            ):  # fmt: skip
                if is_named(event.object, self._name):  # a bookmark is not
                    found(None if event.kind == "DELETED" else parse_node(event.object))

    def _saw(self, seen: SeenNode | None) -> None:
        self._seen = seen
        if seen is None:
            self._failed(_READ, NotFound("there is no Node of this name"))
            return
        if self._worked(_READ):
            self._hurried.set()  # what could not be written may be able to now
        if seen.asked != self._asked:
            self._asked = seen.asked
            log.info("node %s: profile label: %s", self._name, seen.asked.key or seen.asked.wish.value)
            self._on_asked(seen.asked)
        self._woken.set()

    # --- writing ------------------------------------------------------------------------------------------------------

    async def _write(self) -> None:
        loop, last, at = asyncio.get_running_loop(), None, 0.0
        while True:
            await self._woken.wait()
            self._woken.clear()
            verdict, seen = self._verdict, self._seen
            if verdict is None or seen is None or answer_patch(verdict, seen) is None:
                continue
            self._hurried.clear()
            if verdict != last or loop.time() - at > _CALM_SECONDS:
                self._writing.reset()
            await self._put(verdict, seen)
            last, at = verdict, loop.time()
            # An error is retried then, and a change by somebody else undone no more often. The watch shows our own.
            with suppress(TimeoutError):
                async with asyncio.timeout(self._writing.next()):
                    await self._hurried.wait()
            self._woken.set()

    async def _put(self, verdict: Verdict, seen: SeenNode) -> None:
        patch, path = answer_patch(verdict, seen) or {}, NODES.path(name=self._name)
        try:
            await in_thread(lambda: self._client.patch(path, patch), "node answer")
        except KubeApiError as error:
            self._failed(_WRITE, error)
            return
        self._worked(_WRITE)
        reported, self._reported = self._reported, failure(verdict)
        if is_news(verdict, seen) and self._reported != reported:
            await self._post(verdict, seen)

    async def _post(self, verdict: Verdict, seen: SeenNode) -> None:
        at = datetime.now(UTC).strftime("%Y-%m-%dT%H:%M:%SZ")
        event = failure_event(verdict, self._name, seen.uid, at=at, suffix=os.urandom(8).hex())
        path = EVENTS.path(namespace=NODES_NAMESPACE)
        try:
            await in_thread(lambda: self._client.create(path, event), "node event")
        except KubeApiError as error:
            # Label and annotation say the same.
            log.warning("node %s: an Event cannot be written: %s", self._name, error)

    # --- what is logged -----------------------------------------------------------------------------------------------

    def _failed(self, what: str, error: KubeApiError) -> None:
        """Log that something does not work, once for each kind of error until it works again.

        An API server that starts refuses what a role allows for a moment.
        """
        kinds = self._troubles.setdefault(what, set())
        if type(error).__name__ not in kinds:
            kinds.add(type(error).__name__)
            is_refused = isinstance(error, Forbidden | Unauthorized)
            hint = "; compare its rights with 'device-agent admission-policy --account'" if is_refused else ""
            log.warning("node %s: %s: %s%s", self._name, _WAITS[what], error, hint)

    def _worked(self, what: str) -> bool:
        """Return whether it did not before."""
        if self._troubles.pop(what, None) is None:
            return False
        log.info("node %s: %s", self._name, _AGAIN[what])
        return True
