"""The wrapper around the machine's commands."""

import time
from itertools import count
from pathlib import Path

import pytest

from testbed.command import run
from testbed.errors import OverdueError


def test_a_command_that_does_not_end_in_time_ends_with_all_that_it_started(tmp_path: Path) -> None:
    """A program of the program writes no longer when the error is there: what it wrote into can be removed."""
    started = tmp_path / "pid"
    script = f"sh -c 'echo $$ >{started}.new; mv {started}.new {started}; exec sleep 3600' & wait"
    for attempt in count():
        with pytest.raises(OverdueError, match="did not end within"):
            run(["sh", "-c", script], timeout=0.2 * 2**attempt)
        if started.exists():
            break
    # The kernel takes a moment; without the signal this waits until the test's own time is over.
    while _state(int(started.read_text())) not in ("", "Z"):
        time.sleep(0.01)


def _state(pid: int) -> str:
    """Return the state of a process as in /proc/PID/stat, or nothing where there is none."""
    try:
        return Path(f"/proc/{pid}/stat").read_text().rpartition(")")[2].split()[0]
    except FileNotFoundError:
        return ""
