"""Looks at who has devices beside everything else: the kubelet may take its time to answer."""

import asyncio
from collections.abc import Callable

from device_agent.users.in_use import Seen
from device_agent.users.look import Places, look_at_users


class Users:
    """Who has devices, when it is asked for. ``wake`` is called when that is known; ``pause``: seconds before it."""

    def __init__(self, places: Places, wake: Callable[[], None], pause: float) -> None:
        self._places = places
        self._wake = wake
        self._pause = pause
        self._seen: Seen | None = None
        self._looks = 0
        self._task: asyncio.Task[None] | None = None

    async def look(self) -> None:
        """Look at once, and wait for it."""
        looks = self._looks
        seen = await look_at_users(self._places)
        self._seen = seen if looks == self._looks else None

    def ask(self, *, soon: bool) -> None:
        """Look once, unless that is under way: soon, or after the pause."""
        if self._task is None or self._task.done():
            self._task = asyncio.create_task(self._look(0.0 if soon else self._pause))

    def take(self) -> Seen | None:
        """Return what was seen since it was taken last; None if nothing was."""
        if self._task is not None and self._task.done():
            self._task.result()
            self._task = None
        seen, self._seen = self._seen, None
        return seen

    def forget(self) -> None:
        """Have nothing seen, and have what is being seen count for nothing."""
        self._seen = None
        self._looks += 1

    async def close(self) -> None:
        """Give up a look that is under way."""
        if self._task is not None:
            self._task.cancel()
            await asyncio.wait([self._task])

    async def _look(self, pause: float) -> None:
        await asyncio.sleep(pause)
        await self.look()
        self._wake()
