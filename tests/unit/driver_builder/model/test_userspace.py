"""Versions of user spaces, and what tells one from another."""

from dataclasses import replace

import pytest

from driver_builder.model.userspace import (
    Userspace,
    UserspaceArchive,
    UserspacePackages,
    upstream_version,
    version_in_name,
)

ARCHIVE = Userspace(content=UserspaceArchive(url="https://a/b", sha256="0" * 64), version_file="VERSION")
PACKAGES = Userspace(content=UserspacePackages(pins=(("a", "1-1"), ("b", "1-1"))))


@pytest.mark.parametrize(
    ("version", "upstream"),
    [
        ("535.183.01-1~deb12u1", "535.183.01"),
        ("1:2.0-1", "2.0"),
        ("1.0", "1.0"),
        ("1.0-rc1-2", "1.0-rc1"),
        ("3:550.54.15-1.el9", "550.54.15"),
    ],
)
def test_a_package_has_epoch_and_revision(version: str, upstream: str) -> None:
    """Neither is of the driver."""
    assert upstream_version(version) == upstream


@pytest.mark.parametrize(
    ("path", "version"),
    [
        ("lib/libcuda.so.535.183.01", "535.183.01"),
        ("libedu.so.1", "1"),
        ("libedu.so", ""),
        ("VERSION", ""),
        ("so.1/a", ""),
    ],
)
def test_a_library_may_have_its_version_in_its_name(path: str, version: str) -> None:
    """As those of NVIDIA have."""
    assert version_in_name(path) == version


@pytest.mark.parametrize(
    "other",
    [
        PACKAGES,
        replace(ARCHIVE, content=UserspaceArchive(url="https://a/b", sha256="1" * 64)),
        replace(ARCHIVE, content=UserspaceArchive(url="https://a/b", sha256="0" * 64, path="a")),
        replace(ARCHIVE, version_file="a"),
        replace(ARCHIVE, size_limit=1 << 20),
        replace(PACKAGES, content=UserspacePackages(pins=(("a", "1-1"),))),
        replace(PACKAGES, content=UserspacePackages(pins=(("a", "1-1"), ("b", "1-2")))),
    ],
)
def test_another_user_space_has_another_digest(other: Userspace) -> None:
    """Also one that is verified by something else."""
    assert other == PACKAGES or other.digest not in {ARCHIVE.digest, PACKAGES.digest}
    assert ARCHIVE.digest != PACKAGES.digest


def test_the_place_of_an_archive_is_no_part_of_it() -> None:
    """Its checksum is."""
    assert replace(ARCHIVE, content=UserspaceArchive(url="https://c/d", sha256="0" * 64)).digest == ARCHIVE.digest
