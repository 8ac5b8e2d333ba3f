"""The decision table of ``plan``: what is seen of one target on one side, actions and status on the other."""

from collections.abc import Mapping
from dataclasses import replace
from typing import Any

import pytest

from driver_builder import status
from driver_builder.actions import (
    ApplyDaemonSet,
    DeleteDaemonSet,
    LabelNode,
    ReplacePod,
    SetFinalizer,
    StartBuild,
)
from driver_builder.build import BuildRequest, SourceImage
from driver_builder.driver_container import DriverContainer
from driver_builder.image_state import Absent, ImageState, Invalid, Unauthorised, Unreachable
from driver_builder.inventory import Node
from driver_builder.plan import Plan, PlanSettings, identities, plan, retry_delay
from driver_builder.proof import Proof
from driver_builder.snapshot import DaemonSet, DriverPod, FailedBuild, Snapshot, SourceMissing
from driver_builder.status import TargetState, TargetStatus
from tests.unit.driver_builder.factories import (
    BOOT_ID,
    DIGEST,
    KERNEL,
    NAMESPACE,
    NOW,
    OTHER_KERNEL,
    PRESENT,
    SETTINGS,
    daemon_set,
    driver,
    loaded,
    node,
    pod,
    ready_snapshot,
    snapshot,
    wanted,
    with_images,
)

READY_LABEL = f"driverwright.io/{NAMESPACE}.edu.ready"


def verbs(decided: Plan) -> list[str]:
    """Name the actions of a plan in order."""
    return [type(action).__name__ for action in decided.actions]


def only_target(decided: Plan) -> TargetStatus:
    """Give the status of the only target of the only driver."""
    (part,) = decided.drivers
    (entry,) = part.targets
    return entry


def request_of(seen: Snapshot) -> BuildRequest:
    """Give the build request of the only target."""
    (item,) = wanted(seen)
    assert item.request is not None
    return item.request


def key_of(seen: Snapshot) -> str:
    """Give the build key of the only target."""
    return request_of(seen).key


def after(seen: Snapshot, decided: Plan) -> Snapshot:
    """Give the snapshot after a pass whose status was written."""
    drivers = tuple(
        driver_with_status(part.driver, status.render(part.driver, part.targets, rebuilds=part.rebuilds,
                                                      unknown=part.unknown, now=seen.now))
        for part in decided.drivers
    )  # fmt: skip
    return replace(seen, drivers=drivers)


def driver_with_status(container: DriverContainer, written: dict[str, Any]) -> DriverContainer:
    """Give a driver with another status."""
    return replace(container, status=written)


# ---------------------------------------------------------------- what the registry says


@pytest.mark.parametrize(
    ("state", "actions", "target_state", "reason"),
    [
        pytest.param(Absent(), ["StartBuild"], "Building", "KernelMismatch", id="absent: build"),
        pytest.param(PRESENT, ["ApplyDaemonSet"], "RollingOut", "WaitingForNodes", id="present: roll out"),
        pytest.param(Unauthorised(message="no"), [], "Blocked", "RegistryUnauthorized", id="unauthorised: wait"),
        pytest.param(Unreachable(message="no"), [], "Blocked", "RegistryUnreachable", id="unreachable: wait"),
        pytest.param(Invalid(message="no"), [], "Blocked", "RegistryInvalid", id="invalid: wait"),
        pytest.param(None, [], "Blocked", "RegistryUnreachable", id="never asked: wait"),
    ],
)
def test_only_a_proven_absence_starts_a_build(
    state: ImageState | None, actions: list[str], target_state: str, reason: str
) -> None:
    """What the registry cannot say for sure starts nothing and removes nothing."""
    seen = snapshot() if state is None else with_images(snapshot(), state)
    decided = plan(seen, SETTINGS)
    assert verbs(decided) == actions
    assert (only_target(decided).state, only_target(decided).reason) == (target_state, reason)


@pytest.mark.parametrize(
    "state",
    [
        pytest.param(Absent(), id="absent"),
        pytest.param(Unauthorised(message="no"), id="unauthorised"),
        pytest.param(Unreachable(message="no"), id="unreachable"),
        pytest.param(Invalid(message="no"), id="invalid"),
    ],
)
def test_a_working_driver_stays_whatever_the_registry_says(state: ImageState) -> None:
    """Nodes that work keep DaemonSet, pods and label while the registry is away or has lost the image."""
    decided = plan(with_images(ready_snapshot(), state), SETTINGS)
    assert [verb for verb in verbs(decided) if verb != "StartBuild"] == []
    assert only_target(decided).ready_nodes == 1


# ---------------------------------------------------------------- builds


def failed(seconds_ago: float, reason: str = "CompileError") -> FailedBuild:
    """Make a failed build."""
    return FailedBuild(reason=reason, message="edudrv.c:1: error", at=NOW - seconds_ago)


@pytest.mark.parametrize(
    ("running", "failure", "actions", "target_state", "reason"),
    [
        pytest.param(False, None, ["StartBuild"], "Building", "KernelMismatch", id="none: start"),
        pytest.param(True, None, [], "Building", "KernelMismatch", id="running: wait"),
        pytest.param(False, failed(1), [], "Failed", "CompileError", id="just failed: back off"),
        pytest.param(False, failed(40), ["StartBuild"], "Building", "KernelMismatch", id="failed long ago: again"),
        pytest.param(True, failed(1), [], "Building", "KernelMismatch", id="failed, running again: wait"),
    ],
)
def test_an_absent_image_is_built_once_at_a_time(
    running: bool, failure: FailedBuild | None, actions: list[str], target_state: str, reason: str
) -> None:
    """A build runs at most once, and after a failure only when its time has come."""
    seen = with_images(snapshot(), Absent())
    key = key_of(seen)
    seen = replace(
        seen,
        running_builds=frozenset([key] if running else []),
        failed_builds={key: failure} if failure else {},
    )
    decided = plan(seen, SETTINGS)
    assert verbs(decided) == actions
    assert (only_target(decided).state, only_target(decided).reason) == (target_state, reason)


def test_a_failure_says_when_it_is_tried_again() -> None:
    """The plan asks to be looked at again exactly when the back-off of the failed build ends."""
    seen = with_images(snapshot(), Absent())
    key = key_of(seen)
    decided = plan(replace(seen, failed_builds={key: failed(1)}), SETTINGS)
    assert decided.requeue_at == NOW - 1 + retry_delay(key, 1, SETTINGS)
    assert only_target(decided).message == "edudrv.c:1: error"


def test_failures_are_counted_across_restarts() -> None:
    """The number of failures lives in the status: a new controller goes on where the old one was."""
    seen = with_images(snapshot(), Absent())
    key = key_of(seen)
    first = replace(seen, failed_builds={key: failed(100)})
    restarted = replace(after(first, plan(first, SETTINGS)), failed_builds={key: failed(1)})
    entry = only_target(plan(restarted, SETTINGS))
    assert (entry.failures, entry.last_failure) == (2, NOW - 1)


def test_a_failure_is_counted_once() -> None:
    """A failure that is in the status already and still remembered is the same failure."""
    seen = with_images(snapshot(), Absent())
    first = replace(seen, failed_builds={key_of(seen): failed(1)})
    again = after(first, plan(first, SETTINGS))
    assert only_target(plan(again, SETTINGS)).failures == 1


def test_a_changed_source_is_built_at_once_after_failures() -> None:
    """Failures belong to a key: whoever mends the source need not wait for the back-off."""
    seen = with_images(snapshot(), Absent())
    first = replace(seen, failed_builds={key_of(seen): failed(1)})
    mended = with_images(snapshot(drivers=after(first, plan(first, SETTINGS)).drivers, sources={}), Absent())
    mended = replace(mended, sources={"driverwright/edu": SourceImage(reference="r/i@sha256:" + "0" * 64, path="/")})
    mended = with_images(mended, Absent())
    decided = plan(mended, SETTINGS)
    assert verbs(decided) == ["StartBuild"]
    assert only_target(decided).failures == 0


def test_the_message_of_a_running_retry_stays_the_same() -> None:
    """While a retry runs, pass after pass writes the same status: no message grows, no Event is due."""
    seen = with_images(snapshot(), Absent())
    key = key_of(seen)
    seen = replace(seen, failed_builds={key: failed(40)})
    first = plan(seen, SETTINGS)
    running = replace(after(seen, first), failed_builds={}, running_builds=frozenset([key]))
    second = plan(running, SETTINGS)
    assert only_target(second).message == only_target(first).message
    assert "edudrv.c:1: error" in only_target(second).message
    assert status.events(status.previous_targets(running.drivers[0].status), second.drivers[0].targets) == ()


@pytest.mark.parametrize(
    ("failures", "least"),
    [pytest.param(1, 30.0, id="first"), pytest.param(2, 60.0, id="second"), pytest.param(5, 480.0, id="fifth"),
     pytest.param(12, 3600.0, id="at most an hour"), pytest.param(10_000, 3600.0, id="no overflow")],
)  # fmt: skip
def test_the_wait_doubles_up_to_a_limit(failures: int, least: float) -> None:
    """Each failure doubles the wait; the key adds up to a quarter, so that keys do not come back together."""
    delays = {key: retry_delay(key, failures, SETTINGS) for key in ("0000aa", "8000aa", "ffffaa")}
    assert delays["0000aa"] == least
    assert delays["ffffaa"] == least * 1.25
    assert least < delays["8000aa"] < least * 1.25


def test_the_target_with_most_waiting_nodes_is_built_first() -> None:
    """With one builder and many kernels the one that most nodes wait for goes first."""
    nodes = (node("a", OTHER_KERNEL), node("b"), node("c"))
    seen = with_images(snapshot(*nodes), Absent())
    kernels = [action.request.target.kernel_version for action in plan(seen, SETTINGS).actions
               if isinstance(action, StartBuild)]  # fmt: skip
    assert kernels == [KERNEL, OTHER_KERNEL]


# ---------------------------------------------------------------- rolling out


def daemon_sets(seen: Snapshot, which: str) -> tuple[DaemonSet, ...]:
    """Give the DaemonSets of a scene."""
    return {"none": (), "current": (daemon_set(seen),), "old": (daemon_set(seen, old=True),)}[which]


@pytest.mark.parametrize(
    ("which", "changes", "actions", "target_state", "words"),
    [
        pytest.param("none", None, ["ApplyDaemonSet"], "RollingOut", "no driver pod yet", id="no DaemonSet"),
        pytest.param("old", None, ["ApplyDaemonSet"], "RollingOut", "no driver pod yet", id="old DaemonSet"),
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
            {"ready": False, "proof": Proof(result="WrongKernel", kernel=OTHER_KERNEL, boot_id=BOOT_ID)},
            [],
            "RollingOut",
            "WrongKernel",
            id="wrong kernel",
        ),
        pytest.param(
            "current",
            {"proof": Proof(result="LoadFailed", kernel=KERNEL, boot_id=BOOT_ID, message="Invalid argument")},
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
            "current", {"ready": False}, [], "RollingOut", "its readiness probe does not pass", id="probe fails"
        ),
        pytest.param("current", {"deleting": True}, [], "RollingOut", "no driver pod yet", id="pod on its way out"),
        pytest.param("current", {}, ["LabelNode"], "Ready", "1 of 1 nodes ready", id="proven"),
        pytest.param(
            "old", {"fingerprint": "old"}, ["ApplyDaemonSet", "LabelNode"], "RollingOut", "runs the image before",
            id="proven, older image",
        ),
        pytest.param(
            "current", {"fingerprint": "old"}, ["ReplacePod", "LabelNode"], "RollingOut", "runs the image before",
            id="proven, older image, DaemonSet is current",
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
        pytest.param({"proof": None}, "the driver pod has not reported yet", id="no proof"),
        pytest.param({"proof": loaded(boot_id="older")}, "loaded before the node's last boot", id="older boot"),
        pytest.param({"proof": loaded(identity="FF")}, "module edudrv is FF", id="another srcversion"),
        pytest.param({"ready": False}, "its readiness probe does not pass", id="probe fails"),
        pytest.param({"ready": False, "message": "CrashLoopBackOff"}, "CrashLoopBackOff", id="crashes"),
        pytest.param({"deleting": True}, "no driver pod is proven there", id="pod deleted"),
        pytest.param({"node": "elsewhere"}, "no driver pod is proven there", id="pod gone"),
    ],
)
def test_a_label_that_lies_is_taken_away(changes: Mapping[str, Any], why: str) -> None:
    """A node keeps its ready label only as long as the proof for it stands."""
    seen = ready_snapshot()
    seen = replace(seen, pods=(replace(seen.pods[0], **changes),))
    (action,) = plan(seen, SETTINGS).actions
    assert isinstance(action, LabelNode)
    assert (action.node, action.label, action.version) == ("node-a", READY_LABEL, None)
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


def test_the_label_tells_the_version_that_runs() -> None:
    """While an older version still runs, its version is what the label says."""
    seen = with_images(snapshot())
    seen = replace(seen, daemon_sets=(daemon_set(seen),), pods=(pod(seen, old=True),))
    labels = [action.version for action in plan(seen, SETTINGS).actions if isinstance(action, LabelNode)]
    assert labels == ["0.9.0"]


def test_a_daemon_set_with_another_image_is_mended() -> None:
    """An image that somebody changed in the DaemonSet by hand is put right, though its annotations look current."""
    seen = ready_snapshot()
    seen = replace(seen, daemon_sets=(replace(seen.daemon_sets[0], image="registry.example.com:5000/evil:1"),))
    assert verbs(plan(seen, SETTINGS)) == ["ApplyDaemonSet"]


def replaced(seen: Snapshot) -> list[str]:
    """Name the nodes whose pods a plan replaces."""
    return [action.node for action in plan(seen, SETTINGS).actions if isinstance(action, ReplacePod)]


NODES = (node("a"), node("b"), node("c"))
BROKEN: dict[str, Any] = {"proof": None, "ready": False}


@pytest.mark.parametrize(
    ("pods", "expected"),
    [
        pytest.param({"a": "old", "b": "old", "c": "old"}, ["a"], id="all work: the first"),
        pytest.param({"a": "current", "b": "old", "c": "old"}, ["b"], id="one done: the next"),
        pytest.param({"a": "loading", "b": "old", "c": "old"}, [], id="one loading: wait"),
        pytest.param({"a": "leaving", "b": "old", "c": "old"}, [], id="one leaving: wait"),
        pytest.param({"b": "old", "c": "old"}, [], id="one not made yet: wait"),
        pytest.param({"a": "broken", "b": "old", "c": "broken"}, ["a", "c"], id="broken ones: at once"),
        pytest.param({"a": "loading", "b": "broken", "c": "old"}, ["b"], id="broken one while another loads"),
        pytest.param({"a": "broken and leaving", "b": "old", "c": "old"}, [], id="a broken one leaves: wait"),
        pytest.param({"a": "current", "b": "current", "c": "current"}, [], id="all done"),
    ],
)
def test_working_pods_are_replaced_one_at_a_time(pods: Mapping[str, str], expected: list[str]) -> None:
    """At most one working pod is away at any moment; a broken one has nothing to lose."""
    seen = with_images(snapshot(*NODES))
    made = {
        "old": lambda name: pod(seen, name, old=True),
        "current": lambda name: pod(seen, name),
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


# ---------------------------------------------------------------- which nodes, which kernels


def test_a_node_on_a_new_kernel_is_a_new_target_and_the_old_one_goes() -> None:
    """After a kernel change the node's new target is built for; the DaemonSet of the kernel nobody runs is deleted."""
    before = ready_snapshot(node(kernel=OTHER_KERNEL))
    moved = replace(before, nodes=(node(labels={READY_LABEL: "1.0.0"}),))
    decided = plan(with_images(moved, Absent()), SETTINGS)
    assert verbs(decided) == ["DeleteDaemonSet", "LabelNode", "StartBuild"]
    (gone,) = [action for action in decided.actions if isinstance(action, DeleteDaemonSet)]
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


def test_a_selected_node_without_kernel_is_told() -> None:
    """A node that nfd-worker has not labelled is named, with the question to ask."""
    (part,) = plan(snapshot(node(kernel=None)), SETTINGS).drivers
    assert part.targets == ()
    assert "is nfd-worker running there?" in part.unknown["node-a"]


def test_a_forged_label_goes() -> None:
    """A ready label on a node that no pod vouches for is taken away, wherever the node is."""
    forged = node("outside", labels={"pool": "web", READY_LABEL: "1.0.0"})
    seen = ready_snapshot()
    (action,) = plan(replace(seen, nodes=(*seen.nodes, forged)), SETTINGS).actions
    assert isinstance(action, LabelNode)
    assert (action.node, action.version) == ("outside", None)


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
        seen = replace(seen, sources={"driverwright/edu": SourceMissing(message=source)})
    decided = plan(seen, SETTINGS)
    assert verbs(decided) == []
    assert (only_target(decided).state, only_target(decided).reason) == (target_state, reason)


def test_an_unknown_distribution_says_what_to_set() -> None:
    """A target without template names the fields that help and the templates there are."""
    entry = only_target(plan(snapshot(node(os_id="gentoo")), SETTINGS))
    assert entry.reason == "UnsupportedOS"
    assert "spec.build.template" in entry.message
    assert "debian" in entry.message


@pytest.mark.parametrize(
    ("state", "actions", "reason"),
    [
        pytest.param(PRESENT, ["ApplyDaemonSet"], "WaitingForNodes", id="present: roll out"),
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
    """A mapping changed to skip takes the DaemonSet away from the nodes on that kernel."""
    seen = ready_snapshot()
    skipping = driver(spec_changes={"kernelMappings": [{"regexp": ".*", "skip": True}]})
    decided = plan(replace(seen, drivers=(skipping,)), SETTINGS)
    assert verbs(decided) == ["DeleteDaemonSet"]
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


# ---------------------------------------------------------------- the driver as a whole


def test_a_new_driver_gets_the_finalizer_first() -> None:
    """Before anything is labelled it is made sure that labels are cleaned up one day."""
    seen = with_images(snapshot(drivers=(driver(finalizer=False),)))
    action, *_ = plan(seen, SETTINGS).actions
    assert action == SetFinalizer(namespace=NAMESPACE, name="edu", present=True)


@pytest.mark.parametrize(
    ("container", "reason"),
    [
        pytest.param(driver(paused=True), "paused", id="paused"),
        pytest.param(driver(spec_changes={"image": "no repository"}), "invalid", id="invalid spec"),
    ],
)
def test_a_driver_that_is_not_acted_on_keeps_what_was_said(container: DriverContainer, reason: str) -> None:
    """Paused or invalid: nothing is done, and the targets of the last status stay."""
    before = plan(ready_snapshot(), SETTINGS)
    written = after(ready_snapshot(), before).drivers[0].status
    seen = replace(ready_snapshot(), drivers=(replace(container, status=written),), nodes=(node(kernel=OTHER_KERNEL),))
    decided = plan(seen, SETTINGS)
    assert verbs(decided) == [], reason
    assert decided.drivers[0].targets == before.drivers[0].targets


NOT_ACTED_ON = [
    pytest.param(driver(paused=True), id="paused"),
    pytest.param(driver(spec_changes={"image": "no repository"}), id="invalid"),
]


@pytest.mark.parametrize("container", NOT_ACTED_ON)
@pytest.mark.parametrize(
    ("nodes", "pods", "unlabelled"),
    [
        pytest.param({}, {}, False, id="all as it was"),
        pytest.param({"kernel": OTHER_KERNEL}, {}, True, id="another kernel"),
        pytest.param({"boot_id": "newer"}, {}, True, id="another boot"),
        pytest.param({"kernel": None}, {}, True, id="no kernel known"),
        pytest.param({}, {"deleting": True}, True, id="pod deleted"),
        pytest.param({}, {"ready": False}, True, id="probe fails"),
        pytest.param({}, {"proof": None}, True, id="no proof"),
        pytest.param({}, {"expected": {"edudrv": "FF"}}, True, id="another module"),
        pytest.param({}, {"version": "2.0.0"}, True, id="another version"),
        pytest.param({}, {"node": "elsewhere"}, True, id="pod on a node that is gone"),
        pytest.param({}, {"driver": "driverwright/other"}, True, id="another driver's pod"),
    ],
)
def test_a_label_that_lies_goes_whatever_the_driver(
    container: DriverContainer, nodes: dict[str, Any], pods: dict[str, Any], unlabelled: bool
) -> None:
    """Paused or invalid, a ready label stands on a pod's proof alone, and nothing else is done."""
    seen = ready_snapshot()
    there = node(**nodes, labels={READY_LABEL: "1.0.0"})
    seen = replace(seen, drivers=(container,), nodes=(there,), pods=(replace(seen.pods[0], **pods),))
    why = "no driver pod is proven there"
    taken = LabelNode(node="node-a", driver=container.key, label=READY_LABEL, version=None, why=why)
    assert plan(seen, SETTINGS).actions == ((taken,) if unlabelled else ())


@pytest.mark.parametrize("container", NOT_ACTED_ON)
def test_a_driver_that_is_not_acted_on_gives_no_label(container: DriverContainer) -> None:
    """A proven pod on a node without the label is left for when the driver is acted on again."""
    seen = replace(ready_snapshot(), drivers=(container,), nodes=(node(),))
    assert verbs(plan(seen, SETTINGS)) == []


@pytest.mark.parametrize(
    ("container", "state", "taken_in"),
    [
        pytest.param(driver(), Absent(), True, id="to be built"),
        pytest.param(driver(), PRESENT, True, id="there meanwhile"),
        pytest.param(driver(), Unreachable(message="x"), False, id="registry away"),
        pytest.param(driver(paused=True), Absent(), False, id="paused"),
        pytest.param(driver(deleting=True), Absent(), False, id="deleted"),
        pytest.param(driver(spec_changes={"image": "x"}), Absent(), False, id="invalid"),
    ],
)
def test_a_plan_says_which_failures_it_took_in(container: DriverContainer, state: ImageState, taken_in: bool) -> None:
    """Only what a status tells may be forgotten."""
    seen = with_images(snapshot(), state)
    known = {key_of(seen): failed(1)}
    (part,) = plan(replace(seen, drivers=(container,), failed_builds={**known, "ff" * 8: failed(2)}), SETTINGS).drivers
    assert part.failures == (known if taken_in else {})


def test_one_broken_driver_does_not_hold_up_another() -> None:
    """Drivers are decided one by one."""
    seen = with_images(snapshot(drivers=(driver(), driver("other"))), Absent())
    broken = driver("broken", spec_changes={"version": "not a version!"})
    seen = replace(seen, drivers=(broken, *seen.drivers), failed_builds={wanted(seen)[0].request.key: failed(1)})  # type: ignore[union-attr]
    decided = plan(seen, SETTINGS)
    assert [part.driver.name for part in decided.drivers] == ["broken", "edu", "other"]
    (build,) = decided.actions
    assert isinstance(build, StartBuild)
    assert build.request.driver == "driverwright/other"


@pytest.mark.parametrize(
    ("changes", "actions"),
    [
        pytest.param({}, ["DeleteDaemonSet", "LabelNode"], id="everything still there"),
        pytest.param({"daemon_sets": ()}, ["LabelNode"], id="label left"),
        pytest.param({"daemon_sets": (), "nodes": (node(),)}, [], id="pods still leaving"),
        pytest.param({"daemon_sets": (), "nodes": (node(),), "pods": ()}, ["SetFinalizer"], id="all gone"),
    ],
)
def test_a_deleted_driver_is_let_go_last(changes: dict[str, Any], actions: list[str]) -> None:
    """Labels and DaemonSets go first, then the pods; only then is the object released."""
    seen = replace(ready_snapshot(), drivers=(driver(deleting=True),))
    assert verbs(plan(replace(seen, **changes), SETTINGS)) == actions


def test_a_deleted_driver_without_our_finalizer_is_left_alone() -> None:
    """Others' finalizers keep it; ours is not there to be removed."""
    seen = snapshot(node(), drivers=(driver(deleting=True, finalizer=False),))
    assert verbs(plan(seen, SETTINGS)) == []


def test_a_deleted_driver_with_an_invalid_spec_is_cleaned_up() -> None:
    """Removal needs no spec."""
    container = driver(deleting=True, spec_changes={"image": "nonsense"})
    assert verbs(plan(replace(ready_snapshot(), drivers=(container,)), SETTINGS)) == ["DeleteDaemonSet", "LabelNode"]


# ---------------------------------------------------------------- rebuild annotations


def test_a_rebuild_annotation_changes_every_key() -> None:
    """An annotated driver is built anew for each of its kernels, though all images are there."""
    nodes = (node("a"), node("b", OTHER_KERNEL))
    before = with_images(snapshot(*nodes))
    seen = replace(with_images(snapshot(*nodes, drivers=(driver(rebuild="1"),)), Absent()), now=NOW)
    seen = replace(seen, images={**before.images, **seen.images})
    assert verbs(plan(seen, SETTINGS)) == ["StartBuild", "StartBuild"]


def test_a_rebuild_annotation_on_a_node_changes_its_target_only() -> None:
    """An annotated node is built anew for its own kernel alone."""
    plain = with_images(snapshot(node("a"), node("b", OTHER_KERNEL)))
    annotated = snapshot(node("a", rebuild="1"), node("b", OTHER_KERNEL))
    keys = {item.target.kernel_version: item.request.key for item in wanted(plain) if item.request}
    new_keys = {item.target.kernel_version: item.request.key for item in wanted(annotated) if item.request}
    assert keys[KERNEL] != new_keys[KERNEL]  # type: ignore[index]
    assert keys[OTHER_KERNEL] == new_keys[OTHER_KERNEL]  # type: ignore[index]


def test_a_rebuild_that_was_done_is_not_done_again() -> None:
    """The status remembers the value: the same value, or none, means the image that was built for it."""
    seen = with_images(snapshot(drivers=(driver(rebuild="1"),)))
    written = after(seen, plan(seen, SETTINGS)).drivers[0].status
    for later in (driver(rebuild="1", status=written), driver(status=written)):
        assert wanted(snapshot(drivers=(later,)))[0].image == wanted(seen)[0].image


def test_a_restart_before_the_status_was_written_makes_the_same_key() -> None:
    """Killed between the build's start and the status, the next controller asks for the very same image."""
    assert key_of(snapshot(drivers=(driver(rebuild="1"),))) == key_of(snapshot(drivers=(driver(rebuild="1"),)))


# ---------------------------------------------------------------- the rest of the table


def test_the_time_of_the_last_change_is_kept() -> None:
    """``since`` moves only when state or reason change."""
    seen = ready_snapshot()
    written = after(seen, plan(seen, SETTINGS))
    assert only_target(plan(replace(written, now=NOW + 100), SETTINGS)).since == NOW
    lost = replace(written, now=NOW + 100, pods=())
    assert only_target(plan(lost, SETTINGS)).since == NOW + 100


def test_a_driver_whose_source_was_not_read_waits() -> None:
    """A snapshot without the source says so instead of guessing."""
    entry = only_target(plan(snapshot(sources={}), SETTINGS))
    assert (entry.state, entry.message) == (TargetState.PENDING, "the source has not been read yet")


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
    assert isinstance(action, ApplyDaemonSet)
    image = action.manifest["spec"]["template"]["spec"]["containers"][0]["image"]
    assert image == f"registry.example.com:5000/drivers/edu@{DIGEST}"


def test_settings_have_sane_defaults() -> None:
    """Half a minute after the first failure, an hour at most."""
    settings = PlanSettings(recipes=SETTINGS.recipes)
    assert (settings.retry_min_seconds, settings.retry_max_seconds) == (30.0, 3600.0)
