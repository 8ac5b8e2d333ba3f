"""The file in which nfd-worker reads how GPUs are shared. The agent leaves it when it ends: the next one says the same.

So labels neither come and go with an update of the agent, nor while it does not know yet what it offers.
"""

import os
from collections.abc import Callable
from contextlib import suppress
from typing import NamedTuple

from device_agent.errors import FileInvalid
from device_agent.kept_file import read_kept, replace_file
from device_agent.sources.beside import Beside

NAME = "gpu-sharing.json"
"""Of :data:`device_resources.gpu_sharing.FILE`, which nodes without profiles need not import."""

_EVERYBODY_READS = 0o644

Say = Callable[[str, str], None]
"""Logs what is wrong with a topic once, as long as it stays so; nothing: it is over."""


def write_report(folder: str, content: bytes) -> str:
    """Have the folder's file with this content, or none; returns why that was not possible, nothing if it was."""
    path = f"{folder}/{NAME}"
    try:
        if not content:
            with suppress(FileNotFoundError):
                os.unlink(path)  # noqa: PTH108 - pathlib would cost the resident process 1 MiB
        elif not _has(path, content):
            replace_file(path, content, _EVERYBODY_READS)
    except OSError as error:
        return f"cannot write {path}: {error.strerror or error}"
    return ""


def _has(path: str, content: bytes) -> bool:
    """Return whether the file is as it has to be: for each new one the worker looks at all GPUs."""
    try:
        return not os.path.islink(path) and read_kept(path, len(content)) == content  # noqa: PTH114 - as above
    except (OSError, FileInvalid):
        return False


class _Written(NamedTuple):
    content: bytes
    why: str


class SharingReport:
    """Keeps the file: a folder that is missing, full or does not answer is logged and tried again, and holds up nobody.

    ``folder``: empty for no file at all. ``moment``: seconds for which a look waits for a write; ``slow``:
    after which that is worth a word.
    """

    def __init__(
        self,
        folder: str,
        say: Say,
        write: Callable[[str, bytes], str] = write_report,
        *,
        moment: float = 1.0,
        slow: float = 10.0,
    ) -> None:
        self._folder = folder
        self._say = say
        self._write = write
        self._slow = slow
        self._has: bytes | None = None
        self._writing: Beside[_Written] = Beside(NAME, lambda: None, moment)

    async def keep(self, content: bytes | None) -> None:
        """Write the file if it is another one; empty: there is to be none; None: it stays as it is."""
        self._settle()
        if self._folder and content is not None and content != self._has:
            await self._writing.do(lambda: _Written(content, self._write(self._folder, content)))
            self._settle()
        if self._writing.is_busy and self._writing.seconds >= self._slow:
            self._complain(f"cannot write {self._folder}/{NAME}: no answer for {self._slow:g} s")

    async def close(self) -> None:
        """Wait for the last write for a moment only."""
        await self._writing.close()

    def _settle(self) -> None:
        """Take note of a write that has ended."""
        if (done := self._writing.take()) is not None:
            self._has = None if done.why else done.content
            self._complain(done.why)

    def _complain(self, why: str) -> None:
        self._say("report", f"{why}; the node's labels may not say how its GPUs are shared" if why else "")
