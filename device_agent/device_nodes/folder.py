"""Writes in one folder below /dev: what is put there appears whole, by a rename, and no link is followed."""

import os
import re
import stat
from collections.abc import Iterable, Iterator
from contextlib import contextmanager, suppress

from device_agent.device_nodes.values import WantedNode

_FOLDER_MODE = 0o755
_HIDDEN = re.compile(r"\.(.+)\.driverwright", re.ASCII)


@contextmanager
def opened(dev: str, name: str, *, make: bool) -> Iterator[int]:
    """Open a folder below /dev, or /dev itself by an empty name; ``make``: make it where it is missing.

    Raises:
        OSError: when it is not there, is a link or no folder, or cannot be made.
    """
    outer = os.open(dev, os.O_RDONLY | os.O_DIRECTORY | os.O_CLOEXEC)
    try:
        if make and name:
            _make_folder(outer, name)
        flags = os.O_RDONLY | os.O_DIRECTORY | os.O_NOFOLLOW | os.O_CLOEXEC
        folder = os.open(name or ".", flags, dir_fd=outer)
    finally:
        os.close(outer)
    try:
        yield folder
    finally:
        os.close(folder)


def status(folder: int, name: str) -> os.stat_result | None:
    """Return the status of an entry, a link's own; None when it is not there."""
    try:
        return os.stat(name, dir_fd=folder, follow_symlinks=False)
    except FileNotFoundError:
        return None


def put_node(folder: int, name: str, node: WantedNode) -> None:
    """Make a node and put it in place of what is there; until it is whole, nobody may open it.

    Raises:
        OSError: when that is not possible; then all is as it was.
    """
    made = _hidden(folder, name)
    os.mknod(made, stat.S_IFCHR, os.makedev(node.major, node.minor), dir_fd=folder)
    try:
        os.chown(made, node.uid, node.gid, dir_fd=folder, follow_symlinks=False)
        os.chmod(made, node.mode, dir_fd=folder)
        os.rename(made, name, src_dir_fd=folder, dst_dir_fd=folder)
    except OSError:
        _remove(folder, made)
        raise


def put_link(folder: int, name: str, target: str) -> None:
    """Make a link and put it in place of what is there.

    Raises:
        OSError: when that is not possible; then all is as it was.
    """
    made = _hidden(folder, name)
    os.symlink(target, made, dir_fd=folder)
    try:
        os.rename(made, name, src_dir_fd=folder, dst_dir_fd=folder)
    except OSError:
        _remove(folder, made)
        raise


def remove_half_made(folder: int, names: Iterable[str], known: re.Pattern[str]) -> None:
    """Remove what a process that was killed has left half-made of these entries; ``known``: the names of whole ones.

    What cannot be removed stays: whoever makes that entry has the reason.
    """
    for name in names:
        hidden = _HIDDEN.fullmatch(name)
        if hidden and known.fullmatch(hidden[1]):
            with suppress(OSError):
                os.unlink(name, dir_fd=folder)


def _make_folder(outer: int, name: str) -> None:
    try:
        os.mkdir(name, dir_fd=outer)
    except FileExistsError:
        return
    os.chmod(name, _FOLDER_MODE, dir_fd=outer)


def _hidden(folder: int, name: str) -> str:
    """Return the name under which something is made, without what a process that was killed has left there.

    The same each time, so that no more than one is ever left.
    """
    hidden = f".{name}.driverwright"
    _remove(folder, hidden)
    return hidden


def _remove(folder: int, name: str) -> None:
    with suppress(FileNotFoundError):
        os.unlink(name, dir_fd=folder)
