"""The file of what survives the agent: read once, written when it has changed, whole at any moment."""

import logging
import os
import stat
from contextlib import suppress

from device_agent.errors import StateInvalid
from device_agent.sources.nvidia.memory import LONGEST_FILE, Memory, parse_memory

log = logging.getLogger(__name__)

NAME = "verdicts.json"


def read_memory(folder: str) -> Memory:
    """Read what has survived; a file that is not one is set aside, and nothing is known then."""
    path = f"{folder}/{NAME}"
    try:
        return parse_memory(_read(path))
    except FileNotFoundError:
        return Memory()
    except StateInvalid as error:
        log.error(  # noqa: TRY400 - no traceback: the message is for the operator
            "%s is not valid: %s; it is %s.broken now, and errors of GPUs that it had are forgotten", path, error, path
        )
        with suppress(OSError):
            os.replace(path, f"{path}.broken")  # noqa: PTH105 - pathlib would cost the resident process 1 MiB
    except OSError as error:
        log.error("cannot read %s: %s: errors of GPUs that it has do not count", path, error.strerror or error)  # noqa: TRY400 - as above
    return Memory()


def write_memory(folder: str, content: bytes) -> str:
    """Write what has to survive; returns why that was not possible, nothing if it was."""
    path = f"{folder}/{NAME}"
    try:
        os.makedirs(folder, mode=0o700, exist_ok=True)  # noqa: PTH103 - as above
        with suppress(FileNotFoundError):  # of a process that was killed
            os.unlink(f"{path}.new")  # noqa: PTH108 - as above
        _create(f"{path}.new", content)
        os.replace(f"{path}.new", path)  # noqa: PTH105 - as above
        _sync(folder)
    except OSError as error:
        return f"cannot write {path}: {error.strerror or error}"
    return ""


def _create(path: str, content: bytes) -> None:
    descriptor = os.open(path, os.O_WRONLY | os.O_CREAT | os.O_EXCL | os.O_CLOEXEC | os.O_NOFOLLOW, 0o600)
    with open(descriptor, "wb") as file:  # noqa: PTH123 - as above
        file.write(content)
        file.flush()
        os.fsync(descriptor)


def _sync(folder: str) -> None:
    descriptor = os.open(folder, os.O_RDONLY | os.O_DIRECTORY | os.O_CLOEXEC)
    try:
        with suppress(OSError):  # there are filesystems that have no such thing
            os.fsync(descriptor)
    finally:
        os.close(descriptor)


def _read(path: str) -> bytes:
    """Read a regular file: a pipe would never end, and a device may act when it is opened."""
    descriptor = os.open(path, os.O_RDONLY | os.O_CLOEXEC | os.O_NONBLOCK | os.O_NOCTTY)
    with open(descriptor, "rb") as file:  # noqa: PTH123 - as above
        if not stat.S_ISREG(os.fstat(descriptor).st_mode):
            raise StateInvalid("it is not a regular file")
        return file.read(LONGEST_FILE + 1)
