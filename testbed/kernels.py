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
from collections.abc import Collection, Mapping, Sequence
from dataclasses import dataclass
from pathlib import Path

from testbed.cache import cache_root, cached_folder
from testbed.command import run
from testbed.errors import TestbedError
from testbed.packages import PrivateApt, ensure_packages, unpack
from testbed.progress import Progress, Step

CLOUD = "cloud-amd64"
"""Small and quick to boot; without USB, graphics and most of the drivers for real machines."""
GENERIC = "amd64"
"""The kernel of an ordinary installation."""
PACKAGES = ("kmod",)
"""What unpacking a kernel needs: depmod."""


@dataclass(frozen=True, slots=True, kw_only=True)
class KernelPackage:
    """One kernel of the Debian archives, with its files unpacked in the cache."""

    release: str
    """All of `uname -r`."""
    version: str
    """The version of the packages."""
    image_package: str
    headers_package: str
    module_layout_crc: str
    symvers: Path
    """The Module.symvers of its headers: the checksums of all its symbols."""
    tree: Path
    """The unpacked image package: boot/ and lib/modules/, with modules.dep."""

    @property
    def vmlinuz(self) -> Path:
        """The kernel image."""
        return self.tree / "boot" / f"vmlinuz-{self.release}"

    @property
    def config(self) -> Path:
        """The kernel's configuration."""
        return self.tree / "boot" / f"config-{self.release}"

    @property
    def modules(self) -> Path:
        """The folder of the kernel's modules."""
        return self.tree / "lib/modules" / self.release


def parse_image_packages(search: str, flavour: str = CLOUD) -> list[str]:
    """Return the releases of a flavour among what `apt-cache search --names-only ^linux-image-` prints, oldest first.

    Three numbers: a name such as linux-image-6.12-cloud-amd64 is a package that only depends on the newest.
    """
    names = re.compile(rf"^linux-image-(\d+\.\d+\.\d+[^\s-]*(?:-\d+)?-{flavour}) ", re.MULTILINE)
    return sorted(set(names.findall(search)), key=release_key)


def release_key(release: str) -> tuple[int, ...]:
    """Order kernel releases by their numbers: 6.1.0-9 before 6.1.0-10 before 6.12.1."""
    return tuple(int(number) for number in re.findall(r"\d+", release))


def parse_symvers(text: str) -> dict[str, str]:
    """Return symbol -> CRC from a Module.symvers file."""
    fields = (line.split("\t") for line in text.splitlines())
    return {words[1]: words[0] for words in fields if len(words) > 1}


def choose_releases(layouts: Mapping[str, str], count: int) -> list[str]:
    """Choose releases with pairwise different `module_layout` CRC, oldest first.

    The newest of all is always among them, as the kernel that a node is updated to. The others come from the oldest
    series, newest first: its images are the quickest to boot without hardware virtualisation.
    """
    releases = sorted(layouts, key=release_key)
    if not releases:
        raise TestbedError(f"no {CLOUD} kernel with headers in the archives", hint="run apt-get update")
    series = release_key(releases[0])[:2]
    by_preference = [
        releases[-1],
        *(release for release in reversed(releases) if release_key(release)[:2] == series),
        *(release for release in reversed(releases) if release_key(release)[:2] != series),
    ]
    chosen: dict[str, str] = {}
    for release in by_preference:
        chosen.setdefault(layouts[release], release)
    if len(chosen) < count:
        hint = "switch on bookworm-security or bookworm-backports in /etc/apt, which carry more kernels"
        raise TestbedError(f"only {len(chosen)} kernels here refuse each other's modules, not {count}", hint=hint)
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
    """Return `count` kernels that refuse each other's modules, oldest first, downloaded and unpacked."""
    ensure_packages(PACKAGES)
    with progress.step(f"Choose {count} kernels whose modules refuse each other") as step:
        apt = PrivateApt()
        apt.refresh()
        versions = available_releases(apt)
        symvers = _ensure_symvers(apt, versions, step)
        layouts = {release: parse_symvers(path.read_text())["module_layout"] for release, path in symvers.items()}
        chosen = choose_releases(layouts, count)
        step.detail(f"downloading {', '.join(chosen)}")
        return [
            _kernel(
                apt, release, version=versions[release], layout=layouts[release], symvers=symvers[release], step=step
            )
            for release in chosen
        ]


def newest_kernel(flavour: str, progress: Progress) -> KernelPackage:
    """Return the newest kernel of the distribution's own series in a flavour, downloaded and unpacked."""
    ensure_packages(PACKAGES)
    with progress.step(f"Provide the newest {flavour} kernel") as step:
        apt = PrivateApt()
        apt.refresh()
        versions = available_releases(apt, flavour)
        release = newest_release(versions, flavour)
        symvers = _ensure_symvers(apt, {release: versions[release]}, step)[release]
        layout = parse_symvers(symvers.read_text())["module_layout"]
        return _kernel(apt, release, version=versions[release], layout=layout, symvers=symvers, step=step)


def newest_release(releases: Collection[str], flavour: str = CLOUD) -> str:
    """Return the newest of a flavour's releases that is of the oldest series, the distribution's own."""
    series = {release_key(release)[:2] for release in releases}
    if not series:
        raise TestbedError(f"no {flavour} kernel with headers in the archives", hint="run apt-get update")
    return max((name for name in releases if release_key(name)[:2] == min(series)), key=release_key)


def find_kernel(release: str, progress: Progress) -> KernelPackage:
    """Return one kernel by its release, downloaded and unpacked."""
    if cached := _cached_kernel(release):
        return cached
    ensure_packages(PACKAGES)
    with progress.step(f"Provide kernel {release}") as step:
        apt = PrivateApt()
        apt.refresh()
        versions = available_releases(apt, flavour_of(release))
        if release not in versions:
            raise TestbedError(f"no kernel {release} in the archives", hint=f"there are {', '.join(versions)}")
        symvers = _ensure_symvers(apt, {release: versions[release]}, step)[release]
        layout = parse_symvers(symvers.read_text())["module_layout"]
        return _kernel(apt, release, version=versions[release], layout=layout, symvers=symvers, step=step)


def find_symvers(releases: Sequence[str], progress: Progress) -> dict[str, Path]:
    """Return release -> Module.symvers of kernels of any flavour; of those that the archives have no longer, none."""
    with progress.step(f"Read the symbols of {len(releases)} kernels") as step:
        apt = PrivateApt()
        apt.refresh()
        flavours = {flavour_of(release) for release in releases}
        versions = {name: version for flavour in flavours for name, version in available_releases(apt, flavour).items()}
        return _ensure_symvers(apt, {name: versions[name] for name in releases if name in versions}, step)


def flavour_of(release: str) -> str:
    """Return the flavour in a release: `cloud-amd64` of `6.1.0-56-cloud-amd64`."""
    return re.sub(r"^\d+\.\d+\.\d+[^-]*-(?:\d+-)?", "", release)


def _cached_kernel(release: str) -> KernelPackage | None:
    folder = cache_root() / "kernels"
    for tree in sorted(folder.glob(f"linux-image-{release}_*"), reverse=True):
        version = tree.name.rpartition("_")[2]
        symvers = folder / f"linux-headers-{release}_{version}" / "Module.symvers"
        if symvers.exists():
            layout = parse_symvers(symvers.read_text())["module_layout"]
            return _package(release, version=version, layout=layout, symvers=symvers, tree=tree)
    return None


def _ensure_symvers(apt: PrivateApt, versions: Mapping[str, str], step: Step) -> dict[str, Path]:
    found = {}
    for index, (release, version) in enumerate(versions.items()):
        step.detail(f"reading the symbols of {release}")
        step.percent(100 * index / len(versions))
        package = f"linux-headers-{release}"

        def make(folder: Path, package: str = package) -> None:
            (deb,) = apt.download([package], folder / "debs")
            (folder / "Module.symvers").write_bytes(file_of_package(deb, "Module.symvers"))
            run(["rm", "-rf", folder / "debs"])

        found[release] = cached_folder(f"kernels/{package}_{version}", make, step) / "Module.symvers"
    return found


def _kernel(apt: PrivateApt, release: str, *, version: str, layout: str, symvers: Path, step: Step) -> KernelPackage:
    package = f"linux-image-{release}"

    def make(folder: Path) -> None:
        (deb,) = apt.download([package], folder / "debs")
        unpack(deb, folder)
        run(["rm", "-rf", folder / "debs", folder / "usr/share/doc"])
        run(["depmod", "--basedir", folder, release])

    tree = cached_folder(f"kernels/{package}_{version}", make, step)
    return _package(release, version=version, layout=layout, symvers=symvers, tree=tree)


def _package(release: str, *, version: str, layout: str, symvers: Path, tree: Path) -> KernelPackage:
    return KernelPackage(
        release=release,
        version=version,
        image_package=f"linux-image-{release}",
        headers_package=f"linux-headers-{release}",
        module_layout_crc=layout,
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
