"""The child as its supervisor has it: a copy of the supervisor that goes on elsewhere, and two pipes."""

import gc
import os
import signal
import sys
from collections.abc import Callable
from contextlib import suppress
from typing import NamedTuple, NoReturn

from device_agent.errors import StateInvalid
from device_agent.gpu_state.requests import FOLLOW_USE, LEAVE_USE, Request, dump_request
from device_agent.nvml_container.messages import LONGEST_MESSAGE


class Wanted(NamedTuple):
    """What clients want from now on. ``use``: the request to follow the use of cards, or to leave it."""

    makes_nodes: bool = False
    use: Request = Request(LEAVE_USE)

    @property
    def is_used(self) -> bool:
        """Return whether the use of cards is followed."""
        return self.use.name == FOLLOW_USE


Work = Callable[[int, int, Wanted], int]
"""What a child does, with the descriptors of requests and of its lines, and with what is wanted when it starts; returns
its exit status."""

_CHUNK = 1 << 16
_MOST_WAITING = 64
_REQUESTS, _LINES = 0, 3
_STANDARD_ERROR = 2
_PR_SET_PDEATHSIG = 1


class Child:
    """A child that was started; it is gone when :meth:`reap` says so, and not before.

    It has a process group of its own, with the programs that the driver's library starts, such as nvidia-modprobe.
    ``started``, ``heard``, ``failed``, ``killed``: when it was started, said its last line, said that NVML cannot be
    asked, was killed; of the monotonic clock.
    ``has_spoken``: it has sent an inventory. ``is_closed``: its lines are read no more. ``why``: why it was killed.
    ``status``: its exit status, once it has ended; programs that it has started may hang still.
    """

    def __init__(self, pid: int, lines: int, requests: int, now: float) -> None:
        self.pid = pid
        self.lines = lines
        self.requests = requests
        self.started = self.heard = now
        self.killed: float | None = None
        self.failed: float | None = None
        self.has_spoken = self.is_closed = False
        self.why = ""
        self.status: int | None = None
        self._waiting: dict[object, Request] = {}
        self._under_way = memoryview(b"")
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
        if len(rest) > LONGEST_MESSAGE:
            raise StateInvalid(f"a line has more than {LONGEST_MESSAGE} bytes")
        self._received = rest
        if lines:
            self.heard = now
        return [bytes(line) for line in lines]

    def ask(self, request: Request) -> None:
        """Have a request written when the pipe takes it. Until then one of its kind takes its place.

        Changes of one card's MIG are of one kind.
        """
        kind: object = FOLLOW_USE if request.name == LEAVE_USE else request.process or request.name
        if request.change is not None:
            kind = (request.name, request.change.card)
        if kind in self._waiting or len(self._waiting) < _MOST_WAITING:
            self._waiting[kind] = request
        self.write()

    @property
    def is_asked(self) -> bool:
        """Return whether something has to be written."""
        return bool(self._under_way or self._waiting)

    def write(self) -> None:
        """Write what the pipe takes. The end of a child that has ended is its answer."""
        try:
            while self.is_asked:
                if not self._under_way:
                    request = self._waiting.pop(next(iter(self._waiting)))
                    self._under_way = memoryview(dump_request(*request))
                self._under_way = self._under_way[os.write(self.requests, self._under_way) :]
        except BlockingIOError:
            pass
        except BrokenPipeError:
            self._waiting, self._under_way = {}, memoryview(b"")

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
        os.close(self.requests)
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


def start_child(work: Work, wanted: Wanted, now: float) -> Child:
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
            _be_child(work, (requests_reader, lines_writer), wanted, supervisor)
    finally:
        os.close(lines_writer)
        os.close(requests_reader)
    os.setpgid(pid, pid)  # the child does the same: whoever is first
    os.set_blocking(lines_reader, False)
    os.set_blocking(requests_writer, False)
    return Child(pid, lines_reader, requests_writer, now)


def _be_child(work: Work, pipes: tuple[int, int], wanted: Wanted, supervisor: int) -> NoReturn:
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
        status = work(_REQUESTS, _LINES, wanted)
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
