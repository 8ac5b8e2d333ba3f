"""Which check is the first to break, what is said about it, and what to do next."""

import json
from collections.abc import Callable
from dataclasses import replace
from typing import Any

import pytest
from hypothesis import given
from hypothesis import strategies as st

from driver_builder.api import status
from driver_builder.api.driver_container import DriverContainer
from driver_builder.api.status import TargetStatus
from driver_builder.base.check_result import Status
from driver_builder.base.reasons import REASONS, Reason, TargetState, remedy_of
from driver_builder.checks.explain import explain
from driver_builder.checks.explanation import CHECKS, Explanation
from driver_builder.model.driver_key import DriverKey
from driver_builder.model.image_state import Absent, Invalid, Unauthorized, Unreachable
from driver_builder.objects import validated
from driver_builder.objects.driver_keys import driver_keys
from driver_builder.objects.load_report import LoadReport
from driver_builder.objects.yielding import OUTSIDE, Yielding, render_yielding
from driver_builder.plan.plan import plan
from driver_builder.rollout.draining import Draining, render_draining
from driver_builder.rollout.retries import next_try
from driver_builder.snapshot.inventory import Taint
from driver_builder.snapshot.snapshot import FailedBuild, Snapshot, SourceMissing, Suspension
from driver_builder.tasks import validation_pod
from driver_builder.tasks.proof_pod import Program
from driver_builder.tasks.pull_pod import PULL
from kube_api import names
from kube_api.node_lock import render_lock
from kube_api.timestamps import timestamp
from tests.support.driver_builder.factories import (
    BOOT_ID,
    GONE,
    KERNEL,
    NAMESPACE,
    NOW,
    OLD,
    OTHER_KERNEL,
    SETTINGS,
    daemon_set,
    driver,
    loaded,
    node,
    pod,
    ready_snapshot,
    snapshot,
    spec_of,
    task,
    wanted,
    with_images,
)
from tests.support.driver_builder.model_world import World

READY_LABEL = f"driverwright.io/{NAMESPACE}.edu.ready"


def explained(seen: Snapshot, container: DriverContainer | None = None) -> Explanation:
    """Explain the first node and the first driver."""
    return explain(seen, seen.nodes[0], container or seen.drivers[0], SETTINGS)


def yielding(seen: Snapshot) -> Snapshot:
    """Let the driver yield to another one on the node: its pod has left."""
    (first, *others) = seen.nodes
    yielding = Yielding(first=DriverKey("apps/ofed"), drivers=(seen.drivers[0].key,))
    record = {names.YIELDING_ANNOTATION: render_yielding(yielding)}
    first = replace(first, annotations={**first.annotations, **record})
    return replace(seen, nodes=(first, *others), pods=())


def kept_out(seen: Snapshot) -> Snapshot:
    """Let the node have returned to the selector."""
    (first, *others) = seen.nodes
    first = replace(first, labels={**first.labels, driver_keys(seen.drivers[0].key).yields: OUTSIDE})
    return replace(seen, nodes=(first, *others), pods=())


def locked(seen: Snapshot) -> Snapshot:
    """Let another program lock the node."""
    (first, *others) = seen.nodes
    lock = {names.LOCK_ANNOTATION: render_lock("gpu-partitioner", first.boot_id or "", NOW)}
    return replace(seen, nodes=(replace(first, annotations={**first.annotations, **lock}), *others))


def with_driver(**changes: Any) -> Snapshot:
    """Make the snapshot where all is well, but for the driver."""
    return replace(ready_snapshot(), drivers=(driver(**changes),))


def with_mapping(*rules: dict[str, Any]) -> Snapshot:
    """Make a snapshot with kernel mappings."""
    return with_images(snapshot(drivers=(driver(spec_changes={"kernelMappings": list(rules)}),)))


def key_of(seen: Snapshot) -> str:
    """Return the build key of the only target."""
    request = wanted(seen)[0].request
    assert request is not None
    return request.key


def failing(reason: str = "CompileError", message: str = "edudrv.c:7: error: x") -> Snapshot:
    """Make a snapshot in which the build has just failed."""
    seen = with_images(snapshot(), Absent())
    return replace(seen, failed_builds={key_of(seen): FailedBuild(reason=reason, message=message, at=NOW - 1)})


def building(seconds: float = 5.0) -> Snapshot:
    """Make a snapshot in which the status reports a build that began some seconds ago."""
    seen = with_images(snapshot(), Absent())
    (part,) = plan(seen, SETTINGS).drivers
    written = status.render(part.driver, part.targets, rebuilds=part.rebuilds, unknown={}, now=NOW)
    return replace(seen, now=NOW + seconds, drivers=(driver(status=written),))


def with_pod(**changes: Any) -> Snapshot:
    """Make the snapshot where all is well, but for the pod."""
    seen = ready_snapshot()
    return replace(seen, pods=(replace(seen.pods[0], **changes),))


def undrained(failed: str = "pod apps/web stays", **changes: Any) -> Snapshot:
    """Make a snapshot whose node could not be drained."""
    seen = with_pod(fingerprint=OLD)
    (first, *others) = seen.nodes
    record = Draining(driver=f"{NAMESPACE}/edu", failed=failed, retry_at=int(NOW) + 600, **changes)
    annotations = {**first.annotations, names.DRAINING_ANNOTATION: render_draining(record)}
    return replace(seen, nodes=(replace(first, annotations=annotations), *others))


def ahead(message: str = "") -> Snapshot:
    """Make a snapshot in which the next image is brought to the node."""
    return replace(with_pod(fingerprint=OLD), tasks=(task(PULL, "i", message=message),))


def not_loaded(result: str, message: str = "", program: Program | None = None) -> Snapshot:
    """Make a snapshot in which the loader gave another verdict."""
    proof = LoadReport(result=result, kernel=KERNEL, boot_id=BOOT_ID, message=message)
    return with_pod(ready=False, proof=proof, program=program)


def pulling(message: str) -> Snapshot:
    """Make a snapshot in which the kubelet has trouble."""
    return with_pod(ready=False, proof=None, message=message)


def rolling_out(**changes: Any) -> Snapshot:
    """Make a snapshot with an image and what else is given."""
    return replace(with_images(snapshot()), **changes)


def tainted() -> Snapshot:
    """Make a snapshot whose driver tolerates only some taints of its node, and has no pod."""
    container = driver(spec_changes={"tolerations": [{"key": "gpu", "operator": "Exists"}]})
    taints = tuple(
        Taint(key=key, value="", effect="NoSchedule") for key in ("gpu", "node.kubernetes.io/not-ready", "db")
    )
    return replace(ready_snapshot(replace(node(), taints=taints), driver=container), pods=())


def not_ready(**changes: Any) -> Snapshot:
    """Make a snapshot whose node is not Ready, with or without its pod."""
    seen = ready_snapshot(replace(node(), ready=False))
    return replace(seen, **{"pods": tuple(replace(pod, ready=False) for pod in seen.pods), **changes})


def validating(settings: dict[str, Any] | None = None, **record: Any) -> Snapshot:
    """Make a snapshot whose driver works and is not validated; the Node may record how that went."""
    settings = settings or {"image": "r.io/test", "command": ["/test"]}
    seen = replace(ready_snapshot(driver=driver(spec_changes={"validation": settings})), nodes=(node(),))
    if not record or seen.pods[0].proof is None:
        return seen
    subject = validation_pod.subject_of(
        spec_of(seen.drivers[0]).validation,
        boot_id=seen.pods[0].proof.boot_id,
        fingerprint=seen.pods[0].fingerprint,
    )
    written = validated.render(validated.Validated(subject=subject, pod="uid", failed_at=int(NOW), **record))
    annotations = {**node().annotations, validated.annotation(f"{NAMESPACE}/edu"): written}
    return replace(seen, nodes=(replace(node(), annotations=annotations),))


def refused() -> Snapshot:
    """Make a snapshot in which the API server does not take the DaemonSet."""
    condition = {"type": "Degraded", "status": "True", "reason": "ActionRefused", "message": "no such toleration"}
    return with_images(snapshot(drivers=(driver(status={"conditions": [condition]}),)))


B, W = "broken", "waiting"
CASES: list[tuple[str, Callable[[], Snapshot], str, str, str, str]] = [
    ("deleted", lambda: with_driver(deleting=True), "driver", B, "is being deleted", "create it again"),
    ("invalid spec", lambda: with_driver(spec_changes={"image": "no repository!"}), "driver", B, "spec.image",
     "kubectl -n driverwright edit drivercontainer edu"),
    ("paused on the way", lambda: replace(building(), drivers=(driver(paused=True),)), "driver", B, "is paused",
     "annotate drivercontainer edu driverwright.io/pause-"),
    ("wrong label", lambda: with_images(snapshot(node(labels={"pool": "web"}))), "selector", B,
     "label pool is 'web', not 'edu'", "kubectl label node node-a --overwrite pool=edu"),
    ("missing label", lambda: snapshot(drivers=(driver(spec_changes={"nodeSelector": {"gpu": "yes", "pool": "edu"}}),)),
     "selector", B, "label gpu is missing, it should be 'yes'", "gpu=yes"),
    ("nearly the label", lambda: snapshot(drivers=(driver(spec_changes={"nodeSelector": {"pools": "edu"}}),)),
     "selector", B, "there is pool=edu", "pools=edu"),
    ("no kernel label", lambda: snapshot(node(kernel=None)), "kernel", B, "kernel-version.full", "nfd-worker pod"),
    ("kernel label is none", lambda: snapshot(node(kernel="5")), "kernel", B, "is not a valid kernel", "nfd-worker"),
    ("no rule matches", lambda: with_mapping({"regexp": "5[.].*"}, {"literal": "6.2.0"}), "mapping", B,
     f"none of spec.kernelMappings matches {KERNEL}; tried in order: 5[.].*, 6\\.2\\.0", "Add a rule"),
    ("skipped", lambda: with_mapping({"literal": OTHER_KERNEL}, {"regexp": "6.*", "skip": True}), "mapping", B,
     "spec.kernelMappings[1] (6.*) skips this kernel", "remove skip"),
    ("no template", lambda: snapshot(node(os_id="gentoo")), "image", B, "UnsupportedOS", "spec.build.template"),
    ("source missing", lambda: snapshot(sources={"driverwright/edu": SourceMissing(message="ConfigMap x is empty")}),
     "image", B, "ConfigMap x is empty", "Create what the message names"),
    ("registry unauthorised", lambda: with_images(snapshot(), Unauthorized(message="401")), "build", B, "401",
     "spec.registry.secretRef"),
    ("no registry", lambda: with_images(snapshot(), Invalid(message="HTML")), "build", B, "HTML", "plainHttp"),
    ("prebuilt image missing", lambda: with_images(with_mapping({"regexp": ".*", "image": "r.io/x:1"}), Absent()),
     "build", B, "r.io/x:1 does not exist", "Push it"),
    ("does not compile", failing, "build", B, "CompileError: edudrv.c:7: error: x", "the next try is at "),
    ("headers missing", lambda: failing("HeadersMissing", "no linux-headers"), "build", B, "no linux-headers",
     "a kernel whose headers are published"),
    ("unheard-of reason", lambda: failing("Novel", "new words"), "build", B, "Novel: new words", "driver-builder logs"),
    ("is being built", building, "build", W, "queued or building for 5 s", f"driver-builder logs edu {KERNEL}"),
    ("built for ever", lambda: building(9999), "build", W, "for 9999 s", "Longer than a build may take"),
    ("queued", lambda: replace(with_images(snapshot(), Absent()), running_builds=frozenset(
        [key_of(with_images(snapshot(), Absent()))])), "build", W, "is queued", "Wait"),
    ("not begun", lambda: with_images(snapshot(), Absent()), "build", W, "not built yet", "No controller"),
    ("nobody rolls out", rolling_out, "rollout", W, "no DaemonSet", "No controller has seen it yet"),
    ("API server refuses", refused, "rollout", W, "no DaemonSet", "no such toleration"),
    ("old DaemonSet", lambda: rolling_out(daemon_sets=(daemon_set(rolling_out(), old=True),)), "rollout", W,
     "previous image", "No controller"),
    ("no pod", lambda: replace(ready_snapshot(), pods=()), "pull", W, "no pod on the node yet", "describe daemonset"),
    ("taint", tainted, "pull", B, "does not tolerate its taint db:NoSchedule", "Add a toleration"),
    ("no pod, and the node is not Ready", lambda: not_ready(pods=()), "pull", W, "not Ready", "describe node"),
    ("the node is not Ready", not_ready, "load", W, "the node is not Ready", "describe node"),
    ("pod without node", lambda: with_pod(node=""), "pull", W, "are not scheduled yet", "describe pod"),
    ("pod leaves", lambda: with_pod(deleting=True), "pull", W, "is terminating", "describe pod"),
    ("older image", lambda: with_pod(fingerprint=OLD), "pull", W, "runs the previous image", "driver-builder plan"),
    ("others go first", lambda: yielding(with_pod(fingerprint=OLD)), "pull", W, "driver apps/ofed, on which it depends",
     "explain node-a"),
    ("outside before", lambda: kept_out(ready_snapshot()), "pull", W, "has the modules of before",
     "driver-builder plan"),
    ("a lock", lambda: locked(with_pod(fingerprint=OLD)), "pull", W, "is locked by gpu-partitioner until", "annotate"),
    ("not drained", undrained, "pull", B, "DrainTimeout: the node could not be drained: pod apps/web stays",
     "PodDisruptionBudget"),
    ("not unloaded", lambda: undrained("driver apps/mem is not unloaded: refcnt 1", dependent="apps/mem"), "pull", B,
     "DependentNotUnloaded: driver apps/mem is not unloaded: refcnt 1", "End what uses the modules"),
    ("next image comes", ahead, "pull", W, "pod edu-pull brings the next one", "describe pod edu-pull"),
    ("next image is denied", lambda: ahead("ErrImagePull: pull access denied"), "pull", B,
     "the next one cannot be pulled: ErrImagePull: pull access denied", "spec.imagePullSecrets"),
    ("pull denied", lambda: pulling("ErrImagePull: pull access denied"), "pull", B, "pull access denied",
     "spec.imagePullSecrets"),
    ("pull without TLS", lambda: pulling("ImagePullBackOff: server gave HTTP response to HTTPS client"), "pull", B,
     "ImagePullBackOff", "HTTPS only"),
    ("pull fails somehow", lambda: pulling("ImagePullBackOff"), "pull", B, "ImagePullBackOff", "reaches the registry"),
    ("crashes", lambda: pulling("CrashLoopBackOff: x"), "load", B, "CrashLoopBackOff", "logs edu-node-a -c load"),
    ("has not reported", lambda: pulling(""), "load", W, "not reported yet", "describe pod edu-node-a"),
    ("a program is not proven", lambda: with_pod(ready=False, proof=None, program=Program(started_at=NOW)), "load", W,
     "a proof pod reports what it has loaded", "logs edu-node-a -c driver"),
    ("a program fails", lambda: not_loaded("LoadFailed", "module edudrv is not live 60 s after the image's own program "
     "was started: its log says why", Program(started_at=NOW)), "load", B, "is not live", "-c driver"),
    ("wrong kernel", lambda: with_pod(ready=False, proof=LoadReport(result="WrongKernel", kernel=OTHER_KERNEL,
    boot_id="b")),
     "load", W, f"the node runs {OTHER_KERNEL}, its labels say {KERNEL}", "nfd-worker"),
    ("module refused", lambda: not_loaded("LoadFailed", "edudrv: disagrees about version of symbol x"), "load", B,
     "disagrees about version", "driverwright.io/rebuild"),
    ("key refused", lambda: not_loaded("LoadFailed", "Key was rejected by service"), "load", B, "rejected", "mokutil"),
    ("key unknown", lambda: not_loaded("LoadFailed", "Loading of module with unavailable key is rejected"), "load", B,
     "unavailable", "mokutil"),
    ("no room", lambda: not_loaded("LoadFailed", "module nouveau is in use (refcnt 1) and cannot be unloaded"),
     "load", B, "nouveau is in use", "put it on spec.module.blacklist and reboot"),
    ("no room, earlier loader", lambda: not_loaded("LoadFailed", "module nouveau is in use (refcnt 1) and cannot make "
     "room"), "load", B, "nouveau is in use", "put it on spec.module.blacklist and reboot"),
    ("other firmware", lambda: not_loaded("LoadFailed", "firmware a.bin: the node has a different file of this name"),
     "load", B, "different file", "Remove that file"),
    ("other parameters", lambda: not_loaded("ParametersDiffer", "module edudrv is loaded with use_irq=1 instead of "
     "use_irq=0, and module edudrv is in use (refcnt 1)"), "load", B, "use_irq=1", "End what uses the module"),
    ("blacklisted", lambda: not_loaded("LoadFailed", "module nouveau is on spec.module.blacklist and already loaded"),
     "load", B, "already loaded", "spec.module.inTreeModulesToRemove too"),
    ("refused somehow", lambda: not_loaded("LoadFailed", "?!"), "load", B, "?!", "dmesg"),
    ("no device", lambda: not_loaded("NoDevice", "no device is bound"), "load", B, "no device is bound", "lspci"),
    ("rebooted since", lambda: with_pod(proof=loaded(boot_id="older")), "load", W, "rebooted since", "Wait"),
    ("loaded on another kernel", lambda: with_pod(proof=loaded(OTHER_KERNEL)), "load", W, "loaded on kernel", "reboot"),
    ("another module", lambda: with_pod(proof=loaded(identity="FF")), "load", B, "module edudrv is FF", "delete pod"),
    ("not heard of", lambda: with_pod(ready=False), "load", W, "does not refute the driver", "describe pod"),
    ("module removed by hand", lambda: with_pod(ready=False, contrary=GONE), "load", B, "edudrv is not live",
     "-c hold --previous"),
    ("device node missing", lambda: not_loaded("DeviceNodeMissing", "device node /dev/edu0 is missing"), "load", B,
     "device node /dev/edu0 is missing", "udev"),
    ("validation has not begun", validating, "label", W, "validation is running", "describe pod edu-validate-"),
    ("validation is tried again", lambda: validating(failures=1, message="no answer"), "label", W,
     "validation failed 1 of 3 times and is tried again: no answer", "describe pod edu-validate-"),
    ("validation failed", lambda: validating(failures=3, message="no answer"), "label", B,
     "ValidationFailed: no answer", "annotate node node-a validated.driverwright.io/driverwright.edu-"),
    ("device nodes not checked", lambda: validating({"deviceNodes": ["/dev/edu0"]}), "label", W,
     "its driver pod does not check spec.validation.deviceNodes yet", "Wait"),
    ("not labelled", lambda: replace(ready_snapshot(), nodes=(node(),)), "label", W, f"no {READY_LABEL}=1.0.0 yet",
     "No controller"),
    ("labelled otherwise", lambda: replace(ready_snapshot(), nodes=(node(labels={READY_LABEL: "0.1"}),)), "label", W,
     "it is '0.1'", "No controller"),
]  # fmt: skip


@pytest.mark.parametrize(
    ("make", "check", "verdict", "words", "next_step"), [pytest.param(*case[1:], id=case[0]) for case in CASES]
)
def test_the_first_broken_link_is_named_with_what_to_do(
    make: Callable[[], Snapshot], check: str, verdict: str, words: str, next_step: str
) -> None:
    """Everything before it holds, everything after it was not looked at."""
    said = explained(make())
    first = said.first_broken
    assert first is not None
    assert (first.check, first.status.word("broken")) == (check, verdict)
    assert words in first.message
    assert next_step in first.remedy
    assert not said.is_ready
    assert words in said.sentence
    number = CHECKS.index(check)
    assert {step.status for step in said.steps[number + 1 :]} <= {Status.UNKNOWN, Status.OK}
    assert {step.status for step in said.steps[:number]} <= {Status.OK}


def test_a_ready_node_is_said_to_be_ready() -> None:
    """Every check holds, and the label for workloads is shown."""
    said = explained(ready_snapshot())
    assert [step.status for step in said.steps] == [Status.OK] * len(CHECKS)
    assert [step.check for step in said.steps] == [*CHECKS]
    assert (said.is_ready, said.sentence, said.serving, said.selected) == (True, "ready", "1.0.0", True)
    assert READY_LABEL in said.steps[-1].remedy


@pytest.mark.parametrize(
    ("changes", "words"),
    [
        pytest.param({"nodeSelector": None}, "it selects every node", id="empty selector"),
        pytest.param({"kernelMappings": [{"literal": KERNEL}]}, "spec.kernelMappings[0]", id="a rule that matches"),
        pytest.param({"kernelMappings": [{"regexp": ".*", "image": "r.io/x:1"}]}, "prebuilt: r.io/x:1", id="prebuilt"),
        pytest.param(
            {"kernelMappings": [{"regexp": ".*", "image": "r.io/x:1", "loader": "image"}]},
            "prebuilt: r.io/x:1; its own program loads the modules",
            id="a vendor's program",
        ),
    ],
)
def test_what_holds_is_said_too(changes: dict[str, Any], words: str) -> None:
    """A check that holds says why."""
    said = explained(with_images(snapshot(drivers=(driver(spec_changes=changes),))))
    assert any(words in step.message and step.status is Status.OK for step in said.steps)


def test_a_registry_without_answer_does_not_make_a_working_node_unready() -> None:
    """Not known is not broken: the node's own facts stand."""
    said = explained(with_images(ready_snapshot(), Unreachable(message="timeout")))
    assert said.is_ready
    assert [step.check for step in said.steps if step.status is Status.UNKNOWN] == ["build"]


def test_a_registry_without_answer_and_nothing_else_is_waited_for() -> None:
    """Without an image nothing is rolled out."""
    said = explained(with_images(snapshot(), Unreachable(message="timeout")))
    assert said.first_broken is not None
    assert said.first_broken.check == "rollout"


def test_a_paused_driver_that_works_is_ready() -> None:
    """A pause is reported, and breaks nothing that is there."""
    said = explained(with_driver(paused=True))
    assert said.is_ready
    assert "paused" in said.steps[0].message


def test_a_pause_does_not_hide_what_a_person_has_to_fix() -> None:
    """The pause is not why a node is not selected."""
    said = explained(replace(snapshot(node(labels={"pool": "web"})), drivers=(driver(paused=True),)))
    assert said.first_broken is not None
    assert said.first_broken.check == "selector"


def test_what_works_meanwhile_is_reported() -> None:
    """While a new image is built the old one still serves."""
    seen = with_images(ready_snapshot(), Absent())
    seen = replace(seen, pods=(pod(with_images(seen), old=True),))
    assert explained(seen).serving == "0.9.0"
    assert "meanwhile version 0.9.0 works there" in explained(seen).sentence


def test_it_can_be_read_by_programs() -> None:
    """Plain data with the same words."""
    document = explained(failing()).as_document()
    assert json.loads(json.dumps(document)) == document
    assert (document["ready"], document["firstBroken"]) == (False, "build")


def failed_before(seen: Snapshot, kernel: str, *, failures: int, seconds_ago: float) -> TargetStatus:
    """Make what a status says of a target whose build failed some times."""
    item = next(item for item in wanted(seen) if item.target.kernel_version == kernel)
    assert item.request is not None
    return TargetStatus(
        target=item.target.id, kernel=kernel, os=item.target.os, architecture="amd64", nodes=1, ready_nodes=0,
        state=TargetState.FAILED, reason=Reason.COMPILE_ERROR, message="edudrv.c:7: error: x", image=str(item.image),
        key=item.request.key, failures=failures, last_failure=NOW - seconds_ago,
    )  # fmt: skip


def with_targets(*targets: TargetStatus, seen: Snapshot, **changes: Any) -> Snapshot:
    """Let a status report targets, of which the registry has no image."""
    container = driver(status={"targets": [status.render_target(target) for target in targets]}, **changes)
    return replace(with_images(seen, Absent()), drivers=(container,))


def test_a_failed_build_says_when_its_own_target_is_tried_again() -> None:
    """Not when the controller looks again for another kernel's sake (fault 40)."""
    two = snapshot(node(), node("node-b", kernel=OTHER_KERNEL))
    mine = failed_before(two, KERNEL, failures=4, seconds_ago=10)
    theirs = failed_before(two, OTHER_KERNEL, failures=1, seconds_ago=25)
    first = explained(with_targets(mine, theirs, seen=two)).first_broken
    due = next_try(mine, SETTINGS)
    assert first is not None
    assert due is not None
    assert due - NOW > 60
    assert f"the next try is at {timestamp(due)}, in {due - NOW:.0f} s" in first.remedy


def test_a_failed_build_of_a_paused_driver_is_not_tried_again() -> None:
    """Nothing is built while it is paused."""
    mine = failed_before(snapshot(), KERNEL, failures=1, seconds_ago=1)
    first = explained(with_targets(mine, seen=snapshot(), paused=True)).first_broken
    assert first is not None
    assert "no build is tried while the DriverContainer is paused" in first.remedy


def test_a_failed_build_says_that_builds_are_suspended() -> None:
    """Then its own time does not count; another kernel's status reports it."""
    two = snapshot(node(), node("node-b", kernel=OTHER_KERNEL))
    mine = failed_before(two, KERNEL, failures=1, seconds_ago=1)
    held = replace(mine, target="b", kernel=OTHER_KERNEL, state=TargetState.BLOCKED, reason=Reason.BUILDS_SUSPENDED)
    first = explained(with_targets(mine, held, seen=two)).first_broken
    assert first is not None
    assert "builds of the driver are suspended: one build is retried every minute" in first.remedy
    assert "the next try is at" not in first.remedy


def test_a_suspended_build_says_how_builds_go_on() -> None:
    """Once: as the remedy of its reason."""
    seen = replace(with_images(snapshot(), Absent()), suspended={"": Suspension(why="since noon", probe_at=NOW + 30)})
    first = explained(seen).first_broken
    assert first is not None
    assert first.message == "no build is started: since noon"
    assert first.remedy == remedy_of(Reason.BUILDS_SUSPENDED)


def test_a_driver_that_is_not_for_the_kernel_is_not_tried_again() -> None:
    """Until another version is another key."""
    first = explained(failing("NotApplicable", "not for 6.1")).first_broken
    assert first is not None
    assert first.remedy.endswith("no build is tried until the spec changes")


@pytest.mark.parametrize("case", CASES, ids=lambda case: case[0])
def test_no_remedy_is_said_twice(case: tuple[str, Callable[[], Snapshot], str, str, str, str]) -> None:
    """The message says what is wrong, the next step what to do."""
    first = explained(case[1]()).first_broken
    assert first is not None
    said = f"{first.message}; {first.remedy}"
    assert all(said.count(meaning.remedy) <= 1 for meaning in REASONS.values() if meaning.remedy)


@given(st.integers(0, 12), st.integers(0, 2))
def test_it_agrees_with_the_controller_at_any_moment(rounds: int, failures: int) -> None:
    """On the model world: ready exactly when the node has the label that a plan would leave alone."""
    world = World()
    world.add_node("node-a", KERNEL)
    world.add_driver()
    world.fail_builds = failures
    for _ in range(rounds):
        world.reconcile()
        world.finish_builds()
        world.turn()
        world.now += 20
    seen = world.observe()
    decided = plan(seen, world.settings)
    said = explain(seen, seen.nodes[0], seen.drivers[0], world.settings)
    assert said.is_ready == (not decided.actions and decided.drivers[0].targets[0].state == "Ready")
