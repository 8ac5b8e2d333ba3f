"""The file of allocations: read once, written before each answer, whole at any moment."""

import logging
from collections.abc import Callable, Collection, Iterable, Mapping
from threading import Lock

from device_agent.allocations.given import Allocation, Given, Identity, check_start, dump_given, parse_given, with_new
from device_agent.allocations.recent import PENDING, Key, Recent, Start, recent_of, started, still_recent
from device_agent.boot import seconds_since_boot
from device_agent.errors import AllocationRefused, FileInvalid, StartRefused
from device_agent.kept_file import read_kept, set_aside, write_kept

log = logging.getLogger(__name__)

_MAX_FILE = 1 << 26
"""More than as many devices as are remembered can take."""


class Allocations:
    """What devices were when they were given. ``folder``: where the file is; it is made when it is needed.

    ``path``: of the file. ``boot``: the id of this boot; ``now``: the clock that counts from it.
    ``load``, ``remember`` and ``check`` wait for the disk and may be called in any thread, the others in one only.
    """

    def __init__(self, folder: str, boot: str = "", now: Callable[[], float] = seconds_since_boot) -> None:
        self.path = f"{folder.rstrip('/')}/allocations.json"
        self._boot = boot
        self._now = now
        self._lock = Lock()
        self._given: Given | None = None
        self._recent: Recent = {}
        self._read: Recent = {}
        self._why = ""

    @property
    def given(self) -> Given | None:
        """What is remembered, the newest last; None before it was read."""
        return self._given

    @property
    def recent(self) -> Recent:
        """What was given, or is being given, and the kubelet has not shown yet."""
        read, self._read = self._read, {}
        if read:
            self._recent = {**read, **self._recent}
        return self._recent

    def load(self) -> None:
        """Read what is remembered.

        Raises:
            OSError: it cannot be read; it may be tried again.
        """
        with self._lock:
            self._known()

    def begin(self, resource: str, shares: Mapping[str, int]) -> None:
        """Count devices as in use until :meth:`end`: id -> shares of its unit. Then :meth:`remember` them.

        It does not wait, so that nothing can be decided between the look at what is listed and this.
        """
        self._recent = started(self.recent, resource, shares, PENDING)

    def end(self, resource: str, shares: Mapping[str, int]) -> None:
        """Count devices of :meth:`begin` as given now: the kubelet hears of it only now, also of a refusal."""
        self._recent = started(self.recent, resource, shares, self._now())

    def see(self, shown: Collection[Key], asked_at: float) -> None:
        """Leave to the kubelet what it has shown to a question of that time, and forget what is long ago."""
        self._recent = still_recent(self.recent, shown, asked_at)

    def remember(self, resource: str, new: Mapping[str, Identity]) -> None:
        """Remember devices that a container gets: id -> what it is. It is on the disk when this returns.

        Raises:
            AllocationRefused: when it cannot be remembered; then nothing has changed.
        """
        recent = self._recent
        with self._lock:
            try:
                now, starts = self._now(), {name: recent.get((resource, name)) for name in new}
                allocations = {name: _allocation(identity, starts[name], now) for name, identity in new.items()}
                given = with_new(self._known(), resource, allocations)
                write_kept(self.path, dump_given(given, self._boot))
            except OSError as error:
                why = error.strerror or error
                raise AllocationRefused(f"cannot remember what is given in {self.path}: {why}") from error
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
                raise StartRefused(f"cannot read what was given in {self.path}: {error.strerror or error}") from error
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
                given = parse_given(read_kept(self.path, _MAX_FILE), self._boot)
            except FileNotFoundError:
                given = {}
            except FileInvalid as error:
                self._why = f"{self.path} was not valid, {error}, and is {set_aside(self.path)} now"
                log.error("allocations: %s: containers with devices start again when their pods are new", self._why)  # noqa: TRY400 - no traceback: the message is for the operator
                given = {}
            # Before the rest: whoever knows what was given has to know what was given lately.
            self._read = recent_of(given)
            self._given = given
        return self._given


def _allocation(identity: Identity, start: Start | None, now: float) -> Allocation:
    if start is None:
        return Allocation(identity=identity)
    return Allocation(identity=identity, shares=start.shares, at=now)
