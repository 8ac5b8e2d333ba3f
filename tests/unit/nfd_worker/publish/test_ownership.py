"""What is ours on a Node, and what of it stays while nobody knows better."""

from typing import Any

import pytest
from hypothesis import given
from hypothesis import strategies as st

from feature_rules.model import Taint
from nfd_worker.labels.node_content import NodeContent, Origins, Unknown
from nfd_worker.publish.node_state import NodeState
from nfd_worker.publish.ownership import (
    BEFORE,
    content_of_ours,
    format_origins,
    kept_for,
    parse_origins,
    with_kept,
    with_kept_origins,
)
from nfd_worker.publish.tracking import EXTENDED_RESOURCES, TAINTS
from tests.unit.nfd_worker.publish.test_node_state import entry

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


def kept(unknown: Unknown, recorded: Origins | None) -> NodeContent:
    """Want nothing; gives what stays."""
    return with_kept(NodeContent(), OURS, kept_for(unknown, recorded, OURS))


RULE_FILE, OTHER_FILE, FEATURE_FILE = "custom.d/a.yaml", "rules.d/b.yaml", "features.d/f"
RECORD: Origins = {RULE_FILE: (TAINT.key, SLOTS), OTHER_FILE: (), FEATURE_FILE: (KERNEL,), "rule conf/r": (PCI,)}
RULES = {RULE_FILE: None, OTHER_FILE: None, "rule conf/r": None, "rule conf/new": (PCI,)}
NOTHING = NodeContent({}, {}, {}, ())
ALL = NodeContent({KERNEL: "6.1", PCI: "true"}, {}, {SLOTS: "2"}, (TAINT,))


@pytest.mark.parametrize(
    ("unknown", "expected"),
    [
        pytest.param(Unknown(origins=(RULE_FILE,)), NodeContent({}, {}, {SLOTS: "2"}, (TAINT,)), id="a rule file"),
        pytest.param(Unknown(origins=("custom.d/",)), NodeContent({}, {}, {SLOTS: "2"}, (TAINT,)), id="a directory"),
        pytest.param(Unknown(origins=("custom.d/README",)), NOTHING, id="a file that never made anything"),
        pytest.param(Unknown(origins=(OTHER_FILE,), file_rules=RULES), NOTHING, id="a file that made nothing"),
        pytest.param(
            Unknown(origins=("features.d/g",), file_rules=RULES), NOTHING, id="a feature file that never was good"
        ),
        pytest.param(
            Unknown(origins=(FEATURE_FILE,), file_rules=RULES), ALL, id="a feature file, on which rules may depend"
        ),
        pytest.param(
            Unknown(origins=(FEATURE_FILE,)), NodeContent({KERNEL: "6.1"}, {}, {}, ()), id="rules that are gone"
        ),
        pytest.param(
            Unknown(prefixes=(f"{FEATURE}/kernel-",), rules={"rule conf/r": (PCI, "x")}),
            NodeContent({KERNEL: "6.1", PCI: "true"}, {}, {}, ()),
            id="a source, and the rule that depends on it",
        ),
        pytest.param(
            Unknown(rules={RULE_FILE: (SLOTS,), "rule conf/r": ("x",)}),
            NodeContent({}, {}, {SLOTS: "2"}, ()),
            id="of a file with rules only what those that depend on a source may want",
        ),
        pytest.param(
            Unknown(rules={RULE_FILE: (SLOTS,)}, file_rules={RULE_FILE: (TAINT.key,)}, origins=(FEATURE_FILE,)),
            NodeContent({KERNEL: "6.1"}, {}, {SLOTS: "2"}, (TAINT,)),
            id="rules that depend on a source, others on a feature file",
        ),
    ],
)
def test_unknown_holds_what_it_made_and_nothing_else(unknown: Unknown, expected: NodeContent) -> None:
    """As the Node's record says, after any restart; never the boot id, which every scan makes."""
    assert kept(unknown, RECORD) == expected


@pytest.mark.parametrize(
    ("known", "expected"),
    [
        pytest.param((), ALL, id="nothing known"),
        pytest.param((f"{FEATURE}/pci-",), NodeContent({KERNEL: "6.1"}, {}, {SLOTS: "2"}, (TAINT,)), id="pci known"),
        pytest.param((f"{FEATURE}/",), NOTHING, id="all known"),
    ],
)
def test_without_a_record_anybody_may_have_made_anything(known: tuple[str, ...], expected: NodeContent) -> None:
    """What an older worker or upstream left, or more than a record holds."""
    assert kept(Unknown(origins=(RULE_FILE,), known_prefixes=known), None) == expected


def test_what_was_there_before_the_record_stays_as_long_as_anything_is_unknown() -> None:
    """The first record says so for the next worker."""
    first = kept_for(Unknown(origins=(RULE_FILE,), known_prefixes=(f"{FEATURE}/pci-",)), None, OURS)
    record = with_kept_origins({OTHER_FILE: ("x",)}, first)
    assert record == {OTHER_FILE: ("x",), BEFORE: tuple(sorted((KERNEL, SLOTS, TAINT.key)))}
    assert kept(Unknown(origins=("custom.d/other",)), record) == NodeContent(
        {KERNEL: "6.1"}, {}, {SLOTS: "2"}, (TAINT,)
    )


def test_what_an_origin_claims_is_no_more_from_before_the_record() -> None:
    """When the rule does not want it any more it goes, though something else is still unknown."""
    unknown = Unknown(origins=(RULE_FILE,))
    wanted: Origins = {"rule conf/r": (TAINT.key, PCI)}
    for recorded in (None, {BEFORE: (KERNEL, PCI, SLOTS, TAINT.key)}):
        record = with_kept_origins(wanted, kept_for(unknown, recorded, OURS, wanted))
        assert record == {BEFORE: (KERNEL, SLOTS), "rule conf/r": (TAINT.key, PCI)}
    assert kept(unknown, record) == NodeContent({KERNEL: "6.1"}, {}, {SLOTS: "2"}, ())


def test_what_stays_is_recorded_again() -> None:
    """A file that is bad for three restarts holds as much after the third."""
    held = kept_for(Unknown(origins=(RULE_FILE,)), RECORD, OURS)
    record = with_kept_origins({FEATURE_FILE: (KERNEL,)}, held)
    assert record == {FEATURE_FILE: (KERNEL,), RULE_FILE: tuple(sorted((SLOTS, TAINT.key)))}
    assert kept_for(Unknown(origins=(RULE_FILE,)), record, OURS).origins == held.origins


def test_what_is_wanted_wins_over_what_is_kept() -> None:
    """The new value counts, and a taint is there once."""
    taint = TAINT._replace(value="new")
    wanted = NodeContent({KERNEL: "6.2"}, {BOOT_ID: "c"}, {SLOTS: "3"}, (taint,))
    everything = kept_for(Unknown(), None, OURS)
    assert with_kept(wanted, OURS, everything) == wanted._replace(labels={KERNEL: "6.2", PCI: "true"})


@given(st.dictionaries(st.text(), st.lists(st.text(), max_size=3).map(tuple), min_size=1, max_size=3))
def test_a_record_reads_back(record: dict[str, tuple[str, ...]]) -> None:
    """A written record is read back unchanged, for any file name."""
    assert parse_origins(format_origins(record)) == record


@pytest.mark.parametrize("text", [None, "", "{", "[1]", '{"a": 1}', "[" * 100_000])
def test_what_is_no_record_is_none(text: str | None) -> None:
    """An annotation that is no record of ours counts as absent."""
    assert parse_origins(text) is None


def test_a_record_that_is_too_long_is_left_out() -> None:
    """The API server would refuse the Node; without a record all is held, as before."""
    assert format_origins({"a": tuple(str(number).rjust(60, "0") for number in range(1000))}) == ""
