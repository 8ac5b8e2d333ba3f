"""The answer about the profile: written when it can be, and again when somebody changes it."""

import asyncio
from contextlib import suppress

from device_agent.node.answered import REASON, answer_patch, bounded, failure, is_news, words_of
from device_agent.node.asked import SeenNode
from device_agent.node.attempts import WRITE_PROFILE, Pauses, Troubles
from device_agent.node.node_api import NodeApi
from device_agent.profiles.verdict import Verdict
from kube_api.errors import KubeApiError

_CALM_SECONDS = 600.0
"""Who changed an answer back longer ago than this is not fought with."""


class ProfileAnswer:
    """What the Node is to say about its profile, and what it says: ``seen``, None while that is not known."""

    def __init__(self, api: NodeApi, pauses: Pauses, troubles: Troubles) -> None:
        self._api = api
        self._pauses = pauses
        self._troubles = troubles
        self._seen: SeenNode | None = None
        self._verdict: Verdict | None = None
        self._reported: tuple[str, str] | None = None
        self._woken, self._hurried = asyncio.Event(), asyncio.Event()

    def answer(self, verdict: Verdict) -> None:
        """Take what became of what was asked."""
        verdict = bounded(verdict)
        if verdict != self._verdict:
            self._verdict = verdict
            self._hurried.set()
            self._woken.set()

    def saw(self, seen: SeenNode | None) -> None:
        """Take the Node as it is."""
        self._seen = seen
        self._woken.set()

    def hurry(self) -> None:
        """Try at once what could not be written."""
        self._hurried.set()

    async def follow(self) -> None:
        """Write until cancelled."""
        loop, last, at = asyncio.get_running_loop(), None, 0.0
        while True:
            await self._woken.wait()
            self._woken.clear()
            verdict, seen = self._verdict, self._seen
            if verdict is None or seen is None or answer_patch(verdict, seen) is None:
                continue
            self._hurried.clear()
            if verdict != last or loop.time() - at > _CALM_SECONDS:
                self._pauses.reset()
            await self._put(verdict, seen)
            last, at = verdict, loop.time()
            # An error is retried then, and a change by somebody else undone no more often. The watch shows our own.
            with suppress(TimeoutError):
                async with asyncio.timeout(self._pauses.next()):
                    await self._hurried.wait()
            self._woken.set()

    async def _put(self, verdict: Verdict, seen: SeenNode) -> None:
        try:
            await self._api.patch(answer_patch(verdict, seen) or {})
        except KubeApiError as error:
            self._troubles.failed(WRITE_PROFILE, error)
            return
        self._troubles.worked(WRITE_PROFILE)
        reported, self._reported = self._reported, failure(verdict)
        if is_news(verdict, seen) and self._reported != reported:
            await self._api.warn(seen.uid, REASON, words_of(verdict))
