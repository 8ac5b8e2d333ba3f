"""Host: the only way to the node's files. Every read of /proc, /sys, /etc, /boot and /usr/lib is below one root.

The root is ``/`` on a plain machine, ``/host`` in the container, and a recorded tree in a test. In the container the
DaemonSet mounts the node's directories below ``/host``; ``/host/proc`` is a symbolic link of the image to the
container's own ``/proc``, since all that is read there (``sys/kernel/osrelease``, ``modules``, ``cpuinfo``,
``config.gz``, the boot id) belongs to the kernel and is the same in every container.
"""

import errno
import logging
import os
from collections.abc import Callable, Iterable
from functools import cached_property
from typing import Any, TypeVar

from nfd_worker.errors import HostReadError, UnfitFileError
from nfd_worker.guarded_file import is_left_over, read_descriptor, read_regular

log = logging.getLogger(__name__)

_Parsed = TypeVar("_Parsed")

BOOT_ID = "proc/sys/kernel/random/boot_id"
OS_RELEASE = "proc/sys/kernel/osrelease"

_CHUNK = 1 << 16

LONGEST_FILE = 1 << 24
"""Bytes of any file: a kernel's configuration, the longest of them, has a fiftieth of that."""

_NOT_THERE = frozenset({errno.ENOENT, errno.ENOTDIR, errno.ENODEV, errno.ENXIO})
"""Errors that say: this node has no such thing. A device can also go away between listing and reading."""

_NO_VALUE = _NOT_THERE | {errno.EINVAL, errno.EOPNOTSUPP}
"""What sysfs also answers where an attribute exists but has no value in the device's present state."""

_DENIED = frozenset({errno.EACCES, errno.EPERM})
"""What file modes and security modules say. That does not pass by itself: to this process the file is not there."""

_WRONG_PATH = _NOT_THERE | _DENIED | {errno.ELOOP, errno.ENAMETOOLONG}
"""What is wrong with a file itself, and not with reading it just now."""

_NO_FILE = frozenset({errno.EISDIR, errno.ELOOP, errno.ENAMETOOLONG, errno.EFBIG})
"""What is wrong with one of several places for a file: the next one may have it."""

_MAX_LOGGED = 256
"""How many logged warnings are remembered; then all may be logged once more, so that memory stays bounded."""


class Host:
    """The files of one node; all paths are relative to its root, without a leading slash."""

    def __init__(self, root: str = "/") -> None:
        self.root = root
        self._base = root.rstrip("/") + "/"
        self._logged: set[str] = set()
        self._parsed: dict[str, tuple[bytes, Any]] = {}
        self._remembered: dict[str, dict[str, tuple[int, Any]]] = {}
        self._files: dict[str, dict[str, bytes | None]] = {}

    def read_bytes(self, path: str) -> bytes:
        """Read a whole file.

        Raises:
            HostReadError: for any reason; use :meth:`find` where a missing file is an answer.
        """
        try:
            return _read(self._below_root(path))
        except OSError as error:
            raise self._unreadable(path, error) from error

    def read(self, path: str) -> str:
        """Read a file as text; bytes that are not UTF-8 become U+FFFD.

        Raises:
            HostReadError: as :meth:`read_bytes`.
        """
        return self.read_bytes(path).decode(errors="replace")

    def find(self, path: str) -> str | None:
        """Read a file as text, or give None when this node does not have it or does not let us read it.

        Raises:
            HostReadError: when reading it fails for a reason that can pass (an I/O error).
        """
        content = self._find_bytes(path, _read_once if path.startswith("sys/") else _read)
        return None if content is None else content.decode(errors="replace")

    def find_all(self, directory: str, names: Iterable[str]) -> dict[str, str]:
        """Read files of one directory: name -> text, without white space around it and without what is not there.

        Names may have slashes. Opened from the directory, because half of the time for a sysfs file goes into its path.

        Raises:
            HostReadError: as :meth:`find`.
        """
        found: dict[str, str] = {}
        try:
            base = os.open(self._below_root(directory), os.O_PATH | os.O_CLOEXEC)
        except OSError as error:
            self._take_for_absent(directory, error)
            return found
        try:
            for name in names:
                try:
                    found[name] = _read_once(name, base).decode(errors="replace").strip()
                except OSError as error:
                    self._take_for_absent(f"{directory}/{name}", error)
        finally:
            os.close(base)
        return found

    def find_start(self, path: str) -> str | None:
        """Read the start of a file, or give None as :meth:`find` does: 64 KiB, or what the kernel gives at once.

        /proc makes text as it is asked for: all of /proc/cpuinfo would cost milliseconds where there are 256 CPUs.

        Raises:
            HostReadError: as :meth:`find`.
        """
        content = self._find_bytes(path, _read_once)
        return None if content is None else content.decode(errors="replace")

    def find_int(self, path: str) -> int | None:
        """Read a file that holds a decimal or ``0x`` number, or give None as :meth:`find` does.

        What holds something else has no number, and is logged once: it stands for itself, and not for its source.

        Raises:
            HostReadError: as :meth:`find`.
        """
        text = self.find(path)
        if text is None:
            return None
        try:
            return int(text, 0)
        except ValueError:
            self.warn_once(f"host: {self._below_root(path)} holds {text[:40]!r}, which is not a number; left out")
            return None

    def find_first(self, paths: tuple[str, ...]) -> tuple[str, bytes] | None:
        """Read the first of several files that is there and may be read: its path and content; None without any.

        A directory, a link to itself and a file that is too long are logged once, and the next place is read.

        Raises:
            HostReadError: when reading one fails for a reason that can pass (an I/O error).
        """
        for path in paths:
            try:
                return path, _read(self._below_root(path))
            except OSError as error:
                if error.errno in _NO_FILE:
                    self.warn_once(f"host: {self._below_root(path)} left out: {error.strerror}")
                else:
                    self._take_for_absent(path, error)
        return None

    def parsed(self, path: str, content: bytes, parse: Callable[[bytes], _Parsed]) -> _Parsed:
        """Parse the content of a file, or give what was made of it last time when it is still the same.

        For what is long and hardly ever changes, such as the kernel's configuration.
        """
        known = self._parsed.get(path)
        if known is None or known[0] != content:
            known = self._parsed[path] = (content, parse(content))
        result: _Parsed = known[1]
        return result

    def find_regular(self, path: str, max_bytes: int) -> bytes | None:
        """Read a file that anybody may have put there: nothing but a regular file, and none that is too long.

        Anything else is None, and logged once as a warning: a pipe would never end, a device may act when it is opened.
        A directory is None without one.

        Raises:
            HostReadError: as :meth:`find`.
        """
        try:
            return read_regular(self._below_root(path), max_bytes)
        except UnfitFileError as error:
            self.warn_once(f"host: {self._below_root(path)} left out: {error}")
        except IsADirectoryError:
            pass
        except OSError as error:
            if error.errno not in _WRONG_PATH:
                raise self._unreadable(path, error) from error
            self.warn_once(f"host: {self._below_root(path)} left out: {error.strerror}")
        return None

    def find_files(self, directory: str, max_bytes: int) -> dict[str, bytes | None]:
        """Read what others put into a directory, as :meth:`find_regular` does: name -> content, sorted.

        A file that cannot be read for a reason that can pass has the content that it had before; None without any. It
        stops no other. What is hidden is left out, and a backup, which is logged once.

        Raises:
            HostReadError: when the directory is there and cannot be listed.
        """
        before = self._files.get(directory, {})
        found: dict[str, bytes | None] = {}
        for name in self.entries(directory):
            if name.startswith(".") or self.is_left_over(directory, name):
                continue
            try:
                content = self.find_regular(f"{directory}/{name}", max_bytes)
            except HostReadError as error:
                self.warn_once(f"host: {error}; its last value stays")
                found[name] = before.get(name)
            else:
                found |= {} if content is None else {name: content}
        self._files[directory] = found
        return found

    def is_left_over(self, directory: str, name: str) -> bool:
        """Return whether a file is a backup of another one, and log that once."""
        if not is_left_over(name):
            return False
        self.warn_once(f"host: {self._below_root(directory)}/{name} left out: it is named as a backup of another file")
        return True

    def read_regular(self, path: str, max_bytes: int) -> bytes:
        """Read a file that anybody may have put there, and that is wanted: see :mod:`nfd_worker.guarded_file`.

        Raises:
            HostReadError: for any reason; use :meth:`find_regular` where a missing or unfit file is left out.
        """
        try:
            return read_regular(self._below_root(path), max_bytes)
        except UnfitFileError as error:
            raise HostReadError(f"cannot read {self._below_root(path)}: {error}") from error
        except OSError as error:
            raise self._unreadable(path, error) from error

    def entries(self, path: str) -> list[str]:
        """List a directory, sorted; empty when this node does not have it.

        Raises:
            HostReadError: when it is there and cannot be listed.
        """
        return [name for name, _ in self._inodes(path)]

    def _inodes(self, path: str) -> list[tuple[str, int]]:
        try:
            with os.scandir(self._below_root(path)) as found:
                return sorted((entry.name, entry.inode()) for entry in found)
        except OSError as error:
            if error.errno in _NOT_THERE:
                return []
            raise self._unreadable(path, error) from error

    def remembered(self, directory: str, read: Callable[[str], _Parsed | None]) -> dict[str, _Parsed]:
        """Read what does not change about the devices of a directory in sysfs: name -> value, sorted.

        Each device is read once: one that goes away and comes back under its name has another inode, as the kernel
        draws these anew. ``read`` gets a name; what it gives None for is left out, and read again next time.
        A directory has one reader.

        Raises:
            HostReadError: as :meth:`entries`, and as ``read`` does.
        """
        before = self._remembered.get(directory, {})
        now: dict[str, tuple[int, _Parsed]] = {}
        for name, inode in self._inodes(directory):
            known = before.get(name)
            value = known[1] if known is not None and known[0] == inode else read(name)
            if value is not None:
                now[name] = inode, value
        self._remembered[directory] = now
        return {name: value for name, (_, value) in now.items()}

    def has(self, path: str) -> bool:
        """Return whether there is something at this path."""
        return os.access(self._below_root(path), os.F_OK)

    def require(self, path: str) -> None:
        """Make sure of a directory that every node has, before what is not below it is taken for absent.

        Raises:
            HostReadError: when it is not there: then a mount is missing, and not the hardware.
        """
        if not self.has(path):
            mount = path.partition("/")[0]
            raise HostReadError(f"cannot read {path} below {self.root}: is the host's /{mount} mounted there?")

    def warn_once(self, message: str) -> None:
        """Log a warning that would come again in every cycle."""
        if message in self._logged:
            return
        if len(self._logged) >= _MAX_LOGGED:
            self._logged.clear()
        self._logged.add(message)
        log.warning("%s", message)

    @cached_property
    def is_live(self) -> bool:
        """Whether the root shows the machine this process runs on, and not a recorded tree.

        Only then do instructions of this CPU (CPUID) say anything about the host. The boot id is the proof: the kernel
        draws a new one at every boot.
        """
        return self.find(BOOT_ID) == Host("/").find(BOOT_ID) is not None

    @cached_property
    def machine(self) -> str:
        """The architecture as ``uname -m`` names it; empty when a recorded tree does not contain it.

        ``/proc/sys/kernel/arch`` exists since Linux 6.1.
        """
        reported = self.find("proc/sys/kernel/arch")
        if reported is not None:
            return reported.strip()
        return os.uname().machine if self.is_live else ""

    def _find_bytes(self, path: str, read: Callable[[str], bytes]) -> bytes | None:
        try:
            return read(self._below_root(path))
        except OSError as error:
            self._take_for_absent(path, error)
            return None

    def _take_for_absent(self, path: str, error: OSError) -> None:
        """Go on as if a file were not there, unless the error is one that can pass."""
        if error.errno in _DENIED:
            self.warn_once(f"host: not allowed to read {self._below_root(path)}; treated as missing")
        elif error.errno not in _NO_VALUE:
            raise self._unreadable(path, error) from error

    def _below_root(self, path: str) -> str:
        return self._base + path.lstrip("/")

    def _unreadable(self, path: str, error: OSError) -> HostReadError:
        return HostReadError(f"cannot read {self._below_root(path)}: {error.strerror}")


# Plain system calls: a scan reads hundreds of sysfs files, and an io object for each would double its time.


def _read(path: str) -> bytes:
    descriptor = _open(path)
    try:
        content = read_descriptor(descriptor, LONGEST_FILE)
    finally:
        os.close(descriptor)
    if len(content) > LONGEST_FILE:
        raise OSError(errno.EFBIG, os.strerror(errno.EFBIG))
    return content


def _read_once(path: str, directory: int | None = None) -> bytes:
    """Read a file that comes in one piece, as each attribute in sysfs does; or the first piece of another."""
    descriptor = _open(path, directory)
    try:
        return os.read(descriptor, _CHUNK)
    finally:
        os.close(descriptor)


def _open(path: str, directory: int | None = None) -> int:
    # O_NONBLOCK: a pipe where a file should be must not stop the worker.
    return os.open(path, os.O_RDONLY | os.O_CLOEXEC | os.O_NONBLOCK, dir_fd=directory)
