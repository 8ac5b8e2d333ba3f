"""Another boot of this machine, for one program and its children: they see another boot id, and clocks from zero."""

import ctypes
import os
import time
from collections.abc import MutableMapping
from pathlib import Path

_VARIABLE = "BOOT_OF_TEST"
_BOOT_ID = "/proc/sys/kernel/random/boot_id"
_CLOCKS = {"monotonic": time.CLOCK_MONOTONIC, "boottime": time.CLOCK_BOOTTIME}
_OFFSETS, _CLOCKS_OF_CHILDREN = Path("/proc/self/timens_offsets"), "/proc/self/ns/time_for_children"
_NEW_CLOCKS, _NEW_MOUNTS = 0x80, 0x20000  # linux/sched.h
_BIND, _RECURSIVE, _PRIVATE = 0x1000, 0x4000, 0x40000  # linux/mount.h


def environment(boot_id: Path) -> dict[str, str]:
    """Return what programs need that are to see this boot id, begin now, and call :func:`enter`."""
    return {_VARIABLE: " ".join((*(str(int(time.clock_gettime(clock))) for clock in _CLOCKS.values()), str(boot_id)))}


def enter(variables: MutableMapping[str, str] = os.environ) -> None:
    """See another boot from now on, if the environment says so; called while there is one thread.

    Where the kernel has no namespaces of clocks (before 5.6), these go on.

    Raises:
        OSError: this is not root, or may make no namespace.
    """
    if (said := variables.pop(_VARIABLE, None)) is None:
        return
    *began, boot_id = said.split(" ", len(_CLOCKS))
    libc = ctypes.CDLL(None, use_errno=True)
    _call(libc.unshare, _NEW_MOUNTS)
    _call(libc.mount, b"none", b"/", None, _RECURSIVE | _PRIVATE, None)
    _call(libc.mount, boot_id.encode(), _BOOT_ID.encode(), None, _BIND, None)
    if _OFFSETS.exists():
        _call(libc.unshare, _NEW_CLOCKS)
        _OFFSETS.write_text("".join(f"{name} -{seconds} 0\n" for name, seconds in zip(_CLOCKS, began, strict=True)))
        with Path(_CLOCKS_OF_CHILDREN).open("rb") as namespace:
            _call(libc.setns, namespace.fileno(), _NEW_CLOCKS)


def _call(function: "ctypes._NamedFuncPointer", *arguments: object) -> None:
    if function(*arguments) != 0:
        number = ctypes.get_errno()
        raise OSError(number, os.strerror(number), function.__name__)
