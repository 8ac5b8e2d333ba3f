"""A claim is one resource, or every resource of a domain."""

import pytest

from driver_builder.model.resource_claim import covers, covers_any, overlap, words

CARD, DOMAIN = "nvidia.com/gpu", "nvidia.com/"


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
    ],
)
def test_what_a_claim_covers(claim: str, name: str, expected: bool) -> None:
    """A domain ends in a slash, as no name does."""
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
    ],
)
def test_which_claims_overlap(claim: str, other: str, expected: bool) -> None:
    """In either direction."""
    assert overlap(claim, other) is overlap(other, claim) is expected


def test_messages_name_a_resource_or_a_domain() -> None:
    """Which resources of a domain there are is not known."""
    assert (words(CARD), words(DOMAIN)) == ("nvidia.com/gpu", "resources in nvidia.com/")
