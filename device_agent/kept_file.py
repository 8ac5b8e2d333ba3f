"""A file of the agent's own, which survives it: read whole, and whole at any moment while it is written."""

import errno
import os
from contextlib import suppress

from device_agent.errors import FileInvalid
from device_agent.regular_file import read_regular


def read_kept(path: str, longest: int) -> bytes:
    """Read a file of at most so many bytes, as :func:`read_regular`.

    Raises:
        FileInvalid: it is no regular file, or longer.
        OSError: it is not there, or cannot be read.
    """
    try:
        return read_regular(path, longest)
    except OSError as error:
        if error.errno not in (errno.EINVAL, errno.EFBIG):
            raise
        raise FileInvalid(str(error.strerror)) from error


def write_kept(path: str, content: bytes) -> None:
    """Replace a file of the agent's alone, and make its folder where it is missing; as :func:`replace_file`.

    Raises:
        OSError: that was not possible; the file is as before.
    """
    os.makedirs(os.path.dirname(path), mode=0o700, exist_ok=True)  # noqa: PTH103, PTH120 - as above
    replace_file(path, content, 0o600)


def replace_file(path: str, content: bytes, mode: int) -> None:
    """Replace a file by one with this mode, whatever the umask; it is on the disk when this returns.

    Raises:
        OSError: that was not possible; the file is as before.
    """
    fresh = f"{path}.new"
    with suppress(FileNotFoundError):  # of a process that was killed
        os.unlink(fresh)  # noqa: PTH108 - as above
    descriptor = os.open(fresh, os.O_WRONLY | os.O_CREAT | os.O_EXCL | os.O_CLOEXEC | os.O_NOFOLLOW, 0o600)
    try:
        os.fchmod(descriptor, mode)
        view = memoryview(content)
        while view:
            view = view[os.write(descriptor, view) :]
        os.fsync(descriptor)
    finally:
        os.close(descriptor)
    os.replace(fresh, path)  # noqa: PTH105 - as above
    _sync_folder(os.path.dirname(path))  # noqa: PTH120 - as above


def set_aside(path: str) -> str:
    """Rename a file that is not valid, and return its new path.

    Raises:
        OSError: that was not possible.
    """
    aside = f"{path}.broken"
    os.replace(path, aside)  # noqa: PTH105 - as above
    return aside


def _sync_folder(folder: str) -> None:
    descriptor = os.open(folder, os.O_RDONLY | os.O_DIRECTORY | os.O_CLOEXEC)
    try:
        os.fsync(descriptor)
    except OSError as error:
        if error.errno != errno.EINVAL:  # a filesystem that has no such thing
            raise
    finally:
        os.close(descriptor)
