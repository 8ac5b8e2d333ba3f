"""Build keys, tags and references."""

import re

import pytest
from hypothesis import given
from hypothesis import strategies as st

from driver_builder.model.images import ImageRef, image_tag, parse_full_reference, parse_reference, wrong_registry
from tests.support.driver_builder.factories import DIGEST, target

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
    ("name", "is_wrong"),
    [
        pytest.param("r.io/edu", False, id="dot"),
        pytest.param("registry:5000/edu", False, id="port"),
        pytest.param("localhost/edu", False, id="localhost"),
        pytest.param("Registry/edu", False, id="capitals"),
        pytest.param("docker.io/linbit/drbd9", False, id="Docker Hub by its name"),
        pytest.param("linbit/drbd9", True, id="user of Docker Hub"),
        pytest.param("my-registry/drivers/edu", True, id="one word"),
    ],
)
def test_a_registry_is_what_a_node_takes_for_one(name: str, is_wrong: bool) -> None:
    """Anything else is a name of Docker Hub there, and would be a host here."""
    assert bool(wrong_registry(name)) == is_wrong
    if is_wrong:
        with pytest.raises(ValueError, match=f"write the registry's host .*docker.io/{name}"):
            parse_full_reference(f"{name}:1")
    else:
        assert str(parse_full_reference(f"{name}:1")) == f"{name}:1"


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
    with pytest.raises(ValueError, match="not an image reference"):
        parse_reference(text)


def test_a_digest_replaces_the_tag() -> None:
    """``at`` names the same repository by content."""
    assert str(ImageRef("r.io", "edu", "1").at(DIGEST)) == f"r.io/edu@{DIGEST}"
