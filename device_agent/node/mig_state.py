"""The Node's labels and annotations about MIG, as they are, and one write of them at a time.

A write belongs to the Node that it was decided by. What could not be written is dropped: who decides does so anew, from
the Node as it is then.
"""

import asyncio
from collections.abc import Callable, Mapping
from contextlib import suppress
from typing import Any

from device_agent.mig.values import NodeMig, NodeWrite
from device_agent.node.attempts import READ, WRITE_MIG, Budget, Pauses, Troubles
from device_agent.node.mig_on_node import REASON, event_of, mig_patch, parse_mig
from device_agent.node.node_api import NodeApi
from kube_api.errors import Conflict, KubeApiError
from kube_api.names import MIG_STATE_LABEL

Json = dict[str, Any]


class MigState:
    """What the Node says about MIG.

    ``on_seen`` is called in the loop: when that changes, and when a write has ended, whatever became of it.
    ``show`` is called with the Node as a response of ours has it.
    """

    def __init__(
        self,
        api: NodeApi,
        pauses: Pauses,
        troubles: Troubles,
        *,
        on_seen: Callable[[], None],
        show: Callable[[Json], None],
        budget: Budget | None = None,
    ) -> None:
        self._api = api
        self._pauses = pauses
        self._troubles = troubles
        self._on_seen = on_seen
        self._show = show
        self._budget = budget or Budget()
        self._seen: NodeMig | None = None
        self._next: NodeWrite | None = None
        self._reported: str | None = None
        self._woken, self._hurried = asyncio.Event(), asyncio.Event()

    @property
    def seen(self) -> NodeMig | None:
        """The Node as it is; None while it is not known, or not there."""
        return self._seen

    @property
    def is_writing(self) -> bool:
        """Return whether a write is under way, or one that failed has to be waited for."""
        return self._next is not None

    def write(self, write: NodeWrite) -> None:
        """Begin to write; while another write is under way this one is dropped."""
        if self._next is None:
            self._next = write
            self._woken.set()

    def saw(self, node: Mapping[str, Any] | None) -> None:
        """Take the Node as it is."""
        before, self._seen = self._seen, None if node is None else parse_mig(node)
        if before is None or self._seen is None or before.asked != self._seen.asked:
            self._hurried.set()
        if before != self._seen:
            self._on_seen()

    def hurry(self) -> None:
        """Wait no longer for what could not be written."""
        self._hurried.set()

    async def follow(self) -> None:
        """Write until cancelled."""
        loop = asyncio.get_running_loop()
        while True:
            await self._woken.wait()
            self._woken.clear()
            if self._next is None:
                continue
            await asyncio.sleep(self._budget.wait(loop.time()))
            self._hurried.clear()
            if await self._put(self._next):
                self._pauses.reset()
            else:
                with suppress(TimeoutError):
                    async with asyncio.timeout(self._pauses.next()):
                        await self._hurried.wait()
            self._next = None
            self._on_seen()

    async def _put(self, write: NodeWrite) -> bool:
        """Return whether it was written."""
        before = self._seen
        try:
            # Without a version the server would take it for any Node.
            node = await self._api.patch(mig_patch(write)) if write.resource_version else None
        except Conflict:
            node = None
        except KubeApiError as error:
            self._troubles.failed(WRITE_MIG, error)
            return False
        if node is None:
            await self._read()
            return False
        self._troubles.worked(WRITE_MIG)
        self._show(node)
        await self._report(write, before)
        return True

    async def _read(self) -> None:
        """Read what somebody else has written meanwhile; the watch may show it later."""
        try:
            node = await self._api.read()
        except KubeApiError as error:
            self._troubles.failed(READ, error)
            return
        if node is not None:
            self._show(node)

    async def _report(self, write: NodeWrite, before: NodeMig | None) -> None:
        """Have an Event of a message that is new; after a success the same one is new again."""
        if write.labels.get(MIG_STATE_LABEL) == "success":
            self._reported = None
        message = event_of(write, before)
        if message is not None and message != self._reported:
            self._reported = message
            await self._api.warn(before.uid if before is not None else "", REASON, message)
