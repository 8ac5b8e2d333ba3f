"""Short-lived children of the worker: what is too heavy for the resident process runs in one and is gone again.

Standard input is the request, as a memfd; standard output is the answer, a pipe whose end is the end of the child. That
needs no pidfd, which kernels before 5.3 (RHEL 8) do not have.
"""

import os
import signal
from typing import NamedTuple

_PIPE_SIZE = 1 << 16


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
        """Read what there is on the pipe; tells whether that was the end. Call it when the pipe is ready."""
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
    payload = os.memfd_create("request", os.MFD_CLOEXEC)
    reader, writer = os.pipe()
    try:
        os.write(payload, request)
        os.lseek(payload, 0, os.SEEK_SET)
        moves = [(os.POSIX_SPAWN_DUP2, payload, 0), (os.POSIX_SPAWN_DUP2, writer, 1)]
        return Child(os.posix_spawn(command[0], command, os.environ, file_actions=moves), reader)
    except OSError:
        os.close(reader)
        raise
    finally:
        os.close(payload)
        os.close(writer)
