"""The cache folder of driverwright: built once, used by every testbed of this user.

An entry appears whole or not at all: it is made under another name and renamed, and one lock per entry keeps two
runs from making it twice. It has the checksums of its files (`sha256sum --check .sha256sums` in its folder), which are
compared once per run: what a disk, a lost write or a hand has changed is named and made anew, and never used.
"""

from __future__ import annotations

import fcntl
import functools
import glob
import hashlib
import os
import shutil
import tempfile
import time
from collections.abc import Callable, Iterator
from contextlib import contextmanager, suppress
from pathlib import Path

from testbed.progress import Step, warn

_SUMS = ".sha256sums"


def cache_root() -> Path:
    """Return the cache folder, made when missing."""
    base = os.environ.get("XDG_CACHE_HOME") or str(Path.home() / ".cache")
    root = Path(base) / "driverwright"
    root.mkdir(parents=True, exist_ok=True)
    return root


@contextmanager
def locked(name: str, step: Step | None = None) -> Iterator[None]:
    """Hold the lock called `name`; waiting for another run is shown as the step's detail."""
    path = cache_root() / f".{name}.lock"
    with path.open("w") as file:
        began = time.monotonic()
        while True:
            try:
                fcntl.flock(file, fcntl.LOCK_EX | fcntl.LOCK_NB)
                break
            except BlockingIOError:
                if step is not None:
                    step.detail(f"another run is making it, waited {time.monotonic() - began:.0f} s")
                time.sleep(0.2)
        yield


def forget_old(used: Path, count: int) -> None:
    """Keep the folder that is used and the ones used last beside it, as many as ``count``."""
    used.touch()
    kept = [path for path in used.parent.iterdir() if not path.name.startswith(".")]
    for old in sorted(kept, key=_last_used)[:-count]:
        remove_entry(old)


def _last_used(path: Path) -> float:
    """Return when a folder was used last; what another run removes at this moment was used long ago."""
    try:
        return path.stat().st_mtime
    except FileNotFoundError:
        return 0.0


def remove_entry(folder: Path) -> None:
    """Remove an entry: to others it is gone at once, and no half of it is left where this run is ended meanwhile."""
    gone = Path(tempfile.mkdtemp(prefix=f".{folder.name}-", dir=folder.parent))
    # Another run may have removed it.
    with suppress(OSError):
        folder.rename(gone)
    shutil.rmtree(gone, ignore_errors=True)


def cached_folder(
    name: str, make: Callable[[Path], None], step: Step | None = None, *, is_checked: bool = True
) -> Path:
    """Return the folder `name` of the cache; `make` fills it when it is not there yet, or no longer as it was made.

    With ``is_checked=False`` nothing looks at what it holds.
    """
    if found := kept_folder(name, is_checked=is_checked):
        return found
    final = cache_root() / name
    final.parent.mkdir(parents=True, exist_ok=True)
    with locked(name.replace("/", "-"), step):
        if found := kept_folder(name, is_checked=is_checked):
            return found
        for left in final.parent.glob(f".{glob.escape(final.name)}-*"):
            # Of a run that was killed.
            shutil.rmtree(left, ignore_errors=True)
        fresh = Path(tempfile.mkdtemp(prefix=f".{final.name}-", dir=final.parent))
        try:
            fresh.chmod(0o755)
            make(fresh)
            if is_checked:
                (fresh / _SUMS).write_bytes(_sums(fresh))
            if final.exists():
                remove_entry(final)
            fresh.rename(final)
        except BaseException:
            shutil.rmtree(fresh, ignore_errors=True)
            raise
    return final


def kept_folder(name: str, *, is_checked: bool = True) -> Path | None:
    """Return the folder `name` of the cache when it is there, and as it was made."""
    folder = cache_root() / name
    if not folder.is_dir():
        return None
    return folder if not is_checked or _is_as_made(folder, _made_at(folder)) else None


def last_kept_folder(pattern: str) -> Path | None:
    """Return the folder of the cache that was made last, of those by this pattern that are as they were made."""
    names = [str(path.relative_to(cache_root())) for path in cache_root().glob(pattern)]
    found = filter(None, map(kept_folder, names))
    return max(found, key=lambda folder: folder.stat().st_mtime, default=None)


def _made_at(folder: Path) -> int:
    try:
        return (folder / _SUMS).stat().st_mtime_ns
    except FileNotFoundError:
        return 0


@functools.cache
def _is_as_made(folder: Path, made_at: int) -> bool:  # noqa: ARG001 - once per run for what was made at that time
    """Compare the checksums of an entry; what differs is named."""
    try:
        made = (folder / _SUMS).read_bytes()
        now = _sums(folder)
    except OSError as error:
        warn(f"{folder} is not used, it has to be made anew: {error}")
        return False
    if made == now:
        return True
    names = sorted({os.fsdecode(line[66:]) for line in set(made.splitlines()) ^ set(now.splitlines())})
    shown = ", ".join(names[:5]) + (f" and {len(names) - 5} more" if len(names) > 5 else "")
    warn(f"{folder} is damaged, it has to be made anew: {shown} not as made")
    return False


def _sums(folder: Path) -> bytes:
    """Return the checksums of all files below a folder, as sha256sum writes them."""
    lines = []
    for path in sorted(folder.rglob("*")):
        if path.is_file() and not path.is_symlink() and path != folder / _SUMS:
            with path.open("rb") as file:
                digest = hashlib.file_digest(file, "sha256").hexdigest()
            lines.append(digest.encode() + b"  " + os.fsencode(path.relative_to(folder)) + b"\n")
    return b"".join(lines)
