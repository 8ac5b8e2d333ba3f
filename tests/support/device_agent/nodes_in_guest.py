"""Runs in a guest: loads the stand-in for a GPU's driver again and again, and prints what became of /dev each time.

It needs nothing but what device-agent's image has. The document: name of a step -> :class:`Moment` as a dictionary.
"""

import json
import os
import stat
import subprocess
import sys
from collections.abc import Callable, Mapping, Sequence
from contextlib import suppress
from pathlib import Path
from typing import NamedTuple

from device_agent.device_nodes.make import look_at_nodes, make_nodes
from device_agent.device_nodes.read import read_proc
from device_agent.device_nodes.values import Wanted
from device_agent.device_nodes.wanted import wanted_nodes

MODULE = "/gpustand.ko"
DEV = Path("/dev")


class Moment(NamedTuple):
    """What there was after a step.

    ``why``: of the driver. ``whys`` and ``did``: path -> what was reported of a node. ``nodes``: path -> major, minor,
    mode, uid and gid. ``links``: name in /dev/char -> target. ``answers``: path -> what reading it gave. ``in_use``:
    the module's references while one of its nodes was open, and when it was closed again; none: it cannot be opened.
    """

    why: str
    whys: Mapping[str, str]
    did: Mapping[str, str]
    nodes: Mapping[str, tuple[int, ...]]
    links: Mapping[str, str]
    answers: Mapping[str, str]
    in_use: Sequence[int]


def _wanted() -> Wanted:
    proc = read_proc()
    return wanted_nodes(proc.devices, proc.params, proc.cards, proc.capabilities, proc.why)


def _moment(*, writes: bool) -> Moment:
    wanted = _wanted()
    made = make_nodes(wanted) if writes else look_at_nodes(wanted)
    nodes = {str(path): _node(path) for path in sorted([*DEV.glob("nvidia*"), *DEV.glob("nvidia-caps/*")])}
    devices = {path: node for path, node in nodes.items() if node}
    return Moment(
        why=wanted.why,
        whys={node.path: node.why for node in made if node.why},
        did={node.path: node.did for node in made if node.did},
        nodes=devices,
        links={path.name: str(path.readlink()) for path in DEV.glob("char/*") if "nvidia" in str(path.readlink())},
        answers={path: _answer(path) for path in devices},
        in_use=_in_use("/dev/nvidiactl"),
    )


def _node(path: Path) -> tuple[int, ...]:
    found = path.lstat()
    if not stat.S_ISCHR(found.st_mode):
        return ()
    numbers = os.major(found.st_rdev), os.minor(found.st_rdev)
    return (*numbers, stat.S_IMODE(found.st_mode), found.st_uid, found.st_gid)


def _answer(path: str) -> str:
    try:
        return Path(path).read_text().strip()
    except OSError as error:
        return f"{error.strerror}"


def _in_use(path: str) -> tuple[int, ...]:
    with suppress(OSError):
        with Path(path).open("rb"):
            opened = _references()
        return opened, _references()
    return ()


def _references() -> int:
    return int(Path("/sys/module/gpustand/refcnt").read_text())


def _load(**parameters: int) -> None:
    _busybox("insmod", MODULE, *(f"{name}={value}" for name, value in parameters.items()))


def _unload() -> None:
    _busybox("rmmod", "gpustand")


def _clear() -> None:
    """Unload, and remove what a boot would have removed: /dev is made anew then."""
    _unload()
    for path in [*DEV.glob("nvidia*"), *DEV.glob("nvidia-caps/*"), *DEV.glob("char/*")]:
        if not path.is_dir():
            path.unlink()


def _busybox(*words: str) -> None:
    subprocess.run(["/bin/busybox", *words], check=True, stdout=sys.stderr)


STEPS: Sequence[tuple[str, Callable[[], None], bool]] = (
    ("without a driver", lambda: None, True),
    ("loaded", lambda: _load(uvm_major=240, cards=2, device_file_mode=0o660, device_file_gid=44), True),
    ("once more", lambda: None, True),
    ("unloaded", _unload, True),
    ("loaded with other numbers", lambda: _load(uvm_major=241, stranger_major=240), False),
    ("and made", lambda: None, True),
    ("unloaded again", _unload, True),
    ("loaded without nvidia-uvm", lambda: _load(uvm_major=-1, stranger_major=241), True),
    ("unloaded and cleared", _clear, True),
    ("loaded with ModifyDeviceFiles 0", lambda: _load(modify_device_files=0), True),
)
"""Name, what happens to the driver, and whether nodes are made then."""


def main() -> None:
    """Print the document."""
    moments = {}
    for name, happen, is_made in STEPS:
        happen()
        moments[name] = _moment(writes=is_made)._asdict()
    json.dump(moments, sys.stdout)


if __name__ == "__main__":
    main()
