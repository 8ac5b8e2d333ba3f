"""Devices and drivers that come or go: the kernel's uevents, read from its socket.

The kernel sends them into every network namespace that the initial user namespace owns: a pod needs no hostNetwork.
"""

import errno
import logging
import os
import socket

log = logging.getLogger(__name__)

_KERNEL_GROUP = 1
_NETLINK_KOBJECT_UEVENT = 15
_LONGEST = 1 << 13
_MOST_AT_ONCE = 1024
_ACTIONS = frozenset({b"add", b"remove", b"bind", b"unbind", b"change", b"online", b"offline"})
_CHURN = (b"/devices/virtual/net/", b"/devices/virtual/block/", b"/devices/virtual/bdi/", b"/kernel/slab/")
"""Network devices of pods with their queues, disks of container images, and caches that older kernels make for each
cgroup: they come and go all day."""


class DeviceEvents:
    """Listens to the kernel; ``fileno()`` is ready when something happened."""

    def __init__(self) -> None:
        kind = socket.SOCK_DGRAM | socket.SOCK_NONBLOCK | socket.SOCK_CLOEXEC
        self._socket = socket.socket(socket.AF_NETLINK, kind, _NETLINK_KOBJECT_UEVENT)
        try:
            self._socket.bind((0, _KERNEL_GROUP))
        except OSError:
            self._socket.close()
            raise

    def fileno(self) -> int:
        """Give the descriptor to wait for."""
        return self._socket.fileno()

    def drain(self) -> bool:
        """Take the events that are there; returns whether a device or a driver may have come or gone."""
        is_of_interest = False
        for _ in range(_MOST_AT_ONCE):
            try:
                message, (sender, _group) = self._socket.recvfrom(_LONGEST)
            except BlockingIOError:
                break
            except OSError as error:
                # So many events at once that the socket overflowed: what they were about is looked at anyway.
                if error.errno != errno.ENOBUFS:
                    raise
                is_of_interest = True
                continue
            is_of_interest |= sender == 0 and concerns_devices(message)
        return is_of_interest

    def close(self) -> None:
        """Stop listening."""
        self._socket.close()


def concerns_devices(message: bytes) -> bool:
    """Return whether an event can make a device come, go or change its driver."""
    action, _, path = message.split(b"\0", 1)[0].partition(b"@")
    return action in _ACTIONS and not path.startswith(_CHURN)


def watch_devices() -> DeviceEvents | None:
    """Listen to the kernel, or log once why not: then new devices are found by their files and at the next interval."""
    try:
        return DeviceEvents()
    except OSError as error:
        log.warning(
            "uevents: not available (%s); drivers are looked at in each interval", os.strerror(error.errno or 0)
        )
        return None
