"""Taints: ours come and go, those of others stay."""

from typing import Any

import pytest
from hypothesis import given
from hypothesis import strategies as st

from feature_rules.model import EFFECTS, Taint
from nfd_worker.publish.node_state import NodeState
from nfd_worker.publish.node_taints import MergedTaints, merge_taints, taints_of_ours, taints_patch
from nfd_worker.publish.tracking import TAINTS

Json = dict[str, Any]

OURS = Taint("feature.node.kubernetes.io/gpu", "true", "NoSchedule")
OTHER_VALUE = OURS._replace(value="other")
OTHER_EFFECT = OURS._replace(effect="NoExecute")
FOREIGN: Json = {"key": "node.kubernetes.io/unreachable", "effect": "NoExecute", "timeAdded": "2026-01-01T00:00:00Z"}

TAINT = st.builds(Taint, st.sampled_from("abc"), st.sampled_from(["", "1", "2"]), st.sampled_from(EFFECTS))


def as_json(taint: Taint) -> Json:
    """Write a taint as the API server does."""
    return {"key": taint.key, "effect": taint.effect} | ({"value": taint.value} if taint.value else {})


@pytest.mark.parametrize(
    ("current", "before", "wanted", "expected"),
    [
        pytest.param([], [], [], [], id="nothing"),
        pytest.param([], [], [OURS], [as_json(OURS)], id="comes"),
        pytest.param([FOREIGN], [], [OURS], [FOREIGN, as_json(OURS)], id="comes after others"),
        pytest.param([as_json(OURS), FOREIGN], [OURS], [], [FOREIGN], id="goes"),
        pytest.param([as_json(OURS)], [OURS], [OURS], [as_json(OURS)], id="stays"),
        pytest.param([as_json(OURS), FOREIGN], [OURS], [OTHER_VALUE], [as_json(OTHER_VALUE), FOREIGN], id="new value"),
        pytest.param([as_json(OURS)], [OURS], [OTHER_EFFECT], [as_json(OTHER_EFFECT)], id="new effect"),
        pytest.param([], [OURS], [OURS], [as_json(OURS)], id="removed by hand, comes back"),
        pytest.param([], [OURS], [], [], id="removed by hand, not wanted"),
        pytest.param([as_json(OTHER_VALUE)], [OURS], [OURS], [as_json(OURS)], id="changed by hand, set again"),
        pytest.param([as_json(OTHER_VALUE)], [OURS], [], [as_json(OTHER_VALUE)], id="changed by hand, not wanted"),
        pytest.param([as_json(OTHER_VALUE)], [], [OURS], [as_json(OTHER_VALUE)], id="somebody else's"),
        pytest.param([], [], [OTHER_VALUE, OURS], [as_json(OURS)], id="wanted twice, the later counts"),
    ],
)
def test_merging(current: list[Json], before: list[Taint], wanted: list[Taint], expected: list[Json]) -> None:
    """The list that the Node should carry."""
    assert list(merge_taints(current, before, wanted).taints) == expected


def test_a_taint_that_somebody_else_set_is_not_ours_later() -> None:
    """It was there first, though it may be just what we want."""
    assert merge_taints([as_json(OURS)], [], [OURS]) == MergedTaints((as_json(OURS),), (), ())
    assert merge_taints([as_json(OURS)], [], [OTHER_VALUE]) == MergedTaints((as_json(OURS),), (), (OTHER_VALUE,))


@given(st.lists(TAINT), st.lists(TAINT), st.lists(TAINT))
def test_merging_again_changes_nothing_and_others_are_never_touched(
    current: list[Taint], before: list[Taint], wanted: list[Taint]
) -> None:
    """Whatever the Node looks like."""
    there = [as_json(taint) for taint in {(t.key, t.effect): t for t in current}.values()]
    once = merge_taints(there, before, wanted)
    assert merge_taints(once.taints, once.ours, wanted) == once
    tracked = {(taint.key, taint.effect) for taint in before}
    assert all(each in once.taints for each in there if (each["key"], each["effect"]) not in tracked)
    identities = [(each["key"], each["effect"]) for each in once.taints]
    assert len(identities) == len(set(identities))
    assert {(t.key, t.effect) for t in wanted} <= set(identities)


def node(*taints: Json, own: str = "", shared: str = "") -> NodeState:
    """Make a Node that carries taints, tracked by us or by upstream."""
    annotations = {key: text for key, text in ((TAINTS.own, own), (TAINTS.shared, shared)) if text}
    metadata = {"name": "n", "annotations": annotations}
    return NodeState.from_dict({"kind": "Node", "metadata": metadata, "spec": {"taints": list(taints)}})


def tracking(text: str | None) -> Json:
    """Make the part of the patch that tracks."""
    return {"annotations": {TAINTS.own: text, TAINTS.shared: text}}


def test_nothing_wanted_and_nothing_there_is_no_patch() -> None:
    """A Node without taints of ours costs no request."""
    assert taints_patch(node(FOREIGN), (), take_over=False) == ({}, ())


def test_list_and_tracking_are_one_patch() -> None:
    """No moment with a taint that nothing tracks."""
    patch = taints_patch(node(FOREIGN), (OURS,), take_over=False)
    assert patch.body == {
        "spec": {"taints": [FOREIGN, as_json(OURS)]},
        "metadata": tracking("feature.node.kubernetes.io/gpu=true:NoSchedule"),
    }


def test_the_last_taint_takes_list_and_tracking_with_it() -> None:
    """The Node is as if we had never been there."""
    patch = taints_patch(node(as_json(OURS), own=str(OURS), shared=str(OURS)), (), take_over=False)
    assert patch.body == {"spec": {"taints": None}, "metadata": tracking(None)}


def test_a_held_taint_is_reported() -> None:
    """The rule's author wonders where it is."""
    patch = taints_patch(node(as_json(OTHER_VALUE)), (OURS,), take_over=False)
    assert patch.body == {}
    assert patch.notes == (f"taint {OURS} is left unchanged: another client set it on node n",)


def test_taints_that_upstream_tracks_are_not_ours() -> None:
    """Two programs side by side; each has its own list."""
    upstream = node(as_json(OTHER_EFFECT), shared=str(OTHER_EFFECT))
    assert taints_of_ours(upstream, take_over=False) == ()
    assert taints_patch(upstream, (), take_over=False).body == {}
    assert taints_patch(upstream, (OURS,), take_over=False).body == {
        "spec": {"taints": [as_json(OTHER_EFFECT), as_json(OURS)]},
        "metadata": {"annotations": {TAINTS.own: str(OURS)}},
    }


def test_taking_over_makes_upstreams_taints_ours() -> None:
    """They go when we do not want them."""
    upstream = node(as_json(OURS), shared=str(OURS))
    assert taints_of_ours(upstream, take_over=True) == (OURS,)
    assert taints_patch(upstream, (), take_over=True).body == {
        "spec": {"taints": None},
        "metadata": {"annotations": {TAINTS.shared: None}},
    }


def test_a_taint_that_was_changed_by_hand_is_not_kept_as_ours() -> None:
    """Only what is still as we set it."""
    assert taints_of_ours(node(as_json(OTHER_VALUE), own=str(OURS)), take_over=False) == ()
