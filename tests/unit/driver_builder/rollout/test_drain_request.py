"""What a device agent asks for is read strictly."""

import json
from typing import Any

import pytest
from hypothesis import given
from hypothesis import strategies as st

from driver_builder.rollout.drain_request import DrainRequest, parse_drain_request, read_drain_request
from driver_builder.snapshot.inventory import read_node
from kube_api import names
from kube_api.drain_contract import MAX_PODS, MAX_REQUEST, MAX_RESOURCES

GOOD: dict[str, Any] = {"pods": ["apps/train-0"], "resources": ["nvidia.com/gpu"], "deadline": "30m"}


def text_of(**changes: Any) -> str:
    """Write a request; a field that is None is left out."""
    return json.dumps({key: value for key, value in {**GOOD, **changes}.items() if value is not None})


def test_a_request_names_pods_resources_and_a_deadline() -> None:
    """Nothing else."""
    text = text_of(pods=["apps/train-0", "a/b.c-1"], deadline="1h30m")
    assert parse_drain_request(text) == DrainRequest(
        pods=frozenset({("apps", "train-0"), ("a", "b.c-1")}), resources=("nvidia.com/gpu",), deadline_seconds=5400.0
    )


@pytest.mark.parametrize(
    ("text", "words"),
    [
        pytest.param("", "it is no JSON object", id="empty"),
        pytest.param("{", "it is no JSON object", id="cut off"),
        pytest.param("[" * 100_000, f"it is longer than {MAX_REQUEST} characters", id="too long"),
        pytest.param("[" * 60_000, "it is no JSON object", id="too deep"),
        pytest.param("[]", "[] is no JSON object", id="a list"),
        pytest.param("1" * 5000, "it is no JSON object", id="a number of many digits"),
        pytest.param('{"pods":["a/b"],"pods":["a/c"]}', "'pods' is there twice", id="a key twice"),
        pytest.param(text_of(force=True), "'force' is no field of it: write pods, resources, deadline", id="unknown"),
        pytest.param(text_of(pods=None), "pods: None is not a list", id="no pods"),
        pytest.param(text_of(pods=[]), "pods: has 0 entries: write 1 to 256 words", id="an empty list"),
        pytest.param(text_of(pods="a/b"), "pods: 'a/b' is not a list", id="a word in place of a list"),
        pytest.param(text_of(pods=[f"a/b{n}" for n in range(MAX_PODS + 1)]), "pods: has 257 entries", id="many pods"),
        pytest.param(text_of(pods=["a/b", 7]), "pods[1]: 7 is not a word", id="a number"),
        pytest.param(text_of(pods=["a/b", "a/b"]), "pods: 'a/b' is there twice", id="a pod twice"),
        pytest.param(text_of(pods=["a/c", "b"]), "pods[1]: 'b' is not a pod: write NAMESPACE/NAME", id="no namespace"),
        pytest.param(text_of(pods=["a.b/c"]), "pods[0]: 'a.b/c' is not a pod", id="a namespace with a dot"),
        pytest.param(text_of(pods=["A/c"]), "pods[0]: 'A/c' is not a pod", id="capitals"),
        pytest.param(text_of(pods=["a/b/c"]), "pods[0]: 'a/b/c' is not a pod", id="two slashes"),
        pytest.param(text_of(pods=["a/.."]), "pods[0]: 'a/..' is not a pod", id="a path"),
        pytest.param(text_of(pods=[f"{'a' * 64}/b"]), "is not a pod", id="a long namespace"),
        pytest.param(text_of(pods=[f"a/{'b' * 254}"]), "is not a pod", id="a long name"),
        pytest.param(text_of(resources=[]), "resources: has 0 entries", id="no resources"),
        pytest.param(text_of(resources=["cpu"]), "resources[0]: 'cpu' is not an extended resource", id="cpu"),
        pytest.param(text_of(resources=["nvidia.com/*"]), "resources[0]: 'nvidia.com/*' is not", id="a pattern"),
        pytest.param(text_of(resources=["nvidia.com/"]), "resources[0]: 'nvidia.com/' is not", id="a domain"),
        pytest.param(text_of(resources=[f"a/b{n}" for n in range(MAX_RESOURCES + 1)]), "has 65 entries", id="many"),
        pytest.param(text_of(deadline=None), "deadline: None is not a duration", id="no deadline"),
        pytest.param(text_of(deadline=1800), "deadline: 1800 is not a duration", id="a number of seconds"),
        pytest.param(text_of(deadline="soon"), "deadline: 'soon' is not a duration", id="a word"),
        pytest.param(text_of(deadline="9s"), "deadline: '9s' is too short or too long", id="short"),
        pytest.param(text_of(deadline="6h1s"), "deadline: '6h1s' is too short or too long", id="long"),
    ],
)
def test_a_wrong_request_is_named(text: str, words: str) -> None:
    """With field, value and what to write."""
    with pytest.raises(ValueError, match=r".") as caught:
        parse_drain_request(text)
    assert words in str(caught.value)
    assert len(str(caught.value)) < 400


json_values = st.recursive(
    st.none() | st.booleans() | st.integers() | st.floats() | st.text(max_size=20),
    lambda inner: st.lists(inner, max_size=4) | st.dictionaries(st.text(max_size=10), inner, max_size=4),
    max_leaves=20,
)
requests = st.fixed_dictionaries({}, optional=dict.fromkeys((*GOOD, "force"), json_values)).map(json.dumps)


@given(st.text(max_size=200) | json_values.map(json.dumps) | requests)
def test_any_text_is_a_request_or_a_value_error(text: str) -> None:
    """Nothing else escapes, and what is read is within its bounds."""
    try:
        found = parse_drain_request(text)
    except ValueError:
        return
    assert 1 <= len(found.pods) <= MAX_PODS
    assert all("/" in name for name in found.resources)
    assert 10.0 <= found.deadline_seconds <= 6 * 3600.0


@pytest.mark.parametrize("text", [text_of(), text_of(pods=[]), "{"], ids=["good", "no pods", "cut off"])
def test_a_request_is_parsed_once(text: str) -> None:
    """Each reconcile reads it twice, and so does the next one; the same text has the same result, also a wrong one."""
    found = read_drain_request(text)
    assert read_drain_request("".join(list(text))) is found
    assert isinstance(found, str) is (text != text_of())


def test_a_request_that_is_too_long_is_there_and_cannot_be_read() -> None:
    """It would wait for an answer for ever if it were ignored."""
    text = text_of(pods=["a/b"]) + " " * MAX_REQUEST
    seen = read_node({"metadata": {"name": "node-a", "annotations": {names.DRAIN_REQUEST_ANNOTATION: text}}})
    kept = seen.annotations[names.DRAIN_REQUEST_ANNOTATION]
    assert len(kept) == MAX_REQUEST + 1
    with pytest.raises(ValueError, match=r"longer than"):
        parse_drain_request(kept)
