"""Containers of this machine's node, whatever runs them: their processes, and what they have written.

The control group of a container bears its id, with a Docker Engine and with containerd.
"""

from __future__ import annotations

import json
import os
import signal
from collections.abc import Iterator
from contextlib import suppress
from datetime import datetime
from pathlib import Path

_PROC = Path("/proc")
_GONE = (FileNotFoundError, ProcessLookupError)
_STARTED = 19
"""Field of ``/proc/PID/stat`` behind the name: when the process began, in ticks since the boot (proc_pid_stat(5))."""


def main_process(container: str) -> int | None:
    """Return the PID of a container's first process; None when none of its processes is left."""
    return next(iter(_processes(container)), None)


def _processes(group: str) -> list[int]:
    """Return the PIDs of what runs in the control group of a container or pod, by its id, the oldest first."""
    found = []
    for folder in _PROC.glob("[0-9]*"):
        with suppress(*_GONE):
            if group in (folder / "cgroup").read_text():
                stat = (folder / "stat").read_text().rpartition(")")[2].split()
                found.append((int(stat[_STARTED]), int(folder.name)))
    return [pid for _, pid in sorted(found)]


def kill(container: str, number: int = signal.SIGKILL) -> None:
    """Send a signal to a container's first process, with which the others end."""
    pid = main_process(container)
    assert pid is not None, f"container {container} has no process"
    os.kill(pid, number)


def end_pod(uid: str) -> None:
    """End all processes of a pod (SIGKILL), those that hold its namespaces too."""
    for pid in _processes(uid):
        with suppress(ProcessLookupError):
            os.kill(pid, signal.SIGKILL)


def in_proc(container: str, file: str) -> str:
    """Read a file that /proc has of a container's first process."""
    return (_PROC / str(main_process(container)) / file).read_text()


def written(logs: Path, container: str) -> str:
    """Return what all containers of a name have written, the ended ones too, in the order of time.

    ``logs``: the kubelet's folder of pods' logs.
    """
    lines = [line for path in logs.glob(f"*/{container}/*.log") for line in _lines(path)]
    return "".join(text for _, text in sorted(lines, key=lambda line: line[0]))


def _lines(path: Path) -> Iterator[tuple[datetime, str]]:
    # With a Docker Engine it is a link to the file of a container that may be gone.
    with suppress(FileNotFoundError):
        for line in path.read_text(errors="replace").splitlines():
            yield parse_line(line)


def parse_line(line: str) -> tuple[datetime, str]:
    """Read a line of a container's log: of containerd (``TIME STREAM F|P TEXT``) or of a Docker Engine (JSON)."""
    if line.startswith("{"):
        entry = json.loads(line)
        return datetime.fromisoformat(entry["time"]), entry["log"]
    time, _, tag, text = [*line.split(" ", 3), ""][:4]
    return datetime.fromisoformat(time), text if tag == "P" else f"{text}\n"
