"""What worker and child say to each other survives the way."""

from hypothesis import given
from hypothesis import strategies as st

from nfd_worker.wire import PublishAnswer, PublishRequest

TEXTS = st.dictionaries(st.text(), st.text())


@given(TEXTS, TEXTS, st.lists(st.text()))
def test_a_request_reads_back(labels: dict[str, str], annotations: dict[str, str], keep: list[str]) -> None:
    """Any request is the same on the other side."""
    request = PublishRequest("node", labels, annotations, tuple(keep))
    assert PublishRequest.from_bytes(request.to_bytes()) == request


def test_equal_requests_are_equal_bytes_whatever_the_order() -> None:
    """Comparing bytes tells whether there is anything to publish."""
    one = PublishRequest("n", {"a": "1", "b": "2"}, {})
    other = PublishRequest("n", {"b": "2", "a": "1"}, {})
    assert one.to_bytes() == other.to_bytes()


def test_an_answer_reads_back_and_nonsense_is_none() -> None:
    """A child that dies leaves half a line or none."""
    answer = PublishAnswer("no", "Forbidden", 3.0)
    assert PublishAnswer.from_line(answer.to_line().encode()) == answer
    assert not answer.is_published
    assert PublishAnswer().is_published
    for line in (b"", b'{"error": "', b"[1]", b'{"other": 1}'):
        assert PublishAnswer.from_line(line) is None
