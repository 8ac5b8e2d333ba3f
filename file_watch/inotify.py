"""Files that change (inotify(7)): rules, configuration files, sockets, device nodes.

Between the kernel and the loop of a program. A place need not exist: every directory above it is watched for the
name that leads to it, so that it is seen when it comes, goes, or is put in another's stead.
"""

import ctypes
import errno
import logging
import os
import struct
from collections.abc import Iterable, Iterator
from typing import NamedTuple

log = logging.getLogger(__name__)

_CLOSE_WRITE, _ATTRIB, _MOVED_FROM, _MOVED_TO, _CREATE, _DELETE = 0x8, 0x4, 0x40, 0x80, 0x100, 0x200
_OVERFLOW = 0x4000
_ONLY_DIRECTORIES, _ADD_TO_MASK = 0x01000000, 0x20000000
"""Constants of <sys/inotify.h>."""

_NAMES = _MOVED_FROM | _MOVED_TO | _CREATE | _DELETE
# Not IN_MODIFY: a file that is being written would be read half done, and labels would come and go.
_CONTENT = _NAMES | _CLOSE_WRITE | _ATTRIB
_COMPLETE = _CONTENT & ~(_CREATE | _ATTRIB)

_EVENT = struct.Struct("iIII")
_BUFFER = 1 << 16

_NOT_THERE = frozenset({errno.ENOENT, errno.ENOTDIR, errno.EACCES, errno.ELOOP})

_CONFIG_MAP_LINK = "..data"
"""What the kubelet swaps when a mounted ConfigMap changes; the files themselves never do."""


class Place(NamedTuple):
    """What to watch. ``trigger``: what a change is called.

    ``levels``: 0 for one file, 1 for the files of a directory, 2 for those of its sub-directories, too.
    ``contents``: whether what is in the files counts as well, not only which there are.
    """

    path: str
    trigger: str
    levels: int = 1
    contents: bool = True


class Changes(NamedTuple):
    """Where something may have changed: the triggers of these places.

    ``complete``: those of places with a file that was closed, renamed or deleted, and not just begun.
    """

    triggers: frozenset[str] = frozenset()
    complete: frozenset[str] = frozenset()


class _Interest(NamedTuple):
    """Who wants to know about a directory; ``names``: of which entries, None for all that are not hidden."""

    trigger: str
    names: frozenset[str] | None

    def wants(self, name: str) -> bool:
        """Return whether an event counts; one without a name is about the directory itself."""
        if self.names is None:
            return not name.startswith(".") or name == _CONFIG_MAP_LINK
        return not name or name in self.names


class FileWatch:
    """Watches places; ``fileno()`` is ready when something happened.

    Raises:
        OSError: when this user has no inotify instance left (``fs.inotify.max_user_instances``).
    """

    def __init__(self, places: Iterable[Place]) -> None:
        self._libc = ctypes.CDLL(None, use_errno=True)
        self._descriptor: int = self._libc.inotify_init1(os.O_NONBLOCK | os.O_CLOEXEC)
        if self._descriptor < 0:
            raise _last_error()
        self._interests: dict[int, list[_Interest]] = {}
        self._logged: set[str] = set()
        self.watch(places)

    def watch(self, places: Iterable[Place]) -> None:
        """Watch these places and no others."""
        self._places = tuple(places)
        self._arm()

    def fileno(self) -> int:
        """Give the descriptor to wait for."""
        return self._descriptor

    def drain(self) -> Changes:
        """Take the events that are there."""
        triggers: set[str] = set()
        complete: set[str] = set()
        for watch, mask, name in _read_events(self._descriptor):
            if mask & _OVERFLOW:
                triggers.update(place.trigger for place in self._places)
            found = {known.trigger for known in self._interests.get(watch, ()) if known.wants(name)}
            triggers |= found
            complete |= found if mask & _COMPLETE else set()
        # A directory that came has had files before it was watched: its coming counts as a change.
        return Changes(frozenset(triggers) | self._arm(), frozenset(complete)) if triggers else Changes()

    def close(self) -> None:
        """Stop watching."""
        os.close(self._descriptor)

    def _arm(self) -> frozenset[str]:
        """Watch what is there now; gives the triggers of directories that were not watched before."""
        before, self._interests = self._interests, {}
        for place in self._places:
            for directory, mask, names in _directories(place):
                watch = self._add(directory, mask)
                if watch is not None:
                    self._interests.setdefault(watch, []).append(_Interest(place.trigger, names))
        for gone in before.keys() - self._interests.keys():
            self._libc.inotify_rm_watch(self._descriptor, gone)
        fresh = self._interests.keys() - before.keys()
        return frozenset(known.trigger for watch in fresh for known in self._interests[watch])

    def _add(self, directory: str, mask: int) -> int | None:
        flags = mask | _ONLY_DIRECTORIES | _ADD_TO_MASK
        watch: int = self._libc.inotify_add_watch(self._descriptor, os.fsencode(directory), flags)
        if watch >= 0:
            return watch
        error = _last_error()
        if error.errno not in _NOT_THERE and directory not in self._logged:
            self._logged.add(directory)
            log.warning(
                "files: cannot watch %s (%s); changes are found at the next interval", directory, error.strerror
            )
        return None


def watch_files(places: Iterable[Place]) -> FileWatch | None:
    """Watch places, or say once why not: then the interval finds changes, and SIGHUP reloads the configuration."""
    try:
        return FileWatch(places)
    except OSError as error:
        log.warning(
            "files: changes cannot be watched (%s); they are found at the next interval or on SIGHUP", error.strerror
        )
        return None


def parse_events(content: bytes) -> Iterator[tuple[int, int, str]]:
    """Read ``struct inotify_event``, one after the other: watch descriptor, mask, name (empty for the directory)."""
    offset = 0
    while offset + _EVENT.size <= len(content):
        watch, mask, _cookie, length = _EVENT.unpack_from(content, offset)
        offset += _EVENT.size
        yield watch, mask, os.fsdecode(content[offset : offset + length].rstrip(b"\0"))
        offset += length


def _read_events(descriptor: int) -> Iterator[tuple[int, int, str]]:
    try:
        content = os.read(descriptor, _BUFFER)
    except BlockingIOError:
        return iter(())
    return parse_events(content)


def _directories(place: Place) -> Iterator[tuple[str, int, frozenset[str] | None]]:
    """Name the directories to watch for a place, from the root down; for which events, and of which entries."""
    path = os.path.abspath(place.path)  # noqa: PTH100 - pathlib would cost the resident process 1 MiB
    content = _CONTENT if place.contents else _NAMES
    *above, last = path.strip("/").split("/")
    directory = ""
    for name in above:
        yield directory or "/", _NAMES, frozenset({name})
        directory = f"{directory}/{name}"
    if not place.levels:
        yield directory or "/", content, frozenset({last, _CONFIG_MAP_LINK})
        return
    yield directory or "/", _NAMES, frozenset({last})
    yield path, content, None
    if place.levels > 1:
        yield from ((inner, content, None) for inner in _visible_directories(path))


def _visible_directories(path: str) -> list[str]:
    try:
        with os.scandir(path) as entries:
            return sorted(entry.path for entry in entries if not entry.name.startswith(".") and entry.is_dir())
    except OSError:
        return []


def _last_error() -> OSError:
    number = ctypes.get_errno()
    return OSError(number, os.strerror(number))
