"""Taking a Node over: what upstream left there, and what ends its part."""

from typing import Any

import pytest

from nfd_worker.labels.node_content import NodeContent
from nfd_worker.publish.node_state import NodeState
from nfd_worker.publish.take_over import Leftovers, leftovers, take_over_patch
from tests.unit.nfd_worker.publish.test_node_state import entry

Json = dict[str, Any]

FEATURE = "feature.node.kubernetes.io"
NFD = "nfd.node.kubernetes.io"
UPSTREAM = {
    f"{NFD}/feature-labels": "gpu,vendor.example/card",
    f"{NFD}/feature-annotations": "note",
    f"{NFD}/extended-resources": "slots",
    f"{NFD}/taints": f"{FEATURE}/gpu=true:NoSchedule",
    f"{NFD}/master.version": "v0.18.0",
    f"{NFD}/worker.version": "v0.18.0",
    f"{FEATURE}/note": "hello",
}
LABELS = {f"{FEATURE}/gpu": "true", "vendor.example/card": "1", "kubernetes.io/hostname": "n"}


def node(annotations: Json = UPSTREAM, *managers: Json, labels: Json = LABELS) -> NodeState:
    """Make a Node as upstream leaves it."""
    entries = list(managers) or [entry("nfd-master", labels=[*labels], annotations=[*annotations])]
    metadata = {"name": "n", "labels": labels, "annotations": annotations, "managedFields": entries}
    return NodeState.from_dict({"kind": "Node", "metadata": metadata})


def test_upstreams_annotations_say_what_it_left() -> None:
    """Full names, whichever way it has shortened them."""
    found = leftovers(node())
    assert found == Leftovers(
        labels=frozenset({f"{FEATURE}/gpu", "vendor.example/card"}),
        annotations=frozenset({f"{FEATURE}/note"}),
        extended_resources={f"{NFD}/extended-resources": (f"{FEATURE}/slots",)},
        taints=1,
        bookkeeping=frozenset(UPSTREAM) - {f"{FEATURE}/note"},
    )
    assert str(found) == "2 labels, 1 annotations, 1 extended resources, 1 taints"


@pytest.mark.parametrize("instance", ["x", "a.b-c_D"])
def test_instances_of_upstream_are_found(instance: str) -> None:
    """They put their name before the namespace."""
    found = leftovers(node({f"{instance}.{NFD}/feature-labels": "gpu"}))
    assert found.labels == {f"{FEATURE}/gpu"}
    assert found.bookkeeping == {f"{instance}.{NFD}/feature-labels"}


@pytest.mark.parametrize("key", [f"{NFD}/other", f"not{NFD}/feature-labels", "feature-labels", f"a/{NFD}/taints"])
def test_other_annotations_are_none_of_upstreams(key: str) -> None:
    """Only the names that it is known to write."""
    assert leftovers(node({key: "gpu"})) == Leftovers()


def test_our_own_tracking_is_not_left_over() -> None:
    """Else every cycle would take over what it has just written."""
    names = ("extended-resources", "taints")
    same = {f"{prefix}/{name}": "slots" for name in names for prefix in (NFD, "driverwright.io")}
    assert leftovers(node(same)) == Leftovers()
    assert leftovers(node({**same, f"{NFD}/taints": "a:NoSchedule"})).bookkeeping == {f"{NFD}/taints"}


def test_names_that_cannot_be_are_left_out() -> None:
    """The API server would refuse the patch."""
    assert leftovers(node({f"{NFD}/feature-labels": "a b,/,gpu,"})).labels == {f"{FEATURE}/gpu"}


WANTED = NodeContent(labels={f"{FEATURE}/gpu": "true"}, annotations={f"{FEATURE}/mine": "1"})


def test_what_we_do_not_want_goes_and_what_we_want_is_ours_alone() -> None:
    """One patch; extended resources and taints have patches of their own."""
    ours = entry("nfd-worker", "Apply", labels=[f"{FEATURE}/gpu"])
    upstream = node(UPSTREAM, entry("nfd-master", labels=[*LABELS], annotations=[*UPSTREAM]), ours)
    patch = take_over_patch(upstream, leftovers(upstream), WANTED)["metadata"]
    assert patch["labels"] == {"vendor.example/card": None}
    assert patch["annotations"] == dict.fromkeys(
        [f"{FEATURE}/note", *(f"{NFD}/{name}" for name in (
            "feature-labels", "feature-annotations", "master.version", "worker.version",
        ))]
    )  # fmt: skip
    left, same = patch["managedFields"]
    assert same == ours
    assert set(left["fieldsV1"]["f:metadata"]["f:labels"]) == {"f:vendor.example/card", "f:kubernetes.io/hostname"}


def test_whoever_wrote_upstreams_annotations_is_upstream() -> None:
    """The field manager is called after the binary, and that can be renamed."""
    renamed = node(UPSTREAM, entry("my-nfd", labels=[*LABELS], annotations=[*UPSTREAM]))
    (left,) = take_over_patch(renamed, leftovers(renamed), WANTED)["metadata"]["managedFields"]
    assert f"f:{FEATURE}/gpu" not in left["fieldsV1"]["f:metadata"]["f:labels"]


def test_labels_that_upstream_co_owns_without_tracking_them_become_ours() -> None:
    """It loses track of labels now and then; we could never remove them."""
    lost = node({}, entry("nfd-master", labels=[f"{FEATURE}/gpu"]), entry("kubectl", labels=["x"]))
    patch = take_over_patch(lost, leftovers(lost), WANTED)
    assert patch == {"metadata": {"managedFields": [entry("kubectl", labels=["x"])]}}


def test_what_another_program_applies_as_well_stays_and_is_its_own() -> None:
    """A controller that has adopted a label of upstream's removes it when it is time to; the Node never lacks it."""
    card, note = "vendor.example/card", f"{FEATURE}/note"
    theirs = entry("driver-builder-features", "Apply", labels=[card], annotations=[note])
    adopted = node(UPSTREAM, entry("nfd-master", labels=[*LABELS], annotations=[*UPSTREAM]), theirs)
    patch = take_over_patch(adopted, leftovers(adopted), WANTED)["metadata"]
    assert "labels" not in patch
    assert note not in patch["annotations"]
    left, same = patch["managedFields"]
    assert same == theirs
    assert f"f:{card}" not in left["fieldsV1"]["f:metadata"]["f:labels"]
    assert f"f:{note}" not in left["fieldsV1"]["f:metadata"]["f:annotations"]


def test_nothing_left_is_nothing_to_do() -> None:
    """On a Node without fields of upstream --take-over changes nothing."""
    clean = node({f"{FEATURE}/mine": "1"}, entry("nfd-worker", "Apply", labels=[f"{FEATURE}/gpu"]))
    assert take_over_patch(clean, leftovers(clean), WANTED) == {}


def test_only_annotations_left_is_said_so() -> None:
    """A Node with only upstream's annotations is reported as such."""
    assert str(leftovers(node({f"{NFD}/master.version": "v0.9"}))) == "nothing but annotations"
