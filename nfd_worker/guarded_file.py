"""The one reader for files that people and programs put on the node: feature files, rules, the configuration.

Only a regular file is opened, because a pipe may never end and a device may act when it is opened; and no file is read
beyond the longest that its reader has a use for. What the kernel makes is read by :mod:`nfd_worker.host`.
"""

import errno
import os
import stat

from nfd_worker.errors import UnfitFileError

MAX_FEATURE_FILE = 1 << 16
MAX_YAML_FILE = 1 << 19
"""Bytes. Rules and configuration come in ConfigMaps, which hold 1 MiB together; PyYAML takes seconds for this much."""

_CHUNK = 1 << 16

_BACKUPS = (
    "~", ".bak", ".old", ".orig", ".swp", ".rpmnew", ".rpmorig", ".rpmsave", ".dpkg-bak", ".dpkg-dist", ".dpkg-new",
    ".dpkg-old", ".dpkg-tmp", ".ucf-dist", ".ucf-new", ".ucf-old",
)  # fmt: skip


def is_left_over(name: str) -> bool:
    """Return whether an editor or a package manager has left this file beside the one that counts: ``gfd~``.

    Most sort behind the file, and would win over it.
    """
    return name.endswith(_BACKUPS) or (name.startswith("#") and name.endswith("#"))


def read_regular(path: str, max_bytes: int) -> bytes:
    """Read a regular file of at most ``max_bytes``.

    Raises:
        UnfitFileError: when it is neither a regular file nor a directory, or is longer.
        OSError: when it cannot be read; IsADirectoryError for a directory.
    """
    _check(os.stat(path), max_bytes)  # noqa: PTH116 - pathlib would cost the resident process 1 MiB
    # Between the two looks something else may have taken its place: O_NONBLOCK, so that a pipe does not hold us.
    descriptor = os.open(path, os.O_RDONLY | os.O_CLOEXEC | os.O_NONBLOCK | os.O_NOCTTY)
    try:
        _check(os.fstat(descriptor), max_bytes)
        content = read_descriptor(descriptor, max_bytes)
    finally:
        os.close(descriptor)
    if len(content) > max_bytes:
        raise UnfitFileError(f"it grew beyond {max_bytes} bytes")
    return content


def read_descriptor(descriptor: int, max_bytes: int) -> bytes:
    """Read to the end, but not much beyond ``max_bytes``; in time that grows with the length and no faster."""
    chunks = [os.read(descriptor, _CHUNK)]
    length = len(chunks[0])
    # Files in /proc come in pages, so only an empty read is the end.
    while chunks[-1] and length <= max_bytes:
        chunks.append(os.read(descriptor, _CHUNK))
        length += len(chunks[-1])
    return b"".join(chunks)


def _check(status: os.stat_result, max_bytes: int) -> None:
    if stat.S_ISDIR(status.st_mode):
        raise IsADirectoryError(errno.EISDIR, os.strerror(errno.EISDIR))
    if not stat.S_ISREG(status.st_mode):
        raise UnfitFileError("it is not a regular file")
    if status.st_size > max_bytes:
        raise UnfitFileError(f"it has {status.st_size} bytes, and {max_bytes} is the most")
