"""Short-lived children of the worker: what is too heavy for the resident process runs in one and is gone again.

A child is a program (:func:`spawn`), or a copy of the worker that goes on elsewhere (:func:`fork`), which costs a third
as much, because it has imported already what the worker has (docs/decisions/0091-publish-child-forked.md). Standard
input is the request, as a memfd; standard output is the answer, a pipe whose end is the end of the child. That
needs no pidfd, which kernels before 5.3 (RHEL 8) do not have.
"""

import gc
import os
import signal
import sys
from collections.abc import Callable
from contextlib import suppress
from typing import NamedTuple, NoReturn

_PIPE_SIZE = 1 << 16
_STANDARD_ERROR = 2


class Ended(NamedTuple):
    """What a child left: its standard output, and its exit status (negative: the signal that killed it)."""

    output: bytes
    status: int


class Child:
    """A running child. Wait for :attr:`answer_pipe` to be readable, then ask :meth:`has_ended`."""

    def __init__(self, pid: int, answer_pipe: int) -> None:
        self.pid = pid
        self.answer_pipe = answer_pipe
        self._output = b""

    def has_ended(self) -> bool:
        """Read what there is on the pipe; returns whether that was the end. Call it when the pipe is ready."""
        chunk = os.read(self.answer_pipe, _PIPE_SIZE)
        self._output += chunk
        return not chunk

    def kill(self) -> None:
        """End it at once; to be reaped after."""
        os.kill(self.pid, signal.SIGKILL)

    def reap(self) -> Ended:
        """Collect a child that has ended or was killed: the kernel alone is waited for."""
        os.close(self.answer_pipe)
        _, status = os.waitpid(self.pid, 0)
        return Ended(self._output, os.waitstatus_to_exitcode(status))


def spawn(request: bytes, command: tuple[str, ...]) -> Child:
    """Start a child with ``request`` as its standard input.

    The request travels as a memfd, because a pipe holds only 64 KiB and the worker does not wait for the child to read.

    Raises:
        OSError: when there are no more processes, descriptors or memory to be had.
    """
    payload, reader, writer = _open(request)
    moves = [(os.POSIX_SPAWN_DUP2, payload, 0), (os.POSIX_SPAWN_DUP2, writer, 1)]
    return _started(
        lambda: os.posix_spawn(command[0], command, os.environ, file_actions=moves), payload, reader, writer
    )


def fork(request: bytes, work: Callable[[], int]) -> Child:
    """Start a child that runs ``work``, with ``request`` as its standard input; what it returns is the exit status.

    Only for a process with one thread.

    Raises:
        OSError: as :func:`spawn`.
    """
    payload, reader, writer = _open(request)

    def start() -> int:
        pid = os.fork()
        if pid == 0:
            _run(work, payload, writer)
        return pid

    return _started(start, payload, reader, writer)


def _open(request: bytes) -> tuple[int, int, int]:
    """Open the request, and both ends of the pipe for the answer."""
    payload = os.memfd_create("request", os.MFD_CLOEXEC)
    try:
        os.write(payload, request)
        os.lseek(payload, 0, os.SEEK_SET)
        return payload, *os.pipe()
    except OSError:
        os.close(payload)
        raise


def _started(start: Callable[[], int], payload: int, reader: int, writer: int) -> Child:
    try:
        return Child(start(), reader)
    except OSError:
        os.close(reader)
        raise
    finally:
        os.close(payload)
        os.close(writer)


def _run(work: Callable[[], int], payload: int, writer: int) -> NoReturn:
    """Be the child: have nothing of the worker's but its memory, work, and end without the worker's clean-up."""
    status = 1
    try:
        # A signal that the worker handles must end the child, and must not wake the worker.
        signal.set_wakeup_fd(-1)
        for number in (signal.SIGTERM, signal.SIGINT, signal.SIGHUP):
            signal.signal(number, signal.SIG_DFL)
        os.dup2(payload, 0)
        os.dup2(writer, 1)
        # The watches, the endpoint and its port are the worker's: a child that outlives it must not hold them.
        for descriptor in map(int, os.listdir("/proc/self/fd")):  # noqa: PTH208 - pathlib costs the worker 1 MiB
            with suppress(OSError):  # that of the list itself is closed already
                os.close(descriptor if descriptor > _STANDARD_ERROR else -1)
        gc.disable()
        status = work()
    except BaseException:  # noqa: BLE001 - the end of a process: nothing above it would log it
        sys.excepthook(*sys.exc_info())
    finally:
        os._exit(status)
