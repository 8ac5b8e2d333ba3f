"""A small signed Debian archive on 127.0.0.1 that changes as real ones do.

Packages are made of a few files. What is taken out of its pool answers 404, what is edited there has another checksum,
and what is published later has later dates.
"""

from __future__ import annotations

import email.utils
import hashlib
import os
import subprocess
import time
from collections.abc import Iterable, Mapping
from contextlib import ExitStack
from pathlib import Path
from tempfile import TemporaryDirectory

from tests.support.real_parts.web_server import served

SUITES = ("bookworm", "bookworm-security")
CONTROL = (
    "Package: {name}\nVersion: {version}\nArchitecture: amd64\nMaintainer: Test <test@example.com>\n"
    "Description: {name}\n"
)
SOURCE_CONTROL = (
    "Source: {name}\nMaintainer: Test <test@example.com>\nStandards-Version: 4.6.2\n\n"
    "Package: {name}\nArchitecture: any\nDescription: {name}\n"
)
CHANGELOG = (
    "{name} ({version}) unstable; urgency=low\n\n  * Test.\n\n"
    " -- Test <test@example.com>  Thu, 01 Jan 2026 00:00:00 +0000\n"
)


class SmallArchive:
    """The archive, served until the ``with`` block ends or it is switched off."""

    def __init__(self, folder: Path) -> None:
        self._folder = folder
        self.pool = folder / "pool"
        self.keyring = folder / "keyring.gpg"
        self._stack, self._server = ExitStack(), ExitStack()
        self._published = 0

    def __enter__(self) -> SmallArchive:
        self.pool.mkdir(parents=True)
        home = self._stack.enter_context(TemporaryDirectory(prefix="gpg-"))
        gpg = ["gpg", "--homedir", home, "--batch", "--quiet", "--pinentry-mode", "loopback", "--passphrase", ""]
        self._gpg = gpg
        _run([*gpg, "--quick-generate-key", "archive@example.com", "ed25519", "sign", "1d"])
        self._stack.callback(_run, ["gpgconf", "--homedir", home, "--kill", "all"])
        self.keyring.write_bytes(_run([*gpg, "--export"]))
        self.url = self._server.enter_context(served(self._folder))
        return self

    def __exit__(self, *_: object) -> None:
        self._server.close()
        self._stack.close()

    def switch_off(self) -> None:
        """Answer no more."""
        self._server.close()

    def package(self, name: str, version: str, files: Mapping[str, str] | None = None) -> Path:
        """Put a package into the pool; returns its file."""
        with TemporaryDirectory() as work:
            content = {f"usr/share/{name}/version": version} if files is None else files
            tree = {"DEBIAN/control": CONTROL.format(name=name, version=version), **content}
            _write(Path(work), tree)
            deb = self.pool / f"{name}_{version}_amd64.deb"
            _run(["dpkg-deb", "--root-owner-group", "-Znone", "--build", work, str(deb)])
        return deb

    def source(self, name: str, version: str) -> Path:
        """Put a source package into the pool; returns its description."""
        with TemporaryDirectory() as work:
            tree = {
                "debian/control": SOURCE_CONTROL.format(name=name),
                "debian/changelog": CHANGELOG.format(name=name, version=version),
                "debian/source/format": "3.0 (native)\n",
                "version": version,
            }
            _write(Path(work) / f"{name}-{version}", tree)
            _run(["dpkg-source", "--build", str(Path(work) / f"{name}-{version}")], cwd=self.pool)
        return self.pool / f"{name}_{version}.dsc"

    def publish(self, suites: Iterable[str] = SUITES, *, expired: bool = False) -> None:
        """Name all that is in the pool now in the suites' lists, and sign them."""
        lists = {
            "main/binary-amd64/Packages": _run(["dpkg-scanpackages", "--multiversion", "pool"], cwd=self._folder),
            "main/source/Sources": _run(["dpkg-scansources", "pool"], cwd=self._folder),
        }
        # Dates have seconds, and what is published next must be newer.
        self._published += 1
        date = time.time() - 86400 + self._published
        for suite in suites:
            self._publish(suite, lists, date, expired=expired)

    def _publish(self, suite: str, lists: Mapping[str, bytes], date: float, *, expired: bool) -> None:
        folder, sums = self._folder / "dists" / suite, ""
        for name, content in lists.items():
            (folder / name).parent.mkdir(parents=True, exist_ok=True)
            (folder / name).write_bytes(content)
            sums += f" {hashlib.sha256(content).hexdigest()} {len(content)} {name}\n"
        until = f"Valid-Until: {email.utils.formatdate(date + 1)}\n" if expired else ""
        fields = f"Origin: Debian\nSuite: {suite}\nCodename: {suite}\nArchitectures: amd64\nComponents: main\n"
        release, signed = folder / "Release", folder / "InRelease"
        release.write_text(f"{fields}Date: {email.utils.formatdate(date)}\n{until}SHA256:\n{sums}")
        signed.unlink(missing_ok=True)
        _run([*self._gpg, "--clearsign", "--output", str(signed), str(release)])
        for path in (signed, *(folder / name for name in lists)):
            os.utime(path, (date, date))

    def forget_suite(self, suite: str) -> None:
        """Take a suite away."""
        for name in ("Release", "InRelease"):
            (self._folder / "dists" / suite / name).unlink()


def flip_a_byte(path: Path, at: int = -1) -> None:
    """Change one bit of a file, as a disk does it: its size and its times stay."""
    was = path.stat()
    content = bytearray(path.read_bytes())
    content[at] ^= 1
    path.write_bytes(content)
    os.utime(path, ns=(was.st_atime_ns, was.st_mtime_ns))


def _write(folder: Path, files: Mapping[str, str]) -> None:
    for name, text in files.items():
        (folder / name).parent.mkdir(parents=True, exist_ok=True)
        (folder / name).write_text(text)
    folder.chmod(0o755)


def _run(argv: list[str], *, cwd: Path | None = None) -> bytes:
    done = subprocess.run(argv, cwd=cwd, capture_output=True, check=False)
    assert done.returncode == 0, f"{argv}: {done.stderr.decode(errors='replace')}"
    return done.stdout
