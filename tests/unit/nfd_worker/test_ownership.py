"""What is ours on a Node, and what of it stays while nobody knows better."""

from typing import Any

import pytest

from nfd_worker.node_content import NodeContent, Taint
from nfd_worker.node_state import NodeState
from nfd_worker.ownership import content_of_ours, with_kept
from nfd_worker.tracking import EXTENDED_RESOURCES, TAINTS
from tests.unit.nfd_worker.test_node_state import entry

Json = dict[str, Any]

FEATURE = "feature.node.kubernetes.io"
KERNEL, PCI, SLOTS = f"{FEATURE}/kernel-version.full", f"{FEATURE}/pci-1.present", f"{FEATURE}/slots"
TAINT = Taint(f"{FEATURE}/gpu", "true", "NoSchedule")
BOOT_ID = "driverwright.io/boot-id"


def node(*, upstream: bool = False) -> NodeState:
    """Make a Node of ours, with a label of somebody else; resources and taints may be upstream's."""
    keys = [(record.shared if upstream else record.own) for record in (EXTENDED_RESOURCES, TAINTS)]
    said = dict(zip(keys, ("slots,gone", str(TAINT)), strict=True))
    metadata = {
        "name": "n",
        "labels": {KERNEL: "6.1", PCI: "true", "other/label": "x"},
        "annotations": {BOOT_ID: "b", **said},
        "managedFields": [entry("nfd-worker", "Apply", labels=[KERNEL, PCI, "no/longer"], annotations=[BOOT_ID])],
    }
    taints = [{"key": TAINT.key, "value": TAINT.value, "effect": TAINT.effect}]
    status = {"capacity": {SLOTS: "2", "cpu": "4"}}
    return NodeState.from_dict({"kind": "Node", "metadata": metadata, "spec": {"taints": taints}, "status": status})


OURS = NodeContent({KERNEL: "6.1", PCI: "true"}, {BOOT_ID: "b"}, {SLOTS: "2"}, (TAINT,))


def test_ours_is_what_we_applied_and_what_our_annotations_track() -> None:
    """As far as it is still there."""
    assert content_of_ours(node(), take_over=False) == OURS


def test_upstreams_is_ours_only_by_taking_over() -> None:
    """Its extended resources and taints as well as its labels."""
    without = content_of_ours(node(upstream=True), take_over=False)
    assert (without.extended_resources, without.taints) == ({}, ())
    assert content_of_ours(node(upstream=True), take_over=True) == OURS


@pytest.mark.parametrize(
    ("known", "expected"),
    [
        pytest.param((), NodeContent({KERNEL: "6.1", PCI: "true"}, {}, {SLOTS: "2"}, (TAINT,)), id="nothing known"),
        pytest.param((f"{FEATURE}/pci-",), NodeContent({KERNEL: "6.1"}, {}, {SLOTS: "2"}, (TAINT,)), id="pci known"),
        pytest.param((f"{FEATURE}/",), NodeContent({}, {}, {}, ()), id="all known"),
    ],
)
def test_what_nobody_knows_better_about_stays(known: tuple[str, ...], expected: NodeContent) -> None:
    """All but the boot id, which is said anew or not at all."""
    assert with_kept(NodeContent(), OURS, known) == expected


def test_what_is_wanted_wins_over_what_is_kept() -> None:
    """The new value counts, and a taint is there once."""
    taint = TAINT._replace(value="new")
    wanted = NodeContent({KERNEL: "6.2"}, {BOOT_ID: "c"}, {SLOTS: "3"}, (taint,))
    assert with_kept(wanted, OURS, ()) == wanted._replace(labels={KERNEL: "6.2", PCI: "true"})
