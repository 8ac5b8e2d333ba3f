"""Finds files of the host by globs, as Go's ``filepath.Glob`` does: wildcards match within one folder, dots as well.

Everything is below one root: ``/`` on a plain machine, ``/host`` in the container.
"""

import errno
import os
import stat
from collections.abc import Callable, Iterator
from fnmatch import fnmatchcase
from itertools import islice

from device_agent.devices.model import MAX_DEVICES
from device_resources.resource import PathType, Resource

MAX_MATCHES = MAX_DEVICES + 1
"""Files of one glob that are looked at: one more than can be devices, so that it is seen that there are more."""

_MAX_ENTRIES = 65536
"""Entries of a folder that are looked at."""

_WILDCARDS = frozenset("*?[")


def find_files(root: str, resource: Resource) -> dict[str, list[str]]:
    """Find the files of all paths of a resource: glob -> paths on the host, sorted."""
    return {
        path.path: list(islice(_expand(root.rstrip("/"), path.path, _FITS[path.type]), MAX_MATCHES))
        for group in resource.groups
        for path in group.paths
    }


def fixed_folder(glob: str) -> tuple[str, int]:
    """Return the folder before the first wildcard of a glob, and how many levels below it are looked at."""
    parts = glob.split("/")
    fixed = next((index for index, part in enumerate(parts) if _WILDCARDS & set(part)), len(parts) - 1)
    return "/".join(parts[:fixed]) or "/", len(parts) - fixed


def _expand(root: str, glob: str, fits: Callable[[os.stat_result], bool]) -> Iterator[str]:
    found: list[str] = [""]
    for part in glob.strip("/").split("/"):
        found = [f"{folder}/{name}" for folder in found[:MAX_MATCHES] for name in _names(f"{root}{folder}", part)]
    for path in sorted(found):
        try:
            status = os.lstat(f"{root}{path}")
            is_trusted = _is_trusted(status)
            if stat.S_ISLNK(status.st_mode):
                status = os.stat(f"{root}{path}")  # noqa: PTH116 - pathlib would cost the resident process 1 MiB
        except OSError as error:
            raise_if_exhausted(error)
            continue
        if is_trusted and fits(status):
            yield path


def _names(folder: str, part: str) -> list[str]:
    if not _WILDCARDS & set(part):
        return [part]
    # Go writes [^a] where Python writes [!a].
    pattern = part.replace("[^", "[!")
    try:
        with os.scandir(folder) as entries:
            names = (entry.name for entry in islice(entries, _MAX_ENTRIES))
            # Names that are no text can neither be sent to the kubelet nor be shown to people.
            return sorted(name for name in names if fnmatchcase(name, pattern) and name.isprintable())
    except OSError as error:
        raise_if_exhausted(error)
        return []


def raise_if_exhausted(error: OSError) -> None:
    """Raise an error that says nothing of the file: the system could not look."""
    if error.errno in (errno.EMFILE, errno.ENFILE, errno.ENOMEM):
        raise error


def _is_trusted(status: os.stat_result) -> bool:
    """Return whether a file may be what it leads to: anyone may make a link to a disk where all may write."""
    return not stat.S_ISLNK(status.st_mode) or status.st_uid in (0, os.geteuid())


def _is_device(status: os.stat_result) -> bool:
    return stat.S_ISCHR(status.st_mode) or stat.S_ISBLK(status.st_mode)


_FITS: dict[PathType, Callable[[os.stat_result], bool]] = {PathType.DEVICE: _is_device, PathType.MOUNT: lambda _: True}
