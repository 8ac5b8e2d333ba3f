"""The checks from a driver to its image in the registry: selector, kernel, mapping, image, build. Pure."""

from difflib import get_close_matches

from driver_builder.api.driver_spec import DriverSpec
from driver_builder.api.mapping_settings import LoadedBy
from driver_builder.api.status import TargetStatus, previous_targets
from driver_builder.base.check_result import CheckResult, failed, ok, unknown, waiting
from driver_builder.base.reasons import SUSPENDED_TRIES, Reason, TargetState, remedy_of
from driver_builder.checks.explain_driver import controller_hint
from driver_builder.checks.explanation import Context
from driver_builder.model.image_state import Absent, Invalid, NotAsked, Present, Unauthorized, Unreachable
from driver_builder.model.kernels import KernelTarget
from driver_builder.rollout.retries import next_try
from driver_builder.snapshot.inventory import Node, target_of
from driver_builder.targets import resolve_target
from driver_builder.targets.desired_target import (
    BlockedTarget,
    DesiredTarget,
    ImageTarget,
    PrebuiltTarget,
    SkippedTarget,
)
from kube_api.timestamps import timestamp

_UNTRUSTED = frozenset({Reason.TAG_MOVED, Reason.WRONG_BUILD_KEY, Reason.IMAGE_NOT_SIGNED, Reason.NO_IDENTITY})


def selector_check(spec: DriverSpec, node: Node) -> CheckResult:
    """Compare the driver's selector with the node's labels, key by key."""
    wrong = {key: value for key, value in spec.node_selector.items() if node.labels.get(key) != value}
    if wrong:
        words = "; ".join(_difference(node, key, value) for key, value in sorted(wrong.items()))
        labels = " ".join(f"{key}={value}" for key, value in sorted(wrong.items()))
        step = f"kubectl label node {node.name} --overwrite {labels} (or change spec.nodeSelector)"
        return failed("selector", f"spec.nodeSelector does not select the node: {words}", step)
    if not spec.node_selector:
        return ok("selector", "spec.nodeSelector is empty: it selects every node")
    labels = ", ".join(f"{key}={value}" for key, value in sorted(spec.node_selector.items()))
    return ok("selector", f"the node has {labels}")


def _difference(node: Node, key: str, wanted: str) -> str:
    if key in node.labels:
        return f"label {key} is {node.labels[key]!r}, not {wanted!r}"
    close = get_close_matches(key, sorted(node.labels), n=1, cutoff=0.8)
    hint = f" (there is {close[0]}={node.labels[close[0]]})" if close else ""
    return f"label {key} is missing{hint}, it should be {wanted!r}"


def kernel_check(node: Node) -> CheckResult:
    """Report which target the node's labels name."""
    target = target_of(node)
    if isinstance(target, KernelTarget):
        return ok("kernel", f"the node runs {target.kernel_version} on {target.os}, {target.architecture}")
    return failed(
        "kernel",
        target,
        f"See the nfd-worker pod of the node: kubectl get pods -A -o wide --field-selector spec.nodeName={node.name}",
    )


def mapping_check(spec: DriverSpec, target: KernelTarget) -> CheckResult:
    """Report which entry of ``spec.kernelMappings`` applies to the kernel."""
    kernel = target.kernel_version
    rule = resolve_target.mapping_for(spec, kernel)
    if rule is None:
        tried = ", ".join(item.pattern.pattern for item in spec.kernel_mappings)
        return failed(
            "mapping",
            f"none of spec.kernelMappings matches {kernel}; tried in order: {tried}",
            "Add a rule that matches the whole kernel release (the first that matches is used), or remove all rules",
        )
    if not spec.kernel_mappings:
        return ok("mapping", "there are no spec.kernelMappings: every kernel gets the driver")
    number = next(index for index, item in enumerate(spec.kernel_mappings) if item is rule)
    where = f"spec.kernelMappings[{number}] ({rule.pattern.pattern})"
    if rule.skip:
        step = f"If the node should have the driver, remove skip or put a rule for {kernel} before it"
        return failed("mapping", f"{where} skips this kernel", step)
    return ok("mapping", f"{where} matches")


def image_check(item: DesiredTarget) -> CheckResult:
    """Report which image the target should run."""
    if isinstance(item, SkippedTarget | BlockedTarget):
        return failed("image", f"{item.reason}: {item.message}", remedy_of(item.reason))
    if isinstance(item, PrebuiltTarget):
        is_watched = item.vendor.loader is LoadedBy.IMAGE
        who = "; its own program loads the modules (loader: image)" if is_watched else ""
        return ok("image", f"prebuilt: {item.image}{who}")
    own = item.request.own_template
    how = f"template {own.place if own else item.request.template} in {item.request.base_image}"
    return ok("image", f"{item.image}, built by {how}")


def build_check(context: Context, item: ImageTarget) -> CheckResult:
    """Check whether the image is in its registry, and if not, report the state of its build."""
    match context.snapshot.image(context.driver.key, item.image):
        case Present(digest=digest):
            return _present(context, digest)
        case Absent():
            return _absent(context, item)
        case NotAsked(reason=reason):
            return unknown("build", f"the registry {item.image.host} has not answered yet", remedy_of(reason))
        case Unreachable(reason=reason, message=message):
            return unknown("build", f"{reason}: {message}", remedy_of(reason))
        case Unauthorized(reason=reason, message=message) | Invalid(reason=reason, message=message):
            return failed("build", f"{reason}: {message}", remedy_of(reason))


def _present(context: Context, digest: str) -> CheckResult:
    status = context.status
    if status is not None and status.reason in _UNTRUSTED:
        return failed("build", f"the registry has it, but {status.message}", remedy_of(status.reason))
    return ok("build", f"the registry has it: {digest}")


def _absent(context: Context, item: ImageTarget) -> CheckResult:
    status = context.status
    if isinstance(item, PrebuiltTarget) or status is None:
        return failed("build", f"{item.image} does not exist", remedy_of(Reason.IMAGE_MISSING))
    if status.state is not TargetState.BUILDING or status.reason == Reason.WAITING_FOR_DEPENDENCY:
        return _not_building(context, status)
    before = previous_targets(context.driver.status).get(context.target.id)
    logs = f"{_logs(context)} shows its log"
    again = f"; {status.message}" if status.failures else ""
    if before is not None and before.state is TargetState.BUILDING and before.key == item.request.key:
        seconds = context.snapshot.now - before.since
        late = seconds > context.settings.template_versions.deadline_seconds
        step = f"Longer than a build may take. {controller_hint(context.driver)}" if late else f"Wait; {logs}"
        return waiting("build", f"the image has been queued or building for {seconds:.0f} s{again}", step)
    if before is not None and before.reason == Reason.BUILDS_SUSPENDED:
        return failed("build", f"no build is started: {before.message}", remedy_of(before.reason))
    if item.request.key in context.snapshot.running_builds:
        return waiting("build", f"the image is queued or building{again}", f"Wait; {logs}")
    return waiting("build", f"the image is not built yet: its build is next{again}", controller_hint(context.driver))


def _not_building(context: Context, status: TargetStatus) -> CheckResult:
    if status.reason == Reason.WAITING_FOR_DEPENDENCY:
        return waiting("build", f"no build is started: {status.message}", remedy_of(status.reason))
    if status.state is TargetState.NOT_APPLICABLE:
        words = f"the driver says that it does not support this kernel: {status.message}"
    elif status.state is TargetState.BLOCKED:
        words = f"no build is started: {status.message}"
    else:
        words = _failure(status)
    log = f"read its log: {_logs(context)}" if status.failures else ""
    steps = (remedy_of(status.reason), log, _next_try(context, status))
    return failed("build", words, "; ".join(step for step in steps if step))


def _logs(context: Context) -> str:
    return f"driver-builder logs {context.driver.name} {context.target.kernel_version}"


def _failure(status: TargetStatus) -> str:
    tries = f", {status.failures} times" if status.failures > 1 else ""
    return f"the build failed{tries}: {status.reason}: {status.message}"


def _next_try(context: Context, status: TargetStatus) -> str:
    """Return when the image of the node's own target is built next, whatever else the controller waits for."""
    if status.reason == Reason.BUILDS_SUSPENDED:
        return ""
    due = next_try(status, context.settings)
    if due is None:
        return "no build is tried until the spec changes"
    if context.driver.paused:
        return "no build is tried while the DriverContainer is paused"
    if _is_suspended(context):
        return f"builds of the driver are suspended: {SUSPENDED_TRIES}"
    return f"the next try is at {timestamp(due)}, in {max(0.0, due - context.snapshot.now):.0f} s"


def _is_suspended(context: Context) -> bool:
    """Return whether builds are suspended: by the queue, else by the status of another target of the driver."""
    if {"", context.driver.key} & context.snapshot.suspended.keys():
        return True
    targets = previous_targets(context.driver.status).values()
    return any(target.reason == Reason.BUILDS_SUSPENDED for target in targets)
