"""A ``docker save`` tar, or a tarred OCI layout: its members by name, read in place.

Place in the flow: ``image_archive`` makes an image of a builder's output. Docker 20 writes a layer that occurs twice
as a symbolic link, so links within the tar are followed.
"""

import io
import posixpath
from dataclasses import dataclass
from typing import IO, cast

from driver_builder.archives.bounded_tar import TarTooLarge, bounded_tar, read_whole

MAX_DESCRIPTION = 4 << 20
"""Bytes of a config, a manifest or an index: as many as registries accept."""
_MAX_LINKS = 8


@dataclass(frozen=True, slots=True)
class _Content:
    begin: int
    size: int


class SavedTar:
    """The members of ``file``, which stays open as long as they are read.

    Raises:
        TarTooLarge, tarfile.TarError: while they are listed.
        KeyError: there is no such member, or it is not a file.
    """

    def __init__(self, file: IO[bytes]) -> None:
        self._file = file
        self._members: dict[str, _Content | str] = {}
        with bounded_tar(file) as tar:
            for member in tar:
                if member.isreg() and not member.issparse():
                    self._members[member.name] = _Content(member.offset_data, member.size)
                elif member.issym():
                    folder = posixpath.dirname(member.name)
                    self._members[member.name] = posixpath.normpath(posixpath.join(folder, member.linkname))
                elif member.islnk():
                    self._members[member.name] = posixpath.normpath(member.linkname)

    def __contains__(self, name: str) -> bool:
        return name in self._members

    def open(self, name: str) -> IO[bytes]:
        """The content of a member."""
        found = self._members[name]
        for _ in range(_MAX_LINKS):
            if isinstance(found, _Content):
                return cast(IO[bytes], _Slice(self._file, found))
            found = self._members[found]
        raise KeyError(name)

    def read(self, name: str) -> bytes:
        """All of a member that describes others."""
        content = read_whole(self.open(name), MAX_DESCRIPTION)
        if content is None:
            raise TarTooLarge(f"{name} has more than {MAX_DESCRIPTION} bytes")
        return content


class _Slice(io.RawIOBase):
    """A part of a file."""

    def __init__(self, file: IO[bytes], content: _Content) -> None:
        self._file = file
        self._content = content
        self._position = 0

    def readable(self) -> bool:
        return True

    def seekable(self) -> bool:
        return True

    def seek(self, offset: int, whence: int = io.SEEK_SET, /) -> int:
        """Continue at ``offset`` from the beginning."""
        if whence != io.SEEK_SET:
            raise io.UnsupportedOperation("from the beginning only")
        self._position = offset
        return offset

    def readinto(self, buffer: memoryview, /) -> int:  # type: ignore[override]
        """Read what fits."""
        size = min(len(buffer), self._content.size - self._position)
        if size <= 0:
            return 0
        self._file.seek(self._content.begin + self._position)
        piece = self._file.read(size)
        buffer[: len(piece)] = piece
        self._position += len(piece)
        return len(piece)
