"""Tracking annotations: formats and whose they are."""

import pytest
from hypothesis import given
from hypothesis import strategies as st

from nfd_worker.node_content import EFFECTS, Taint
from nfd_worker.node_state import NodeState
from nfd_worker.tracking import TAINTS, Tracked, format_names, format_taints, parse_names, parse_taints, tracked
from tests.unit.nfd_worker.test_node_state import entry

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
    """As upstream writes them."""
    assert format_names(["vendor.example/b", "feature.node.kubernetes.io/a"]) == "a,vendor.example/b"


@pytest.mark.parametrize("text", ["", ",", "a", "a=b", ":NoSchedule", "a:Sometimes", "=b:NoSchedule"])
def test_what_is_no_taint_is_left_out(text: str) -> None:
    """An annotation can be edited by hand."""
    assert parse_taints(f"{text},k=v:NoExecute") == (Taint("k", "v", "NoExecute"),)


@pytest.mark.parametrize(
    ("writers", "is_foreign"),
    [
        pytest.param(["nfd-worker"], False, id="ours"),
        pytest.param([], False, id="managers lost"),
        pytest.param(["nfd-master"], True, id="upstream's"),
        pytest.param(["nfd-master", "nfd-worker"], True, id="both"),
    ],
)
def test_an_annotation_is_ours_unless_somebody_else_wrote_it(writers: list[str], is_foreign: bool) -> None:
    """What another program tracks must not be removed."""
    managers = [entry(writer, annotations=[TAINTS]) for writer in writers]
    metadata = {"annotations": {TAINTS: "a:NoSchedule"}, "managedFields": managers}
    node = NodeState.from_dict({"kind": "Node", "metadata": metadata})
    assert tracked(node, TAINTS) == Tracked("a:NoSchedule", is_foreign)
