"""Extended resources: both maps of the status and the tracking annotation, in one patch."""

from typing import Any

import pytest

from nfd_worker.extended_resources import names_of_ours, resources_patch
from nfd_worker.node_state import NodeState
from nfd_worker.tracking import EXTENDED_RESOURCES
from tests.unit.nfd_worker.test_node_state import entry

Json = dict[str, Any]

SLOTS = "feature.node.kubernetes.io/slots"
VENDOR = "vendor.example/cards"
CPU = {"cpu": "4"}


def node(capacity: Json, allocatable: Json | None = None, *, said: str = "", writer: str = "nfd-worker") -> NodeState:
    """Make a Node; ``allocatable`` is the capacity unless given."""
    status = {"capacity": CPU | capacity, "allocatable": CPU | (capacity if allocatable is None else allocatable)}
    managers = [entry(writer, annotations=[EXTENDED_RESOURCES])]
    metadata = {"annotations": {EXTENDED_RESOURCES: said}, "managedFields": managers} if said else {}
    return NodeState.from_dict({"kind": "Node", "metadata": {"name": "n", **metadata}, "status": status})


def tracking(text: str | None) -> Json:
    """Make the part of the patch that tracks."""
    return {"metadata": {"annotations": {EXTENDED_RESOURCES: text}}}


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
    assert resources_patch(there, wanted, {}) == (expected, ())


@pytest.mark.parametrize("wanted", [{}, {SLOTS: "3"}], ids=["nothing wanted", "wanted"])
def test_what_upstream_tracks_is_left_alone(wanted: dict[str, str]) -> None:
    """Two programs with one annotation: the second says so and keeps off."""
    upstream = node({SLOTS: "2"}, said="slots", writer="nfd-master")
    patch = resources_patch(upstream, wanted, {})
    assert patch.body == {}
    assert len(patch.notes) == len(wanted)
    assert all("nfd-master" in note and "--take-over" in note for note in patch.notes)
    assert names_of_ours(upstream) == ()


def test_taking_over_removes_what_upstream_tracks_and_its_annotations() -> None:
    """Those of all its instances; what we want as well stays."""
    instance = f"x.{EXTENDED_RESOURCES}"
    upstream = node({SLOTS: "2", VENDOR: "1"}, said="slots", writer="nfd-master")
    upstream = upstream._replace(annotations={**upstream.annotations, instance: VENDOR})
    patch = resources_patch(upstream, {SLOTS: "2"}, {EXTENDED_RESOURCES: (SLOTS,), instance: (VENDOR,)})
    assert patch.body == {
        "status": {"capacity": {VENDOR: None}, "allocatable": {VENDOR: None}},
        "metadata": {"annotations": {instance: None}},
    }
