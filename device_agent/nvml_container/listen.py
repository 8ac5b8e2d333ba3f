"""The socket that the container ``nvml`` listens on."""

import os
import socket
import stat
from collections.abc import Iterator
from contextlib import contextmanager, suppress

from device_agent.errors import SocketUnusable

_BACKLOG = 16
_ONLY_ROOT = 0o177
_SECONDS = 1.0


@contextmanager
def listening(path: str) -> Iterator[socket.socket]:
    """Listen on a path, in place of a socket that nobody answers on any more, and remove it at the end.

    Raises:
        SocketUnusable: when another one answers there, something else is there, or it cannot be made.
    """
    with _listen(path) as made:
        try:
            yield made
        finally:
            _remove(path)


def _listen(path: str) -> socket.socket:
    try:
        _remove_stale(path)
        made = socket.socket(socket.AF_UNIX, socket.SOCK_STREAM | socket.SOCK_NONBLOCK)
        before = os.umask(_ONLY_ROOT)
        try:
            made.bind(path)
        except OSError:
            made.close()
            raise
        finally:
            os.umask(before)
        made.listen(_BACKLOG)
    except OSError as error:
        raise SocketUnusable(
            f"cannot listen on {path}: {error.strerror or error}; choose another with --socket"
        ) from error
    return made


def _remove_stale(path: str) -> None:
    try:
        mode = os.lstat(path).st_mode
    except FileNotFoundError:
        return
    if not stat.S_ISSOCK(mode):
        raise SocketUnusable(f"cannot listen on {path}: a file that is no socket is there; remove it")
    if _is_answered(path):
        raise SocketUnusable(f"cannot listen on {path}: another process answers there; end it, or choose --socket")
    _remove(path)


def _is_answered(path: str) -> bool:
    """Return whether somebody accepts a connection, and keeps it for a moment.

    A process that was just started by one that was killed has its socket until it notices that.
    """
    with socket.socket(socket.AF_UNIX) as other:
        other.settimeout(_SECONDS)
        try:
            other.connect(path)
            return other.recv(1) != b""
        except TimeoutError:
            return True
        except (ConnectionError, FileNotFoundError):
            return False


def _remove(path: str) -> None:
    with suppress(FileNotFoundError):
        os.unlink(path)  # noqa: PTH108 - pathlib costs 1 MiB
