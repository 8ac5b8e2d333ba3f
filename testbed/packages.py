"""Debian packages: installed on this machine when missing, or downloaded only, without touching its apt sources."""

from __future__ import annotations

import os
import time
from collections.abc import Iterable, Iterator, Sequence
from contextlib import contextmanager
from pathlib import Path

from testbed import apt_sources
from testbed.cache import cache_root, locked
from testbed.command import run
from testbed.errors import CommandError, UnsupportedMachineError
from testbed.progress import Progress

_OS_RELEASE = Path("/etc/os-release")
_POLICY = Path("/usr/sbin/policy-rc.d")
_LISTS_STAY_FRESH = 12 * 3600.0
_APT_TIMEOUT = 600.0
_LOCK_WAIT = 120.0


def why_unsupported() -> str | None:
    """Say why this machine cannot carry a testbed and what to do, or return None when it can."""
    release = apt_sources.parse_os_release(_OS_RELEASE.read_text()) if _OS_RELEASE.exists() else {}
    if release.get("ID") != "debian":
        return "the testbed takes all its parts from Debian packages: run it on Debian (a container image will do)"
    if os.geteuid() != 0:
        return "the testbed starts a container engine and a kubelet: run it as root (sudo, or a root shell)"
    return None


def require_supported_machine() -> None:
    """Raise when the testbed cannot run here."""
    if reason := why_unsupported():
        raise UnsupportedMachineError("this machine cannot run the testbed", hint=reason)


def release_codename() -> str:
    """Return the code name of the Debian release that this machine runs."""
    return apt_sources.parse_os_release(_OS_RELEASE.read_text())["VERSION_CODENAME"]


def missing_packages(names: Iterable[str]) -> list[str]:
    """Return those of the packages that are not installed."""
    names = list(names)
    output = run(["dpkg-query", "--show", "--showformat", "${Package} ${db:Status-Status}\n", *names], check=False)
    installed = {line.split()[0] for line in output.splitlines() if line.endswith(" installed")}
    return [name for name in names if name not in installed]


def installed_version(name: str) -> str:
    """Return the version of a package that is installed."""
    return run(["dpkg-query", "--show", "--showformat", "${Version}", name])


def ensure_packages(names: Iterable[str], progress: Progress) -> None:
    """Install the packages that are missing; their services are not started."""
    missing = missing_packages(names)
    if not missing:
        return
    by_hand = f"install by hand, as root: apt-get update && apt-get install --no-install-recommends {' '.join(missing)}"
    if why_unsupported():
        raise UnsupportedMachineError(f"these Debian packages are missing: {', '.join(missing)}", hint=by_hand)
    with progress.step(f"Install {len(missing)} Debian packages") as step, locked("apt-install", step):
        step.detail(" ".join(missing))
        _update()
        with _services_stay_down():
            wait = ["-o", f"DPkg::Lock::Timeout={_LOCK_WAIT:.0f}"]
            install = ["apt-get", *wait, "install", "--yes", "--no-install-recommends", *missing_packages(names)]
            run(install, timeout=_APT_TIMEOUT, hint=by_hand)


def _update() -> None:
    """Update the machine's own lists; another apt that is at work is waited for, which apt itself does not do here."""
    deadline = time.monotonic() + _LOCK_WAIT
    while True:
        try:
            run(["apt-get", "update"], timeout=_APT_TIMEOUT)
        except CommandError as error:
            if "Could not get lock" not in error.output or time.monotonic() > deadline:
                raise
            time.sleep(2)
        else:
            return


@contextmanager
def _services_stay_down() -> Iterator[None]:
    """Keep packages such as docker.io from starting a daemon of the machine's own."""
    if _POLICY.exists():
        yield
        return
    _POLICY.write_text("#!/bin/sh\n# For the moment of an installation: no service is started.\nexit 101\n")
    _POLICY.chmod(0o755)
    try:
        yield
    finally:
        _POLICY.unlink()


def machine_apt(*argv: str, cwd: Path | None = None) -> str:
    """Run a command that reads the machine's own lists, while no other run updates them: there may be none then."""
    with locked("apt-install"):
        return run(argv, cwd=cwd)


def machine_archives() -> list[apt_sources.Archive]:
    """Return the Debian archives that this machine's own apt uses."""
    codename = release_codename()
    for attempt in ("as it is", "after an update"):
        targets = apt_sources.parse_index_targets(machine_apt("apt-get", "indextargets", "Created-By: Packages"))
        if archives := apt_sources.debian_archives(targets, codename):
            return archives
        # The lists that say whose archive it is are deleted in many container images.
        if attempt == "as it is" and os.geteuid() == 0:
            with locked("apt-install"):
                _update()
    hint = f"see that /etc/apt names an archive with suite {codename}, and run: apt-get update"
    raise UnsupportedMachineError(f"apt knows no archive of Debian {codename}", hint=hint)


class PrivateApt:
    """An apt with its own lists and sources, derived from the machine's: sources of packages are switched on here."""

    def __init__(self) -> None:
        self._root = cache_root() / "apt"
        self._options = [
            *("-o", f"Dir::Etc::sourcelist={self._root}/sources.list", "-o", "Dir::Etc::sourceparts=-"),
            *("-o", f"Dir::State::lists={self._root}/lists", "-o", f"Dir::Cache={self._root}/cache"),
            *("-o", "Dir::Cache::pkgcache=pkgcache.bin", "-o", "Dir::Cache::srcpkgcache=srcpkgcache.bin"),
            # The apt user may not read a private cache folder; hashes are checked either way.
            *("-o", "APT::Sandbox::User=root", "-o", "APT::Get::List-Cleanup=false"),
        ]

    def refresh(self, *, force: bool = False) -> None:
        """Update the lists when they are older than half a day, or at once."""
        with locked("apt-lists"):
            text = apt_sources.sources_text(machine_archives(), ("deb", "deb-src"))
            stamp, sources = self._root / "updated", self._root / "sources.list"
            age = time.time() - stamp.stat().st_mtime if stamp.exists() else _LISTS_STAY_FRESH
            if not force and age < _LISTS_STAY_FRESH and sources.read_text() == text:
                return
            for folder in ("lists/partial", "cache/archives/partial"):
                (self._root / folder).mkdir(parents=True, exist_ok=True)
            sources.write_text(text)
            run(["apt-get", *self._options, "update"], timeout=_APT_TIMEOUT)
            stamp.touch()

    def cache(self, *arguments: str) -> str:
        """Ask apt-cache something."""
        return run(["apt-cache", *self._options, *arguments])

    def source(self, package: str, version: str, folder: Path) -> Path:
        """Download and unpack a source package; return the folder of its tree."""
        argv = ["apt-get", *self._options, "source", "--only-source", f"{package}={version}"]
        run(argv, cwd=folder, timeout=_APT_TIMEOUT)
        return next(path for path in folder.iterdir() if path.is_dir())

    def download(self, packages: Sequence[str], folder: Path) -> list[Path]:
        """Download the newest versions of packages into `folder`, without installing them."""
        folder.mkdir(parents=True, exist_ok=True)
        argv = ["apt-get", *self._options, "download", *packages]
        try:
            run(argv, cwd=folder, timeout=_APT_TIMEOUT)
        except CommandError:
            # A point release may have replaced the versions that the lists speak of.
            self.refresh(force=True)
            run(argv, cwd=folder, timeout=_APT_TIMEOUT)
        return sorted(folder.glob("*.deb"))


def unpack(deb: Path, folder: Path) -> None:
    """Unpack a package's files into `folder`; none of its scripts is run."""
    folder.mkdir(parents=True, exist_ok=True)
    run(["dpkg-deb", "--extract", deb, folder])
