"""Debian packages: those that the tree has, and those that are downloaded only, without touching its apt sources."""

from __future__ import annotations

import os
import shutil
import tempfile
import time
from collections.abc import Iterable, Sequence
from pathlib import Path

from testbed import apt_sources, archive_faults
from testbed.cache import cache_root, locked
from testbed.command import run
from testbed.errors import ArchiveError, CommandError, UnsupportedMachineError
from testbed.progress import warn

_MARK = Path("/etc/driverwright-machine/os-release")
"""What tools/machine puts into its tree: the os-release of the system around it."""
_LIST = "tools/tree/packages"
_LISTS_STAY_FRESH = 12 * 3600.0
_ASKED_AGAIN = 600.0
"""Seconds until lists that could not be updated are asked for again."""
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


def archives_of(codename: str, *, backports: bool = False) -> list[apt_sources.Archive]:
    """Return the archives of a Debian release, beside those that the tree was made from."""
    return apt_sources.archives_of(machine_archives(), codename, backports=backports)


class PrivateApt:
    """An apt with its own lists and sources, derived from the machine's: sources of packages are switched on here.

    With a ``codename`` it is of another Debian release, backports included, and knows of no installed package.
    What an archive takes away is looked for elsewhere: in lists that are fetched anew, in the other suites, among the
    older versions; and lists that cannot be updated stay in use.
    """

    def __init__(self, codename: str = "") -> None:
        self._codename = "" if codename and codename == release_codename() else codename
        self._root = cache_root() / (f"apt-{self._codename}" if self._codename else "apt")
        self._sources, self._stamp = self._root / "sources.list", self._root / "updated"
        self._lists = self._root / "lists"
        self._is_renewed = False
        self._options = [
            *("-o", f"Dir::Etc::sourcelist={self._sources}", "-o", "Dir::Etc::sourceparts=-"),
            *("-o", f"Dir::State::lists={self._lists}", "-o", f"Dir::Cache={self._root}/cache"),
            *("-o", "Dir::Cache::pkgcache=pkgcache.bin", "-o", "Dir::Cache::srcpkgcache=srcpkgcache.bin"),
            # The apt user may not read a private cache folder; hashes are checked either way.
            *("-o", "APT::Sandbox::User=root", "-o", "APT::Get::List-Cleanup=false"),
            # apt-get update ends with 0 when it has got nothing.
            *("-o", "APT::Update::Error-Mode=any"),
            *(("-o", "Dir::State::status=/dev/null") if self._codename else ()),
        ]

    def refresh(self) -> None:
        """Update the lists when they are older than half a day; those that cannot be updated stay in use.

        Raises:
            ArchiveError: there are none then.
        """
        archives = archives_of(self._codename, backports=True) if self._codename else machine_archives()
        with locked(f"{self._root.name}-lists"):
            text = apt_sources.sources_text(archives, ("deb", "deb-src"))
            age = time.time() - self._stamp.stat().st_mtime if self._stamp.exists() else _LISTS_STAY_FRESH
            if 0 <= age < _LISTS_STAY_FRESH and self._sources.exists() and self._sources.read_text() == text:
                return
            # Until it is done, no list is known to be of these sources.
            self._stamp.unlink(missing_ok=True)
            (self._root / "cache/archives/partial").mkdir(parents=True, exist_ok=True)
            self._lists.mkdir(exist_ok=True)
            self._sources.write_text(text)
            self._update()

    def _update(self) -> None:
        try:
            self._apt_get("update")
        except ArchiveError as error:
            # apt does not fetch a list again that the archive has not changed, damaged or not.
            if archive_faults.DAMAGED_LISTS in str(error) and self._renew():
                return
            if not self._has_lists():
                raise
            warn(f"not all lists of the archives could be updated, the old ones stay in use:\n{error}")
            self._stamp.touch()
            again = time.time() - _LISTS_STAY_FRESH + _ASKED_AGAIN
            os.utime(self._stamp, (again, again))
        else:
            self._stamp.touch()

    def _has_lists(self) -> bool:
        targets = run(["apt-get", *self._options, "indextargets", "--format", "$(FILENAME)", "Created-By: Packages"])
        return any(Path(name).exists() for name in targets.splitlines())

    def _renew(self) -> bool:
        """Fetch all lists anew and put them in the place of those that are there; tells whether that worked."""
        for left in self._root.glob(".lists-*"):
            shutil.rmtree(left, ignore_errors=True)
        fresh = Path(tempfile.mkdtemp(prefix=".lists-", dir=self._root))
        try:
            fresh.chmod(0o755)
            self._apt_get("-o", f"Dir::State::lists={fresh}", "update")
            self._stamp.unlink(missing_ok=True)
            shutil.rmtree(self._lists, ignore_errors=True)
            fresh.rename(self._lists)
        except ArchiveError:
            return False
        else:
            for name in ("pkgcache.bin", "srcpkgcache.bin"):
                (self._root / "cache" / name).unlink(missing_ok=True)
            self._stamp.touch()
            return True
        finally:
            shutil.rmtree(fresh, ignore_errors=True)

    def _renew_once(self) -> bool:
        if self._is_renewed or not self._sources.exists():
            return False
        self._is_renewed = True
        with locked(f"{self._root.name}-lists"):
            return self._renew()

    def cache(self, *arguments: str) -> str:
        """Ask apt-cache something.

        Raises:
            ArchiveError: the lists cannot be used, and cannot be fetched anew.
        """
        try:
            return self._ask(*arguments)
        except ArchiveError:
            if not self._renew_once():
                raise
            return self._ask(*arguments)

    def _ask(self, *arguments: str) -> str:
        try:
            return run(["apt-cache", *self._options, *arguments])
        except CommandError as error:
            raise archive_faults.explained(f"`apt-cache {' '.join(arguments)[:300]}`", error) from error

    def closure(self, packages: Sequence[str]) -> dict[str, str]:
        """Return package -> version of packages and all that they depend on, as on a machine that has none.

        Raises:
            ArchiveError: the lists lack one of them.
        """
        nothing = ("-o", "Dir::State::status=/dev/null")
        argv = ["apt-get", *self._options, *nothing, "--simulate", "--no-install-recommends", "install", *packages]
        try:
            output = run(argv, timeout=_APT_TIMEOUT)
        except CommandError as error:
            raise archive_faults.explained(f"`apt-get --simulate install {' '.join(packages)}`", error) from error
        return apt_sources.parse_simulation(output)

    def source(self, package: str, version: str, folder: Path) -> Path:
        """Download and unpack a source package; return the folder of its tree.

        Raises:
            ArchiveError: no archive gives this version, with lists that are fetched anew either.
        """
        self._fetch(["source", "--only-source", f"{package}={version}"], folder)
        return next(path for path in folder.iterdir() if path.is_dir())

    def download(self, packages: Sequence[str], folder: Path) -> list[Path]:
        """Download the newest versions of packages that can be had into `folder`, without installing them.

        Raises:
            ArchiveError: no archive gives one of them in any version, or in the one that was asked for.
        """
        folder.mkdir(parents=True, exist_ok=True)
        try:
            self._fetch(["download", *packages], folder)
        except ArchiveError as error:
            # The others were fetched all the same.
            for package in packages:
                if not any(folder.glob(f"{package.partition('=')[0]}_*.deb")):
                    self._download_older(package, folder, error)
        return sorted(folder.glob("*.deb"))

    def _download_older(self, package: str, folder: Path, error: ArchiveError) -> None:
        """Download what the archives still have of a package; ``error`` says why it is not the newest."""
        versions = [] if "=" in package else archive_faults.parse_versions(self.cache("madison", package))
        for version in versions:
            try:
                self._apt_get("download", f"{package}={version}", cwd=folder)
            except ArchiveError as another:
                if another.unreachable and version != versions[0]:
                    break
                continue
            warn(f"{package} {version} is used, because {versions[0]} cannot be downloaded:\n{error}")
            return
        raise error

    def _fetch(self, arguments: Sequence[str], folder: Path) -> None:
        """Let apt-get fetch something into a folder; where the archives fail, once more with lists fetched anew."""
        before = set(folder.iterdir())
        try:
            self._apt_get(*arguments, cwd=folder)
        except ArchiveError:
            # A point release may have replaced the versions that the lists speak of.
            if not self._renew_once():
                raise
            for path in set(folder.iterdir()) - before:
                run(["rm", "-rf", path])
            self._apt_get(*arguments, cwd=folder)

    def _apt_get(self, *arguments: str, cwd: Path | None = None) -> None:
        try:
            run(["apt-get", *self._options, *arguments], cwd=cwd, timeout=_APT_TIMEOUT)
        except CommandError as error:
            raise archive_faults.explained(f"`apt-get {' '.join(arguments)[:300]}`", error) from error


def refreshed_apt(codename: str = "") -> PrivateApt:
    """Return the private apt of the tree's release, or of another one, with lists of today."""
    apt = PrivateApt(codename)
    apt.refresh()
    return apt


def unpack(deb: Path, folder: Path) -> None:
    """Unpack a package's files into `folder`; none of its scripts is run."""
    folder.mkdir(parents=True, exist_ok=True)
    # Ten thousands of files take minutes on a busy machine.
    run(["dpkg-deb", "--extract", deb, folder], timeout=1800)
