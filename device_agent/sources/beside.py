"""Work that may hang, beside the looks: one piece at a time, in a thread, waited for a moment only."""

import asyncio
from collections.abc import Callable
from typing import Generic, TypeVar

from device_agent.sources.in_thread import in_thread

Result = TypeVar("Result")


class Beside(Generic[Result]):
    """Does work whose result is not None. ``wake`` is called when work that took longer than a moment is done.

    ``name``: of its threads. ``moment``: seconds.
    """

    def __init__(self, name: str, wake: Callable[[], None], moment: float = 1.0) -> None:
        self._name = name
        self._wake = wake
        self._moment = moment
        self._since = 0.0
        self._task: asyncio.Task[Result] | None = None

    @property
    def is_busy(self) -> bool:
        """Return whether work is under way, or its result was not taken yet."""
        return self._task is not None

    @property
    def seconds(self) -> float:
        """Return how long ago work was begun last."""
        return asyncio.get_running_loop().time() - self._since

    async def do(self, work: Callable[[], Result]) -> bool:
        """Begin this, and wait a moment for it, unless other work is under way; returns whether it was begun."""
        if self._task is not None:
            return False
        self._since = asyncio.get_running_loop().time()
        self._task = asyncio.create_task(in_thread(work, self._name))
        done, _ = await asyncio.wait([self._task], timeout=self._moment)
        if not done:
            self._task.add_done_callback(lambda _: self._wake())
        return True

    def take(self) -> Result | None:
        """Return the result of work that is done, once; then other work may begin."""
        if self._task is None or not self._task.done():
            return None
        task, self._task = self._task, None
        return task.result()

    async def close(self) -> None:
        """Wait a moment for what is under way, then give it up: its thread may go on."""
        if self._task is not None:
            await asyncio.wait([self._task], timeout=self._moment)
            self._task.cancel()
