"""Which process a number stands for, and of which pod it is. The kernel uses numbers again.

A process is known by its number and its start (field 22 of ``/proc/PID/stat``). What is read of it counts if it had the
same start before and after.
"""

import os
from collections.abc import Container
from typing import NamedTuple

from device_agent.boot import read_text
from device_agent.nvml_container.cgroups import parse_pod_uid

_LONGEST = 1 << 16
"""Bytes of a cgroup file: more than a path of 4096 bytes in each hierarchy of cgroup v1."""
_LONGEST_STAT = 1 << 10
_MOST_DIGITS = 15
_PARENT, _START = 1, 19
"""Fields 4 and 22 of ``stat``, counted from the one behind the name."""
_TURNS = 16
"""A process of no wanted pod is looked at again at one of so many samples: it may have moved."""
_YOUNG = 10.0
"""Seconds in which a process is looked at at each sample: runc moves one into its cgroup after it has started."""
_MOST_READ = 1 << 13
"""Processes that are read in a sample: 50 microseconds each."""
_TICKS = os.sysconf("SC_CLK_TCK")


class Process(NamedTuple):
    """A process. ``start``: clock ticks since the boot. ``uid``: of its pod, as ``plain_uid`` writes it, or empty."""

    pid: int
    start: int
    uid: str

    def is_older_than(self, at: float) -> bool:
        """Return whether it had started by then, in seconds since the boot."""
        return self.start / _TICKS <= at


def read_process(proc: str, pid: int) -> Process | None:
    """Read of which pod a process is; None where it is gone, or was replaced by another one meanwhile.

    ``proc``: where the node's ``/proc`` is.
    """
    start = read_start(proc, pid)
    uid = parse_pod_uid(read_text(f"{proc}/{pid}/cgroup", _LONGEST))
    return None if start is None or read_start(proc, pid) != start else Process(pid, start, uid)


def read_start(proc: str, pid: int) -> int | None:
    """Read when a process started; None if it is gone."""
    return _read_stat(proc, pid, _START)


def read_parent(proc: str, pid: int) -> int | None:
    """Read the PID of what has started a process; None if it is gone."""
    return _read_stat(proc, pid, _PARENT)


def _read_stat(proc: str, pid: int, place: int) -> int | None:
    """Read a field of a process behind its name, which may hold blanks and parentheses: that ends at the last one."""
    fields = read_text(f"{proc}/{pid}/stat", _LONGEST_STAT).rpartition(")")[2].split()
    is_there = len(fields) > place and fields[place].isdecimal() and len(fields[place]) <= _MOST_DIGITS
    return int(fields[place]) if is_there else None


def why_unseen(proc: str) -> str:
    """Say why the node's processes are not to be seen here; empty if they are.

    In a container with processes of its own the first one is the container's, or its pod's, and not the node's.
    """
    first = read_text(f"{proc}/1/cgroup", _LONGEST)
    if not first:
        return "the node's processes cannot be read: /proc/1/cgroup is missing"
    if parse_pod_uid(first) or first == read_text(f"{proc}/self/cgroup", _LONGEST):
        return "the container nvml sees no processes but its own: its pod needs hostPID"
    return ""


class Processes:
    """Finds the processes of pods among all of the node, by few reads: that others are no pod's is remembered.

    ``is_complete``: all were looked at for the last sample; those of very many wait for the next one.
    """

    def __init__(self, proc: str) -> None:
        self.is_complete = True
        self._proc = proc
        self._turn = 0
        self._others: dict[int, int] = {}

    def of_pods(self, uids: Container[str], now: float) -> list[Process]:
        """Return all processes of these pods. ``now``: seconds since the boot."""
        self._turn += 1
        self.is_complete = True
        before, self._others = self._others, {}
        found: list[Process] = []
        left = _MOST_READ
        for pid in self._all():
            if pid in before and (not left or self._is_other(pid, before[pid])):
                self._others[pid] = before[pid]
                continue
            if not left:
                self.is_complete = False
                continue
            left -= 1
            process = read_process(self._proc, pid)
            if process is not None and process.uid in uids:
                found.append(process)
            elif process is not None and process.is_older_than(now - _YOUNG):
                self._others[pid] = process.start
        return found

    def _is_other(self, pid: int, start: int) -> bool:
        """Return whether a process is remembered as no wanted pod's, and is still that one: numbers are used again."""
        is_compared = len(self._others) < _MOST_READ
        return bool((self._turn + pid) % _TURNS) and (not is_compared or read_start(self._proc, pid) == start)

    def forget(self) -> None:
        """Look at each process again: other pods are wanted."""
        self._others = {}

    def _all(self) -> list[int]:
        try:
            return sorted(int(name) for name in os.listdir(self._proc) if name.isdecimal())  # noqa: PTH208 - 1 MiB
        except OSError:
            return []
