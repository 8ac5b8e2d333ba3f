"""What shares of the node's files were given, remembered where that is possible: limits of memory need no more.

A container gets its devices all the same. Where it could not be written, no limit is known, and nobody is ended by one.
"""

import asyncio
from collections.abc import Callable, Mapping

from device_agent.allocations.given import Given
from device_agent.allocations.recent import Key
from device_agent.allocations.remembered import Allocations
from device_agent.boot import read_boot_id, seconds_since_boot
from device_agent.errors import AllocationRefused
from device_agent.sources.in_thread import in_thread

Offered = Mapping[Key, int]
"""Resource and id -> the shares of its unit, as it is offered now."""


def folder_of_files(state_dir: str) -> str:
    """Return the folder of what is remembered of files: each source has its own."""
    return f"{state_dir}/files"


class Notes(Allocations):
    """Allocations that hold nothing up. ``moment``: seconds for which the disk is waited for."""

    def __init__(
        self,
        folder: str,
        boot: str | None = None,
        now: Callable[[], float] = seconds_since_boot,
        moment: float = 2.0,
    ) -> None:
        super().__init__(folder, read_boot_id("/") if boot is None else boot, now)
        self._moment = moment
        self._noted: frozenset[Key] = frozenset()
        self._unknown: frozenset[Key] = frozenset()
        self._noting: asyncio.Task[str] | None = None

    def known(self, offered: Offered) -> Given | None:
        """Return what is known of what was given; None before it was read.

        What an agent before this one has noted counts as long as it is what is offered: between both another one, which
        limited no memory, may have given the device.
        """
        if self.given is None:
            return None
        return {
            key: one
            for key, one in self.given.items()
            if key in self._noted or (key not in self._unknown and one.shares == offered.get(key))
        }

    async def note(self, resource: str, shares: Mapping[str, int]) -> str:
        """Remember devices that a container gets, id -> shares of its unit; returns why that was not possible, if so.

        Until it is on the disk nothing is known of them: what one was before says nothing of whom it is given to now.
        """
        keys = frozenset((resource, name) for name in shares)
        self._noted, self._unknown = self._noted - keys, self._unknown | keys
        end = asyncio.get_running_loop().time() + self._moment
        while (before := self._noting) is not None and not before.done():  # one thread at a time
            if not await _ends(before, end):
                return self._slow()
        self.begin(resource, shares)
        noting = self._noting = asyncio.create_task(self._write(resource, shares, keys))
        is_done = await _ends(noting, end)
        self.end(resource, shares)
        return noting.result() if is_done else self._slow()

    async def _write(self, resource: str, shares: Mapping[str, int], keys: frozenset[Key]) -> str:
        """Write, however long it takes; then what was written is known."""
        try:
            await in_thread(lambda: self.remember(resource, {name: (name,) for name in shares}), "allocations")
        except (AllocationRefused, RuntimeError) as error:  # the latter where no thread can be started
            return str(error)
        self._noted, self._unknown = self._noted | keys, self._unknown - keys
        return ""

    def _slow(self) -> str:
        return f"cannot remember what is given in {self.path}: the disk has not answered for {self._moment:g} s"


async def _ends(task: asyncio.Task[str], end: float) -> bool:
    """Wait for a task until this time of the loop; returns whether it has ended."""
    await asyncio.wait([task], timeout=max(0.0, end - asyncio.get_running_loop().time()))
    return task.done()
