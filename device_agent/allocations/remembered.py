"""The file of allocations: read once, written before each answer, whole at any moment."""

import errno
import logging
import os
import stat
from collections.abc import Iterable, Mapping
from contextlib import suppress
from threading import Lock

from device_agent.allocations.given import Given, Identity, check_start, dump_given, parse_given, with_new
from device_agent.errors import AllocationRefused, AllocationsInvalid, StartRefused

log = logging.getLogger(__name__)

_MAX_FILE = 1 << 26
"""More than as many devices as are remembered can take."""


class Allocations:
    """What devices were when they were given. ``folder``: where the file is; it is made when it is needed.

    Methods may be called in any thread; they wait for the disk.
    """

    def __init__(self, folder: str) -> None:
        self._path = f"{folder.rstrip('/')}/allocations.json"
        self._lock = Lock()
        self._given: Given | None = None
        self._why = ""

    def remember(self, resource: str, new: Mapping[str, Identity]) -> None:
        """Remember devices that a container gets: id -> what it is. It is on the disk when this returns.

        Raises:
            AllocationRefused: when it cannot be remembered; then nothing has changed.
        """
        with self._lock:
            try:
                given = with_new(self._known(), resource, new)
                self._write(dump_given(given))
            except OSError as error:
                why = error.strerror or error
                raise AllocationRefused(f"cannot remember what is given in {self._path}: {why}") from error
            self._given = given

    def check(self, resource: str, devices: Iterable[tuple[str, Identity]]) -> None:
        """Let a container start with devices: id and what it is now, nothing if that is not known.

        Raises:
            StartRefused: when one is not what was given.
        """
        with self._lock:
            try:
                given = self._known()
            except OSError as error:
                raise StartRefused(f"cannot read what was given in {self._path}: {error.strerror or error}") from error
            for name, now in devices:
                try:
                    check_start(resource, name, given, now)
                except StartRefused as error:
                    if self._why and (resource, name) not in given:
                        raise StartRefused(f"{error} ({self._why})") from error
                    raise

    def _known(self) -> Given:
        """Return what is remembered; a file that is not one is set aside.

        Raises:
            OSError: when it cannot be read; it is tried again.
        """
        if self._given is None:
            try:
                self._given = parse_given(_read(self._path))
            except FileNotFoundError:
                self._given = {}
            except AllocationsInvalid as error:
                aside = f"{self._path}.broken"
                os.replace(self._path, aside)  # noqa: PTH105 - pathlib would cost the resident process 1 MiB
                self._why = f"{self._path} was not valid, {error}, and is {aside} now"
                log.error("allocations: %s: containers with devices start again when their pods are new", self._why)  # noqa: TRY400 - no traceback: the message is for the operator
                self._given = {}
        return self._given

    def _write(self, content: bytes) -> None:
        folder = os.path.dirname(self._path)  # noqa: PTH120 - as above
        os.makedirs(folder, mode=0o700, exist_ok=True)  # noqa: PTH103 - as above
        temporary = f"{self._path}.new"
        with suppress(FileNotFoundError):  # of a process that was killed
            os.unlink(temporary)  # noqa: PTH108 - as above
        descriptor = os.open(temporary, os.O_WRONLY | os.O_CREAT | os.O_EXCL | os.O_CLOEXEC | os.O_NOFOLLOW, 0o600)
        try:
            view = memoryview(content)
            while view:
                view = view[os.write(descriptor, view) :]
            os.fsync(descriptor)
        finally:
            os.close(descriptor)
        os.replace(temporary, self._path)  # noqa: PTH105 - as above
        _sync_folder(folder)


def _read(path: str) -> bytes:
    """Read a regular file within bounds; what is none is not valid."""
    descriptor = os.open(path, os.O_RDONLY | os.O_CLOEXEC | os.O_NONBLOCK | os.O_NOCTTY)
    try:
        status = os.fstat(descriptor)
        if not stat.S_ISREG(status.st_mode):
            raise AllocationsInvalid("it is not a regular file")
        content = b""
        while len(content) <= _MAX_FILE and (chunk := os.read(descriptor, 1 << 20)):
            content += chunk
    finally:
        os.close(descriptor)
    if len(content) > _MAX_FILE:
        raise AllocationsInvalid(f"it is longer than {_MAX_FILE} bytes")
    return content


def _sync_folder(folder: str) -> None:
    descriptor = os.open(folder, os.O_RDONLY | os.O_DIRECTORY | os.O_CLOEXEC)
    try:
        os.fsync(descriptor)
    except OSError as error:
        if error.errno != errno.EINVAL:  # a filesystem that has no such thing
            raise
    finally:
        os.close(descriptor)
