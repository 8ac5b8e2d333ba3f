"""Which Docker Engine a testbed runs: the one that its tree has, or a newer one of Debian sid, unpacked into the cache.

dockerd and containerd of sid need glibc 2.34, which the tree has (2.36). sid's runc needs 2.38: containers are run by
the tree's runc. sid moves, so its engine has no version here: whoever records what was tested asks the running one.
"""

from __future__ import annotations

import json
from dataclasses import dataclass
from pathlib import Path

from testbed import unpacked
from testbed.command import environment, run
from testbed.errors import CommandError, UnsupportedMachineError
from testbed.progress import Step

SUITE = "sid"
_PACKAGES = ("docker.io", "containerd")
_PROGRAMS = ("usr/sbin/dockerd", "usr/bin/containerd", "usr/bin/containerd-shim-runc-v2")


@dataclass(frozen=True, slots=True, kw_only=True)
class EngineKind:
    """An engine and how it is started; ``name`` says so in a testbed's state.

    ``min_api`` is the oldest version of its API that it answers to (empty: its default), ``containerd_store`` whether
    containerd keeps its images.
    """

    name: str
    of_sid: bool = False
    min_api: str = ""
    containerd_store: bool = False


OF_TREE = EngineKind(name="")
OF_SID = EngineKind(name="sid", of_sid=True)
AS_29 = EngineKind(name="sid-as-29", of_sid=True, min_api="1.44", containerd_store=True)
"""As Docker Engine 29 starts by default."""
KINDS = {kind.name: kind for kind in (OF_TREE, OF_SID, AS_29)}


def programs(step: Step) -> Path:
    """Return the root of sid's programs in the cache, unpacked when they are not there yet.

    Raises:
        ArchiveError: the archives give none, and none was unpacked before.
        UnsupportedMachineError: they do not run in this tree.
    """
    root = unpacked.packages("docker", SUITE, _PACKAGES, step)
    for program in _PROGRAMS:
        try:
            run([root / program, "-v" if program.endswith("v2") else "--version"])
        except (CommandError, OSError) as error:
            raise UnsupportedMachineError(f"{program} of {SUITE} does not run here: {error}") from error
    return root


def variables(kind: EngineKind, step: Step) -> dict[str, str]:
    """Return the environment in which the engine is started."""
    found = {"DOCKER_MIN_API_VERSION": kind.min_api} if kind.min_api else {}
    if kind.of_sid:
        root = programs(step)
        found["PATH"] = f"{root}/usr/sbin:{root}/usr/bin:{environment()['PATH']}"
    return found


def flags(kind: EngineKind, folder: Path) -> list[str]:
    """Write the engine's configuration into a folder; return the flags that name it and say where images are kept."""
    config = folder / "docker.json"
    features = {"features": {"containerd-snapshotter": True}} if kind.containerd_store else {}
    config.write_text(json.dumps(features))
    return [f"--config-file={config}", *(() if kind.containerd_store else ("--storage-driver=overlay2",))]
