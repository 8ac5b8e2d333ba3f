"""This boot of the machine: its id, and the clock that counts from it. In a container both are those of the node."""

import os
import time

_BOOT_ID = "proc/sys/kernel/random/boot_id"
_LONGEST = 64


def seconds_since_boot() -> float:
    """Return the seconds since the machine was booted, also while it slept: a clock that nobody sets."""
    return time.clock_gettime(time.CLOCK_BOOTTIME)


def read_boot_id(root: str) -> str:
    """Return the kernel's id of this boot; empty when it cannot be read."""
    return read_line(root, _BOOT_ID)


def read_line(root: str, path: str) -> str:
    """Read a short file of /proc or /sys; empty when it cannot be read."""
    return read_text(f"{root.rstrip('/')}/{path}", _LONGEST).strip()


def read_text(path: str, most: int) -> str:
    """Read the first bytes of a file of /proc or /sys; empty when it cannot be read."""
    try:
        descriptor = os.open(path, os.O_RDONLY | os.O_CLOEXEC)
    except OSError:
        return ""
    try:
        return os.read(descriptor, most).decode(errors="replace")
    except OSError:  # such as of a process that has just ended
        return ""
    finally:
        os.close(descriptor)
