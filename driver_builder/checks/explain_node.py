"""The checks from an image in the registry to a ready node: rollout, pull, load, label. Pure."""

import re

from driver_builder.api.driver_container import DriverContainer
from driver_builder.api.driver_spec import DriverSpec
from driver_builder.api.rollout_status import previous_wave
from driver_builder.base.check_result import CheckResult, failed, ok, waiting
from driver_builder.base.reasons import Reason, TargetState, remedy_of
from driver_builder.checks.explain_driver import controller_hint
from driver_builder.checks.explanation import Context
from driver_builder.nodes import evidence
from driver_builder.nodes.changes import ApplyObject
from driver_builder.nodes.evidence import Finding, ValidationState, is_current
from driver_builder.nodes.plan_labels import validation_of
from driver_builder.nodes.plan_view import DriverView
from driver_builder.objects import load_report, manifests, vendor_pod
from driver_builder.objects.driver_keys import driver_keys
from driver_builder.objects.tolerations import of_pending, with_ours
from driver_builder.objects.yielding import yielding_of
from driver_builder.rollout.draining import draining_of
from driver_builder.rollout.node_lock import lock_of
from driver_builder.snapshot import pairs
from driver_builder.snapshot.inventory import Node, Taint
from driver_builder.snapshot.node_record import record_of
from driver_builder.snapshot.snapshot import DriverPod, Snapshot
from driver_builder.tasks.node_task import NodeTask
from driver_builder.tasks.pull_pod import PULL
from driver_builder.tasks.task_kind import State
from driver_builder.tasks.validation_pod import VALIDATION
from kube_api import names
from kube_api.timestamps import timestamp

_PULL_FAILED = re.compile(r"(?:Err)?Image(?:Pull|Inspect|NeverPull)|InvalidImageName|RegistryUnavailable")
"""The kubelet's reasons for an image that cannot be pulled (kubernetes/pkg/kubelet/images/types.go)."""

_PULL_ADVICE = (
    (r"unauthorized|denied|authentication|authorization|forbidden", "Name a Secret in spec.imagePullSecrets that may "
     "pull; only the controller uses that of spec.registry"),
    (r"server gave HTTP response to HTTPS client", "The node's container runtime speaks HTTPS only: give the registry "
     "a certificate, or allow it without TLS in the runtime's configuration"),
    (r"x509|certificate", "Give the node's container runtime the certificate authority of the registry"),
    (r"not found|manifest unknown", "The image was deleted from the registry: set a new value of annotation "
     "driverwright.io/rebuild on the DriverContainer"),
    (r"no such host|lookup ", "The node cannot resolve the name of the registry: check its DNS"),
    (r"no space left", "Free disk space on the node"),
)  # fmt: skip

# Nodes may run loaders of earlier versions: their messages match as well.
_LOAD_ADVICE = (
    (r"Key was rejected|Required key not available|unavailable key|unsigned module|module verification failed",
     "Secure Boot: sign the module with a key that the node trusts (spec.signing), or enrol the key with mokutil"),
    (r"cannot make room|and cannot be unloaded", "End what uses that module on the node, name what depends on it in "
     "spec.module.inTreeModulesToRemove as well, or put it on spec.module.blacklist and reboot the node"),
    (r"is on spec\.module\.blacklist", "Reboot the node, or name the module in spec.module.inTreeModulesToRemove too"),
    (r"read-only\?", "The node's file system is read-only: use a DriverContainer without this field for such nodes"),
    (r"firmware .* the node has (another one|a different file)", "Remove that file on the node: it is not one of ours"),
    (r"was loaded on this node by driver", remedy_of(Reason.MODULE_CONFLICT)),
    (r"(?:wanted is|instead of) .* is in use", remedy_of(Reason.PARAMETERS_DIFFER)),
    (r"is in use|Resource temporarily unavailable|cannot be replaced", "Stop what uses the old module on the node "
     "(lsmod names it), or reboot the node"),
    (r"Unknown symbol|disagrees about version|Invalid module format|Exec format", "The module does not fit the running "
     "kernel: set a new value of annotation driverwright.io/rebuild on the Node"),
    (r"Invalid argument|Unknown parameter", "Compare spec.module.parameters with those of the driver; the kernel's "
     "own words are in dmesg on the node"),
    (r"No such device", "The driver found no device that it supports: lspci -nn on the node"),
    (r"needs module", "Load that module on the node, or name it in spec.module.names before this one"),
)  # fmt: skip

_OF_DAEMON_SETS = tuple(
    {"key": f"node.kubernetes.io/{key}", "operator": "Exists"}
    for key in ("not-ready", "unreachable", "disk-pressure", "memory-pressure", "pid-pressure", "unschedulable",
                "network-unavailable")
)  # fmt: skip
"""What the DaemonSet controller adds to pods on the host's network (kubernetes/pkg/controller/daemon/util)."""


def rollout_check(context: Context) -> CheckResult:
    """Check whether the target has the wanted DaemonSet, or report why not."""
    next_name = next(
        (
            action.name
            for action in context.decided.actions
            if isinstance(action, ApplyObject) and action.target == context.target.id
        ),
        None,
    )
    if context.conflict is not None and (context.daemon_set is None or next_name is not None):
        words = f"{TargetState.BLOCKED}: {Reason.MODULE_CONFLICT}: {context.conflict}; that driver keeps it there"
        return failed("rollout", words, remedy_of(Reason.MODULE_CONFLICT))
    if context.daemon_set is None:
        words = f"there is no DaemonSet for {context.target.kernel_version} yet: it is created next"
        return waiting("rollout", words, controller_hint(context.driver))
    if next_name is not None:
        words = f"DaemonSet {next_name} still has the previous image or settings"
        return waiting("rollout", words, controller_hint(context.driver))
    return ok("rollout", f"DaemonSet {context.daemon_set.name} has the image")


def pull_check(context: Context) -> CheckResult:
    """Check whether a wanted pod is on the node and has its image."""
    pod = context.pod
    if pod is None:
        return _no_pod(context)
    if pod.deleting:
        return waiting("pull", f"pod {pod.name} is terminating; its successor starts after it", _describe(pod))
    if context.daemon_set is not None and not is_current(pod, context.daemon_set):
        return _of_before(context, f"pod {pod.name} runs the previous image")
    if pod.proof is None and _PULL_FAILED.match(pod.message):
        step = _advice(_PULL_ADVICE, pod.message) or "Check that the node reaches the registry"
        return failed("pull", f"pod {pod.name}: {pod.message}", f"{step}; {_describe(pod)}")
    lock = lock_of(context.node)
    return ok("pull", f"pod {pod.name} is on the node" + (f"; the node {lock}" if lock else ""))


def _of_before(context: Context, words: str) -> CheckResult:
    """Say why a node still has what it had before."""
    node, lock = context.node, lock_of(context.node)
    if node.annotations.get(names.SKIP_ROLLOUT_ANNOTATION) == "true":
        step = f"kubectl annotate node {node.name} {names.SKIP_ROLLOUT_ANNOTATION}-"
        return waiting("pull", f"{words}: the node is left out", step)
    if lock is not None and lock.holder != context.driver.key:
        step = f"Wait; if its holder is gone: kubectl annotate node {node.name} {names.LOCK_ANNOTATION}-"
        return waiting("pull", f"{words}: the node {lock}", step)
    record = draining_of(node)
    if record is not None and record.driver == context.driver.key and record.is_resting(context.snapshot.now):
        reason = Reason.DEPENDENT_NOT_UNLOADED if record.dependent else Reason.DRAIN_TIMEOUT
        words += f": {reason}: {'' if record.dependent else 'the node could not be drained: '}{record.failed}"
        words += f"; it is tried again at {timestamp(record.retry_at)}"
        return failed("pull", words, remedy_of(reason))
    pull = next((item for item in context.snapshot.tasks if _is_pull_for(item, context)), None)
    if pull is not None and pull.state is not State.SUCCEEDED:
        look = f"kubectl -n {pull.namespace} describe pod {pull.name}"
        if not pull.message:
            return waiting("pull", f"{words}: pod {pull.name} brings the next one", look)
        step = _advice(_PULL_ADVICE, pull.message) or "Check that the node reaches the registry"
        return failed("pull", f"{words}: the next one cannot be pulled: {pull.message}", f"{step}; {look}")
    # What all drivers together hold back is in the status alone.
    wave = previous_wave(context.driver.status) or context.decided.wave
    words += f"; {wave.phase}: {wave.message}" if wave else ""
    return waiting("pull", words, "Wait; driver-builder plan names the pods that are next")


def _is_pull_for(task: NodeTask, context: Context) -> bool:
    return (task.kind, task.driver, task.node, task.deleting) == (
        PULL.name,
        context.driver.key,
        context.node.name,
        False,
    )


def _no_pod(context: Context) -> CheckResult:
    if (record := yielding_of(context.node.annotations)) is not None and context.driver.key in record.drivers:
        words = f"driver {record.first}, on which it depends, is replaced on the node; it is loaded again after that"
        return waiting("pull", words, f"driver-builder explain {context.node.name} says how far {record.first} is")
    if record_of(context.node, context.driver.key).is_held_out:
        return _of_before(context, "no DaemonSet selected the node for a while, and it has the modules of before")
    homeless = [pod.name for pod in context.pods if not pod.node]
    name = context.daemon_set.name if context.daemon_set else ""
    daemon_set = f"kubectl -n {context.driver.namespace} describe daemonset {name}"
    if homeless:
        step = f"kubectl -n {context.driver.namespace} describe pod {homeless[0]}"
        return waiting("pull", f"{len(homeless)} of its pods are not scheduled yet", step)
    if (taint := _not_tolerated(context)) is not None:
        words = f"there is no pod on the node: spec.tolerations does not tolerate its taint {taint}"
        return failed("pull", words, "Add a toleration for it, or let spec.nodeSelector leave the node out")
    if not context.node.ready:
        return waiting("pull", "there is no pod on the node, which is not Ready", _see_kubelet(context.node))
    return waiting("pull", "there is no pod on the node yet", f"Wait for the kubelet; {daemon_set}")


def _not_tolerated(context: Context) -> Taint | None:
    """Return a taint that keeps the driver's pods away; without tolerations in the spec they tolerate everything."""
    wanted = context.spec.tolerations
    tolerated = (*with_ours(wanted), *of_pending(context.snapshot.drivers), *_OF_DAEMON_SETS)
    against = (
        taint
        for taint in context.node.taints
        if taint.effect in ("NoSchedule", "NoExecute") and not any(map(taint.is_tolerated, tolerated))
    )
    return next(against, None) if wanted else None


def _see_kubelet(node: Node) -> str:
    return f"See why its kubelet does not report: kubectl describe node {node.name}"


def load_check(context: Context, pod: DriverPod) -> CheckResult:
    """Report what the loader found, and whether that is still true on this boot."""
    logs = _logs_of(pod)
    node, verdict = context.node, pod.proof
    finding, why = evidence.judge(node, pod)
    if finding is Finding.WORKS:
        return ok("load", f"{_modules(pod)} on this boot of the node")
    if verdict is None and pod.message:
        return failed("load", f"pod {pod.name}: {pod.message}", f"{logs}; {_describe(pod)}")
    if verdict is None:
        is_running = pod.program is not None and pod.program.started_at is not None
        words = f"pod {pod.name} has not reported yet: it pulls its image or loads"
        if is_running:
            words = f"the image's own program runs in pod {pod.name}; a proof pod reports what it has loaded"
        return waiting("load", words, logs if is_running else _describe(pod))
    if pod.contrary is not None:
        step = f"{remedy_of(pod.contrary.result)}; kubectl -n {pod.namespace} logs {pod.name} -c hold --previous"
        return failed("load", why, step)
    if finding is Finding.SILENT:
        words = f"{why}: this does not refute the driver, and a ready label stays"
        step = f"See the kubelet of {node.name}; {_describe(pod)}" if node.ready else _see_kubelet(node)
        return waiting("load", words if node.ready else f"the node is not Ready; {words}", step)
    return _doubted(context, pod, verdict.result, why)


def _logs_of(pod: DriverPod) -> str:
    """Return the command that shows what loads the modules of a pod."""
    container = manifests.LOAD_CONTAINER if pod.program is None else vendor_pod.PROGRAM_CONTAINER
    return f"kubectl -n {pod.namespace} logs {pod.name} -c {container}"


def _doubted(context: Context, pod: DriverPod, result: str, why: str) -> CheckResult:
    kernel = context.node.kernel_version
    verdict = pod.proof
    assert verdict is not None  # noqa: S101  # load_check asks only about a verdict
    if result == Reason.WRONG_KERNEL:
        words = f"the node runs {verdict.kernel}, its labels say {kernel}"
        return waiting("load", words, remedy_of(Reason.WRONG_KERNEL))
    if result == Reason.WAITING_FOR_DEPENDENCY:
        return waiting("load", why, remedy_of(Reason.WAITING_FOR_DEPENDENCY))
    if result != load_report.LOADED:
        is_of_device = result in (Reason.NO_DEVICE, Reason.DEVICE_NODE_MISSING)
        known = remedy_of(result) if is_of_device else _advice(_LOAD_ADVICE, verdict.message)
        logs = _logs_of(pod)
        return failed("load", why, known or "; ".join(filter(None, [remedy_of(result), logs])))
    if verdict.kernel != kernel:
        return waiting("load", why, "Wait: the pod and the labels follow the reboot of the node")
    if not context.node.is_on_boot(verdict.boot_id):
        return waiting("load", "the node was rebooted since: the pod loads again", "Wait for the kubelet of the node")
    return failed("load", why, f"{remedy_of(Reason.OTHER_BUILD)}: kubectl -n {pod.namespace} delete pod {pod.name}")


def label_check(context: Context, pod: DriverPod) -> CheckResult:
    """Check whether the node has the ready label of what is proven there."""
    label = driver_keys(context.driver.key).ready
    there = context.node.labels.get(label)
    version = evidence.version_of(pod, context.node, context.daemon_sets)
    if there == version:
        return ok("label", f"the node has {label}={version}", f"workloads select it by {label}")
    if (unvalidated := _unvalidated(context)) is not None:
        return unvalidated
    was = f" (it is {there!r})" if there is not None else ""
    return waiting("label", f"the node has no {label}={version} yet{was}", controller_hint(context.driver))


def _unvalidated(context: Context) -> CheckResult | None:
    """Say why a driver that is loaded is not validated; None if it is."""
    driver, node = context.driver, context.node
    found = validation_of(DriverView.of(context.snapshot, driver, context.settings), node)
    if found is None or found.state is ValidationState.VALIDATED:
        return None
    name = VALIDATION.name_of(driver.key, node.name)
    if found.state is ValidationState.FAILED:
        logs = f"kubectl -n {driver.namespace} logs {name}"
        again = f"kubectl -n {driver.namespace} delete pod {name}; kubectl annotate node {node.name} "
        again += f"{driver_keys(driver.key).validated}-"
        return failed("label", found.why, f"{logs}; once its cause is gone, run it again: {again}")
    step = f"kubectl -n {driver.namespace} describe pod {name}" if found.progress is not None else "Wait"
    return waiting("label", found.why, step)


def serving(snapshot: Snapshot, node: Node, driver: DriverContainer) -> str:
    """Return the version that is proven on the node, of whatever image; empty for none."""
    spec = driver.spec
    if isinstance(spec, DriverSpec) and spec.validation.is_set and record_of(node, driver.key).ready is None:
        return ""
    daemon_sets = pairs.by_target(item for item in snapshot.daemon_sets if item.driver == driver.key)
    for pod in snapshot.pods:
        is_of_node = (pod.driver, pod.node) == (driver.key, node.name)
        if is_of_node and evidence.judge(node, pod)[0] is Finding.WORKS:
            return evidence.version_of(pod, node, daemon_sets)
    return ""


def _modules(pod: DriverPod) -> str:
    modules = pod.proof.modules if pod.proof is not None else ()
    words = []
    for module in modules:
        devices = f" with {', '.join(module.devices)}" if module.devices else ""
        words.append(f"{module.name} {module.identity}{devices}")
    return f"loaded: {'; '.join(words) or 'nothing to load'}"


def _advice(table: tuple[tuple[str, str], ...], words: str) -> str:
    return next((advice for pattern, advice in table if re.search(pattern, words, re.IGNORECASE)), "")


def _describe(pod: DriverPod) -> str:
    return f"kubectl -n {pod.namespace} describe pod {pod.name}"
