"""The file of MIG layouts, parsed again only when it is another one, or another key is asked for."""

import os

from device_agent.mig.layouts_file import FILE_NAME, read_layouts
from device_agent.mig.values import Layouts


class LayoutsFile:
    """The file in a folder."""

    def __init__(self, folder: str) -> None:
        self._folder = folder
        self._path = os.path.join(folder, FILE_NAME)  # noqa: PTH118 - pathlib would cost the resident process 1 MiB
        self._version: tuple[int, ...] = ()
        self._known: Layouts | None = None

    def read(self, key: str) -> Layouts:
        """Read what it asks for under a key; it waits for the disk, in one thread at a time."""
        version = self._seen_version()
        if self._known is None or not version or (self._version, self._known.key) != (version, key):
            self._version, self._known = version, read_layouts(self._folder, key)
        return self._known

    def _seen_version(self) -> tuple[int, ...]:
        """Tell the file from the one before; empty where there is none."""
        try:
            found = os.stat(self._path)  # noqa: PTH116 - as above
        except OSError:
            return ()
        return found.st_dev, found.st_ino, found.st_size, found.st_mtime_ns
