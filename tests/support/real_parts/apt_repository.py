"""A real package archive on 127.0.0.1: signed, and with the headers of a kernel that no other archive has.

The headers are Debian's own, of the newest cloud kernel, under the name of a kernel that does not exist.
"""

from __future__ import annotations

import hashlib
import subprocess
from collections.abc import Iterable, Iterator, Sequence
from contextlib import contextmanager
from dataclasses import dataclass
from pathlib import Path
from tempfile import TemporaryDirectory

from testbed.packages import ensure_packages, refreshed_apt
from tests.support.real_parts.web_server import served

PACKAGES = ("dpkg-dev", "gpg", "gpg-agent")
"""What makes an archive of packages, and signs it."""

SUITE_FIELDS = "Origin: test\nLabel: test\nArchitectures: amd64\nComponents: main\nDate: {date}\n"


@dataclass(frozen=True, slots=True, kw_only=True)
class Archive:
    """Where the archive is served, and the key that who trusts it needs."""

    url: str
    public_key: bytes


@contextmanager
def served_headers(folder: Path, *, like: str, kernel: str, suites: Sequence[str]) -> Iterator[Archive]:
    """Serve the headers of ``like`` as those of ``kernel``, in every suite, while the block runs."""
    ensure_packages(PACKAGES)
    _headers_package(folder, like=like, kernel=kernel)
    packages = _run(["dpkg-scanpackages", "--multiversion", "."], cwd=folder)
    releases = [_suite(folder / "dists" / suite, packages) for suite in suites]
    with TemporaryDirectory(prefix="gpg-") as home:
        key = _sign(home, releases)
    with served(folder) as url:
        yield Archive(url=url, public_key=key)


def _suite(folder: Path, packages: bytes) -> Path:
    """Make a suite with all packages; returns its Release file."""
    pool = folder / "main" / "binary-amd64"
    pool.mkdir(parents=True)
    (pool / "Packages").write_bytes(packages)
    date = _run(["date", "-Ru"]).decode().strip()
    digest, size = hashlib.sha256(packages).hexdigest(), len(packages)
    entry = f"SHA256:\n {digest} {size} main/binary-amd64/Packages\n"
    release = folder / "Release"
    release.write_text(f"Suite: {folder.name}\nCodename: {folder.name}\n{SUITE_FIELDS.format(date=date)}{entry}")
    return release


def _headers_package(folder: Path, *, like: str, kernel: str) -> None:
    """Unpack Debian's package, rename what bears the kernel's name, and pack it again."""
    (original,) = refreshed_apt().download([f"linux-headers-{like}"], folder)
    tree = folder / "tree"
    _run(["dpkg-deb", "-R", str(original), str(tree)])
    original.unlink()
    source = tree / "usr" / "src" / f"linux-headers-{kernel}"
    (tree / "usr" / "src" / f"linux-headers-{like}").rename(source)
    links = tree / "lib" / "modules" / kernel
    (tree / "lib" / "modules" / like).rename(links)
    for link in links.iterdir():
        if link.is_symlink() and like in str(link.readlink()):
            target = str(link.readlink()).replace(like, kernel)
            link.unlink()
            link.symlink_to(target)
    for name in ("include/generated/utsrelease.h", "include/config/kernel.release"):
        path = source / name
        if path.exists():
            path.write_text(path.read_text().replace(like, kernel))
    control = tree / "DEBIAN" / "control"
    control.write_text(
        control.read_text().replace(f"Package: linux-headers-{like}\n", f"Package: linux-headers-{kernel}\n")
    )
    (tree / "DEBIAN" / "md5sums").unlink(missing_ok=True)
    _run(["dpkg-deb", "-Znone", "-b", str(tree), str(folder / f"linux-headers-{kernel}_1_amd64.deb")])
    _run(["rm", "-rf", str(tree)])


def _sign(home: str, releases: Iterable[Path]) -> bytes:
    """Sign Release files with a key made for them; returns the public key."""
    gpg = ["gpg", "--homedir", home, "--batch", "--quiet", "--pinentry-mode", "loopback", "--passphrase", ""]
    _run([*gpg, "--quick-generate-key", "archive@example.com", "ed25519", "sign", "1d"])
    for release in releases:
        _run([*gpg, "--clearsign", "--output", str(release.with_name("InRelease")), str(release)])
    key = _run([*gpg, "--armor", "--export"])
    _run(["gpgconf", "--homedir", home, "--kill", "all"])
    return key


def _run(argv: list[str], *, cwd: Path | None = None) -> bytes:
    done = subprocess.run(argv, cwd=cwd, capture_output=True, check=False)
    assert done.returncode == 0, f"{argv}: {done.stderr.decode(errors='replace')}"
    return done.stdout
