"""Devices and kernel modules that come or go: the kernel's uevents, by way of pyudev. udevd is not needed.

Between the kernel and :mod:`nfd_worker.daemon`; each of :mod:`nfd_worker.sources` names the events that concern it.
The kernel sends uevents into network namespaces that the initial user namespace owns: a pod without hostNetwork gets
them, one with ``hostUsers: false`` does not. Those of network devices reach only the namespace the device is in; a
network card is seen all the same, because its PCI device comes with it.
"""

import errno
import logging
import sys
from collections.abc import Iterator, Mapping
from contextlib import contextmanager
from types import ModuleType
from typing import Any

from nfd_worker.sources import SOURCES

log = logging.getLogger(__name__)


def _of_all_sources() -> Mapping[str, frozenset[str]]:
    actions: dict[str, frozenset[str]] = {}
    for source in SOURCES.values():
        for subsystem, names in source.uevents.items():
            actions[subsystem] = actions.get(subsystem, frozenset()) | names
    return actions


ACTIONS = _of_all_sources()
"""Subsystem -> actions that can change a feature of some source."""

_VIRTUAL = "/devices/virtual/"

_MOST_AT_ONCE = 1024
"""How many events are taken before the loop goes on: a stream without end must not hold it."""


def is_of_interest(action: str, subsystem: str, path: str) -> bool:
    """Return whether an event can change a feature; ``path`` is that below ``/sys``.

    The network devices of pods and the disks of container images are virtual: they come and go all day.
    """
    is_churn = subsystem in ("net", "block") and path.startswith(_VIRTUAL)
    return action in ACTIONS.get(subsystem, ()) and not is_churn


class DeviceWatch:
    """Listens to the kernel; ``fileno()`` is ready when something happened."""

    def __init__(self) -> None:
        with _light_imports():
            import pyudev  # noqa: PLC0415 - see _light_imports
        self._monitor: Any = pyudev.Monitor.from_netlink(pyudev.Context(), source="kernel")
        for subsystem in ACTIONS:
            self._monitor.filter_by(subsystem)
        self._monitor.start()

    def fileno(self) -> int:
        """Give the descriptor to wait for."""
        return int(self._monitor.fileno())

    def drain(self) -> frozenset[str]:
        """Take the events that are there; gives the subsystems in which a feature can have changed."""
        try:
            return frozenset(self._changed_subsystems())
        except OSError as error:
            # So many events at once that the socket overflowed: some are lost, and a rescan finds what they were about.
            if error.errno != errno.ENOBUFS:
                raise
            return frozenset(ACTIONS)

    def _changed_subsystems(self) -> Iterator[str]:
        for _ in range(_MOST_AT_ONCE):
            device = self._monitor.poll(timeout=0)
            if device is None:
                return
            if is_of_interest(device.action, device.subsystem, device.device_path):
                log.debug("uevent: %s %s", device.action, device.device_path)
                yield device.subsystem


def watch_devices() -> DeviceWatch | None:
    """Listen to the kernel, or say once why not: then the interval alone finds new devices."""
    try:
        return DeviceWatch()
    except (ImportError, OSError) as error:
        log.warning("uevents: not available (%s); new devices are found at the next interval", error)
        return None


@contextmanager
def _light_imports() -> Iterator[None]:
    """Let pyudev be imported without ``subprocess`` and ``ctypes.util``, which would cost 1 MiB for ever.

    It wants the first to ask ``udevadm`` for its version, and the second to look for libudev, by running ``ldconfig``
    or even a compiler. The name of that library has been the same since 2012.
    """
    stand_ins = {
        "subprocess": _module("subprocess", check_output=_not_here),
        "ctypes.util": _module("ctypes.util", find_library={"udev": "libudev.so.1"}.get),
    }
    missing = {name: module for name, module in stand_ins.items() if name not in sys.modules}
    sys.modules.update(missing)
    try:
        yield
    finally:
        for name in missing:
            del sys.modules[name]


def _module(name: str, **content: Any) -> ModuleType:
    module = ModuleType(name)
    module.__dict__.update(content)
    return module


def _not_here(*_arguments: Any) -> bytes:
    raise OSError("the worker does not run udevadm")
