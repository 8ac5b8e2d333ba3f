"""What a plan does with an image that is there: DaemonSet, pods one by one, and labels that are true."""

from collections.abc import Mapping
from dataclasses import replace
from typing import Any

import pytest

from driver_builder.base.reasons import TargetState
from driver_builder.model import images
from driver_builder.nodes.changes import ApplyObject
from driver_builder.objects.load_report import LoadReport
from driver_builder.plan.plan import plan
from driver_builder.rollout.plan_rollout import identities
from driver_builder.snapshot.snapshot import DaemonSet, DriverPod, Snapshot
from tests.support.driver_builder.changes import labels, patches, pods_replaced
from tests.support.driver_builder.factories import (
    BOOT_ID,
    DIGEST,
    KERNEL,
    OLD,
    OTHER_KERNEL,
    PRESENT,
    SETTINGS,
    daemon_set,
    driver,
    fingerprint,
    loaded,
    node,
    pod,
    ready_snapshot,
    snapshot,
    with_images,
)
from tests.support.driver_builder.plans import READY_LABEL, only_target, verbs


def daemon_sets(seen: Snapshot, which: str) -> tuple[DaemonSet, ...]:
    """Return the DaemonSets of a scene."""
    return {"none": (), "current": (daemon_set(seen),), "old": (daemon_set(seen, old=True),)}[which]


@pytest.mark.parametrize(
    ("which", "changes", "actions", "target_state", "words"),
    [
        pytest.param("none", None, ["apply DaemonSet"], "RollingOut", "no driver pod yet", id="no DaemonSet"),
        pytest.param("old", None, ["apply DaemonSet"], "RollingOut", "no driver pod yet", id="old DaemonSet"),
        pytest.param("current", None, [], "RollingOut", "no driver pod yet", id="pod not made yet"),
        pytest.param(
            "current",
            {"ready": False, "proof": None, "message": "ErrImagePull: not found"},
            [],
            "RollingOut",
            "ErrImagePull: not found",
            id="image cannot be pulled",
        ),
        pytest.param(
            "current",
            {"ready": False, "proof": None},
            [],
            "RollingOut",
            "the driver pod has not reported yet",
            id="still loading",
        ),
        pytest.param(
            "current",
            {"ready": False, "proof": LoadReport(result="WrongKernel", kernel=OTHER_KERNEL, boot_id=BOOT_ID)},
            [],
            "RollingOut",
            "WrongKernel",
            id="wrong kernel",
        ),
        pytest.param(
            "current",
            {"proof": LoadReport(result="LoadFailed", kernel=KERNEL, boot_id=BOOT_ID, message="Invalid argument")},
            [],
            "RollingOut",
            "LoadFailed: Invalid argument",
            id="module refused",
        ),
        pytest.param(
            "current",
            {"proof": loaded(boot_id="an older boot")},
            [],
            "RollingOut",
            "loaded before the node's last boot",
            id="loaded before the last boot",
        ),
        pytest.param(
            "current",
            {"proof": loaded(identity="FFFF")},
            [],
            "RollingOut",
            "module edudrv is FFFF",
            id="another module is live",
        ),
        pytest.param(
            "current", {"ready": False}, [], "RollingOut", "its driver pod is not ready", id="pod is not ready"
        ),
        pytest.param("current", {"deleting": True}, [], "RollingOut", "is being replaced", id="pod on its way out"),
        pytest.param("current", {}, ["label Node"], "Ready", "1 of 1 nodes ready", id="proven"),
        pytest.param(
            "old", {"fingerprint": OLD, "leaves_modules": True}, ["patch DaemonSet", "apply DaemonSet", "label Node"],
            "RollingOut", "runs the previous image",
            id="proven, older image",
        ),
        pytest.param(
            "current", {"fingerprint": OLD}, ["hold Node", "label Node", "replace Pod"], "RollingOut",
            "runs the previous image", id="proven, older image, DaemonSet is current",
        ),
    ],
)  # fmt: skip
def test_a_present_image_reaches_its_node(
    which: str, changes: Mapping[str, Any] | None, actions: list[str], target_state: str, words: str
) -> None:
    """Between an image in the registry and a ready node lie a DaemonSet, a pod and its proof, in this order."""
    seen = with_images(snapshot())
    pods: tuple[DriverPod, ...] = () if changes is None else (replace(pod(seen), **changes),)
    decided = plan(replace(seen, daemon_sets=daemon_sets(seen, which), pods=pods), SETTINGS)
    assert verbs(decided) == actions
    assert only_target(decided).state == target_state
    assert words in only_target(decided).message


@pytest.mark.parametrize(
    ("changes", "why"),
    [
        pytest.param({"proof": loaded(boot_id="older")}, "loaded before the node's last boot", id="older boot"),
        pytest.param({"proof": loaded(identity="FF")}, "module edudrv is FF", id="another srcversion"),
        pytest.param({"proof": loaded(OTHER_KERNEL)}, f"loaded on kernel {OTHER_KERNEL}", id="another kernel"),
        pytest.param(
            {"proof": LoadReport(result="LoadFailed", kernel=KERNEL, boot_id=BOOT_ID, message="m")}, "LoadFailed: m",
            id="the load failed",
        ),
    ],
)  # fmt: skip
def test_a_label_that_lies_is_taken_away(changes: Mapping[str, Any], why: str) -> None:
    """A node loses its ready label when it reports something else than the label says."""
    seen = ready_snapshot()
    seen = replace(seen, pods=(replace(seen.pods[0], **changes),))
    (action,) = patches(plan(seen, SETTINGS).actions, "label Node")
    assert (action.node, action.labels) == ("node-a", {READY_LABEL: None})
    assert why in action.why


def test_nothing_is_left_to_do_when_all_is_well() -> None:
    """With image, DaemonSet, proven pod and label in place a pass does nothing."""
    decided = plan(ready_snapshot(), SETTINGS)
    assert verbs(decided) == []
    assert (only_target(decided).state, only_target(decided).digest) == (TargetState.READY, DIGEST)
    assert decided.requeue_at is None


def test_a_node_without_boot_id_is_believed() -> None:
    """Where no worker annotates the boot the proof stands on kernel and module alone."""
    seen = ready_snapshot(node(boot_id=None))
    assert verbs(plan(seen, SETTINGS)) == []


def test_the_label_reports_the_version_that_runs() -> None:
    """While an older version still runs, its version is what the label says."""
    seen = with_images(snapshot())
    seen = replace(seen, daemon_sets=(daemon_set(seen),), pods=(pod(seen, old=True),))
    values = [value for _, _, value in labels(plan(seen, SETTINGS).actions)]
    assert values == ["0.9.0"]


def test_a_daemon_set_with_another_image_is_fixed() -> None:
    """An image that somebody changed in the DaemonSet by hand is put right, though its annotations look current."""
    seen = ready_snapshot()
    seen = replace(seen, daemon_sets=(replace(seen.daemon_sets[0], image="registry.example.com:5000/evil:1"),))
    assert verbs(plan(seen, SETTINGS)) == ["apply DaemonSet"]


def replaced(seen: Snapshot) -> list[str]:
    """Name the nodes whose pods a plan replaces."""
    return [action.node for action in pods_replaced(plan(seen, SETTINGS).actions)]


NODES = (node("a"), node("b"), node("c"))
WITH_DRIVER = ready_snapshot(*NODES).nodes
BROKEN: dict[str, Any] = {"proof": None, "ready": False}


@pytest.mark.parametrize(
    ("pods", "expected"),
    [
        pytest.param({"a": "old", "b": "old", "c": "old"}, ["a"], id="all work: the first"),
        pytest.param({"a": "current", "b": "old", "c": "old"}, ["b"], id="one done: the next"),
        pytest.param({"a": "loading", "b": "old", "c": "old"}, [], id="one loading: wait"),
        pytest.param({"a": "leaving", "b": "old", "c": "old"}, [], id="one leaving: wait"),
        pytest.param({"b": "old", "c": "old"}, [], id="one not made yet: wait"),
        pytest.param({"a": "broken", "b": "old", "c": "broken"}, ["a", "c", "b"], id="broken ones: at once"),
        pytest.param({"a": "loading", "b": "broken", "c": "old"}, ["b"], id="broken one while another loads"),
        pytest.param({"a": "broken and leaving", "b": "old", "c": "old"}, ["b"], id="a broken one leaves: the first"),
        pytest.param({"a": "new", "b": "old", "c": "old"}, ["b"], id="one loads for the first time: the first"),
        pytest.param({"a": "current", "b": "current", "c": "current"}, [], id="all done"),
    ],
)
def test_working_pods_are_replaced_one_at_a_time(pods: Mapping[str, str], expected: list[str]) -> None:
    """At most one working pod is away at any moment; a broken one has nothing to lose."""
    unlabelled = {name for name, kind in pods.items() if "broken" in kind or kind == "new"}
    seen = with_images(snapshot(*(NODES[i] if item.name in unlabelled else item for i, item in enumerate(WITH_DRIVER))))
    made = {
        "old": lambda name: pod(seen, name, old=True),
        "current": lambda name: pod(seen, name),
        "new": lambda name: pod(seen, name, **BROKEN),
        "loading": lambda name: pod(seen, name, **BROKEN),
        "leaving": lambda name: pod(seen, name, old=True, deleting=True),
        "broken": lambda name: pod(seen, name, old=True, **BROKEN),
        "broken and leaving": lambda name: pod(seen, name, old=True, deleting=True, **BROKEN),
    }
    everything = tuple(made[kind](name) for name, kind in pods.items())
    assert replaced(replace(seen, daemon_sets=(daemon_set(seen),), pods=everything)) == expected


def test_pods_are_not_replaced_before_their_daemon_set_is_current() -> None:
    """A pod deleted too early would come back with the old image."""
    seen = with_images(snapshot(*NODES))
    pods = tuple(pod(seen, item.name, old=True) for item in NODES)
    assert replaced(replace(seen, daemon_sets=(daemon_set(seen, old=True),), pods=pods)) == []


@pytest.mark.parametrize(
    ("label", "expected"), [("sha256:" + "ab" * 32, "ab" * 8), ("/../../../etc", "d" * 16), ("a b", "d" * 16)]
)
def test_a_folder_on_nodes_is_named_by_a_digest(label: str, expected: str) -> None:
    """What else the label of a prebuilt image says is not believed: the image's own digest does."""
    archive = {"url": "https://example.com/a.tar", "sha256": "0" * 64}
    mappings = [{"regexp": ".*", "image": "r.io/edu:1"}]
    container = driver(
        spec_changes={"kernelMappings": mappings, "userspace": {"archive": archive, "versionFile": "lib/a.so.1"}}
    )
    state = replace(PRESENT, labels={**PRESENT.labels, images.USERSPACE_LABEL: label})
    (action,) = plan(with_images(snapshot(drivers=(container,)), state), SETTINGS).actions
    assert isinstance(action, ApplyObject)
    (_, load) = action.manifest["spec"]["template"]["spec"]["initContainers"]
    assert {"name": "USERSPACE", "value": f"/run/driverwright/driverwright.edu {expected}"} in load["env"]


def test_a_change_of_a_module_that_nobody_names_replaces_the_pods() -> None:
    """Its label is part of what a node gets; an image of before has none, and its pods stay."""

    def fingerprint_with(label: str | None) -> object:
        labels = PRESENT.labels if label is None else {**PRESENT.labels, images.NEEDED_LABEL: label}
        (action,) = plan(with_images(snapshot(*NODES), replace(PRESENT, labels=labels)), SETTINGS).actions
        assert isinstance(action, ApplyObject)
        return action.manifest["spec"]["template"]["metadata"]["annotations"]["driverwright.io/fingerprint"]

    first, second = (fingerprint_with(f'[{{"name": "educore", "identity": "{word}"}}]') for word in "AB")
    assert first != second
    assert fingerprint_with(None) == fingerprint_with("[]") == fingerprint(snapshot())


@pytest.mark.parametrize(
    ("labels", "expected"),
    [
        pytest.param({"io.driverwright.modules": '[{"name": "a", "identity": "B"}]'}, {"a": "B"}, id="ours"),
        pytest.param({}, {}, id="no label"),
        pytest.param({"io.driverwright.modules": "{"}, {}, id="no JSON"),
        pytest.param({"io.driverwright.modules": "[1]"}, {}, id="other JSON"),
        pytest.param({"io.driverwright.modules": '[{"name": "a"}]'}, {}, id="incomplete"),
    ],
)
def test_identities_are_read_from_image_labels(labels: dict[str, str], expected: dict[str, str]) -> None:
    """What is no list of modules is no identity."""
    assert identities(labels) == expected


def test_a_digest_goes_into_the_daemon_set() -> None:
    """Nodes are given the digest, never the tag that could move."""
    (action,) = plan(with_images(snapshot()), SETTINGS).actions
    assert isinstance(action, ApplyObject)
    image = action.manifest["spec"]["template"]["spec"]["containers"][0]["image"]
    assert image == f"registry.example.com:5000/drivers/edu@{DIGEST}"
