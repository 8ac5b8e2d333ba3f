"""What worker and child say to each other survives the way."""

from hypothesis import given
from hypothesis import strategies as st

from feature_rules.model import Taint
from nfd_worker.labels.node_content import NodeContent, Unknown
from nfd_worker.publish.wire import CHECK, UNPUBLISH, PublishAnswer, PublishRequest, Seen

TEXTS = st.dictionaries(st.text(), st.text())
NAMES = st.lists(st.text()).map(tuple)
OPEN_KEYS = st.dictionaries(st.text(), st.none() | NAMES)
TAINTS = st.lists(st.builds(Taint, st.text(), st.text(), st.text())).map(tuple)
SEEN = st.builds(Seen, st.text(), st.text(), TEXTS)
REQUESTS = st.builds(
    PublishRequest,
    node_name=st.text(),
    content=st.builds(NodeContent, TEXTS, TEXTS, TEXTS, TAINTS),
    unknown=st.none() | st.builds(Unknown, NAMES, NAMES, OPEN_KEYS, OPEN_KEYS, NAMES),
    origins=st.dictionaries(st.text(), NAMES),
    take_over=st.booleans(),
    kubeconfig=st.none() | st.text(),
    action=st.sampled_from(["publish", CHECK, UNPUBLISH]),
    seen=SEEN,
    is_full=st.booleans(),
)
ANSWERS = st.builds(
    PublishAnswer,
    error=st.text(),
    kind=st.text(),
    retry_after=st.none() | st.floats(0, 600),
    notes=NAMES,
    took_over=st.text(),
    seen=SEEN,
    lost=NAMES,
)


@given(REQUESTS)
def test_a_request_reads_back(request: PublishRequest) -> None:
    """Any request is the same on the other side."""
    assert PublishRequest.from_bytes(request.to_bytes()) == request


def test_equal_requests_are_equal_bytes_whatever_the_order() -> None:
    """Comparing bytes shows whether there is anything to publish."""
    one = PublishRequest("n", NodeContent({"a": "1", "b": "2"}))
    other = PublishRequest("n", NodeContent({"b": "2", "a": "1"}))
    assert one.to_bytes() == other.to_bytes()


@given(ANSWERS)
def test_an_answer_reads_back(answer: PublishAnswer) -> None:
    """In one line, and with its notes."""
    line = answer.to_line()
    assert line.count("\n") == 1
    assert PublishAnswer.from_line(line.encode()) == answer
    assert answer.is_published is not bool(answer.error)


def test_nonsense_is_no_answer() -> None:
    """A child that dies leaves half a line or none."""
    for line in (b"", b'{"error": "', b"[1]", b'{"other": 1}', b"3", b"\xff"):
        assert PublishAnswer.from_line(line) is None
