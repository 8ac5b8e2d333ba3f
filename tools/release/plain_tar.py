"""Archives whose bytes depend on nothing but their files and one time: sorted, owned by root, no other time stamps."""

import gzip
import io
import tarfile
from collections.abc import Iterable
from pathlib import Path
from typing import IO, NamedTuple, cast


class Entry(NamedTuple):
    """A file of an archive: its name there, and its content or the file that has it."""

    name: str
    content: bytes | Path
    is_program: bool = False


def write_tar(target: Path, entries: Iterable[Entry], *, epoch: int) -> None:
    """Write an archive, compressed where its name ends with ``gz``; its folders are not members of it."""
    with target.open("wb") as file:
        if not target.name.endswith("gz"):
            _write(file, entries, epoch)
            return
        with gzip.GzipFile("", "wb", compresslevel=9, fileobj=file, mtime=epoch) as packed:
            _write(cast(IO[bytes], packed), entries, epoch)


def read_tar_gz(path: Path) -> list[Entry]:
    """Read all files of a small archive."""
    with tarfile.open(path, "r:gz") as tar:
        return [
            Entry(member.name, content.read(), bool(member.mode & 0o100))
            for member in tar
            if member.isreg() and (content := tar.extractfile(member)) is not None
        ]


def _write(file: IO[bytes], entries: Iterable[Entry], epoch: int) -> None:
    with tarfile.open(fileobj=file, mode="w|", format=tarfile.PAX_FORMAT) as tar:
        for entry in sorted(entries, key=lambda entry: entry.name):
            member = tarfile.TarInfo(entry.name)
            member.mtime, member.mode = epoch, 0o755 if entry.is_program else 0o644
            if isinstance(entry.content, bytes):
                member.size = len(entry.content)
                tar.addfile(member, io.BytesIO(entry.content))
            else:
                member.size = entry.content.stat().st_size
                with entry.content.open("rb") as content:
                    tar.addfile(member, content)
