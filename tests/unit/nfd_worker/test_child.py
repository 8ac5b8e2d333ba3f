"""Children of the worker: real processes."""

import os
import select
import signal
import sys
from pathlib import Path

import pytest

from nfd_worker.child import Child, Ended, spawn


def script(code: str) -> tuple[str, ...]:
    """Make a command that runs some Python."""
    return (sys.executable, "-I", "-c", code)


def open_descriptors() -> int:
    """Count what this process has open."""
    return sum(1 for _ in Path("/proc/self/fd").iterdir())


def wait(child: Child) -> Ended:
    """Read a child to its end."""
    ready: list[int] = [child.answer_pipe]
    while ready:
        ready, _, _ = select.select([child.answer_pipe], [], [], 20)
        assert ready, "the child did not end"
        if child.has_ended():
            break
    return child.reap()


def test_a_child_gets_its_request_and_leaves_its_output_and_status() -> None:
    """More than a pipe holds goes both ways."""
    request = b"x" * 300_000
    ended = wait(spawn(request, script("import sys; sys.stdout.write(sys.stdin.read()); sys.exit(3)")))
    assert ended == Ended(request, 3)


def test_a_killed_child_leaves_what_it_had_said() -> None:
    """The status names the signal."""
    child = spawn(b"", script("import time; print('half', flush=True); time.sleep(600)"))
    select.select([child.answer_pipe], [], [], 20)
    assert not child.has_ended()
    child.kill()
    assert wait(child) == Ended(b"half\n", -signal.SIGKILL)


def test_a_child_that_cannot_be_started_leaves_no_descriptors() -> None:
    """A worker that tries for ever must not run out of them."""
    before = open_descriptors()
    for _ in range(5):
        with pytest.raises(FileNotFoundError):
            spawn(b"", ("/nonexistent/program",))
    assert open_descriptors() == before


def test_a_child_that_ended_leaves_no_descriptors_and_no_zombie() -> None:
    """Neither the request's file nor the pipe."""
    before = open_descriptors()
    child = spawn(b"", script(""))
    assert wait(child) == Ended(b"", 0)
    assert open_descriptors() == before
    with pytest.raises(ChildProcessError):
        os.waitpid(child.pid, os.WNOHANG)
