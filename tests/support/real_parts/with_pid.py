"""Runs a program that has a PID of one's choice: ``python -m tests.support.real_parts.with_pid PID COMMAND...``.

The kernel gives one PID after the other, so that a free one comes again late. Whoever may restore processes can choose
(clone3, ``set_tid``). It waits until the PID is free, and ends with the program.
"""

import ctypes
import errno
import os
import signal
import sys
import time

_CLONE3 = 435
"""The system call's number, on all machines."""
_EXIT_SIGNAL, _SET_TID, _SET_TID_SIZE, _FIELDS = 4, 8, 9, 11
"""Fields of ``struct clone_args``, by their place."""
_PAUSE = 0.005


def main(pid: int, command: list[str]) -> None:
    """Run the program as soon as the PID is free, and wait for its end.

    Raises:
        OSError: when the kernel does not give this PID.
    """
    libc = ctypes.CDLL(None, use_errno=True)
    pids = (ctypes.c_int * 1)(pid)
    arguments = (ctypes.c_uint64 * _FIELDS)()
    arguments[_EXIT_SIGNAL] = signal.SIGCHLD
    arguments[_SET_TID], arguments[_SET_TID_SIZE] = ctypes.addressof(pids), len(pids)
    while (made := libc.syscall(_CLONE3, ctypes.byref(arguments), ctypes.sizeof(arguments))) < 0:
        if (number := ctypes.get_errno()) != errno.EEXIST:
            raise OSError(number, os.strerror(number))
        time.sleep(_PAUSE)
    if made == 0:
        os.execvp(command[0], command)  # noqa: S606 - the PID is to be the program's
    os.waitpid(made, 0)


if __name__ == "__main__":
    main(int(sys.argv[1]), sys.argv[2:])
