"""The file of allocations: read once, written before each answer, whole at any moment."""

import logging
from collections.abc import Iterable, Mapping
from threading import Lock

from device_agent.allocations.given import Given, Identity, check_start, dump_given, parse_given, with_new
from device_agent.errors import AllocationRefused, FileInvalid, StartRefused
from device_agent.kept_file import read_kept, set_aside, write_kept

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
                write_kept(self._path, dump_given(given))
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
                self._given = parse_given(read_kept(self._path, _MAX_FILE))
            except FileNotFoundError:
                self._given = {}
            except FileInvalid as error:
                self._why = f"{self._path} was not valid, {error}, and is {set_aside(self._path)} now"
                log.error("allocations: %s: containers with devices start again when their pods are new", self._why)  # noqa: TRY400 - no traceback: the message is for the operator
                self._given = {}
        return self._given
