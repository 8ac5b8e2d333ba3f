"""The child as its supervisor has it: a copy of the supervisor that goes on elsewhere, and two pipes."""

import gc
import os
import signal
import sys
from collections.abc import Callable
from contextlib import suppress
from typing import NoReturn

from device_agent.errors import StateInvalid
from device_agent.gpu_state.state_json import LONGEST_LINE

Work = Callable[[int, int, bool], int]
"""What a child does, with the descriptors of requests and of its lines, and whether it may make device nodes; returns
its exit status."""

_CHUNK = 1 << 16
_REQUESTS, _LINES = 0, 3
_STANDARD_ERROR = 2
_PR_SET_PDEATHSIG = 1


class Child:
    """A child that was started; it is gone when :meth:`reap` says so, and not before.

    It has a process group of its own, with the programs that the driver's library starts, such as nvidia-modprobe.
    ``started``, ``heard``, ``killed``: when it was started, said its last line, was killed; of the monotonic clock.
    ``has_spoken``: it has sent an inventory. ``is_closed``: its lines are read no more. ``why``: why it was killed.
    ``status``: its exit status, once it has ended; programs that it has started may hang still.
    """

    def __init__(self, pid: int, lines: int, requests: int, now: float) -> None:
        self.pid = pid
        self.lines = lines
        self.started = self.heard = now
        self.killed: float | None = None
        self.has_spoken = self.is_closed = False
        self.why = ""
        self.status: int | None = None
        self._requests = requests
        self._received = bytearray()
        self._has_ended = False

    def read(self, now: float) -> list[bytes] | None:
        """Read the lines that are there; None at their end. Call it when the pipe is ready.

        Raises:
            StateInvalid: a line has no end.
        """
        with suppress(BlockingIOError):
            chunk = os.read(self.lines, _CHUNK)
            if not chunk:
                self._has_ended = True
                return None
            self._received += chunk
        *lines, rest = self._received.split(b"\n")
        if len(rest) > LONGEST_LINE:
            raise StateInvalid(f"a line has more than {LONGEST_LINE} bytes")
        self._received = rest
        if lines:
            self.heard = now
        return [bytes(line) for line in lines]

    def ask(self, request: bytes) -> None:
        """Write a request. One that finds the pipe full is one of many; a dead child's end is its answer."""
        with suppress(BlockingIOError, BrokenPipeError):
            os.write(self._requests, request)

    def kill(self, now: float) -> None:
        """End it and its programs at once, as far as the kernel lets them end."""
        if self.killed is None:
            self.killed = now
            self._kill_group()

    def reap(self) -> int | None:
        """Return the exit status of a child that is gone (negative: the signal that killed it), otherwise None.

        One that was not killed is heard to the end of its lines first. A process may hang in the kernel after it was
        killed, and after its pipes were closed. The programs that it leaves behind are killed, and have to be gone as
        well: the next child's would hang beside them.
        """
        if self.killed is None and not self._has_ended:
            return None
        self._reap_group()
        if self.status is None or self._kill_group():
            return None
        os.close(self.lines)
        os.close(self._requests)
        return self.status

    def _reap_group(self) -> None:
        """Reap the child and its programs: they are children of the first process of a container once it has ended."""
        with suppress(ChildProcessError):
            while (ended := os.waitpid(-self.pid, os.WNOHANG))[0]:
                if ended[0] == self.pid:
                    self.status = os.waitstatus_to_exitcode(ended[1])

    def _kill_group(self) -> bool:
        """Kill what is left; returns whether there is anything. No other process has this number meanwhile."""
        try:
            os.killpg(self.pid, signal.SIGKILL)
        except ProcessLookupError:
            return False
        except PermissionError:  # they are another user's: never for root
            return True
        return True


def start_child(work: Work, may_make_nodes: bool, now: float) -> Child:
    """Start a child. Only for a process with one thread.

    Raises:
        OSError: when there are no more processes, descriptors or memory to be had.
    """
    lines_reader, lines_writer = os.pipe()
    requests_reader, requests_writer = os.pipe()
    supervisor = os.getpid()
    try:
        pid = os.fork()
    except OSError:
        os.close(lines_reader)
        os.close(requests_writer)
        raise
    else:
        if not pid:
            _be_child(work, (requests_reader, lines_writer), may_make_nodes, supervisor)
    finally:
        os.close(lines_writer)
        os.close(requests_reader)
    os.setpgid(pid, pid)  # the child does the same: whoever is first
    os.set_blocking(lines_reader, False)
    os.set_blocking(requests_writer, False)
    return Child(pid, lines_reader, requests_writer, now)


def _be_child(work: Work, pipes: tuple[int, int], may_make_nodes: bool, supervisor: int) -> NoReturn:
    """Be the child: have nothing of the supervisor's but its memory, work, and end without its clean-up."""
    status = 1
    try:
        os.setpgid(0, 0)
        signal.set_wakeup_fd(-1)
        for number in (signal.SIGTERM, signal.SIGINT, signal.SIGCHLD, signal.SIGUSR1, signal.SIGUSR2):
            signal.signal(number, signal.SIG_DFL)
        _end_with(supervisor)
        os.dup2(pipes[0], _REQUESTS)
        # Not for programs that the driver's library runs, such as nvidia-modprobe: the end of the lines is ours.
        os.dup2(pipes[1], _LINES, inheritable=False)
        # What the driver's library prints is no line of ours.
        os.dup2(_STANDARD_ERROR, 1)
        _close_others()
        # Collections of the child leave alone what it shares with the supervisor.
        gc.freeze()
        status = work(_REQUESTS, _LINES, may_make_nodes)
    except BaseException:  # noqa: BLE001 - the end of a process: nothing above it would log it
        sys.excepthook(*sys.exc_info())
    finally:
        os._exit(status)


def _end_with(supervisor: int) -> None:
    """Let the kernel kill this process when the supervisor ends, however it ends."""
    import ctypes  # noqa: PLC0415 - NVML's binding needs it in the child, the supervisor never does

    ctypes.CDLL(None).prctl(_PR_SET_PDEATHSIG, signal.SIGKILL)
    if os.getppid() != supervisor:
        os._exit(1)  # it has ended already


def _close_others() -> None:
    for descriptor in map(int, os.listdir("/proc/self/fd")):  # noqa: PTH208 - pathlib costs 1 MiB
        with suppress(OSError):  # that of the list itself is closed already
            os.close(descriptor if descriptor > _LINES else -1)
