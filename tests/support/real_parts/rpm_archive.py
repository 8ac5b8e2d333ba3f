"""Archives of RPM packages, made here and signed: Debian's kernel headers under the names of other distributions.

The content is a real kernel's, so that modules can be built against it; names, versions and the folders below /usr/src
are those that the other distribution would give them. What Debian's headers of all flavours share is not in the
packages but in the image that they are installed in.
"""

from __future__ import annotations

import os
import shutil
from collections.abc import Iterable, Iterator
from contextlib import contextmanager
from dataclasses import dataclass
from pathlib import Path

from testbed.command import run
from testbed.kernels import KernelPackage
from testbed.packages import PrivateApt, unpack

PACKAGES = ("createrepo-c", "gpg", "gpg-agent", "rpm")
PACKAGE_MANAGERS = (
    *("dnf", "zypper", "binutils", "gawk", "gcc", "gpg", "kmod", "libelf-dev", "make", "patch", "rpm", "xz-utils"),
)
"""What Debian has of them, with the tools that their distributions' templates use."""

_SPEC = """\
Name: {name}
Version: {version}
Release: {release}
Summary: Made for a test
License: GPL-2.0-only
AutoReqProv: no
{provides}
%description
Made for a test.
%install
mkdir -p %{{buildroot}}/usr/src
{install}
%files
/usr
"""
_MACROS = {
    # Nothing is stripped, compressed or linked: the files are to be as they are.
    "__os_install_post": "%{nil}",
    "debug_package": "%{nil}",
    "_build_id_links": "none",
    "_binary_payload": "w1.gzdio",
    "__gpg": "/usr/bin/gpg",
}


@dataclass(frozen=True, slots=True)
class RpmPackage:
    """One package: ``version`` and ``release`` as RPM splits them, ``folders`` by where they go below the root."""

    name: str
    version: str
    release: str
    provides: tuple[str, ...] = ()
    folders: tuple[tuple[Path, str], ...] = ()

    def spec(self) -> str:
        """Write what rpmbuild reads."""
        copies = [
            f"mkdir -p %{{buildroot}}{Path(to).parent}\ncp -al {at} %{{buildroot}}{to}" for at, to in self.folders
        ]
        provides = f"Provides: {' '.join(self.provides)}\n" if self.provides else ""
        return _SPEC.format(
            name=self.name, version=self.version, release=self.release, provides=provides, install="\n".join(copies)
        )


@dataclass(frozen=True, slots=True)
class Signer:
    """Somebody with a key, kept in a folder; ``name`` tells it from other keys."""

    home: Path
    name: str

    @property
    def public_key(self) -> str:
        """In the form that rpm imports."""
        return run(["gpg", "--batch", "--armor", "--export"], env=self._environment)

    @property
    def _environment(self) -> dict[str, str]:
        return {"GNUPGHOME": str(self.home)}

    def make_archive(self, folder: Path, packages: Iterable[RpmPackage]) -> None:
        """Build and sign packages, and the archive's index of them."""
        folder.mkdir(parents=True)
        macros = {**_MACROS, "_rpmdir": str(folder), "_topdir": str(folder / "build"), "_gpg_name": self.name}
        defines = [word for name, value in macros.items() for word in ("--define", f"{name} {value}")]
        for package in packages:
            spec = folder / f"{package.name}.spec"
            spec.write_text(package.spec())
            run(["rpmbuild", "-bb", "--quiet", *defines, spec], timeout=300)
            spec.unlink()
        shutil.rmtree(folder / "build")
        run(["rpmsign", *defines, "--addsign", *sorted(folder.rglob("*.rpm"))], env=self._environment)
        run(["createrepo_c", "--quiet", folder])
        index = folder / "repodata" / "repomd.xml"
        run(["gpg", "--batch", "--armor", "--detach-sign", index], env=self._environment)
        index.with_name("repomd.xml.key").write_text(self.public_key)


def companions(kernel: KernelPackage) -> tuple[str, str]:
    """Name the two packages that those of a kernel's headers refer to."""
    numbers, _, flavour = kernel.release.partition("-")
    series = ".".join(numbers.split(".")[:2])
    return f"linux-headers-{numbers}-{flavour.split('-')[0]}-common", f"linux-kbuild-{series}"


def package_managers(kernel: KernelPackage) -> str:
    """Write the command that gives a Debian image all package managers, and what Debian's headers stand on.

    It is the first one of a Dockerfile: the tests' engines have it in their cache from the start.
    """
    packages = " ".join((*PACKAGE_MANAGERS, *companions(kernel)))
    return (
        f"RUN apt-get update -q && apt-get install -q --yes --no-install-recommends {packages}"
        " && ln -s dnf /usr/bin/yum"
    )


@contextmanager
def signer(home: Path, name: str) -> Iterator[Signer]:
    """Make a key, for as long as the block runs."""
    home.mkdir(mode=0o700, parents=True)
    environment = {"GNUPGHOME": str(home)}
    make = ["gpg", "--batch", "--quiet", "--passphrase", "", "--quick-generate-key", name, "rsa2048", "sign", "never"]
    run(make, env=environment)
    try:
        yield Signer(home, name)
    finally:
        run(["gpgconf", "--kill", "gpg-agent"], env=environment)


class Headers:
    """A real kernel's headers, under any release."""

    def __init__(self, kernel: KernelPackage, folder: Path) -> None:
        self._folder = folder
        (deb,) = PrivateApt().download([f"{kernel.headers_package}={kernel.version}"], folder / "debs")
        unpack(deb, folder / "tree")
        self._own = folder / "tree/usr/src" / kernel.headers_package

    def under(self, release: str, place: str) -> tuple[tuple[Path, str], ...]:
        """Return the folders of a package that brings them to ``place`` for a kernel that calls itself ``release``."""
        renamed = self._folder / release
        shutil.copytree(self._own, renamed, symlinks=True, copy_function=os.link)
        for link in renamed.iterdir():
            if link.is_symlink():
                target = (self._own / link.readlink()).resolve()
                link.unlink()
                link.symlink_to(f"/{target.relative_to(self._folder.resolve() / 'tree')}")
        _replace(renamed / "include/config/kernel.release", f"{release}\n")
        _replace(renamed / "include/generated/utsrelease.h", f'#define UTS_RELEASE "{release}"\n')
        variables = renamed / ".kernelvariables"
        kept = [line for line in variables.read_text().splitlines() if "KERNELRELEASE" not in line]
        _replace(variables, "\n".join([*kept, f"override KERNELRELEASE = {release}", ""]))
        return ((renamed, place),)


def _replace(path: Path, text: str) -> None:
    """Write a file anew: what is there is a link to the file of all releases."""
    path.unlink()
    path.write_text(text)
