"""A claim is one resource, every resource of a domain, or all that begin alike."""

import pytest
from hypothesis import given
from hypothesis import strategies as st

from driver_builder.model.resource_claim import MAX_NAME, PATTERN, RESOURCE, covers, covers_any, overlap, words

CARD, DOMAIN, SLICE = "nvidia.com/gpu", "nvidia.com/", "nvidia.com/mig-1g.5gb"
SLICES, CARDS, EVERY = "nvidia.com/mig-*", "nvidia.com/gpu*", "nvidia.com/*"


@pytest.mark.parametrize(
    ("claim", "name", "expected"),
    [
        pytest.param(CARD, CARD, True, id="the same name"),
        pytest.param(CARD, "nvidia.com/gpu.shared", False, id="a longer name"),
        pytest.param(DOMAIN, CARD, True, id="a name of the domain"),
        pytest.param(DOMAIN, "nvidia.com/mig-1g.5gb", True, id="another name of the domain"),
        pytest.param(DOMAIN, "nvidia.com.example/gpu", False, id="a domain that begins alike"),
        pytest.param(DOMAIN, "gpu.nvidia.com/a", False, id="a domain below it"),
        pytest.param(CARD, DOMAIN, False, id="a name covers no domain"),
        pytest.param(SLICES, SLICE, True, id="a name that begins so"),
        pytest.param(SLICES, CARD, False, id="a name that does not"),
        pytest.param(CARDS, CARD, True, id="the beginning itself"),
        pytest.param(CARDS, "nvidia.com/gpu.shared", True, id="and a longer one"),
        pytest.param(EVERY, SLICE, True, id="any name, with a star"),
        pytest.param(EVERY, "nvidia.com.example/gpu", False, id="a domain that begins alike, with a star"),
    ],
)
def test_what_a_claim_covers(claim: str, name: str, expected: bool) -> None:
    """A domain ends in a slash, a beginning in a star, as no name does."""
    assert covers(claim, name) is expected
    assert covers_any(claim, ("example.com/edu", name)) is expected


@pytest.mark.parametrize(
    ("claim", "other", "expected"),
    [
        pytest.param(CARD, CARD, True, id="one name"),
        pytest.param(CARD, "nvidia.com/mig-1g.5gb", False, id="two names of a domain"),
        pytest.param(DOMAIN, CARD, True, id="a domain and a name of it"),
        pytest.param(DOMAIN, DOMAIN, True, id="one domain"),
        pytest.param(DOMAIN, "example.com/edu", False, id="a name of another domain"),
        pytest.param(SLICES, SLICE, True, id="a beginning and a name"),
        pytest.param(SLICES, CARD, False, id="a beginning and another name"),
        pytest.param(SLICES, DOMAIN, True, id="a beginning and its domain"),
        pytest.param(SLICES, "nvidia.com/mig-1g*", True, id="a beginning of a beginning"),
        pytest.param(SLICES, CARDS, False, id="two beginnings"),
    ],
)
def test_which_claims_overlap(claim: str, other: str, expected: bool) -> None:
    """In either direction."""
    assert overlap(claim, other) is overlap(other, claim) is expected


def test_messages_name_a_resource_or_a_domain() -> None:
    """Which resources of a domain there are is not known."""
    assert (words(CARD), words(DOMAIN)) == ("nvidia.com/gpu", "resources in nvidia.com/")


@pytest.mark.parametrize(
    ("text", "expected"),
    [
        *((text, True) for text in (CARD, SLICE, SLICES, CARDS, EVERY, "a/b_*", "a/b.*")),
        *(
            (text, False)
            for text in ("*", "*/gpu", "nvidia.com/*gpu", "nvidia.com/g*u", "nvidia.com/gpu**", "gpu*", DOMAIN)
        ),
        *(
            (text, False)
            for text in ("nvidia.com/-*", "/gpu", "nvidia.com/gpu-", " nvidia.com/gpu", "nvidia.com/a/*", "")
        ),
    ],
)
def test_a_pattern_is_a_name_or_what_names_begin_with(text: str, *, expected: bool) -> None:
    """One star, at the end, behind a domain."""
    assert bool(PATTERN.fullmatch(text)) is expected


resources = st.from_regex(RESOURCE, fullmatch=True).filter(lambda name: len(name) <= MAX_NAME)


@given(resources, st.integers(min_value=0, max_value=80))
def test_what_a_name_begins_with_covers_it(name: str, length: int) -> None:
    """Of any name, cut anywhere behind its slash; the name alone covers nothing else."""
    begin = f"{name[: name.index('/') + 1 + length]}*"
    assert covers(begin, name)
    assert overlap(begin, name)
    assert covers(name, f"{name}x") is False
