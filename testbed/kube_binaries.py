"""Where the Kubernetes binaries come from: the user's own, or built once from Debian's source package and cached.

A user's own are those of KUBEBUILDER_ASSETS, which are used or refused, never passed over. Each release is started with
the flags that it knows (:mod:`testbed.kube_release`).
"""

from __future__ import annotations

import hashlib
import os
import re
import shutil
from collections.abc import Collection
from dataclasses import dataclass
from pathlib import Path

from testbed import archive_faults, kube_patches, kube_release
from testbed.cache import cache_root, cached_folder, kept_folder, last_kept_folder
from testbed.command import run, run_logged
from testbed.errors import ArchiveError, UnsupportedMachineError
from testbed.packages import PrivateApt, ensure_packages, refreshed_apt, unpack
from testbed.progress import Progress, Step, warn

CONTROL_PLANE = ("kube-apiserver", "kube-controller-manager", "kube-scheduler")
NEEDED = (*CONTROL_PLANE, "kubelet")
BUILT = (*NEEDED, "kubectl")
OWN = "KUBEBUILDER_ASSETS"
_BUILD_PACKAGES = ("golang-go", "rsync", "jq", "dpkg-dev", "make")
_BUILD_TIMEOUT = 3600.0


@dataclass(frozen=True, slots=True)
class KubeBinaries:
    """Paths of the Kubernetes programs."""

    folder: Path
    release: str
    """As ``1.20.2``."""
    minor: int

    @classmethod
    def of(cls, folder: Path) -> KubeBinaries:
        """Ask the programs of a folder which release they are.

        Raises:
            UnsupportedMachineError: they do not say it, or are older than what the testbed can start.
        """
        said = run([folder / "kubelet", "--version"], check=False).strip()
        release = kube_release.parse_release(said)
        if release is None or release[1] < kube_release.OLDEST:
            hint = f"the testbed starts Kubernetes 1.{kube_release.OLDEST} and later"
            raise UnsupportedMachineError(f"{folder}/kubelet --version says {said!r}", hint=hint)
        return cls(folder, *release)

    def path(self, name: str) -> Path:
        """Return the path of one program."""
        return self.folder / name

    @property
    def etcd(self) -> str:
        """The etcd that comes with them, as with a release; without one the tree's."""
        own = self.folder / "etcd"
        return str(own) if os.access(own, os.X_OK) else "etcd"


def ensure_kube_binaries(progress: Progress) -> KubeBinaries:
    """Return the binaries, building them first when this machine has none (several minutes, once)."""
    if own := os.environ.get(OWN):
        return own_binaries(Path(own))
    try:
        folder = _newest(progress)
    except (ArchiveError, UnsupportedMachineError) as error:
        before = last_kept_folder(f"kubernetes-*-{mends_digest()}")
        if before is None:
            raise
        warn(f"the Kubernetes that was built before is used, {before.name}:\n{error}")
        folder = before
    return KubeBinaries.of(folder)


def _newest(progress: Progress) -> Path:
    """Return the programs of the newest source that the archives give, built when they are not in the cache."""
    apt = refreshed_apt()
    gone: list[str] = []
    while True:
        version = source_version(apt.cache("showsrc", "kubernetes"), gone)
        try:
            return _built(apt, version, progress)
        except ArchiveError as error:
            # Lists that were fetched anew meanwhile may name another one.
            warn(f"the source of Kubernetes {version} cannot be downloaded:\n{error}")
            gone.append(version)


def _built(apt: PrivateApt, version: str, progress: Progress) -> Path:
    name = f"kubernetes-{version}-{mends_digest()}"
    if found := kept_folder(name):
        return found
    ensure_packages(_BUILD_PACKAGES)
    with progress.step(f"Build Kubernetes {version} from source (about 5 min on 2 cores, once)") as step:
        return cached_folder(name, lambda folder: _build(apt, version, folder, step), step)


def own_binaries(folder: Path) -> KubeBinaries:
    """Return the programs of a folder that the user names.

    Raises:
        UnsupportedMachineError: one is missing, or the release is too old.
    """
    if missing := [name for name in NEEDED if not os.access(folder / name, os.X_OK)]:
        hint = f"the testbed needs {', '.join(NEEDED)} there; without {OWN} it builds its own"
        raise UnsupportedMachineError(f"{OWN}={folder} has no {', '.join(missing)}", hint=hint)
    return KubeBinaries.of(folder)


def source_version(showsrc: str, gone: Collection[str] = ()) -> str:
    """Return the version of the source package from what `apt-cache showsrc` prints; the newest comes first.

    Raises:
        UnsupportedMachineError: there is none but those that are ``gone``.
    """
    for version in re.findall(r"^Version: (\S+)$", showsrc, re.MULTILINE):
        if version not in gone:
            return str(version)
    other = f" but {', '.join(gone)}, which cannot be downloaded" if gone else ""
    hint = f"set {OWN} to a folder with {', '.join(NEEDED)}, or {archive_faults.ANOTHER}"
    message = f"the Debian archives of this machine have no source package kubernetes{other}"
    raise UnsupportedMachineError(message, hint=hint)


def mends_digest() -> str:
    """Return a short digest of everything but the version that decides what the build makes."""
    recipe = repr((kube_patches.MENDS, kube_patches.REFLECT2_PACKAGE, BUILT))
    return hashlib.sha256(recipe.encode()).hexdigest()[:10]


def _build(apt: PrivateApt, version: str, folder: Path, step: Step) -> None:
    # Beside the entry and not in /tmp: the build takes 4 GB and /tmp may be in memory.
    # One name for each entry, which one run makes at a time: what a killed run has left is removed.
    workplace = cache_root() / f".kubernetes-build-{version}-{mends_digest()}"
    run(["rm", "-rf", workplace], timeout=300)
    workplace.mkdir()
    log = cache_root() / "kubernetes-build.log"
    log.unlink(missing_ok=True)
    try:
        step.detail("downloading the source")
        tree = apt.source("kubernetes", version, workplace)
        for deb in apt.download([kube_patches.REFLECT2_PACKAGE], workplace / "debs"):
            unpack(deb, workplace / "reflect2")
        kube_patches.apply_mends(tree, workplace / "reflect2")
        _make(tree, workplace, log, step)
        for name in BUILT:
            shutil.copy2(tree / "_output/local/bin/linux" / _architecture() / name, folder / name)
        log.unlink()
    finally:
        # Go's module folders are read-only, which stops rmtree but not rm.
        run(["rm", "-rf", workplace], timeout=300)


def _make(tree: Path, workplace: Path, log: Path, step: Step) -> None:
    gopath = workplace / "go"
    (gopath / "src/k8s.io").mkdir(parents=True)
    checkout = gopath / "src/k8s.io/kubernetes"
    checkout.symlink_to(tree)
    env = {
        "GOPATH": str(gopath),
        "GOCACHE": str(workplace / "go-build"),
        "CGO_ENABLED": "0",
        # The names of the packages being compiled are the only progress that the build can show.
        "GOFLAGS": "-v",
        # Bash finds the tree through the link only when PWD says so.
        "PWD": str(checkout),
    }
    what = " ".join(f"cmd/{name}" for name in BUILT)
    run_logged(["make", f"WHAT={what}"], log=log, step=step, timeout=_BUILD_TIMEOUT, cwd=checkout, env=env)


def _architecture() -> str:
    return run(["dpkg", "--print-architecture"]).strip()
