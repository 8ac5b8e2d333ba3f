"""Real Debian kernels for the guests: which there are, which refuse each other's modules, and their files.

Debian's kernels have MODVERSIONS: what a module must agree with is not the version string but the checksum (CRC) of
every symbol it imports, first of all of `module_layout`, which every module imports. Two kernels whose `module_layout`
differs refuse each other's modules whatever these are; two ABI versions in a row often do not.
"""

from __future__ import annotations

import io
import re
import subprocess
import tarfile
from collections.abc import Callable, Collection, Mapping, Sequence
from dataclasses import dataclass
from pathlib import Path

from testbed import archive_faults
from testbed.cache import cache_root, cached_folder, kept_folder
from testbed.command import run
from testbed.errors import ArchiveError, TestbedError
from testbed.packages import PrivateApt, ensure_packages, release_codename, unpack
from testbed.progress import Progress, Step, warn

CLOUD = "cloud-amd64"
"""Small and quick to boot; without USB, graphics and most of the drivers for real machines."""
GENERIC = "amd64"
"""The kernel of an ordinary installation."""
PACKAGES = ("kmod",)
"""What unpacking a kernel needs: depmod."""
_CODENAMES = {"12": "bookworm", "13": "trixie"}


@dataclass(frozen=True, slots=True, kw_only=True)
class KernelPackage:
    """One kernel of the Debian archives, with its files unpacked in the cache."""

    release: str
    """All of `uname -r`."""
    codename: str
    """The Debian release whose archives have it."""
    version: str
    """The version of the packages."""
    image_package: str
    headers_package: str
    module_layout_crc: str
    """What its modules must agree with: a CRC, and its release where it was built without MODVERSIONS."""
    symvers: Path
    """The Module.symvers of its headers: the checksums of all its symbols."""
    tree: Path
    """The unpacked image package: boot/ and lib/modules/, with modules.dep."""

    @property
    def vmlinuz(self) -> Path:
        """The kernel image."""
        return self._file("vmlinuz")

    @property
    def config(self) -> Path:
        """The kernel's configuration."""
        return self._file("config")

    @property
    def modules(self) -> Path:
        """The folder of the kernel's modules."""
        return self.tree / "lib/modules" / self.release

    def _file(self, name: str) -> Path:
        """Return a file beside the modules, where packages from 6.19 on have it, else in /boot."""
        beside = self.modules / name
        return beside if beside.exists() else self.tree / "boot" / f"{name}-{self.release}"


def parse_image_packages(search: str, flavour: str = CLOUD) -> list[str]:
    """Return the releases of a flavour among what `apt-cache search --names-only ^linux-image-` prints, oldest first.

    Three numbers: a name such as linux-image-6.12-cloud-amd64 is a package that only depends on the newest.
    """
    names = re.compile(rf"^linux-image-(\d+\.\d+\.\d+[^\s-]*(?:-\d+)?-{flavour}) ", re.MULTILINE)
    return sorted(set(names.findall(search)), key=release_key)


def release_key(release: str) -> tuple[int, ...]:
    """Order kernel releases by their numbers: 6.1.0-9 before 6.1.0-10 before 6.12.1+deb13 before 6.12.1+deb13.1.

    Those of the flavour (amd64) do not count.
    """
    return tuple(int(number) for number in re.findall(r"\d+", release.removesuffix(flavour_of(release))))


def parse_symvers(text: str) -> dict[str, str]:
    """Return symbol -> CRC from a Module.symvers file."""
    fields = (line.split("\t") for line in text.splitlines())
    return {words[1]: words[0] for words in fields if len(words) > 1}


def module_layout(symvers: str, release: str) -> str:
    """Return what modules of a kernel must agree with first: the CRC of module_layout.

    A kernel without MODVERSIONS does not export that symbol, and takes modules of its own release only.
    """
    return parse_symvers(symvers).get("module_layout", release)


def choose_releases(layouts: Mapping[str, str], count: int) -> list[str]:
    """Choose releases with pairwise different `module_layout` CRC, oldest first.

    The newest of all is always among them, as the kernel that a node is updated to. The others come from the oldest
    series, newest first: its images are the quickest to boot without hardware virtualisation.
    """
    releases = sorted(layouts, key=release_key)
    if not releases:
        raise TestbedError(f"no {CLOUD} kernel with headers in the archives", hint=archive_faults.ANOTHER)
    series = _series(releases[0])
    by_preference = [
        releases[-1],
        *(release for release in reversed(releases) if _series(release) == series),
        *(release for release in reversed(releases) if _series(release) != series),
    ]
    chosen: dict[str, str] = {}
    for release in by_preference:
        chosen.setdefault(layouts[release], release)
    if len(chosen) < count:
        raise TestbedError(
            f"only {len(chosen)} kernels here refuse each other's modules, not {count}", hint=archive_faults.ANOTHER
        )
    return sorted(list(chosen.values())[:count], key=release_key)


def available_releases(apt: PrivateApt, flavour: str = CLOUD) -> dict[str, str]:
    """Return release -> package version of all kernels whose image and headers can both be had."""
    releases = parse_image_packages(apt.cache("search", "--names-only", rf"^linux-image-.*-{flavour}$"), flavour)
    packages = [f"linux-headers-{release}" for release in releases]
    versions = parse_candidates(apt.cache("policy", *packages)) if packages else {}
    return {name.removeprefix("linux-headers-"): version for name, version in versions.items()}


def parse_candidates(policy: str) -> dict[str, str]:
    """Return package -> candidate version from what `apt-cache policy` prints."""
    found = re.findall(r"^(\S+):\n(?:  .*\n)*?  Candidate: (\S+)$", policy, re.MULTILINE)
    return {package: version for package, version in found if version != "(none)"}


def choose_kernels(count: int, progress: Progress) -> list[KernelPackage]:
    """Return `count` kernels that refuse each other's modules, oldest first, downloaded and unpacked.

    One that the archives name and do not give is passed over; where too few are left, those in the cache count too.
    """
    ensure_packages(PACKAGES)
    with progress.step(f"Choose {count} kernels whose modules refuse each other") as step:
        offer = _Offer(CLOUD, step)
        while True:
            versions = offer.named()
            symvers = offer.all_symvers(versions)
            if len(symvers) < len(versions):
                continue
            layouts = {release: _module_layout(path) for release, path in symvers.items()}
            try:
                chosen = choose_releases(layouts, count)
            except TestbedError as error:
                kept = {name: kernel for name, kernel in _kept_kernels(CLOUD).items() if name not in layouts}
                if not kept:
                    raise
                warn(f"kernels of the cache are used that the archives do not give: {', '.join(kept)}\n{error}")
                chosen = choose_releases(layouts | {name: one.module_layout_crc for name, one in kept.items()}, count)
            else:
                kept = {}
            step.detail(f"downloading {', '.join(chosen)}")
            found = [kept.get(release) or offer.kernel(release, versions[release]) for release in chosen]
            given = [kernel for kernel in found if kernel is not None]
            if len(given) == count:
                return given


def newest_kernel(flavour: str, progress: Progress, codename: str = "") -> KernelPackage:
    """Return the newest kernel of the distribution's own series in a flavour, downloaded and unpacked.

    The distribution is the tree's, or another Debian release.
    Where the archives do not give the newest that they name, it is the next one; at last one of the cache.
    """
    ensure_packages(PACKAGES)
    with progress.step(f"Provide the newest {flavour} kernel") as step:
        offer = _Offer(flavour, step, codename)
        own = min(map(_series, offer.named()), default=())
        while versions := {release: version for release, version in offer.named().items() if _series(release) == own}:
            newest = newest_release(versions, flavour)
            if kernel := offer.kernel(newest, versions[newest]):
                return kernel
        kept = _kept_kernels(flavour, codename)
        newest = newest_release(kept, flavour)
        warn(f"kernel {newest} of the cache is used: the archives give no {flavour} kernel")
        return kept[newest]


def newest_of_each_series(releases: Collection[str]) -> list[str]:
    """Return the newest release of each series, the oldest series first."""
    newest = {_series(name): name for name in sorted(releases, key=release_key)}
    return [newest[series] for series in sorted(newest)]


def series_of(codename: str, flavour: str, progress: Progress) -> list[str]:
    """Return the newest release of each series in a Debian release and its backports, its own series first."""
    with progress.step(f"List the {flavour} kernels of {codename}") as step:
        return newest_of_each_series(_Offer(flavour, step, codename).named())


def newest_release(releases: Collection[str], flavour: str = CLOUD) -> str:
    """Return the newest of a flavour's releases that is of the oldest series, the distribution's own."""
    series = set(map(_series, releases))
    if not series:
        raise TestbedError(f"no {flavour} kernel with headers in the archives", hint=archive_faults.ANOTHER)
    return max((name for name in releases if _series(name) == min(series)), key=release_key)


def find_kernel(release: str, progress: Progress) -> KernelPackage:
    """Return one kernel by its release, downloaded and unpacked."""
    if cached := _cached_kernel(release):
        return cached
    ensure_packages(PACKAGES)
    with progress.step(f"Provide kernel {release}") as step:
        offer = _Offer(flavour_of(release), step, codename_of(release))
        while release in (versions := offer.named()):
            if kernel := offer.kernel(release, versions[release]):
                return kernel
        hint = f"there are {', '.join(sorted(versions, key=release_key)) or 'none'}; or {archive_faults.ANOTHER}"
        raise TestbedError(f"no kernel {release} in the archives", hint=hint)


def find_symvers(releases: Sequence[str], progress: Progress) -> dict[str, Path]:
    """Return release -> Module.symvers of kernels of any flavour; of those that the archives do not give, none."""
    with progress.step(f"Read the symbols of {len(releases)} kernels") as step:
        found: dict[str, Path] = {}
        for codename, flavour in sorted({(codename_of(release), flavour_of(release)) for release in releases}):
            offer = _Offer(flavour, step, codename)
            named = offer.named()
            found |= offer.all_symvers({release: named[release] for release in releases if release in named})
        return {release: found[release] for release in releases if release in found}


def flavour_of(release: str) -> str:
    """Return the flavour in a release: `cloud-amd64` of `6.1.0-56-cloud-amd64`."""
    return re.sub(r"^\d+\.\d+\.\d+[^-]*-(?:\d+-)?", "", release)


def codename_of(release: str) -> str:
    """Return the Debian release that has a kernel: trixie for `6.12.118+deb13-amd64`, for others the tree's own."""
    version = re.search(r"\+deb(\d+)", release)
    return _CODENAMES.get(version[1] if version else "", "") or release_codename()


def parse_parts(shown: str, release: str) -> list[str]:
    """Return the packages that hold the files of a kernel, from what `apt-cache show` prints of its image package.

    From 6.19 on linux-image only depends on them: linux-base (configuration), linux-binary, linux-modules.
    """
    needs = re.search(r"^Depends: (.*)$", shown, re.MULTILINE)
    names = re.findall(r"(?:^|[ ,])(linux-[a-z]+-\S+)", needs[1] if needs else "")
    return [name for name in names if name.endswith(f"-{release}")]


def _cached_kernel(release: str) -> KernelPackage | None:
    """Return a kernel of the cache, the newest version that is there whole."""
    for name in sorted(_names(f"linux-image-{release}_*"), key=_last_made, reverse=True):
        version = name.rpartition("_")[2]
        tree = kept_folder(f"kernels/{name}")
        headers = kept_folder(f"kernels/linux-headers-{release}_{version}")
        if tree and headers:
            return _package(release, version=version, symvers=headers / "Module.symvers", tree=tree)
    return None


def _kept_kernels(flavour: str, codename: str = "") -> dict[str, KernelPackage]:
    """Return release -> kernel of a flavour and Debian release of all that are in the cache, with their headers."""
    codename = codename or release_codename()
    releases = {name.removeprefix("linux-image-").rpartition("_")[0] for name in _names("linux-image-*_*")}
    found = {
        name: _cached_kernel(name) for name in releases if (flavour_of(name), codename_of(name)) == (flavour, codename)
    }
    return {name: kernel for name, kernel in found.items() if kernel is not None}


def _names(pattern: str) -> list[str]:
    return [path.name for path in (cache_root() / "kernels").glob(pattern)]


def _last_made(name: str) -> float:
    return (cache_root() / "kernels" / name).stat().st_mtime


class _Offer:
    """The kernels of a flavour in the archives: those that they name, but for what they turned out not to give."""

    def __init__(self, flavour: str, step: Step, codename: str = "") -> None:
        self._flavour, self._step = flavour, step
        self._apt = PrivateApt(codename)
        self._gone: set[tuple[str, str]] = set()
        self._is_away = False
        try:
            self._apt.refresh()
        except ArchiveError as error:
            if not _kept_kernels(flavour, codename):
                raise
            warn(f"the archives cannot be asked for kernels:\n{error}")
            self._is_away = True

    def named(self) -> dict[str, str]:
        """Return release -> version; lists that were fetched anew meanwhile may name others than before."""
        named = {} if self._is_away else available_releases(self._apt, self._flavour)
        return {release: version for release, version in named.items() if (release, version) not in self._gone}

    def all_symvers(self, versions: Mapping[str, str]) -> dict[str, Path]:
        """Return release -> Module.symvers of those that the archives give."""
        found = {}
        for index, (release, version) in enumerate(versions.items()):
            self._step.percent(100 * index / len(versions))
            if path := self._symvers(release, version):
                found[release] = path
        return found

    def kernel(self, release: str, version: str) -> KernelPackage | None:
        """Return a kernel, or None when the archives do not give it."""
        package = f"linux-image-{release}"

        def make(folder: Path) -> None:
            parts = parse_parts(self._apt.cache("show", f"{package}={version}"), release)
            for deb in self._apt.download([f"{name}={version}" for name in (package, *parts)], folder / "debs"):
                unpack(deb, folder)
            run(["rm", "-rf", folder / "debs", folder / "usr/share/doc"])
            if not (folder / "lib").exists():
                # Packages from Debian 13 on have it there, and rely on the link of an installed system.
                (folder / "lib").symlink_to("usr/lib")
            run(["depmod", "--basedir", folder, release])

        symvers = self._symvers(release, version)
        tree = symvers and self._folder(package, release, version, make)
        return _package(release, version=version, symvers=symvers, tree=tree) if symvers and tree else None

    def _symvers(self, release: str, version: str) -> Path | None:
        package = f"linux-headers-{release}"

        def make(folder: Path) -> None:
            self._step.detail(f"reading the symbols of {release}")
            (deb,) = self._apt.download([f"{package}={version}"], folder / "debs")
            (folder / "Module.symvers").write_bytes(file_of_package(deb, "Module.symvers"))
            run(["rm", "-rf", folder / "debs"])

        folder = self._folder(package, release, version, make)
        return folder / "Module.symvers" if folder else None

    def _folder(self, package: str, release: str, version: str, make: Callable[[Path], None]) -> Path | None:
        try:
            return cached_folder(f"kernels/{package}_{version}", make, self._step)
        except ArchiveError as error:
            warn(f"kernel {release} is passed over, the archives name it and do not give it:\n{error}")
            self._gone.add((release, version))
            return None


def _series(release: str) -> tuple[int, ...]:
    """Return the numbers of a release's series: 6.1."""
    return release_key(release)[:2]


def _module_layout(symvers: Path) -> str:
    release = symvers.parent.name.removeprefix("linux-headers-").rpartition("_")[0]
    return module_layout(symvers.read_text(), release)


def _package(release: str, *, version: str, symvers: Path, tree: Path) -> KernelPackage:
    return KernelPackage(
        release=release,
        codename=codename_of(release),
        version=version,
        image_package=f"linux-image-{release}",
        headers_package=f"linux-headers-{release}",
        module_layout_crc=_module_layout(symvers),
        symvers=symvers,
        tree=tree,
    )


def file_of_package(deb: Path, name: str) -> bytes:
    """Return the content of the one file called `name` in a package, without unpacking the rest."""
    data = subprocess.run(["dpkg-deb", "--fsys-tarfile", deb], capture_output=True, check=True).stdout
    with tarfile.open(fileobj=io.BytesIO(data)) as archive:
        for member in archive:
            if member.isfile() and Path(member.name).name == name:
                file = archive.extractfile(member)
                return file.read() if file else b""
    raise TestbedError(f"{deb.name} holds no {name}")
