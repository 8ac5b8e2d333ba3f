"""Reading a file whose path is somebody else's choice."""

import errno
import os
import stat


def read_regular(path: str, most: int) -> bytes:
    """Read a regular file of at most so many bytes: a pipe would never end, and a device may act when it is opened.

    Raises:
        OSError: it cannot be read; EISDIR, EINVAL: it is not a regular file; EFBIG: it is too long.
    """
    descriptor = os.open(path, os.O_RDONLY | os.O_CLOEXEC | os.O_NONBLOCK | os.O_NOCTTY)
    try:
        mode = os.fstat(descriptor).st_mode
        if not stat.S_ISREG(mode):
            raise OSError(errno.EISDIR if stat.S_ISDIR(mode) else errno.EINVAL, "it is not a regular file")
        content = b""
        while len(content) <= most and (chunk := os.read(descriptor, most + 1)):
            content += chunk
    finally:
        os.close(descriptor)
    if len(content) > most:
        raise OSError(errno.EFBIG, f"it is longer than {most} bytes")
    return content
