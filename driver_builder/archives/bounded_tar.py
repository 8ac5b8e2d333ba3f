"""The members of a tar that a build left, one at a time and within bounds.

Place in the flow: ``image_archive`` and ``image_layers`` read the output of an engine or a Job with it. A build's
commands run as root, so a tar may be anything: Python's :mod:`tarfile` reads headers of any size into memory.
"""

import tarfile
from collections.abc import Iterator
from contextlib import contextmanager
from io import BytesIO
from typing import IO, Any, cast

MAX_MEMBERS = 150_000
"""A Linux has 90,000 files: some distributions' headers are all of its sources. A Debian with a compiler has 30,000."""
MAX_HEADER = 1 << 20
"""Bytes of one member's headers. Names have at most 4 KiB, access rights and labels of SELinux 64 KiB."""
MAX_WORDS = 4 * 4096
"""Characters of one member's names: its own, what it links to, its user and group."""
MAX_ALL_WORDS = 16 << 20
"""Characters of the names of all members: 300 for each."""
_CHUNK = 1 << 20


class TarTooLarge(ValueError):
    """A tar has more, or larger, headers than any known one. The message says which."""


class _Metered:
    """A file that returns at most ``left`` bytes while headers are read; None: no limit."""

    def __init__(self, file: IO[bytes]) -> None:
        self._file = file
        self.left: int | None = MAX_HEADER
        self.seek, self.tell = file.seek, file.tell

    def read(self, size: int = -1) -> bytes:
        """Read as a file does."""
        if self.left is not None:
            if not 0 <= size <= self.left:
                raise TarTooLarge(f"the headers of a member have more than {MAX_HEADER} bytes")
            self.left -= size
        return self._file.read(size)


class BoundedTar:
    """Iterates over the members once; the content of the latest one can be opened."""

    def __init__(self, tar: tarfile.TarFile, file: _Metered) -> None:
        self._tar = tar
        self._file = file
        file.left = None

    def __iter__(self) -> Iterator[tarfile.TarInfo]:
        words = 0
        for number in range(MAX_MEMBERS + 1):
            member = self._next()
            if member is None:
                return
            words += _words(member)
            if words > MAX_ALL_WORDS:
                raise TarTooLarge(f"the names in it have more than {MAX_ALL_WORDS} characters")
            if number == MAX_MEMBERS:
                raise TarTooLarge(f"it has more than {MAX_MEMBERS} members")
            yield member

    def _next(self) -> tarfile.TarInfo | None:
        self._file.left = MAX_HEADER
        try:
            return self._tar.next()
        except RecursionError:
            raise TarTooLarge("a member has too many headers") from None
        finally:
            self._file.left = None
            # No member is requested twice.
            tar: Any = self._tar
            tar.members.clear()
            tar.pax_headers.clear()

    def open(self, member: tarfile.TarInfo) -> IO[bytes]:
        """The content of a regular file; empty for everything else."""
        return (self._tar.extractfile(member) if member.isreg() else None) or BytesIO()


@contextmanager
def bounded_tar(file: IO[bytes]) -> Iterator[BoundedTar]:
    """Read a plain tar.

    Raises:
        TarTooLarge: also while it is iterated over.
        tarfile.TarError: it is damaged.
    """
    metered = _Metered(file)
    try:
        tar = tarfile.TarFile(fileobj=cast(IO[bytes], metered))
    except RecursionError:
        raise TarTooLarge("a member has too many headers") from None
    with tar:
        yield BoundedTar(tar, metered)


def read_whole(file: IO[bytes], limit: int) -> bytes | None:
    """All of a file, in pieces, or None if it has more than ``limit`` bytes."""
    whole = BytesIO()
    while piece := file.read(min(_CHUNK, limit + 1 - whole.tell())):
        whole.write(piece)
        if whole.tell() > limit:
            return None
    return whole.getvalue()


def _words(member: tarfile.TarInfo) -> int:
    size = sum(map(len, (member.name, member.linkname, member.uname, member.gname)))
    if size > MAX_WORDS:
        raise TarTooLarge(f"the names of one member have {size} characters")
    return size
