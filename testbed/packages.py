"""Debian packages: those that the tree has, and those that are downloaded only, without touching its apt sources."""

from __future__ import annotations

import time
from collections.abc import Iterable, Sequence
from pathlib import Path

from testbed import apt_sources
from testbed.cache import cache_root, locked
from testbed.command import run
from testbed.errors import CommandError, UnsupportedMachineError

_MARK = Path("/etc/driverwright-machine/os-release")
"""What tools/machine puts into its tree: the os-release of the system around it."""
_LIST = "tools/tree/packages"
_LISTS_STAY_FRESH = 12 * 3600.0
_APT_TIMEOUT = 600.0


def why_unsupported() -> str | None:
    """Say why the testbed cannot run here and which command runs it, or return None when it can."""
    if _MARK.is_file():
        return None
    return "it needs the machine tree: make test, or make pytest TESTS=PATH for some tests (any command: tools/machine)"


def require_supported_machine() -> None:
    """Raise when the testbed cannot run here."""
    if reason := why_unsupported():
        raise UnsupportedMachineError("the testbed cannot run outside of its tree", hint=reason)


def release_codename() -> str:
    """Return the code name of the Debian release of the tree."""
    return apt_sources.parse_os_release(Path("/etc/os-release").read_text())["VERSION_CODENAME"]


def surrounding_system() -> str:
    """Return the name of the system around the tree, for records of what was tested."""
    return apt_sources.parse_os_release(_MARK.read_text()).get("PRETTY_NAME", "unknown")


def missing_packages(names: Iterable[str]) -> list[str]:
    """Return those of the packages that are not installed."""
    names = list(names)
    output = run(["dpkg-query", "--show", "--showformat", "${Package} ${db:Status-Status}\n", *names], check=False)
    installed = {line.split()[0] for line in output.splitlines() if line.endswith(" installed")}
    return [name for name in names if name not in installed]


def installed_version(name: str) -> str:
    """Return the version of a package that is installed."""
    return run(["dpkg-query", "--show", "--showformat", "${Version}", name])


def ensure_packages(names: Iterable[str]) -> None:
    """Check that the tree has packages.

    Raises:
        UnsupportedMachineError: outside of the tree, or its list lacks one of them.
    """
    require_supported_machine()
    if missing := missing_packages(names):
        hint = f"add them to {_LIST}, of which the tree is made anew"
        raise UnsupportedMachineError(f"the tree has no {', '.join(missing)}", hint=hint)


def machine_archives() -> list[apt_sources.Archive]:
    """Return the Debian archives that the tree was made from."""
    targets = apt_sources.parse_index_targets(run(["apt-get", "indextargets", "Created-By: Packages"]))
    return apt_sources.debian_archives(targets, release_codename())


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


def refreshed_apt() -> PrivateApt:
    """Return the private apt with lists of today."""
    apt = PrivateApt()
    apt.refresh()
    return apt


def unpack(deb: Path, folder: Path) -> None:
    """Unpack a package's files into `folder`; none of its scripts is run."""
    folder.mkdir(parents=True, exist_ok=True)
    run(["dpkg-deb", "--extract", deb, folder])
