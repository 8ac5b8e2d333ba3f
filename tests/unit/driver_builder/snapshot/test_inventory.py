"""Nodes grouped into targets by their labels."""

import json
from dataclasses import replace
from typing import Any

import pytest
from hypothesis import given
from hypothesis import strategies as st

from driver_builder.model.kernels import KernelTarget
from driver_builder.snapshot import inventory
from driver_builder.snapshot.inventory import MAX_TAINTS, Node, Taint, pressed, read_node, target_of
from kube_api import names
from tests.support.driver_builder.factories import BOOT_ID, KERNEL, OTHER_KERNEL, node, target


def test_nodes_are_grouped_by_kernel_and_sorted() -> None:
    """Targets come in order, each with its sorted nodes, whatever order the API server lists them in."""
    nodes = [node("c"), node("a", OTHER_KERNEL), node("b"), node("d", os_version="13")]
    stock = inventory.take(nodes, {})
    assert dict(stock.targets) == {
        target(OTHER_KERNEL): ("a",),
        target(): ("b", "c"),
        target(os_version="13"): ("d",),
    }
    assert list(stock.targets) == sorted(stock.targets)


@pytest.mark.parametrize(
    ("selector", "expected"),
    [
        pytest.param({}, ("a", "b"), id="empty selects all"),
        pytest.param({"pool": "edu"}, ("a",), id="equality"),
        pytest.param({"pool": "edu", "zone": "1"}, (), id="every label counts"),
        pytest.param({"pool": ""}, (), id="empty value is a value"),
    ],
)
def test_the_selector_picks_by_equality(selector: dict[str, str], expected: tuple[str, ...]) -> None:
    """A node is meant when it has every label of the selector with its value."""
    stock = inventory.take([node("a"), node("b", labels={"pool": "web"})], selector)
    assert tuple(name for group in stock.targets.values() for name in group) == expected


def test_nodes_share_the_labels_that_they_have_in_common() -> None:
    """Each comes from a JSON text of its own; a hundred labels on thousands of nodes would be as many strings."""
    text = json.dumps({"metadata": {"name": "a", "labels": {"example.com/zone": "zone-1"}}})
    one, other = (inventory.read_node(json.loads(text)) for _ in range(2))
    ((key, value),), ((same_key, same_value),) = one.labels.items(), other.labels.items()
    assert key is same_key
    assert value is same_value


class Counted(dict[str, str]):
    """Labels that count how often the kernel's one is read."""

    reads = 0

    def get(self, key: str, default: str = "") -> str:  # type: ignore[override]  # no label is None
        """Read a label."""
        self.reads += key == names.KERNEL_VERSION_LABEL
        return super().get(key, default)


def test_a_report_of_a_kubelet_is_known_and_is_no_news() -> None:
    """Each node reports again and again; what counts is what it reports."""

    def read(heard: str, count: str) -> Node:
        ready = {"type": "Ready", "status": "True", "lastHeartbeatTime": heard}
        status = {"conditions": [ready], "allocatable": {"example.com/edu": count}}
        return read_node({"metadata": {"name": "a"}, "status": status})

    one, later = read("2023-11-14T22:13:20Z", "1"), read("2023-11-14T22:13:30Z", "2")
    assert later.reported_at - one.reported_at == 10.0
    assert (one == later, one == read("2023-11-14T22:13:20Z", "0")) == (True, False)


def test_the_target_of_a_node_that_did_not_change_is_not_read_again() -> None:
    """However many drivers select it, and whatever other nodes do."""
    labels = [Counted(node(name).labels) for name in "ab"]
    nodes = tuple(replace(node(name), labels=own) for name, own in zip("ab", labels, strict=True))
    for selector in ({}, {"pool": "edu"}):
        inventory.take(nodes, selector)
    other = node("b", OTHER_KERNEL)
    stock = inventory.take((nodes[0], other), {})
    assert dict(stock.targets) == {target(): ("a",), target(OTHER_KERNEL): ("b",)}
    assert [own.reads for own in labels] == [1, 1]


def test_a_selected_node_without_target_is_reported() -> None:
    """Selected nodes whose kernel is unknown are kept apart, others are none of our business."""
    stock = inventory.take([node("a", None), node("b", None, labels={"pool": "web"})], {"pool": "edu"})
    assert list(stock.unknown) == ["a"]


@pytest.mark.parametrize(
    ("labels", "words"),
    [
        pytest.param({names.KERNEL_VERSION_LABEL: ""}, names.KERNEL_VERSION_LABEL, id="no kernel"),
        pytest.param({names.OS_ID_LABEL: ""}, names.OS_ID_LABEL, id="no operating system"),
        pytest.param({names.ARCHITECTURE_LABEL: ""}, names.ARCHITECTURE_LABEL, id="not a valid architecture"),
        pytest.param({names.KERNEL_VERSION_LABEL: "6.1; reboot"}, "not a valid kernel release", id="kernel is none"),
        pytest.param(
            {names.OS_ID_LABEL: "Debian GNU"}, "not a valid operating system id", id="operating system is none"
        ),
        pytest.param({names.OS_VERSION_LABEL: "12 (x)"}, "not a valid operating system version", id="version is none"),
        pytest.param({names.ARCHITECTURE_LABEL: "x86-64"}, "not a valid architecture", id="architecture is none"),
    ],
)
def test_a_node_without_usable_labels_says_which(labels: dict[str, str], words: str) -> None:
    """The reason names the node and the label or value."""
    why = target_of(node(labels=labels))
    assert isinstance(why, str)
    assert "node-a" in why
    assert words in why


def test_an_operating_system_may_have_capitals() -> None:
    """The rules of os-release do not allow them, and openEuler has them."""
    assert target_of(node(os_id="openEuler", os_version="22.03")) == target(os_id="openEuler", os_version="22.03")


def test_a_rolling_distribution_has_no_version() -> None:
    """An os-release without VERSION_ID is a target too."""
    assert target_of(node(os_id="arch", os_version="")) == target(os_id="arch", os_version="")


def test_annotations_become_facts() -> None:
    """Boot id and rebuild request are read; an empty request is none."""
    assert (node().boot_id, node(boot_id=None).boot_id) == (BOOT_ID, None)
    assert (node(rebuild="1").rebuild, node(rebuild="").rebuild, node().rebuild) == ("1", None, None)


label_keys = st.sampled_from(
    [names.KERNEL_VERSION_LABEL, names.OS_ID_LABEL, names.OS_VERSION_LABEL, names.ARCHITECTURE_LABEL]
)


@given(st.dictionaries(label_keys, st.text() | st.just(KERNEL) | st.just("amd64")))
def test_no_label_makes_grouping_fail(labels: dict[str, str]) -> None:
    """Every selected node is in exactly one target or has a reason, whatever its labels say."""
    stock = inventory.take([Node(name="n", labels=labels, annotations={})], {})
    assert sum(len(group) for group in stock.targets.values()) + len(stock.unknown) == 1


@pytest.mark.parametrize(
    ("label", "annotation", "expected"),
    [
        pytest.param("6.12.9_deb12-amd64", "6.12.9+deb12-amd64", "6.12.9+deb12-amd64", id="annotation agrees"),
        pytest.param("6.1.0-55", None, "6.1.0-55", id="no annotation"),
        pytest.param("6.1.0-55", "6.12.9+deb12-amd64", "6.1.0-55", id="annotation of another boot"),
    ],
)
def test_the_exact_release_is_the_annotations(label: str, annotation: str | None, expected: str) -> None:
    """A label cannot hold every character of a release; the annotation counts as long as it means the same kernel."""
    plain = node(kernel=label)
    annotations = {} if annotation is None else {names.KERNEL_VERSION_ANNOTATION: annotation}
    found = target_of(Node(name="n", labels=plain.labels, annotations=annotations))
    assert found == target(expected)


def test_a_release_of_64_characters_is_known_whole() -> None:
    """The label has its first 63 characters, the annotation all."""
    release = "6.1.0-" + "x" * 58
    item = node(labels={names.KERNEL_VERSION_LABEL: names.label_value(release)})
    item = replace(item, annotations={**item.annotations, names.KERNEL_VERSION_ANNOTATION: release})
    assert item.kernel_version == release
    assert isinstance(target_of(item), KernelTarget)


def test_an_annotation_that_is_no_kernel_release_is_not_believed() -> None:
    """Annotations are not limited to the 64 characters of a kernel release."""
    release = "6.1." + "0" * 5000
    item = node(labels={names.KERNEL_VERSION_LABEL: names.label_value(release)})
    item = replace(item, annotations={**item.annotations, names.KERNEL_VERSION_ANNOTATION: release})
    assert item.kernel_version == names.label_value(release)


@pytest.mark.parametrize(
    ("status", "is_ready"),
    [
        pytest.param({"conditions": [{"type": "Ready", "status": "True"}]}, True, id="Ready"),
        pytest.param({"conditions": [{"type": "Ready", "status": "False"}]}, False, id="not Ready"),
        pytest.param({"conditions": [{"type": "Ready", "status": "Unknown"}]}, False, id="its kubelet is silent"),
        pytest.param({"conditions": [{"type": "DiskPressure", "status": "False"}]}, True, id="nothing is known"),
        pytest.param({}, True, id="no status"),
    ],
)
def test_whether_a_node_is_ready_is_read_from_its_condition(status: dict[str, Any], *, is_ready: bool) -> None:
    """As its kubelet reports it, or the controller that watches kubelets."""
    assert read_node({"metadata": {"name": "a"}, "status": status}).ready is is_ready


@pytest.mark.parametrize(
    ("condition", "expected"),
    [
        ({"status": "True", "lastTransitionTime": "2026-11-24T10:00:00Z"}, (True, 1795514400.0)),
        ({"status": "False", "lastTransitionTime": "2026-11-24T10:00:00Z"}, (False, 1795514400.0)),
        ({"status": "Unknown", "lastTransitionTime": "yesterday"}, (False, None)),
    ],
)
def test_whether_disk_space_is_short_is_read(condition: dict[str, str], expected: tuple[bool, float | None]) -> None:
    """And since when the kubelet says so; of a fleet the nodes are known by name, also when one changes."""
    status = {"conditions": [{"type": "DiskPressure", **condition}]}
    found = read_node({"metadata": {"name": "a"}, "status": status})
    assert (found.disk_pressure, found.disk_changed) == expected
    others = tuple(node(f"node-{number}") for number in range(3))
    assert pressed(others) == frozenset()
    assert pressed((*others[:2], replace(others[2], disk_pressure=True))) == {"node-2"}
    assert pressed(others) == frozenset()


def test_what_keeps_pods_from_a_node_is_read() -> None:
    """Its cordon and its taints, in printable form and a bounded number."""
    taints = [{"key": "gpu", "value": "a\x1b[31m", "effect": "NoSchedule"}, {"key": "k", "effect": "NoExecute"}]
    found = read_node({"metadata": {"name": "a"}, "spec": {"unschedulable": True, "taints": taints}})
    assert found.unschedulable
    assert [str(taint) for taint in found.taints] == ["gpu=a:NoSchedule", "k:NoExecute"]
    many = read_node({"metadata": {"name": "a"}, "spec": {"taints": [{"key": str(n)} for n in range(1000)]}})
    assert len(many.taints) == MAX_TAINTS


TAINT = Taint(key="gpu", value="a", effect="NoSchedule")


@pytest.mark.parametrize(
    ("toleration", "tolerates"),
    [
        pytest.param({"operator": "Exists"}, True, id="everything"),
        pytest.param({"key": "gpu", "operator": "Exists"}, True, id="any value"),
        pytest.param({"key": "gpu", "value": "a"}, True, id="equal"),
        pytest.param({"key": "gpu", "operator": "Equal", "value": "a", "effect": "NoSchedule"}, True, id="all of it"),
        pytest.param({"key": "gpu", "value": "b"}, False, id="another value"),
        pytest.param({"key": "fpga", "operator": "Exists"}, False, id="another key"),
        pytest.param({"operator": "Exists", "effect": "NoExecute"}, False, id="another effect"),
        pytest.param({}, False, id="nothing"),
    ],
)
def test_a_toleration_is_matched_as_kubernetes_does(toleration: dict[str, str], *, tolerates: bool) -> None:
    """By key, value and effect."""
    assert TAINT.is_tolerated(toleration) is tolerates


@pytest.mark.parametrize(
    "after",
    [
        pytest.param(node("b", labels={"x": "1"}), id="a label that nobody asks for"),
        pytest.param(node("b", labels={"pool": "web"}), id="a label of the selector"),
        pytest.param(node("b", OTHER_KERNEL), id="another kernel"),
        pytest.param(node("b", None), id="no kernel"),
        pytest.param(node("b", rebuild="now"), id="a request"),
        pytest.param(node("d"), id="another node in its place"),
    ],
)
def test_a_fleet_of_which_a_node_changed_is_as_one_that_is_new(after: Node) -> None:
    """What is kept of the fleet before is what would be found anew, in the same order."""
    before = (node("c"), node("b"), node("a"))
    inventory.take(before, {"pool": "edu"})
    nodes = (before[0], after, before[2])
    found = (inventory.take(nodes, {"pool": "edu"}), inventory.by_name(nodes), inventory.asking(nodes))
    inventory.take((), {})
    again = (nodes[2], nodes[1], nodes[0])
    anew = (inventory.take(again, {"pool": "edu"}), inventory.by_name(again), inventory.asking(again))
    assert found == anew
    assert list(found[1]) == sorted(found[1])


def test_an_inventory_stays_while_what_it_says_does() -> None:
    """The same object: nothing of a fleet is grouped anew for a label that nobody asks for."""
    before = (node("a"), node("b"))
    known = inventory.take(before, {"pool": "edu"})
    assert inventory.take((before[0], node("b", labels={"x": "1"})), {"pool": "edu"}) is known
