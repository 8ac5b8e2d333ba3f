"""Releases of dkms other than that of the base image, as Debian's suites have them, and images that offer one."""

from __future__ import annotations

import hashlib
from dataclasses import replace
from pathlib import Path

import pytest

from testbed import archive_faults
from testbed.apt_sources import Archive, sources_text
from testbed.cache import cached_folder
from testbed.command import run
from testbed.errors import ArchiveError, CommandError
from testbed.packages import machine_archives
from testbed.progress import warn
from testbed.testbed import Testbed
from tests.support.real_parts.images import derive

ARCHIVED = "http://archive.debian.org/debian"
"""Where suites go that the other archives no longer have."""
SETUP = (
    "COPY dkms.deb Packages /archive/",
    'RUN echo "deb [trusted=yes] file:/archive ./" >/etc/apt/sources.list.d/dkms.list;'
    r' printf "Package: dkms\nPin: origin \"\"\nPin-Priority: 1001\n" >/etc/apt/preferences.d/dkms',
)


def dkms_package(suite: str) -> Path:
    """Return the package dkms of a suite, out of the cache; without it the test is skipped where it is archived."""

    def make(folder: Path) -> None:
        base = replace(machine_archives()[0], suite=suite, components=("main",))
        try:
            _download(base, folder)
        except ArchiveError as error:
            warn(f"no dkms of {suite} in {base.uri}: {error}")
            try:
                _download(replace(base, uri=ARCHIVED), folder)
            except ArchiveError as another:
                if error.unreachable:
                    raise
                # It is no suite of the tree's own.
                pytest.skip(f"{base.uri} no longer gives the dkms of {suite}, and {ARCHIVED} does not: {another}")

    (package,) = cached_folder(f"dkms/{suite}", make).glob("*.deb")
    return package


def _download(archive: Archive, folder: Path) -> None:
    state = folder / "apt"
    (state / "lists/partial").mkdir(parents=True, exist_ok=True)
    (state / "sources.list").write_text(sources_text([archive]))
    options = [
        *("-o", f"Dir::Etc::sourcelist={state}/sources.list", "-o", "Dir::Etc::sourceparts=-"),
        *("-o", f"Dir::State::lists={state}/lists", "-o", f"Dir::Cache={state}", "-o", "APT::Sandbox::User=root"),
        *("-o", "Acquire::Languages=none", "-o", "APT::Update::Error-Mode=any"),
        # A suite that is no longer maintained is not signed anew.
        *("-o", "Acquire::Check-Valid-Until=false"),
    ]
    for words in (["update"], ["download", "dkms"]):
        try:
            run(["apt-get", *options, *words], cwd=folder, timeout=300)
        except CommandError as error:
            raise archive_faults.explained(f"`apt-get {words[0]}` of {archive.suite}", error) from error
    run(["rm", "-rf", state])


def offer(ground: Testbed, name: str, suite: str) -> str:
    """Make an image of the Debian one from which apt downloads the dkms of another suite; returns its release."""
    package = dkms_package(suite)
    content = package.read_bytes()
    fields = (
        run(["dpkg-deb", "--field", package, "Package", "Version", "Architecture", "Maintainer"]).strip(),
        "Filename: ./dkms.deb",
        f"Size: {len(content)}",
        f"SHA256: {hashlib.sha256(content).hexdigest()}",
        "Description: dkms",
    )
    derive(ground, name, {"dkms.deb": content, "Packages": "".join(f"{line}\n" for line in fields).encode()}, *SETUP)
    return run(["dpkg-deb", "--field", package, "Version"])
