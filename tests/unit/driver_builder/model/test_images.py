"""Build keys, tags and references."""

import re
from typing import Any

import pytest
from hypothesis import given
from hypothesis import strategies as st

from driver_builder.model.build import (
    ModuleSpec,
    Source,
    SourceArchive,
    SourceFiles,
    SourceGit,
    SourceImage,
    SourcePackage,
)
from driver_builder.model.images import ImageRef, build_key, image_tag, parse_reference, source_digest
from tests.support.factories import DIGEST, OTHER_KERNEL, SOURCE, target

INPUTS: dict[str, Any] = {
    "driver": "driverwright/edu",
    "version": "1.0.0",
    "target": target(),
    "source": SOURCE,
    "recipe": "recipe",
    "base_image": "debian:bookworm-slim",
    "args": {"V": "1", "W": "2"},
    "modules": (ModuleSpec(name="helper"), ModuleSpec(name="edudrv", parameters=("debug=1",))),
    "rebuild": "",
}


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
        pytest.param({"modules": tuple(reversed(INPUTS["modules"]))}, id="load order"),
        pytest.param({"modules": (ModuleSpec(name="helper"), ModuleSpec(name="edudrv"))}, id="module parameter"),
        pytest.param({"rebuild": "token"}, id="rebuild"),
    ],
)
def test_any_input_changes_the_key(changes: dict[str, Any]) -> None:
    """Whatever goes into an image is in its key."""
    assert build_key(**{**INPUTS, **changes}) != build_key(**INPUTS)


@pytest.mark.parametrize(
    "changes",
    [
        pytest.param({}, id="nothing"),
        pytest.param({"args": {"W": "2", "V": "1"}}, id="order of args"),
        pytest.param({"source": SourceFiles(files=dict(reversed(list(SOURCE.files.items()))))}, id="order of files"),
    ],
)
def test_nothing_else_changes_the_key(changes: dict[str, Any]) -> None:
    """Equal inputs in another order make the same image."""
    assert build_key(**{**INPUTS, **changes}) == build_key(**INPUTS)


def test_a_key_is_twenty_hex_digits() -> None:
    """Short enough for a tag, long enough never to meet another."""
    assert re.fullmatch("[0-9a-f]{20}", build_key(**INPUTS))


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


label_values = st.from_regex(r"[A-Za-z0-9]([A-Za-z0-9_.-]{0,61}[A-Za-z0-9])?", fullmatch=True)
kernels = st.from_regex(r"[0-9]\.[0-9]{1,2}[A-Za-z0-9._+~-]{0,80}", fullmatch=True)


@given(label_values, kernels)
def test_every_tag_is_one_a_registry_takes(version: str, kernel: str) -> None:
    """At most 128 characters of a tag's alphabet, and the key whole at its end."""
    key = "0123456789abcdef0123"
    tag = image_tag(version=version, target=target(kernel), key=key)
    assert re.fullmatch(r"[A-Za-z0-9_][A-Za-z0-9._-]{0,127}", tag)
    assert tag.endswith("-" + key)


def test_a_tag_can_be_read() -> None:
    """Version, kernel, system and architecture stand in front of the key."""
    assert image_tag(version="1.0", target=target("6.1.0+deb"), key="k") == "1.0-6.1.0_deb-debian12-amd64-k"


@pytest.mark.parametrize(
    ("text", "expected"),
    [
        pytest.param("r.io/edu:1.0", ImageRef("r.io", "edu", "1.0"), id="tag"),
        pytest.param("r.io:5000/a/b:1", ImageRef("r.io:5000", "a/b", "1"), id="port"),
        pytest.param("r.io/edu@" + DIGEST, ImageRef("r.io", "edu", DIGEST), id="digest"),
    ],
)
def test_a_reference_is_read_and_written_back(text: str, expected: ImageRef) -> None:
    """Reading and writing a reference are each other's opposite."""
    assert parse_reference(text) == expected
    assert str(expected) == text


@pytest.mark.parametrize(
    "text",
    [
        pytest.param("", id="empty"),
        pytest.param("edu:1", id="no host"),
        pytest.param("r.io/edu", id="neither tag nor digest"),
        pytest.param("r.io/edu:", id="empty tag"),
        pytest.param("r.io/edu@sha256:12", id="short digest"),
        pytest.param("r.io/edu:" + "t" * 129, id="tag too long"),
        pytest.param("r.io/edu:täg", id="tag beyond ASCII"),
        pytest.param("r.io/edu:-1", id="tag that begins with a dash"),
        pytest.param("r io/edu:1", id="blank in the host"),
        pytest.param("r.io/e du:1", id="blank in the repository"),
        pytest.param("r.io/edu?x=1:1", id="query in the repository"),
        pytest.param("r.io/../x:1", id="repository that climbs"),
        pytest.param("r.io/Edu:1", id="capitals in the repository"),
        pytest.param("r.io/edu:1\n", id="newline"),
    ],
)
def test_what_is_no_reference_is_refused(text: str) -> None:
    """A reference goes into URLs and manifests, so only the registry's own grammar passes."""
    with pytest.raises(ValueError, match="no image reference"):
        parse_reference(text)


def test_a_digest_replaces_the_tag() -> None:
    """``at`` names the same repository by content."""
    assert str(ImageRef("r.io", "edu", "1").at(DIGEST)) == f"r.io/edu@{DIGEST}"
