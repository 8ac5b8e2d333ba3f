"""The file of what survives the agent: read once, written when it has changed, whole at any moment."""

import logging
from collections.abc import Callable
from contextlib import suppress

from device_agent.errors import FileInvalid, StateInvalid
from device_agent.kept_file import read_kept, set_aside, write_kept
from device_agent.sources.beside import Beside
from device_agent.sources.nvidia.memory import LONGEST_FILE, Memory, dump_memory, parse_memory

log = logging.getLogger(__name__)

NAME = "verdicts.json"

Write = Callable[[str, Memory], str]
"""Writes a folder's file, as :func:`write_memory` does. It may wait for a disk."""


def read_memory(folder: str) -> Memory:
    """Read what has survived; a file that is not one is set aside, and nothing is known then."""
    path = f"{folder}/{NAME}"
    try:
        return parse_memory(read_kept(path, LONGEST_FILE))
    except FileNotFoundError:
        return Memory()
    except (FileInvalid, StateInvalid) as error:
        log.error(  # noqa: TRY400 - no traceback: the message is for the operator
            "%s is not valid: %s; it is %s.broken now, and errors of GPUs that it had are forgotten", path, error, path
        )
        with suppress(OSError):
            set_aside(path)
    except OSError as error:
        log.error("cannot read %s: %s: errors of GPUs that it has do not count", path, error.strerror or error)  # noqa: TRY400 - as above
    return Memory()


def write_memory(folder: str, memory: Memory) -> str:
    """Write what survives; returns why that was not possible, nothing if it was."""
    path = f"{folder}/{NAME}"
    try:
        write_kept(path, dump_memory(memory))
    except OSError as error:
        return f"cannot write {path}: {error.strerror or error}"
    return ""


class Keeper:
    """Writes what has to survive in a thread, one write at a time: a disk that does not answer holds up nobody.

    ``written``: what the file has. ``wake`` is called when a disk that did not answer has done so: the newest content
    is kept then. ``moment``: seconds for which the disk is waited for, so that what is offered usually is written.
    ``slow``: seconds after which a write is worth a word.
    """

    def __init__(
        self, write: Write, folder: str, wake: Callable[[], None], *, moment: float = 1.0, slow: float = 10.0
    ) -> None:
        self.written: Memory | None = None
        self._write = write
        self._folder = folder
        self._slow = slow
        self._content = Memory()
        self._why = ""
        self._writing: Beside[str] = Beside(NAME, wake, moment)

    async def keep(self, content: Memory) -> str:
        """Write this if it is new, unless the disk is still at an older one; returns why that is not possible."""
        self._settle()
        if content != self.written and await self._writing.do(lambda: self._write(self._folder, content)):
            self._content = content
            self._settle()
        if self._writing.is_busy and self._writing.seconds >= self._slow:
            return f"cannot write {self._folder}/{NAME}: the disk has not answered for {self._slow:g} s"
        return self._why

    async def close(self) -> None:
        """Wait for the last write for a moment only."""
        await self._writing.close()

    def _settle(self) -> None:
        """Take note of a write that has ended."""
        why = self._writing.take()
        if why is not None:
            self._why = why
            self.written = self.written if why else self._content
