"""Tracking annotations: formats and whose they are."""

import pytest
from hypothesis import given
from hypothesis import strategies as st

from feature_rules.model import EFFECTS, Taint
from nfd_worker.publish.node_state import NodeState
from nfd_worker.publish.tracking import TAINTS, format_names, format_taints, parse_names, parse_taints

NAMES = st.from_regex(r"[a-z]([a-z0-9.-]{0,20}[a-z0-9])?", fullmatch=True)
KEYS = st.builds("{}/{}".format, st.sampled_from(["feature.node.kubernetes.io", "vendor.example"]), NAMES)
TAINT = st.builds(Taint, KEYS, st.just("") | NAMES, st.sampled_from(EFFECTS))


@given(st.sets(KEYS))
def test_names_read_back(keys: set[str]) -> None:
    """Full names come out, sorted as they are written."""
    assert sorted(parse_names(format_names(keys))) == sorted(keys)


@given(st.lists(TAINT))
def test_taints_read_back(taints: list[Taint]) -> None:
    """Key, value and effect, in order."""
    assert list(parse_taints(format_taints(taints))) == taints


def test_names_in_the_usual_namespace_are_short() -> None:
    """Keys in the default namespace are recorded without it, as upstream does."""
    assert format_names(["vendor.example/b", "feature.node.kubernetes.io/a"]) == "a,vendor.example/b"


@pytest.mark.parametrize("text", ["", ",", "a", "a=b", ":NoSchedule", "a:Sometimes", "=b:NoSchedule"])
def test_what_is_no_taint_is_left_out(text: str) -> None:
    """An annotation can be edited by hand."""
    assert parse_taints(f"{text},k=v:NoExecute") == (Taint("k", "v", "NoExecute"),)


def node(own: str | None = None, shared: str | None = None) -> NodeState:
    """Make a Node with these annotations."""
    annotations = {TAINTS.own: own, TAINTS.shared: shared}
    there = {key: text for key, text in annotations.items() if text is not None}
    return NodeState.from_dict({"kind": "Node", "metadata": {"annotations": there}})


@pytest.mark.parametrize(
    ("own", "shared", "is_foreign"),
    [
        pytest.param(None, None, False, id="none"),
        pytest.param("a", "a", False, id="both the same"),
        pytest.param("a", None, False, id="upstream's was removed"),
        pytest.param(None, "a", True, id="upstream's alone"),
        pytest.param("a", "b", True, id="upstream's says something else"),
    ],
)
def test_upstreams_annotation_is_foreign_when_it_says_something_else(
    own: str | None, shared: str | None, is_foreign: bool
) -> None:
    """A different value of upstream's annotation belongs to another client."""
    assert TAINTS.is_foreign(node(own, shared)) is is_foreign


def test_what_upstream_tracks_counts_only_when_it_is_taken_over() -> None:
    """Keys that upstream tracks are ours only when it is adopted; keys that we track always are."""
    assert TAINTS.text(node("a", "b"), take_over=False) == "a"
    assert TAINTS.text(node("a", "b"), take_over=True) == "a,b"
    assert TAINTS.text(node(), take_over=True) == ""


@pytest.mark.parametrize(
    ("there", "text", "take_over", "expected"),
    [
        pytest.param(node(), "", False, {}, id="nothing"),
        pytest.param(node(), "a", False, {TAINTS.own: "a", TAINTS.shared: "a"}, id="comes"),
        pytest.param(node("a", "a"), "a", True, {}, id="stays"),
        pytest.param(node("a", "a"), "", False, {TAINTS.own: None, TAINTS.shared: None}, id="goes"),
        pytest.param(node("a"), "a", False, {TAINTS.shared: "a"}, id="removed by hand"),
        pytest.param(node("a", "b"), "", False, {TAINTS.own: None}, id="upstream's stays"),
        pytest.param(node(None, "b"), "b", True, {TAINTS.own: "b"}, id="taken over as it is"),
        pytest.param(node(None, "b"), "", True, {TAINTS.shared: None}, id="taken over and gone"),
    ],
)
def test_both_annotations_are_kept_in_line(
    there: NodeState, text: str, take_over: bool, expected: dict[str, str | None]
) -> None:
    """Our annotation and upstream's are updated together, except while upstream is at work."""
    assert TAINTS.patch(there, text, take_over=take_over) == expected
