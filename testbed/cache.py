"""The cache folder of driverwright: built once, used by every testbed of this user.

An entry appears whole or not at all: it is made under another name and renamed, and one lock per entry keeps two
runs from making it twice.
"""

from __future__ import annotations

import fcntl
import os
import shutil
import tempfile
import time
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from pathlib import Path

from testbed.progress import Step


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
        shutil.rmtree(old, ignore_errors=True)


def _last_used(path: Path) -> float:
    """Return when a folder was used last; what another run removes at this moment was used long ago."""
    try:
        return path.stat().st_mtime
    except FileNotFoundError:
        return 0.0


def cached_folder(name: str, make: Callable[[Path], None], step: Step | None = None) -> Path:
    """Return the folder `name` of the cache; `make` fills it when it is not there yet."""
    final = cache_root() / name
    if final.is_dir():
        return final
    final.parent.mkdir(parents=True, exist_ok=True)
    with locked(name.replace("/", "-"), step):
        if final.is_dir():
            return final
        fresh = Path(tempfile.mkdtemp(prefix=f".{final.name}-", dir=final.parent))
        try:
            fresh.chmod(0o755)
            make(fresh)
            fresh.rename(final)
        except BaseException:
            shutil.rmtree(fresh, ignore_errors=True)
            raise
    return final
