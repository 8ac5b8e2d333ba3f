"""Children of the worker: real processes."""

import os
import select
import signal
import subprocess
import sys
from contextlib import suppress
from pathlib import Path

import pytest

from nfd_worker.child import Child, Ended, fork, spawn


def script(code: str) -> tuple[str, ...]:
    """Make a command that runs some Python."""
    return (sys.executable, "-I", "-c", code)


def open_descriptors() -> set[str]:
    """Name what this process has open for children: other tests may have threads whose sockets end meanwhile."""
    found: set[str] = set()
    for descriptor in os.listdir("/proc/self/fd"):  # noqa: PTH208
        with suppress(FileNotFoundError):
            found.add(str(Path("/proc/self/fd", descriptor).readlink()))
    return {name for name in found if name.startswith(("pipe:", "/memfd:request"))}


def wait(child: Child) -> Ended:
    """Read a child to its end."""
    ready: list[int] = [child.answer_pipe]
    while ready:
        ready, _, _ = select.select([child.answer_pipe], [], [], 120)
        assert ready, "the child did not end"
        if child.has_ended():
            break
    return child.reap()


def test_a_child_gets_its_request_and_leaves_its_output_and_status() -> None:
    """Requests and answers that are larger than a pipe's buffer arrive complete."""
    request = b"x" * 300_000
    ended = wait(spawn(request, script("import sys; sys.stdout.write(sys.stdin.read()); sys.exit(3)")))
    assert ended == Ended(request, 3)


def test_a_killed_child_leaves_what_it_had_said() -> None:
    """The output of a killed child is kept, and its status names the signal."""
    child = spawn(b"", script("import time; print('half', flush=True); time.sleep(600)"))
    select.select([child.answer_pipe], [], [], 120)
    assert not child.has_ended()
    child.kill()
    assert wait(child) == Ended(b"half\n", -signal.SIGKILL)


def test_a_child_that_cannot_be_started_leaves_no_descriptors() -> None:
    """A worker that tries for ever must not run out of them."""
    before = open_descriptors()
    for _ in range(5):
        with pytest.raises(FileNotFoundError):
            spawn(b"", ("/nonexistent/program",))
    assert open_descriptors() <= before


def test_a_child_that_ended_leaves_no_descriptors_and_no_zombie() -> None:
    """After the end of a child its files are closed and its process is reaped."""
    before = open_descriptors()
    child = spawn(b"", script(""))
    assert wait(child) == Ended(b"", 0)
    assert open_descriptors() <= before
    with pytest.raises(ChildProcessError):
        os.waitpid(child.pid, os.WNOHANG)


# ---------------------------------------------------------------- forked

FORKED = """
import os, select, signal, socket, sys
from nfd_worker.child import fork
def ended(child):
    while select.select([child.answer_pipe], [], [], 120)[0]:
        if child.has_ended():
            return child.reap()
"""


def forked(code: str) -> subprocess.CompletedProcess[str]:
    """Run some Python that forks: in a process of its own, which has one thread."""
    command = [sys.executable, "-c", FORKED + code]
    return subprocess.run(command, capture_output=True, text=True, timeout=300, check=False)


def test_a_forked_child_gets_its_request_and_leaves_its_output_and_status() -> None:
    """As one that is a program of its own; more than a pipe holds goes both ways."""
    done = forked("""
def work():
    request = b""
    while chunk := os.read(0, 1 << 16):
        request += chunk
    for start in range(0, len(request), 1000):
        os.write(1, request[start : start + 1000])
    return 3
said = ended(fork(b"x" * 300_000, work))
print(len(said.output), said.status)
""")
    assert (done.stdout, done.stderr, done.returncode) == ("300000 3\n", "", 0)


def test_a_forked_child_holds_nothing_of_the_workers() -> None:
    """A child that outlives the worker must not keep its port, nor its watches."""
    done = forked("""
port, pair = socket.create_server(("127.0.0.1", 0)), os.pipe()
os.set_inheritable(pair[0], True)
def work():
    os.write(1, " ".join(sorted(os.listdir("/proc/self/fd"))[:-1]).encode())
    return 0
print(ended(fork(b"", work)))
""")
    assert done.stdout == "Ended(output=b'0 1 2', status=0)\n"


def test_a_forked_child_dies_of_a_signal_and_does_not_wake_the_worker() -> None:
    """The worker's handlers and its pipe for signals stay the worker's."""
    done = forked("""
from nfd_worker.watch.wakeups import Signals
signals = Signals()
def work():
    os.kill(os.getpid(), signal.SIGTERM)
    return 0
print(ended(fork(b"", work)).status, select.select([signals], [], [], 0)[0])
""")
    assert done.stdout == f"{-signal.SIGTERM} []\n"


def test_a_bug_in_a_forked_child_ends_it_with_a_traceback() -> None:
    """Nothing of the worker's is cleaned up by it, and nothing that the worker was about to print is printed twice."""
    done = forked("""
import atexit
atexit.register(print, "bye")
print("hello", end=" ")
print(ended(fork(b"", lambda: 1 // 0)))
""")
    assert done.stdout == "hello Ended(output=b'', status=1)\nbye\n"
    assert "ZeroDivisionError" in done.stderr


def test_a_child_that_cannot_be_forked_leaves_no_descriptors(monkeypatch: pytest.MonkeyPatch) -> None:
    """There may be no more processes to be had."""

    def refuse() -> int:
        raise BlockingIOError

    monkeypatch.setattr(os, "fork", refuse)
    before = open_descriptors()
    for _ in range(5):
        with pytest.raises(BlockingIOError):
            fork(b"", lambda: 0)
    assert open_descriptors() <= before
