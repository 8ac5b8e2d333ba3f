"""The socket that the container ``nvml`` listens on."""

import os
import socket
import stat
from contextlib import suppress

from device_agent.errors import SocketUnusable

_BACKLOG = 16
_ONLY_ROOT = 0o177
_SECONDS = 5.0


def listen(path: str) -> socket.socket:
    """Listen on a path, in place of a socket that nobody answers on any more.

    Raises:
        SocketUnusable: when another one answers there, something else is there, or it cannot be made.
    """
    try:
        _remove_stale(path)
        listening = socket.socket(socket.AF_UNIX, socket.SOCK_STREAM | socket.SOCK_NONBLOCK)
        before = os.umask(_ONLY_ROOT)
        try:
            listening.bind(path)
        except OSError:
            listening.close()
            raise
        finally:
            os.umask(before)
        listening.listen(_BACKLOG)
    except OSError as error:
        raise SocketUnusable(
            f"cannot listen on {path}: {error.strerror or error}; choose another with --socket"
        ) from error
    return listening


def _remove_stale(path: str) -> None:
    try:
        mode = os.lstat(path).st_mode
    except FileNotFoundError:
        return
    if not stat.S_ISSOCK(mode):
        raise SocketUnusable(f"cannot listen on {path}: a file that is no socket is there; remove it")
    with socket.socket(socket.AF_UNIX) as other:
        other.settimeout(_SECONDS)
        try:
            other.connect(path)
        except (ConnectionRefusedError, FileNotFoundError):
            with suppress(FileNotFoundError):
                os.unlink(path)  # noqa: PTH108 - pathlib costs 1 MiB
            return
        except TimeoutError:
            pass  # it has one, which is busy
    raise SocketUnusable(f"cannot listen on {path}: another process answers there; end it, or choose --socket")
