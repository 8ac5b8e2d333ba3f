"""Challenges as values, and how long an answer to one is kept."""

import pytest
from hypothesis import given
from hypothesis import strategies as st

from driver_builder.registry.registry_auth import Authorizations, Challenge, Purpose, parse_challenges, token_seconds

PULL = Purpose(repository="team/driver", writing=False)
PUSH = Purpose(repository="team/driver", writing=True)


@pytest.mark.parametrize(
    ("text", "expected"),
    [
        pytest.param(
            'Bearer realm="https://auth/token",service="reg", Scope="repository:a:pull,push"',
            [("bearer", {"realm": "https://auth/token", "service": "reg", "scope": "repository:a:pull,push"})],
            id="commas inside quotes belong to the value",
        ),
        pytest.param('Basic realm="the r=1 registry"', [("basic", {"realm": "the r=1 registry"})], id="basic"),
        pytest.param(
            'Basic realm="r", BEARER realm="https://auth/token",service="s"',
            [("basic", {"realm": "r"}), ("bearer", {"realm": "https://auth/token", "service": "s"})],
            id="two ways in one header",
        ),
        pytest.param("Negotiate, Basic realm=r", [("negotiate", {}), ("basic", {"realm": "r"})], id="no parameters"),
        pytest.param("", [], id="no challenge"),
        pytest.param('realm="r"', [], id="a parameter of nothing"),
    ],
)
def test_a_challenge_is_a_value(text: str, expected: list[tuple[str, dict[str, str]]]) -> None:
    """In the order in which the registry named them."""
    assert parse_challenges(text) == tuple(
        Challenge(scheme=scheme, parameters=parameters) for scheme, parameters in expected
    )


@given(st.text())
def test_any_header_gives_challenges(text: str) -> None:
    """A registry may send anything; it is read, never an error."""
    assert all(challenge.scheme == challenge.scheme.lower() for challenge in parse_challenges(text))


@pytest.mark.parametrize(
    ("content", "expected"),
    [
        pytest.param({"expires_in": 300}, 300, id="as it says"),
        pytest.param({}, 60, id="as the specification says"),
        pytest.param({"expires_in": 0}, 60, id="nothing"),
        pytest.param({"expires_in": "300"}, 60, id="text"),
        pytest.param({"expires_in": True}, 60, id="a truth"),
        pytest.param({"expires_in": float("inf")}, 60, id="endless"),
    ],
)
def test_a_token_is_good_for_as_long_as_its_service_says(content: dict[str, object], expected: float) -> None:
    """And for a minute where it says nothing readable."""
    assert token_seconds(content) == expected


def test_an_answer_is_kept_until_shortly_before_it_ends() -> None:
    """So that no long upload begins with a token that ends under it."""
    now = 1000.0
    kept = Authorizations(lambda: now)
    kept.keep(PULL, "Bearer a", 300)
    kept.keep(PUSH, "Basic b")
    assert (kept.get(PULL), kept.get(PUSH)) == ("Bearer a", "Basic b")
    now += 284
    assert kept.get(PULL) == "Bearer a"
    now += 2
    assert (kept.get(PULL), kept.get(PUSH)) == ("", "Basic b")


def test_reading_and_writing_are_two_purposes() -> None:
    """A token for reading says nothing about writing, and nothing about another repository."""
    kept = Authorizations(lambda: 0.0)
    kept.keep(PULL, "Bearer a", 300)
    assert kept.get(PUSH) == ""
    assert kept.get(Purpose(repository="other", writing=False)) == ""


@pytest.mark.parametrize(
    ("purpose", "scope"),
    [
        pytest.param(PULL, "repository:team/driver:pull", id="reading"),
        pytest.param(PUSH, "repository:team/driver:pull,push", id="writing"),
        pytest.param(Purpose(repository="", writing=False), "", id="the registry itself"),
    ],
)
def test_a_purpose_has_a_scope(purpose: Purpose, scope: str) -> None:
    """For registries whose challenge names none."""
    assert purpose.scope == scope
