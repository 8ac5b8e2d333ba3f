"""Each answer to a drain that is asked for names the request that it is for."""

import pytest
from hypothesis import given
from hypothesis import strategies as st

from kube_api.drain_contract import DrainAnswer, DrainState, digest_of, parse_answer, render_answer

answers = st.builds(
    DrainAnswer,
    state=st.sampled_from(DrainState),
    message=st.text(st.characters(min_codepoint=32, max_codepoint=126), max_size=300).map(str.strip),
    request=st.text("0123456789abcdef", min_size=16, max_size=16),
)


@given(answers)
def test_an_answer_is_read_again_the_same(answer: DrainAnswer) -> None:
    """What stands on the Node is what was answered."""
    assert parse_answer(render_answer(answer)) == answer


@pytest.mark.parametrize(
    "text",
    [None, "", "{", "[]", "{}", '{"state":"open","message":"","request":"a"}', '{"state":"failed"}', "[" * 9000],
    ids=["none", "empty", "cut off", "a list", "nothing", "another state", "no request", "too deep"],
)
def test_what_is_no_answer_of_ours_is_none(text: str | None) -> None:
    """Somebody has written over it: it is written anew."""
    assert parse_answer(text) is None


@given(st.text(), st.text())
def test_two_requests_have_two_digests(one: str, other: str) -> None:
    """By which an answer is known to be for the request that stands there."""
    assert (digest_of(one) == digest_of(other)) is (one == other)
