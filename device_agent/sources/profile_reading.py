"""The profile that counts, read beside the looks: the disk of its folder may not answer."""

from collections.abc import Callable
from typing import NamedTuple

from device_agent.profiles.current import Current, ProfileFolder
from device_agent.sources.beside import Beside


class _Read(NamedTuple):
    asked: str
    current: Current


class ProfileReading:
    """Reads the profiles of ``folder``. ``wake`` is called when a reading that took longer than a moment is done.

    ``moment``: seconds that a look waits; ``slow``: after which the profiles count as ones that cannot be read.
    """

    def __init__(self, folder: ProfileFolder, wake: Callable[[], None], *, moment: float, slow: float) -> None:
        self._folder = folder
        self._slow = slow
        self._beside: Beside[_Read] = Beside("profiles", wake, moment)
        self._read: _Read | None = None

    async def read(self, asked: str, before: str = "") -> Current | None:
        """Read the profile that is asked for; ``before``: as :meth:`ProfileFolder.read` has it.

        While the disk does not answer: what was read last for the same question, or None.
        """
        self._settle()
        if await self._beside.do(lambda: _Read(asked, self._folder.read(asked, before))):
            self._settle()
        if self._beside.is_busy and self._beside.seconds >= self._slow:
            why = f"cannot read the profiles in {self._folder.path}: no answer for {self._slow:g} s"
            return Current(self._folder.key_of(asked), error=why)
        return self._read.current if self._read is not None and self._read.asked == asked else None

    async def close(self) -> None:
        """End what is under way."""
        await self._beside.close()

    def _settle(self) -> None:
        self._read = self._beside.take() or self._read
