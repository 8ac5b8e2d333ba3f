"""What is built: its build key, and the digest of its source."""

import re
from dataclasses import replace
from typing import Any

import pytest
from hypothesis import given
from hypothesis import strategies as st

from driver_builder.model.build import (
    BuildRequest,
    ModuleSpec,
    Signing,
    Source,
    SourceArchive,
    SourceFiles,
    SourceGit,
    SourceImage,
    SourcePackage,
    source_digest,
)
from driver_builder.model.driver_key import DriverKey
from driver_builder.model.userspace import Userspace, UserspacePackages
from tests.support.driver_builder.factories import DIGEST, OTHER_KERNEL, SOURCE, target

USERSPACE = Userspace(content=UserspacePackages(pins=(("libedu1", "1.0-1"),)))
REQUEST = BuildRequest(
    driver=DriverKey("driverwright/edu"),
    version="1.0.0",
    target=target(),
    template="debian",
    recipe="recipe",
    base_image="debian:bookworm-slim",
    source=SOURCE,
    args={"V": "1", "W": "2"},
    modules=(ModuleSpec(name="helper"), ModuleSpec(name="edudrv", parameters=("debug=1",))),
)


@pytest.mark.parametrize(
    "changes",
    [
        pytest.param({"driver": "driverwright/other"}, id="driver"),
        pytest.param({"version": "1.0.1"}, id="version"),
        pytest.param({"target": target(OTHER_KERNEL)}, id="kernel"),
        pytest.param({"target": target(os_version="13")}, id="operating system"),
        pytest.param({"target": target(architecture="arm64")}, id="architecture"),
        pytest.param({"source": SourceFiles(files={**SOURCE.files, "edudrv.c": b"int y;"})}, id="a file's content"),
        pytest.param({"source": SourceFiles(files={**SOURCE.files, "new.h": b""})}, id="a new file"),
        pytest.param({"source": SourceImage(reference="r/x@" + DIGEST, path="/")}, id="source in an image"),
        pytest.param({"recipe": "recipe-2"}, id="recipe"),
        pytest.param({"base_image": "debian:trixie-slim"}, id="base image"),
        pytest.param({"args": {"V": "1"}}, id="fewer args"),
        pytest.param({"args": {"V": "2", "W": "1"}}, id="args swapped"),
        pytest.param({"modules": tuple(reversed(REQUEST.modules))}, id="load order"),
        pytest.param({"modules": (ModuleSpec(name="helper"), ModuleSpec(name="edudrv"))}, id="module parameter"),
        pytest.param({"rebuild": "token"}, id="rebuild"),
        pytest.param({"firmware_path": "/source/firmware"}, id="firmware"),
        pytest.param({"userspace": USERSPACE}, id="user space"),
        pytest.param({"packages": ("g++",)}, id="further packages"),
        pytest.param({"tools_image": "debian:trixie-slim"}, id="image of the tools"),
        pytest.param({"signing_certificate": b"der"}, id="signing certificate"),
    ],
)
def test_any_input_changes_the_key(changes: dict[str, Any]) -> None:
    """Whatever goes into an image is in its key."""
    assert replace(REQUEST, **changes).key != REQUEST.key


@pytest.mark.parametrize(
    "changes",
    [
        pytest.param({}, id="nothing"),
        pytest.param({"deadline_seconds": 60.0}, id="deadline"),
        pytest.param({"signing": Signing(key_secret="k", certificate_secret="c")}, id="where keys are"),
        pytest.param({"args": {"W": "2", "V": "1"}}, id="order of args"),
        pytest.param({"source": SourceFiles(files=dict(reversed(list(SOURCE.files.items()))))}, id="order of files"),
    ],
)
def test_nothing_else_changes_the_key(changes: dict[str, Any]) -> None:
    """Neither the order of what goes into an image, nor what does not go into it."""
    assert replace(REQUEST, **changes).key == REQUEST.key


def test_a_key_is_twenty_hex_digits() -> None:
    """Short enough for a tag, long enough never to meet another."""
    assert re.fullmatch("[0-9a-f]{20}", REQUEST.key)


names = st.text(alphabet="ab:1", min_size=1, max_size=4)
sources = st.dictionaries(names, st.binary(max_size=6).map(lambda data: data.replace(b"\xff", b":")), max_size=3)


@given(sources, sources)
def test_different_sources_have_different_digests(one: dict[str, bytes], other: dict[str, bytes]) -> None:
    """No way of cutting paths and contents differently gives the same digest."""
    same = source_digest(SourceFiles(files=one)) == source_digest(SourceFiles(files=other))
    assert same is (one == other)


@pytest.mark.parametrize(
    ("one", "other"),
    [
        pytest.param(
            SourceImage(reference="r/x@" + DIGEST, path="/a"),
            SourceImage(reference="r/x@" + DIGEST, path="/b"),
            id="path in an image",
        ),
        pytest.param(SourceGit(url="u", commit="a" * 40), SourceGit(url="u", commit="b" * 40), id="commit"),
        pytest.param(
            SourceGit(url="u", commit="a" * 40),
            SourceGit(url="u", commit="a" * 40, path="src"),
            id="folder of a commit",
        ),
        pytest.param(SourceArchive(url="u", sha256="a" * 64), SourceArchive(url="u", sha256="b" * 64), id="checksum"),
        pytest.param(SourcePackage(name="a-dkms"), SourcePackage(name="b-dkms"), id="package"),
        pytest.param(SourcePackage(name="a-dkms"), SourcePackage(name="a-dkms", version="1"), id="package's version"),
        pytest.param(SourceGit(url="u", commit="a" * 64), SourceArchive(url="u", sha256="a" * 64), id="kind"),
    ],
)
def test_what_pins_a_source_is_in_its_digest(one: Source, other: Source) -> None:
    """A pin is the content's name."""
    assert source_digest(one) != source_digest(other)


@pytest.mark.parametrize(
    ("one", "other"),
    [
        pytest.param(SourceGit(url="u", commit="a" * 40), SourceGit(url="v", commit="a" * 40), id="git"),
        pytest.param(SourceArchive(url="u", sha256="a" * 64), SourceArchive(url="v", sha256="a" * 64), id="archive"),
    ],
)
def test_a_mirror_changes_nothing(one: Source, other: Source) -> None:
    """What is pinned is the same wherever it is fetched from."""
    assert source_digest(one) == source_digest(other)
