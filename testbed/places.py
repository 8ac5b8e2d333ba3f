"""Where testbeds live on disk, which of them are running, and what is done with the remains of dead ones."""

from __future__ import annotations

import secrets
import socket
import time
from collections.abc import Iterable
from contextlib import suppress
from pathlib import Path

from testbed import supervisor
from testbed.cache import cache_root
from testbed.errors import TestbedError
from testbed.state import GroundState, is_ground

_BASE = "run"
"""Below the cache: files of both can be linked, and trees and the system around them have it under one name.

Short, because a unix socket's path has room for 107 characters."""
_PREFIX = "dw-"
_LOGS_KEPT_SECONDS = 7 * 86400.0
_START_SECONDS = 120.0


def base() -> Path:
    """Return the folder of all testbeds."""
    folder = cache_root() / _BASE
    folder.mkdir(exist_ok=True)
    return folder


def new_folder() -> Path:
    """Return the folder of a testbed to be started."""
    return base() / f"{_PREFIX}{secrets.token_hex(3)}"


def is_alive(folder: Path) -> bool:
    """Return whether the supervisor of a testbed answers."""
    with socket.socket(socket.AF_UNIX) as probe:
        try:
            probe.connect(str(folder / supervisor.SOCKET_NAME))
        except OSError:
            return False
    return True


def running_grounds() -> list[Path]:
    """Return the folders of all running testbeds, the oldest first."""
    folders = [folder for folder in base().glob(f"{_PREFIX}*") if is_ground(folder) and is_alive(folder)]
    return sorted(folders, key=lambda folder: folder.stat().st_ctime)


def started_by_hand(folders: Iterable[Path]) -> list[Path]:
    """Return those of the testbeds that `up` started and any command may end."""
    return [folder for folder in folders if GroundState.load(folder).by_hand]


def find_ground(name: str | None) -> Path:
    """Return the folder of the running testbed called `name`, or of the only one that was started by hand.

    A testbed that a test session started for itself must be named: nobody is to end it by accident.
    """
    everyone = running_grounds()
    running = started_by_hand(everyone) if name is None else [path for path in everyone if path.name == name]
    names = ", ".join(folder.name for folder in everyone)
    if not running:
        what = f"no testbed {name} is running" if name else "no testbed that was started by `up` is running"
        hint = f"--ground one of {names}" if names else "python -m testbed up"
        raise TestbedError(what, hint=hint)
    if len(running) > 1:
        names = ", ".join(folder.name for folder in running)
        raise TestbedError("several testbeds are running", hint=f"select one with --ground: {names}")
    return running[0]


def remove_remains() -> None:
    """Remove what is left of testbeds whose supervisor was killed, and logs that were kept long enough.

    Their processes and mounts are gone already, with the supervisor's namespaces.
    """
    for folder in base().glob(f"{_PREFIX}*"):
        # It may end at this moment, or somebody else may remove it: test sessions begin side by side.
        with suppress(FileNotFoundError):
            age = time.time() - folder.stat().st_mtime
            only_logs = not is_ground(folder)
            if age > (_LOGS_KEPT_SECONDS if only_logs else _START_SECONDS) and not is_alive(folder):
                supervisor.remove_cgroups(folder.name)
                supervisor.remove_folder(folder, keep_logs=not only_logs)
