"""Programs of another Debian suite, unpacked into the cache: nothing of them is installed."""

from __future__ import annotations

import hashlib
from collections.abc import Sequence
from pathlib import Path

from testbed.cache import cached_folder, forget_old, last_kept_folder
from testbed.errors import ArchiveError
from testbed.packages import PrivateApt, refreshed_apt, unpack
from testbed.progress import Step, warn

_KEPT = 2


def packages(name: str, suite: str, names: Sequence[str], step: Step) -> Path:
    """Return the root of these packages, of the newest versions that the suite has; ``name`` is theirs in the cache.

    Raises:
        ArchiveError: the suite gives none now, and none were unpacked before.
    """
    try:
        found = _newest(name, refreshed_apt(suite), names, step)
    except ArchiveError as error:
        before = last_kept_folder(f"{name}/[!.]*")
        if before is None:
            raise
        warn(f"{name} of {suite} that was unpacked before is used, {before.name}:\n{error}")
        return before
    forget_old(found, _KEPT)
    return found


def _newest(name: str, apt: PrivateApt, names: Sequence[str], step: Step) -> Path:
    shown = apt.cache("show", "--no-all-versions", *names)
    versions = [line for line in shown.splitlines() if line.startswith(("Package: ", "Version: "))]
    digest = hashlib.sha256("\n".join(versions).encode()).hexdigest()[:12]

    def make(folder: Path) -> None:
        step.detail(f"downloading {', '.join(names)}")
        for deb in apt.download(names, folder / ".debs"):
            unpack(deb, folder)
            deb.unlink()
        (folder / ".debs").rmdir()

    return cached_folder(f"{name}/{digest}", make, step)
