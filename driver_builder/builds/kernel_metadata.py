"""What a build records of its kernel: the files below ``/facts`` of a stage, within bounds.

Place in the flow: an engine returns them as a tar, a Job as files; both return them in a ``BuiltImage``.
"""

import tarfile
from collections.abc import Iterable, Iterator, Mapping
from io import RawIOBase
from pathlib import PurePosixPath
from typing import IO, cast

from driver_builder.archives.bounded_tar import read_whole
from driver_builder.base.errors import BuildFailed
from driver_builder.base.reasons import Reason
from driver_builder.builds.templates.templates import FACTS_FOLDER
from driver_builder.modules.symvers import MAX_SYMVERS

SYMVERS, COMPILER, VERMAGIC = "Module.symvers", "compiler", "vermagic"
MAX_LINE = 4096
"""Bytes of a file with one line."""
LIMITS: Mapping[str, int] = {SYMVERS: MAX_SYMVERS, COMPILER: MAX_LINE, VERMAGIC: MAX_LINE}
"""The files that are read, and how many bytes of each there may be."""
MAX_TAR = 2 * MAX_SYMVERS
"""Bytes of all that a stage leaves below the folder, as a tar."""


def read_facts(chunks: Iterable[bytes]) -> dict[str, str]:
    """The kernel metadata in a tar of the folder, by file name.

    Raises:
        BuildFailed: TEMPLATE_INVALID, the folder has more than MAX_TAR bytes.
        tarfile.TarError: the tar is damaged.
    """
    found: dict[str, str] = {}
    with tarfile.open(fileobj=cast(IO[bytes], _Stream(chunks)), mode="r|") as tar:
        for member in tar:
            name = PurePosixPath(member.name).name
            if member.isfile() and name in LIMITS and (file := tar.extractfile(member)):
                content = read_whole(file, LIMITS[name])
                if content is None:
                    raise too_large(name)
                found[name] = content.decode(errors="replace")
    return found


def fact(facts: Mapping[str, str], name: str) -> str:
    """One item of the kernel metadata.

    Raises:
        BuildFailed: TEMPLATE_INVALID, the stage left none.
    """
    if name not in facts:
        raise BuildFailed(
            Reason.TEMPLATE_INVALID,
            f"the template's build stage left no file {FACTS_FOLDER}/{name}; copy it there",
        )
    return facts[name]


def first_line(text: str) -> str:
    """The content of a file with one line."""
    return text.partition("\n")[0].strip()


def too_large(name: str) -> BuildFailed:
    """The error for a file with more bytes than its limit."""
    return BuildFailed(
        Reason.TEMPLATE_INVALID,
        f"the template's build stage left more than {LIMITS[name]} bytes in {FACTS_FOLDER}/{name};"
        " copy the kernel's there",
    )


class _Stream(RawIOBase):
    """Chunks as a file, MAX_TAR bytes at most."""

    def __init__(self, chunks: Iterable[bytes]) -> None:
        self._chunks: Iterator[bytes] = iter(chunks)
        self._rest = memoryview(b"")
        self._left = MAX_TAR

    def readable(self) -> bool:
        return True

    def readinto(self, buffer: memoryview, /) -> int:  # type: ignore[override]
        """Read what is available."""
        while not self._rest:
            chunk = next(self._chunks, None)
            if chunk is None:
                return 0
            self._rest = memoryview(chunk)
        size = min(len(buffer), len(self._rest))
        buffer[:size], self._rest = self._rest[:size], self._rest[size:]
        self._left -= size
        if self._left < 0:
            raise BuildFailed(
                Reason.TEMPLATE_INVALID,
                f"the template's build stage left more than {MAX_TAR} bytes below {FACTS_FOLDER}:"
                f" leave {', '.join(LIMITS)} there and nothing else",
            )
        return size
