"""The rules of a newer Kubernetes than the testbed's: two programs, built once from Debian sid's packages of source.

``apiextensions-apiserver`` is the part of an API server that serves custom resources, with a ``main`` of its own;
``policy-judge`` (``policy_judge.go`` beside this file) asks the admission plugin for policies. sid moves: nothing is
pinned, what was found is named, and whoever cannot have them is told why.

The packages of Go libraries put their files below ``/usr/share/gocode`` (Debian's policy for Go), so that a folder into
which they are unpacked is a GOPATH, and sid's Go needs nothing of the system around it.
"""

from __future__ import annotations

import hashlib
import re
import time
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from pathlib import Path

from testbed.cache import cache_root, cached_folder, forget_old, kept_folder, last_kept_folder
from testbed.command import run, run_logged
from testbed.errors import ArchiveError, OverdueError, TestbedError
from testbed.kernels import parse_candidates
from testbed.packages import PrivateApt, refreshed_apt, require_supported_machine, unpack
from testbed.progress import Progress, Step, warn

SUITE = "sid"
CUSTOM_RESOURCES = "apiextensions-apiserver"
JUDGE = "policy-judge"
SOURCES = ("golang-k8s-apiextensions-apiserver-dev", "golang-k8s-apiserver-dev")
"""The packages that the programs are of; these depend on all others that their build needs, but for Go."""
COMPILER = "golang-go"

_JUDGE_SOURCE = Path(__file__).with_name("policy_judge.go")
_ENTRIES = "newer-kubernetes"
_KEPT = 2
_TIMEOUT = 7200.0
_TRIED_AGAIN = 86400.0
"""Seconds until the packages that did not build are tried again."""
_FLAGS = (
    "-trimpath",
    # Nobody debugs them.
    "-gcflags=all=-dwarf=false",
    "-ldflags=-s -w -X k8s.io/component-base/version.gitVersion=v{release}",
)


class NotBuiltError(TestbedError):
    """sid's packages cannot be had or do not build."""


@dataclass(frozen=True, slots=True)
class NewerKubernetes:
    """The folder of the programs, which are called by the versions of the packages that they were built from."""

    folder: Path

    @property
    def versions(self) -> dict[str, str]:
        """Package -> version of what they were built from."""
        lines = (self.folder / "packages").read_text().splitlines()
        return dict(line.split(" ", 1) for line in lines)

    @property
    def release(self) -> str:
        """The release of Kubernetes, as ``1.36.4``."""
        return release_of(self.versions[SOURCES[0]])

    def path(self, name: str) -> Path:
        """Return the path of one program."""
        return self.folder / name

    def __str__(self) -> str:
        return f"Kubernetes {self.release} ({', '.join(map(' '.join, self.versions.items()))})"


def release_of(version: str) -> str:
    """Return the release of Kubernetes that a package of one of its libraries is of: 1.36.4 of ``0.36.4-1``.

    Its libraries have the numbers of its releases, with 0 for 1.
    """
    match = re.match(r"(?:\d+:)?0\.(\d+\.\d+)", version)
    return f"1.{match[1]}" if match else version


def of_the_build(packages: Mapping[str, str]) -> list[str]:
    """Choose from a set of packages with all their dependencies what a build without C reads: Go, and its libraries."""
    pattern = re.compile(r"golang-\S+-(dev|src|go)")
    return sorted(name for name in packages if pattern.fullmatch(name))


def ensure_newer_kubernetes(progress: Progress) -> NewerKubernetes:
    """Return the programs of the newest packages, building them first when this machine has none (minutes, once).

    Where the newest cannot be had or do not build, those that were built before serve.

    Raises:
        NotBuiltError: there are none; the message says why.
    """
    require_supported_machine()
    try:
        return NewerKubernetes(_newest(progress))
    except TestbedError as error:
        if before := last_kept_folder(f"{_ENTRIES}/[!.]*"):
            warn(f"the rules of a newer Kubernetes are those that were built before, {before.name}:\n{error}")
            return NewerKubernetes(before)
        if isinstance(error, NotBuiltError):
            raise
        raise NotBuiltError(f"{', '.join(SOURCES)} of Debian {SUITE}: {error}") from error


def _newest(progress: Progress) -> Path:
    apt = refreshed_apt(SUITE)
    versions = parse_candidates(apt.cache("policy", *SOURCES))
    if missing := [name for name in SOURCES if name not in versions]:
        raise NotBuiltError(f"Debian {SUITE} has no {', '.join(missing)}")
    name = f"{_ENTRIES}/{entry_name(versions)}"
    if found := kept_folder(name):
        return found
    release = release_of(versions[SOURCES[0]])
    with progress.step(f"Build the rules of Kubernetes {release} (6 CPU-minutes, once)") as step:
        folder = cached_folder(name, lambda folder: _build_once(apt, name, versions, folder, step), step)
    forget_old(folder, _KEPT)
    return folder


def entry_name(versions: Mapping[str, str]) -> str:
    """Return the name of the cache's entry for these packages, and for how they are built here."""
    recipe = repr((_FLAGS, COMPILER, _JUDGE_SOURCE.read_text()))
    return "_".join((*(versions[name] for name in SOURCES), hashlib.sha256(recipe.encode()).hexdigest()[:10]))


def _build_once(apt: PrivateApt, name: str, versions: Mapping[str, str], folder: Path, step: Step) -> None:
    """Build; what did not build within the last day is not tried again."""
    if reason := _failed_before(name):
        raise NotBuiltError(f"Kubernetes of Debian {SUITE} did not build, and is tried again a day later: {reason}")
    try:
        _build(apt, versions, folder, step)
    except (ArchiveError, OverdueError):
        # The next hour's archive may be another one, and the machine less busy.
        raise
    except TestbedError as error:
        _failure(name).write_text(str(error))
        raise NotBuiltError(f"Kubernetes of Debian {SUITE} did not build: {error}") from error
    _failure(name).unlink(missing_ok=True)


def _failure(name: str) -> Path:
    return cache_root() / _ENTRIES / f".failed-{Path(name).name}"


def _failed_before(name: str) -> str:
    """Return why the same packages did not build within the last day, or nothing."""
    try:
        age = time.time() - _failure(name).stat().st_mtime
        return _failure(name).read_text() if 0 <= age < _TRIED_AGAIN else ""
    except FileNotFoundError:
        return ""


def _build(apt: PrivateApt, versions: Mapping[str, str], folder: Path, step: Step) -> None:
    # As for the testbed's own Kubernetes: beside the entry, because /tmp may be in memory and this takes 4 GB.
    workplace = cache_root() / f".{_ENTRIES}-build"
    run(["rm", "-rf", workplace], timeout=_TIMEOUT)
    workplace.mkdir()
    log = cache_root() / f"{_ENTRIES}-build.log"
    log.unlink(missing_ok=True)
    try:
        found = _unpack_all(apt, workplace, step)
        go = _go(workplace / "tree")
        goal = release_of(versions[SOURCES[0]])
        for program, source in ((CUSTOM_RESOURCES, f"k8s.io/{CUSTOM_RESOURCES}"), (JUDGE, str(_JUDGE_SOURCE))):
            flags = [flag.format(release=goal) for flag in _FLAGS]
            argv: list[str | Path] = [go, "build", *flags, "-o", folder / program, source]
            run_logged(argv, log=log, step=step, timeout=_TIMEOUT, cwd=workplace, env=_environment(workplace))
        named = {name: found[name] for name in (*SOURCES, *(name for name in found if name.endswith("-go")))}
        (folder / "packages").write_text("".join(f"{name} {version}\n" for name, version in named.items()))
        log.unlink()
    finally:
        # All sources and what was compiled of them: 4 GB.
        run(["rm", "-rf", workplace], timeout=_TIMEOUT)


def _unpack_all(apt: PrivateApt, workplace: Path, step: Step) -> dict[str, str]:
    """Unpack the packages of the build into the folder ``tree`` of the workplace; return name -> version."""
    step.detail("downloading the packages")
    needed = apt.closure([*SOURCES, COMPILER])
    names = of_the_build(needed)
    debs = apt.download(names, workplace / "debs")
    for index, deb in enumerate(debs):
        step.percent(100 * index / len(debs))
        step.detail(f"unpacking {deb.name}")
        unpack(deb, workplace / "tree")
        deb.unlink()
    return {name: needed[name] for name in names}


def _go(tree: Path) -> Path:
    """Return sid's Go: the program itself, since /usr/bin/go is a link out of the tree."""
    found: Sequence[Path] = sorted(tree.glob("usr/lib/go-*/bin/go"))
    if not found:
        raise NotBuiltError(f"{COMPILER} of Debian {SUITE} has no usr/lib/go-*/bin/go")
    return found[-1]


def _environment(workplace: Path) -> dict[str, str]:
    return {
        "GO111MODULE": "off",
        "GOPATH": str(workplace / "tree/usr/share/gocode"),
        "GOCACHE": str(workplace / "go-build"),
        "GOTOOLCHAIN": "local",
        "CGO_ENABLED": "0",
        # The names of the packages being compiled are the only progress that the build can show.
        "GOFLAGS": "-v",
        "HOME": str(workplace),
    }
