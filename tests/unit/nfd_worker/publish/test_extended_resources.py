"""Extended resources: both maps of the status and the tracking annotation, in one patch."""

from typing import Any

import pytest

from nfd_worker.publish.extended_resources import names_of_ours, resources_patch
from nfd_worker.publish.node_state import NodeState
from nfd_worker.publish.tracking import EXTENDED_RESOURCES

Json = dict[str, Any]

SLOTS = "feature.node.kubernetes.io/slots"
VENDOR = "vendor.example/cards"
CPU = {"cpu": "4"}


def node(capacity: Json, allocatable: Json | None = None, *, said: str = "", shared: str | None = None) -> NodeState:
    """Make a Node; ``allocatable`` is the capacity unless given, upstream's annotation says the same as ours."""
    status = {"capacity": CPU | capacity, "allocatable": CPU | (capacity if allocatable is None else allocatable)}
    texts = {EXTENDED_RESOURCES.own: said, EXTENDED_RESOURCES.shared: said if shared is None else shared}
    metadata = {"name": "n", "annotations": {key: text for key, text in texts.items() if text}}
    return NodeState.from_dict({"kind": "Node", "metadata": metadata, "status": status})


def tracking(text: str | None) -> Json:
    """Make the part of the patch that tracks."""
    return {"metadata": {"annotations": {EXTENDED_RESOURCES.own: text, EXTENDED_RESOURCES.shared: text}}}


@pytest.mark.parametrize(
    ("there", "wanted", "expected"),
    [
        pytest.param(node({}), {}, {}, id="nothing"),
        pytest.param(node({SLOTS: "2"}), {}, {}, id="somebody else's"),
        pytest.param(
            node({}),
            {SLOTS: "2"},
            {"status": {"capacity": {SLOTS: "2"}, "allocatable": {SLOTS: "2"}}, **tracking("slots")},
            id="comes",
        ),
        pytest.param(node({SLOTS: "2"}, said="slots"), {SLOTS: "2"}, {}, id="stays"),
        pytest.param(node({SLOTS: "2"}), {SLOTS: "2"}, {}, id="somebody else's, as we want it"),
        pytest.param(
            node({SLOTS: "1"}),
            {SLOTS: "2"},
            {"status": {"capacity": {SLOTS: "2"}, "allocatable": {SLOTS: "2"}}, **tracking("slots")},
            id="somebody else's, now ours",
        ),
        pytest.param(node({SLOTS: "2k"}, said="slots"), {SLOTS: "2000"}, {}, id="written otherwise"),
        pytest.param(node({SLOTS: "1500m"}, said="slots"), {SLOTS: "1.5"}, {}, id="a fraction"),
        pytest.param(
            node({SLOTS: "2"}, {SLOTS: "1"}, said="slots"), {SLOTS: "2"}, {}, id="the kubelet holds some back"
        ),
        pytest.param(
            node({SLOTS: "2"}, {}, said="slots"),
            {SLOTS: "2"},
            {"status": {"allocatable": {SLOTS: "2"}}},
            id="not allocatable",
        ),
        pytest.param(
            node({SLOTS: "0"}, said="slots"),
            {SLOTS: "2"},
            {"status": {"capacity": {SLOTS: "2"}, "allocatable": {SLOTS: "2"}}},
            id="changed",
        ),
        pytest.param(
            node({SLOTS: "2", VENDOR: "1"}, said="slots,vendor.example/cards"),
            {VENDOR: "1"},
            {"status": {"capacity": {SLOTS: None}, "allocatable": {SLOTS: None}}, **tracking("vendor.example/cards")},
            id="goes",
        ),
        pytest.param(
            node({}, {SLOTS: "2"}, said="slots"),
            {},
            {"status": {"allocatable": {SLOTS: None}}, **tracking(None)},
            id="gone from capacity already",
        ),
        pytest.param(node({}, said="slots"), {}, tracking(None), id="removed by hand"),
    ],
)
def test_the_patch(there: NodeState, wanted: dict[str, str], expected: Json) -> None:
    """What has to change, and nothing besides."""
    assert resources_patch(there, wanted, {}) == expected


def test_what_upstream_tracks_is_left_alone() -> None:
    """Two programs side by side; each has its own list."""
    upstream = node({SLOTS: "2"}, shared="slots")
    assert names_of_ours(upstream) == ()
    assert resources_patch(upstream, {}, {}) == {}
    assert resources_patch(upstream, {VENDOR: "1"}, {}) == {
        "status": {"capacity": {VENDOR: "1"}, "allocatable": {VENDOR: "1"}},
        "metadata": {"annotations": {EXTENDED_RESOURCES.own: VENDOR}},
    }


def test_taking_over_removes_what_upstream_tracks_and_its_annotations() -> None:
    """Those of all its instances; what we want as well stays."""
    instance = f"x.{EXTENDED_RESOURCES.shared}"
    upstream = node({SLOTS: "2", VENDOR: "1"}, shared="slots")
    upstream = upstream._replace(annotations={**upstream.annotations, instance: VENDOR})
    assert resources_patch(upstream, {SLOTS: "2"}, {EXTENDED_RESOURCES.shared: (SLOTS,), instance: (VENDOR,)}) == {
        "status": {"capacity": {VENDOR: None}, "allocatable": {VENDOR: None}},
        "metadata": {"annotations": {instance: None, EXTENDED_RESOURCES.own: "slots"}},
    }
