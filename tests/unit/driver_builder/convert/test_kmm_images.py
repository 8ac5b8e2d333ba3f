"""Images and expressions of Kernel Module Management, and what they are here."""

import pytest
import re2
from hypothesis import given
from hypothesis import strategies as st

from driver_builder.api.mapping_settings import compiled
from driver_builder.convert import kmm_images


@pytest.mark.parametrize(
    ("regexp", "wanted"),
    [
        pytest.param("^.+$", "^.+$", id="anchored"),
        pytest.param(".*", ".*", id="takes anything"),
        pytest.param("fc37", ".*fc37.*", id="anywhere"),
        pytest.param("^6.1", "^6.1.*", id="begin"),
        pytest.param("fc37$", ".*fc37$", id="end"),
        pytest.param("^a$|b", ".*(?:^a$|b).*", id="alternatives"),
        pytest.param(r"^a\.*", r"^a\.*.*", id="dots, no wild card"),
        pytest.param(r"^a\$", r"^a\$.*", id="a dollar, no end"),
    ],
)
def test_an_expression_is_made_one_for_a_whole_release(regexp: str, wanted: str) -> None:
    """KMM looks for it anywhere in the release."""
    assert kmm_images.whole(regexp) == wanted


PIECES = st.lists(
    st.sampled_from(["^", "$", ".", "*", "+", "|", r"\.", r"\$", "6", "a", "-", r"\Q", r"\E", "(?i)"]), max_size=7
)


@given(pieces=PIECES, kernel=st.text("6aA.-$*", max_size=6))
def test_the_expression_matches_what_any_of_theirs_finds(pieces: list[str], kernel: str) -> None:
    """Whatever the expression is, as long as it is one."""
    regexp = "".join(pieces)
    try:
        theirs = re2.compile(regexp)
    except re2.error:
        return
    assert (compiled(kmm_images.whole(regexp)).fullmatch(kernel) is not None) == (theirs.search(kernel) is not None)


def test_an_expression_that_is_none_matches_nothing() -> None:
    """It is reported by lint, not here."""
    assert not kmm_images.matches("(", "6.1.0")


@pytest.mark.parametrize(
    ("image", "wanted"),
    [
        pytest.param("r.example.com/a/b:1", "r.example.com/a/b:1", id="full"),
        pytest.param("localhost:5000/a:1", "localhost:5000/a:1", id="port"),
        pytest.param("localhost/a:1", "localhost/a:1", id="localhost"),
        pytest.param("org/a:1", "docker.io/org/a:1", id="Docker Hub"),
        pytest.param("a:1", "docker.io/library/a:1", id="Docker Hub's own"),
        pytest.param("r.io/a:1@sha256:00", "r.io/a@sha256:00", id="tag and digest"),
    ],
)
def test_an_image_is_named_with_its_registry(image: str, wanted: str) -> None:
    """As the kubelet reads it."""
    assert kmm_images.reference(image) == wanted


def test_variables_are_replaced_as_in_a_shell() -> None:
    """Those of the kernel as a tag may have them; what is not known stays, to be found."""
    values = kmm_images.variables_for("6.1.0-55+deb~1-amd64+")
    text = "a-$KERNEL_XYZ:${KERNEL_FULL_VERSION}-$KERNEL_X.${KERNEL_Y}-${OTHER}"
    assert kmm_images.replaced(text, values) == "a-6.1.0:6.1.0-55_deb_1-amd64-6.1-${OTHER}"


def test_a_release_of_two_parts_has_no_variables_of_its_parts() -> None:
    """KMM refuses it there; the variable stays, and is found as a wrong image."""
    assert "KERNEL_X" not in kmm_images.variables_for("6.1")


@pytest.mark.parametrize(
    ("text", "differs"),
    [("a:${KERNEL_FULL_VERSION}", True), ("a:$KERNEL_X", True), ("a:$MOD_NAME", False), ("a:1", False)],
)
def test_an_image_differs_by_kernel_if_it_names_one(text: str, *, differs: bool) -> None:
    """Names of the Module are the same for all kernels."""
    assert kmm_images.differs_by_kernel(text) is differs
