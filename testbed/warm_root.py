"""The container engine's data, kept warm in the cache: the base image, and the layers that every run would make anew.

Each testbed gets a copy of its own. What the layers hold is linked, not copied: engines never write into a layer that
is there (overlayfs copies up first). Everything else, databases above all, is copied.

What is kept only spares work. Base image and engine are part of the name, as is whatever the preparation says that it
depends on; and an engine takes a layer from its cache for the very same instruction on the very same parent only.
"""

from __future__ import annotations

import hashlib
from collections.abc import Callable
from dataclasses import dataclass
from pathlib import Path

from testbed.cache import cached_folder, forget_old
from testbed.command import run
from testbed.errors import CommandError
from testbed.progress import Step

_LAYERS = "overlay2"
_ROOTS_KEPT = 2


@dataclass(frozen=True, slots=True)
class Preparation:
    """What an engine is made to do before its data is kept; ``key`` says all that the outcome depends on."""

    key: str
    prepare: Callable[[str, Step], None]
    """Called with the engine's address."""


def provide(data: Path, key: str, fill: Callable[[], None], step: Step) -> bool:
    """Put the kept data of ``key`` into the folder ``data``; returns whether it was there.

    Otherwise ``fill`` is called, which leaves ``data`` filled and the engine stopped, and a copy is kept.
    """
    name = f"engine-roots/{hashlib.sha256(key.encode()).hexdigest()[:16]}"
    filled = []

    def make(folder: Path) -> None:
        fill()
        filled.append(True)
        step.detail("keeping the engine's data")
        copy_data(data, folder / "data")

    # Tens of thousands of files, of which a run reads few: to compare all would cost each start of a testbed seconds.
    kept = cached_folder(name, make, step, is_checked=False)
    forget_old(kept, _ROOTS_KEPT)
    if filled:
        return False
    step.detail("copying the engine's data")
    copy_data(kept / "data", data)
    return True


def copy_data(source: Path, copy: Path) -> None:
    """Copy an engine's data, with links to the files of its layers where both are on one file system."""
    copy.mkdir(parents=True, exist_ok=True)
    for path in source.iterdir():
        if path.name != _LAYERS:
            run(["cp", "--archive", "--reflink=auto", path, copy], timeout=300)
    try:
        run(["cp", "--archive", "--link", source / _LAYERS, copy], timeout=300)
    except CommandError:
        run(["rm", "-rf", copy / _LAYERS], timeout=300)
        run(["cp", "--archive", "--reflink=auto", source / _LAYERS, copy], timeout=600)
