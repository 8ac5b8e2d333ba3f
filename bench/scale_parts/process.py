"""What a process costs: its memory and its CPU time, as Linux counts them."""

import os
import re
from pathlib import Path

_TICKS = os.sysconf("SC_CLK_TCK")
_PEAK_RESET = "5"


def resident_mib(pid: int | str = "self") -> float:
    """Give the MiB that a process holds."""
    return _mib(pid, "VmRSS")


def peak_mib(pid: int | str = "self") -> float:
    """Give the most MiB that a process held since :func:`reset_peak`."""
    return _mib(pid, "VmHWM")


def reset_peak(pid: int | str = "self") -> None:
    """Let the peak begin anew at what the process holds now."""
    Path(f"/proc/{pid}/clear_refs").write_text(_PEAK_RESET)


def cpu_seconds(pid: int | str = "self") -> float:
    """Give the CPU seconds of a process, of all its threads, also those that ended; in steps of a tick (10 ms)."""
    fields = Path(f"/proc/{pid}/stat").read_text().rpartition(")")[2].split()
    return sum(map(int, fields[11:13])) / _TICKS


def _mib(pid: int | str, field: str) -> float:
    found = re.search(rf"^{field}:\s+(\d+) kB$", Path(f"/proc/{pid}/status").read_text(), re.MULTILINE)
    assert found, f"/proc/{pid}/status has no {field}"
    return int(found[1]) / 1024
