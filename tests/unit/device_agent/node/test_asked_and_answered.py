"""What a Node asks, and the answer that is written to it."""

import json
from typing import Any

import pytest
from hypothesis import given
from hypothesis import strategies as st

from device_agent.node.answered import MAX_RESOURCES, answer_patch, bounded, is_news, words_of
from device_agent.node.asked import ABSENT, MAX_ANSWER, Asked, SeenNode, Wish, parse_failure, parse_node
from device_agent.profiles.verdict import Verdict
from kube_api.names import GPU_PROFILE_ANNOTATION, GPU_PROFILE_LABEL, GPU_PROFILE_STATE_LABEL

Json = dict[str, Any]

FAILED = Verdict(asked="b", applied="a", message="no profile b; there is a", has_failed=True)
OLD = '{"asked":"b","applied":"a","message":"no profile b; there is a","resources":[]}'


def node(labels: object = None, annotations: object = None, uid: object = "u") -> Json:
    """Make a Node's metadata."""
    return {"metadata": {"name": "n", "uid": uid, "labels": labels, "annotations": annotations}}


@pytest.mark.parametrize(
    ("labels", "expected"),
    [
        pytest.param({GPU_PROFILE_LABEL: "slice-4"}, Asked(wish=Wish.KEY, key="slice-4"), id="a key"),
        pytest.param({GPU_PROFILE_LABEL: "A_b.c"}, Asked(wish=Wish.KEY, key="A_b.c"), id="a key with all characters"),
        pytest.param({GPU_PROFILE_LABEL: ""}, Asked(wish=Wish.EMPTY), id="empty"),
        pytest.param({}, ABSENT, id="no label"),
        pytest.param(None, ABSENT, id="no labels"),
        pytest.param([GPU_PROFILE_LABEL], ABSENT, id="labels of a wrong type"),
        pytest.param({GPU_PROFILE_LABEL: 4}, ABSENT, id="a value of a wrong type"),
        pytest.param({GPU_PROFILE_LABEL: "a/b"}, Asked(wish=Wish.INVALID, key="a/b"), id="a path"),
        pytest.param({GPU_PROFILE_LABEL: "."}, Asked(wish=Wish.INVALID, key="."), id="this folder"),
        pytest.param({GPU_PROFILE_LABEL: "..data"}, Asked(wish=Wish.INVALID, key="..data"), id="a folder of kubelet's"),
        pytest.param({f"{GPU_PROFILE_LABEL}.x": "a"}, ABSENT, id="another label"),
    ],
)
def test_what_is_asked_for(labels: object, expected: Asked) -> None:
    """Absent, empty, no valid key, and a key are told apart."""
    assert parse_node(node(labels)).asked == expected


def test_a_key_with_a_newline_behind_it_is_none() -> None:
    """It is bounded and printable where it is shown."""
    for value in ("a\n", "x" * 64, "a\x1b[31m"):
        asked = parse_node(node({GPU_PROFILE_LABEL: value})).asked
        assert asked.wish is Wish.INVALID
        assert asked.key.isprintable()
        assert len(asked.key) <= 63


json_values = st.recursive(
    st.none() | st.booleans() | st.integers() | st.text(),
    lambda some: st.lists(some, max_size=3) | st.dictionaries(st.text(), some, max_size=3),
    max_leaves=8,
)
keys = st.sampled_from((GPU_PROFILE_LABEL, GPU_PROFILE_STATE_LABEL, GPU_PROFILE_ANNOTATION, "other"))
maps = st.dictionaries(keys, json_values | st.just(OLD), max_size=4) | json_values
verdicts = st.builds(
    Verdict, asked=st.text(), applied=st.text(), message=st.text(max_size=2000),
    resources=st.lists(st.text(), max_size=8).map(tuple), has_failed=st.booleans(),
)  # fmt: skip


def applied(seen_node: Json, patch: Json) -> Json:
    """Merge a patch of labels and annotations."""
    metadata = dict(seen_node["metadata"])
    for field, values in patch["metadata"].items():
        old = metadata.get(field)
        metadata[field] = {**(old if isinstance(old, dict) else {}), **values}
    return {"metadata": metadata}


@given(st.builds(node, maps, maps, json_values), verdicts)
def test_any_node_is_answered_once(found: Json, verdict: Verdict) -> None:
    """With two keys alone; then it says so, shows this failure, and nothing more is written."""
    patch = answer_patch(verdict, parse_node(found))
    after = found if patch is None else applied(found, patch)
    seen = parse_node(after)
    assert answer_patch(verdict, seen) is None
    assert not is_news(verdict, seen)
    if patch is not None:
        assert [(field, list(values)) for field, values in patch["metadata"].items()] == [
            ("labels", [GPU_PROFILE_STATE_LABEL]), ("annotations", [GPU_PROFILE_ANNOTATION]),
        ]  # fmt: skip
    assert seen.answer is not None
    assert list(json.loads(seen.answer)) == ["asked", "applied", "message", "resources"]
    assert seen.answer.isprintable()
    assert seen.state == ("failed" if verdict.has_failed else "success")


@given(verdicts)
def test_a_verdict_is_bounded(verdict: Verdict) -> None:
    """And bounding it again changes nothing, so that two texts are never written in turn."""
    made = bounded(verdict)
    assert bounded(made) == made
    assert len(made.asked) <= 63
    assert len(made.message.encode()) <= 500
    assert len(words_of(verdict)) <= 600


def test_the_largest_answer_can_be_read_again() -> None:
    """It stays below what is read of an annotation."""
    names = tuple(f"{'a' * 253}/{'b' * 60}{number:03}" for number in range(2 * MAX_RESOURCES))
    patch = answer_patch(Verdict(asked="é" * 99, applied="é" * 99, message="é" * 999, resources=names), SeenNode())
    assert patch is not None
    text = patch["metadata"]["annotations"][GPU_PROFILE_ANNOTATION]
    assert len(text) < MAX_ANSWER
    assert len(json.loads(text)["resources"]) == MAX_RESOURCES


@pytest.mark.parametrize(
    ("state", "answer", "expected"),
    [
        pytest.param(None, None, True, id="a Node without an answer"),
        pytest.param("success", OLD, True, id="it said success"),
        pytest.param("failed", OLD, False, id="it says so"),
        pytest.param("failed", OLD.replace('"resources":[]', '"resources":["x"]'), False, id="other resources"),
        pytest.param("failed", OLD.replace('"b"', '"c"'), True, id="another profile was asked for"),
        pytest.param("failed", OLD.replace("no profile", "nothing like"), True, id="another message"),
        pytest.param("failed", "{", True, id="no JSON"),
        pytest.param("failed", "[" * 60_000, True, id="deep JSON"),
        pytest.param("failed", "x" * (MAX_ANSWER + 1), True, id="an annotation that is too long"),
    ],
)
def test_an_event_is_for_what_the_node_does_not_show_yet(state: str | None, answer: str | None, expected: bool) -> None:
    """Once for each change of what is asked or of the message, also after a restart."""
    seen = parse_node(node({GPU_PROFILE_STATE_LABEL: state}, {GPU_PROFILE_ANNOTATION: answer}))
    assert is_news(FAILED, seen) is expected


def test_a_success_is_no_event() -> None:
    """Whatever the Node shows."""
    assert not is_news(Verdict(asked="a", applied="a"), SeenNode())


def test_an_event_says_what_failed() -> None:
    """It names the profile."""
    assert words_of(FAILED) == "profile b: no profile b; there is a"


def test_a_failure_is_read_from_a_node() -> None:
    """What was asked, and the message."""
    assert parse_failure(SeenNode(state="failed", answer=OLD)) == ("b", "no profile b; there is a")
