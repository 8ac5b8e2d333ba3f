"""Which nodes and kernels a plan is about, and what it says of those that can have no driver."""

from dataclasses import replace
from typing import Any

import pytest

from driver_builder.base.reasons import TargetState, remedy_of
from driver_builder.model.driver_key import DriverKey
from driver_builder.model.image_state import Absent, ImageState
from driver_builder.nodes.changes import DeleteObject
from driver_builder.plan.plan import plan
from driver_builder.snapshot.inventory import Node
from driver_builder.snapshot.snapshot import SourceMissing
from tests.support.driver_builder.changes import labels
from tests.support.driver_builder.factories import (
    OTHER_KERNEL,
    PRESENT,
    SETTINGS,
    driver,
    node,
    ready_snapshot,
    snapshot,
    with_images,
)
from tests.support.driver_builder.plans import READY_LABEL, only_target, verbs


def test_a_node_on_a_new_kernel_is_a_new_target_and_the_old_one_goes() -> None:
    """After a kernel change the node's new target is built for; the DaemonSet of the kernel nobody runs is deleted."""
    before = ready_snapshot(node(kernel=OTHER_KERNEL))
    moved = replace(before, nodes=(node(labels={READY_LABEL: "1.0.0"}),))
    decided = plan(with_images(moved, Absent()), SETTINGS)
    assert verbs(decided) == ["delete DaemonSet", "label Node", "StartBuild"]
    (gone,) = [action for action in decided.actions if isinstance(action, DeleteObject)]
    assert gone.name == before.daemon_sets[0].name


@pytest.mark.parametrize(
    "outsider",
    [
        pytest.param(node("outside", labels={"pool": "web"}), id="outside the selector"),
        pytest.param(node("outside", kernel=None), id="without kernel label"),
        pytest.param(node("outside", kernel="not a kernel"), id="with a kernel label that is none"),
    ],
)
def test_a_node_that_is_not_ours_is_not_touched(outsider: Node) -> None:
    """A node outside the selector, or one whose kernel is unknown, gets no image, no DaemonSet and no label."""
    seen = ready_snapshot()
    seen = replace(seen, nodes=(*seen.nodes, outsider))
    decided = plan(seen, SETTINGS)
    assert verbs(decided) == []
    assert only_target(decided).nodes == 1


def test_a_selected_node_without_kernel_is_reported() -> None:
    """A node that nfd-worker has not labelled is named, with the question to ask."""
    (part,) = plan(snapshot(node(kernel=None)), SETTINGS).drivers
    assert part.targets == ()
    assert "node node-a has no label" in part.unknown["node-a"]


def test_a_forged_label_goes() -> None:
    """A ready label on a node that no pod vouches for is taken away, wherever the node is."""
    forged = node("outside", labels={"pool": "web", READY_LABEL: "1.0.0"})
    seen = ready_snapshot()
    (action,) = plan(replace(seen, nodes=(*seen.nodes, forged)), SETTINGS).actions
    assert [(node, value) for node, _, value in labels([action])] == [("outside", None)]


def test_without_nodes_there_is_nothing_to_do() -> None:
    """A driver without nodes has no targets."""
    decided = plan(snapshot(node(labels={"pool": "web"})), SETTINGS)
    assert verbs(decided) == []
    assert decided.drivers[0].targets == ()


@pytest.mark.parametrize(
    ("changes", "source", "target_state", "reason"),
    [
        pytest.param({"kernelMappings": [{"regexp": ".*", "skip": True}]}, None, "Skipped", "SkippedByMapping",
                     id="skipped"),
        pytest.param({"kernelMappings": [{"literal": "5.15.0"}]}, None, "Skipped", "NoKernelMapping", id="no match"),
        pytest.param({}, "ConfigMap is not there", "Pending", "SourceMissing", id="source missing"),
        pytest.param({"build": {"template": "gentoo"}}, None, "Failed", "UnsupportedOS", id="unknown template"),
        pytest.param({"kernelMappings": [{"regexp": ".*", "template": "gentoo"}]}, None, "Failed", "UnsupportedOS",
                     id="unknown template of a mapping"),
    ],
)  # fmt: skip
def test_a_target_that_cannot_be_built_says_why(
    changes: dict[str, Any], source: str | None, target_state: str, reason: str
) -> None:
    """Nothing is done for such a target, and its status names the reason."""
    seen = snapshot(drivers=(driver(spec_changes=changes),))
    if source is not None:
        seen = replace(seen, sources={DriverKey("driverwright/edu"): SourceMissing(message=source)})
    decided = plan(seen, SETTINGS)
    assert verbs(decided) == []
    assert (only_target(decided).state, only_target(decided).reason) == (target_state, reason)


def test_an_unknown_distribution_says_what_to_set() -> None:
    """A target without template names the templates there are, and its reason the fields that help."""
    entry = only_target(plan(snapshot(node(os_id="gentoo")), SETTINGS))
    assert entry.reason == "UnsupportedOS"
    assert "spec.build.template" in remedy_of(entry.reason)
    assert "debian" in entry.message


@pytest.mark.parametrize(
    ("state", "actions", "reason"),
    [
        pytest.param(PRESENT, ["apply DaemonSet"], "WaitingForNodes", id="present: roll out"),
        pytest.param(Absent(), [], "ImageMissing", id="absent: never built"),
    ],
)
def test_a_prebuilt_image_is_used_and_never_built(state: ImageState, actions: list[str], reason: str) -> None:
    """An image that a mapping names is the admin's to push."""
    mapping = {"regexp": ".*", "image": "registry.example.com/edu:prebuilt"}
    seen = with_images(snapshot(drivers=(driver(spec_changes={"kernelMappings": [mapping]}),)), state)
    decided = plan(seen, SETTINGS)
    assert verbs(decided) == actions
    assert only_target(decided).reason == reason


def test_a_kernel_that_is_now_skipped_loses_its_driver() -> None:
    """A mapping changed to skip takes the label first; test_world_removal.py has what follows."""
    seen = ready_snapshot()
    skipping = driver(spec_changes={"kernelMappings": [{"regexp": ".*", "skip": True}]})
    decided = plan(replace(seen, drivers=(skipping,)), SETTINGS)
    assert verbs(decided) == ["label Node"]
    assert only_target(decided).state is TargetState.SKIPPED


@pytest.mark.parametrize(
    "changes",
    [
        pytest.param({"sources": {}}, id="source gone"),
        pytest.param({"drivers": (driver(spec_changes={"build": {"template": "gone"}}),)}, id="template gone"),
    ],
)
def test_a_working_driver_stays_when_it_could_not_be_built_now(changes: dict[str, Any]) -> None:
    """Losing the source or the template does not unload what runs."""
    decided = plan(replace(ready_snapshot(), **changes), SETTINGS)
    assert verbs(decided) == []
    assert only_target(decided).ready_nodes == 1
