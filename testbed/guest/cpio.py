"""Write cpio archives in the "newc" format, which the kernel unpacks into its initial root file system."""

from __future__ import annotations

import io
import stat
from collections.abc import Iterable
from dataclasses import dataclass


@dataclass(frozen=True, slots=True, kw_only=True)
class Entry:
    """One file, folder, link or device node; the folders above it are made without being named."""

    path: str
    mode: int
    content: bytes = b""
    device: tuple[int, int] = (0, 0)


def file(path: str, content: bytes | str, permissions: int = 0o644) -> Entry:
    """Return a regular file."""
    data = content.encode() if isinstance(content, str) else content
    return Entry(path=path, mode=stat.S_IFREG | permissions, content=data)


def program(path: str, content: bytes | str) -> Entry:
    """Return an executable file."""
    return file(path, content, 0o755)


def folder(path: str) -> Entry:
    """Return a folder."""
    return Entry(path=path, mode=stat.S_IFDIR | 0o755)


def link(path: str, target: str) -> Entry:
    """Return a symbolic link."""
    return Entry(path=path, mode=stat.S_IFLNK | 0o777, content=target.encode())


def character_device(path: str, major: int, minor: int) -> Entry:
    """Return a character device node; none is made on this machine, so root is not needed."""
    return Entry(path=path, mode=stat.S_IFCHR | 0o600, device=(major, minor))


def archive(entries: Iterable[Entry]) -> bytes:
    """Return an archive of the entries; several archives may be joined to one."""
    out = io.BytesIO()
    for number, entry in enumerate(with_parents(entries), start=1):
        _write(out, number, entry)
    _write(out, 0, Entry(path="TRAILER!!!", mode=0))
    return out.getvalue()


def with_parents(entries: Iterable[Entry]) -> list[Entry]:
    """Return the entries with the folders above each of them in front of it, every folder once."""
    done: dict[str, Entry] = {}
    result: list[Entry] = []
    for entry in entries:
        parts = entry.path.strip("/").split("/")
        chain = [folder("/".join(parts[:depth])) for depth in range(1, len(parts))]
        for item in [*chain, entry]:
            path = item.path.strip("/")
            if stat.S_ISDIR(item.mode):
                if path in done:
                    continue
                done[path] = item
            result.append(item)
    return result


def _write(out: io.BytesIO, number: int, entry: Entry) -> None:
    name = entry.path.strip("/").encode() + b"\0"
    links = 2 if stat.S_ISDIR(entry.mode) else 1
    major, minor = entry.device
    fields = (number, entry.mode, 0, 0, links, 0, len(entry.content), 0, 0, major, minor, len(name), 0)
    header = b"070701" + b"".join(b"%08x" % field for field in fields) + name
    out.write(header + b"\0" * (-len(header) % 4))
    out.write(entry.content + b"\0" * (-len(entry.content) % 4))
