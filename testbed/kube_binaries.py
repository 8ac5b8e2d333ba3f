"""Where the Kubernetes binaries come from: the user's own, or built once from Debian's source package and cached.

A user's own are taken from KUBEBUILDER_ASSETS, or from a folder of PATH, when they are complete and of a release whose
kubelet still speaks to Docker: the testbed starts all parts with that release's options.
"""

from __future__ import annotations

import hashlib
import os
import re
import shutil
import tempfile
from dataclasses import dataclass
from pathlib import Path

from testbed import kube_patches
from testbed.cache import cache_root, cached_folder
from testbed.command import run, run_logged
from testbed.errors import UnsupportedMachineError
from testbed.packages import PrivateApt, ensure_packages, unpack
from testbed.progress import Progress, Step

CONTROL_PLANE = ("kube-apiserver", "kube-controller-manager", "kube-scheduler")
BUILT = (*CONTROL_PLANE, "kubelet", "kubectl")
_BUILD_PACKAGES = ("golang-go", "rsync", "jq", "dpkg-dev", "make")
_BUILD_TIMEOUT = 3600.0
# Later ones have no --insecure-port=0 and --port=0, and from 1.24 on no dockershim.
_USABLE_MINORS = range(20, 23)


@dataclass(frozen=True, slots=True)
class KubeBinaries:
    """Paths of the Kubernetes programs."""

    folder: Path

    def path(self, name: str) -> Path:
        """Return the path of one program."""
        return self.folder / name


def ensure_kube_binaries(progress: Progress) -> KubeBinaries:
    """Return the binaries, building them first when this machine has none (several minutes, once)."""
    if own := _folder_of_own_binaries():
        return KubeBinaries(own)
    apt = PrivateApt()
    apt.refresh()
    version = source_version(apt.cache("showsrc", "kubernetes"))
    name = f"kubernetes-{version}-{mends_digest()}"
    if (found := cache_root() / name).is_dir():
        return KubeBinaries(found)
    ensure_packages(_BUILD_PACKAGES, progress)
    with progress.step(f"Build Kubernetes {version} from source (about 5 min on 2 cores, once)") as step:
        return KubeBinaries(cached_folder(name, lambda folder: _build(apt, version, folder, step), step))


def _folder_of_own_binaries() -> Path | None:
    needed = (*CONTROL_PLANE, "kubelet")
    folders = [os.environ.get("KUBEBUILDER_ASSETS", ""), *os.environ.get("PATH", "").split(":")]
    for folder in (Path(name) for name in folders if name):
        complete = all((folder / name).is_file() for name in needed)
        if complete and is_usable_release(run([folder / "kubelet", "--version"], check=False)):
            return folder
    return None


def is_usable_release(version: str) -> bool:
    """Return, from the output of `kubelet --version`, whether the testbed can start this release."""
    match = re.search(r"v1\.(\d+)\.", version)
    return bool(match and int(match[1]) in _USABLE_MINORS)


def source_version(showsrc: str) -> str:
    """Return the version of the source package from what `apt-cache showsrc` prints; the newest comes first."""
    if match := re.search(r"^Version: (\S+)$", showsrc, re.MULTILINE):
        return match[1]
    hint = "set KUBEBUILDER_ASSETS to a folder with kube-apiserver, kube-controller-manager, kube-scheduler, kubelet"
    raise UnsupportedMachineError("the Debian archives of this machine have no source package kubernetes", hint=hint)


def mends_digest() -> str:
    """Return a short digest of everything but the version that decides what the build makes."""
    recipe = repr((kube_patches.MENDS, kube_patches.REFLECT2_PACKAGE, BUILT))
    return hashlib.sha256(recipe.encode()).hexdigest()[:10]


def _build(apt: PrivateApt, version: str, folder: Path, step: Step) -> None:
    # Beside the entry and not in /tmp: the build takes 4 GB and /tmp may be in memory.
    workplace = Path(tempfile.mkdtemp(prefix=".kubernetes-build-", dir=cache_root()))
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
