"""What wakes the daemon between two intervals: signals, changes of the configuration file, PCI devices that come or go.

Each has a file descriptor to wait for, and ``drain()``, which empties it and says whether there is something to do.
"""

import ctypes
import errno
import logging
import os
import signal

import pyudev

log = logging.getLogger(__name__)

_BUFFER = 1 << 14


class Signals:
    """SIGTERM and SIGINT to stop, SIGHUP to reload: taken note of, and acted on in the loop."""

    def __init__(self) -> None:
        self._reader, self._writer = os.pipe2(os.O_NONBLOCK | os.O_CLOEXEC)
        signal.set_wakeup_fd(self._writer, warn_on_full_buffer=False)
        # The interpreter writes the number into the pipe; the handler itself has nothing to do.
        numbers = (signal.SIGTERM, signal.SIGINT, signal.SIGHUP)
        self._before = {number: signal.signal(number, lambda _number, _frame: None) for number in numbers}

    def fileno(self) -> int:
        """Give the descriptor to wait for."""
        return self._reader

    def drain(self) -> frozenset[int]:
        """Name the signals that arrived."""
        return frozenset(os.read(self._reader, _BUFFER))

    def close(self) -> None:
        """Handle signals as before."""
        signal.set_wakeup_fd(-1)
        for number, handler in self._before.items():
            signal.signal(number, handler)
        os.close(self._reader)
        os.close(self._writer)


_IN_CLOSE_WRITE = 0x8
_IN_MOVED_TO = 0x80
_IN_CREATE = 0x100
_IN_DELETE = 0x200


class ConfigWatch:
    """Watches the directory of the configuration file (inotify(7)).

    The directory and not the file, because the kubelet never writes to a mounted ConfigMap: it swaps the symbolic link
    ``..data``.
    """

    def __init__(self, file: str) -> None:
        libc = ctypes.CDLL(None, use_errno=True)
        self._descriptor: int = _checked(libc.inotify_init1(os.O_NONBLOCK | os.O_CLOEXEC))
        directory = file.rpartition("/")[0] or "."
        events = _IN_CLOSE_WRITE | _IN_MOVED_TO | _IN_CREATE | _IN_DELETE
        _checked(libc.inotify_add_watch(self._descriptor, directory.encode(), events))

    def fileno(self) -> int:
        """Give the descriptor to wait for."""
        return self._descriptor

    def drain(self) -> bool:
        """Forget what happened; whether the file really changed is seen by reading it."""
        return bool(os.read(self._descriptor, _BUFFER))

    def close(self) -> None:
        """Stop watching."""
        os.close(self._descriptor)


def _checked(result: int) -> int:
    if result < 0:
        number = ctypes.get_errno()
        raise OSError(number, os.strerror(number))
    return result


def watch_config(file: str) -> ConfigWatch | None:
    """Watch a configuration file, or say once why not: then SIGHUP alone reloads it."""
    try:
        return ConfigWatch(file)
    except OSError as error:
        log.info("config: changes of %s are not seen (%s); SIGHUP reloads it", file, error.strerror)
        return None


class DeviceWatch:
    """Listens to the kernel's uevents of the PCI bus; udevd is not needed.

    The kernel sends them into network namespaces owned by the initial user namespace: a pod without hostNetwork gets
    them, one with ``hostUsers: false`` does not.
    """

    def __init__(self) -> None:
        self._monitor = pyudev.Monitor.from_netlink(pyudev.Context(), source="kernel")
        self._monitor.filter_by("pci")
        self._monitor.start()

    def fileno(self) -> int:
        """Give the descriptor to wait for."""
        return int(self._monitor.fileno())

    def drain(self) -> bool:
        """Take all events; tell whether a device was among them."""
        is_changed = False
        try:
            while (device := self._monitor.poll(timeout=0)) is not None:
                log.debug("uevent: %s %s", device.action, device.device_path)
                is_changed = True
        except OSError as error:
            # So many events at once that the socket overflowed: some are lost, and a rescan finds what they were about.
            if error.errno != errno.ENOBUFS:
                raise
            is_changed = True
        return is_changed


def watch_devices() -> DeviceWatch | None:
    """Listen to the kernel, or say once why not: then the interval alone finds new devices."""
    try:
        return DeviceWatch()
    except (ImportError, OSError) as error:
        log.warning("uevents: not available (%s); new devices are found at the next interval", error)
        return None
