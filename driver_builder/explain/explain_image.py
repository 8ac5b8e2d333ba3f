"""The links from a driver to its image in the registry: selector, kernel, mapping, image, build. Pure."""

from difflib import get_close_matches

from driver_builder.api.driver_spec import DriverSpec
from driver_builder.desired import mapping
from driver_builder.desired.desired_target import (
    BlockedTarget,
    DesiredTarget,
    ImageTarget,
    PrebuiltTarget,
    SkippedTarget,
)
from driver_builder.explain.explain_driver import controller_hint
from driver_builder.explain.explanation import Scene, Step, broken, ok, unknown, waiting
from driver_builder.model.image_state import Absent, Invalid, NotAsked, Present, Unauthorized, Unreachable
from driver_builder.model.kernels import KernelTarget
from driver_builder.observed.inventory import Node, target_of
from driver_builder.planning.plan_build import next_try
from driver_builder.reasons import SUSPENDED_TRIES, Reason, TargetState, remedy_of
from driver_builder.status.status import TargetStatus, previous_targets, timestamp

_UNTRUSTED = frozenset({Reason.TAG_MOVED, Reason.WRONG_BUILD_KEY, Reason.IMAGE_NOT_SIGNED, Reason.NO_IDENTITY})


def selector_link(spec: DriverSpec, node: Node) -> Step:
    """Compare the driver's selector with the node's labels, key by key."""
    wrong = {key: value for key, value in spec.node_selector.items() if node.labels.get(key) != value}
    if wrong:
        words = "; ".join(_difference(node, key, value) for key, value in sorted(wrong.items()))
        labels = " ".join(f"{key}={value}" for key, value in sorted(wrong.items()))
        step = f"kubectl label node {node.name} --overwrite {labels} (or change spec.nodeSelector)"
        return broken("selector", f"spec.nodeSelector does not select the node: {words}", step)
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


def kernel_link(node: Node) -> Step:
    """Say which target the node's labels name."""
    target = target_of(node)
    if isinstance(target, KernelTarget):
        return ok("kernel", f"the node runs {target.kernel_version} on {target.os}, {target.architecture}")
    return broken(
        "kernel",
        target,
        f"See the nfd-worker pod of the node: kubectl get pods -A -o wide --field-selector spec.nodeName={node.name}",
    )


def mapping_link(spec: DriverSpec, target: KernelTarget) -> Step:
    """Say which rule of ``spec.kernelMappings`` the kernel falls under."""
    kernel = target.kernel_version
    rule = mapping.mapping_for(spec, kernel)
    if rule is None:
        tried = ", ".join(item.pattern.pattern for item in spec.mappings)
        return broken(
            "mapping",
            f"none of spec.kernelMappings matches {kernel}; tried in order: {tried}",
            "Add a rule that matches the whole kernel release (the first that matches is used), or remove all rules",
        )
    if not spec.mappings:
        return ok("mapping", "there are no spec.kernelMappings: every kernel gets the driver")
    number = next(index for index, item in enumerate(spec.mappings) if item is rule)
    where = f"spec.kernelMappings[{number}] ({rule.pattern.pattern})"
    if rule.skip:
        step = f"If the node should have the driver, remove skip or put a rule for {kernel} before it"
        return broken("mapping", f"{where} skips this kernel", step)
    return ok("mapping", f"{where} matches")


def image_link(item: DesiredTarget) -> Step:
    """Say which image the target should run."""
    if isinstance(item, SkippedTarget | BlockedTarget):
        return broken("image", f"{item.reason}: {item.message}", remedy_of(item.reason))
    if isinstance(item, PrebuiltTarget):
        return ok("image", f"prebuilt: {item.image}")
    own = item.request.own_template
    how = f"template {own.place if own else item.request.template} in {item.request.base_image}"
    return ok("image", f"{item.image}, built by {how}")


def build_link(scene: Scene, item: ImageTarget) -> Step:
    """Say whether the image is in its registry, and if not, how its build is."""
    match scene.snapshot.image(scene.driver.key, item.image):
        case Present(digest=digest):
            return _present(scene, digest)
        case Absent():
            return _absent(scene, item)
        case NotAsked(reason=reason):
            return unknown("build", f"the registry {item.image.host} has not answered yet", remedy_of(reason))
        case Unreachable(reason=reason, message=message):
            return unknown("build", f"{reason}: {message}", remedy_of(reason))
        case Unauthorized(reason=reason, message=message) | Invalid(reason=reason, message=message):
            return broken("build", f"{reason}: {message}", remedy_of(reason))


def _present(scene: Scene, digest: str) -> Step:
    status = scene.status
    if status is not None and status.reason in _UNTRUSTED:
        return broken("build", f"the registry has it, but {status.message}", remedy_of(status.reason))
    return ok("build", f"the registry has it: {digest}")


def _absent(scene: Scene, item: ImageTarget) -> Step:
    status = scene.status
    if isinstance(item, PrebuiltTarget) or status is None:
        return broken("build", f"{item.image} does not exist", remedy_of(Reason.IMAGE_MISSING))
    if status.state is not TargetState.BUILDING:
        return _not_building(scene, status)
    before = previous_targets(scene.driver.status).get(scene.target.id)
    logs = f"{_logs(scene)} shows its log"
    again = f"; {status.message}" if status.failures else ""
    if before is not None and before.state is TargetState.BUILDING and before.key == item.request.key:
        seconds = scene.snapshot.now - before.since
        late = seconds > scene.settings.recipes.deadline_seconds
        step = f"Longer than a build may take. {controller_hint(scene.driver)}" if late else f"Wait; {logs}"
        return waiting("build", f"the image has been queued or building for {seconds:.0f} s{again}", step)
    if before is not None and before.reason == Reason.BUILDS_SUSPENDED:
        return broken("build", f"no build is started: {before.message}", remedy_of(before.reason))
    if item.request.key in scene.snapshot.running_builds:
        return waiting("build", f"the image is queued or building{again}", f"Wait; {logs}")
    return waiting("build", f"the image is not built yet: its build is next{again}", controller_hint(scene.driver))


def _not_building(scene: Scene, status: TargetStatus) -> Step:
    if status.state is TargetState.NOT_APPLICABLE:
        words = f"the driver says that it does not support this kernel: {status.message}"
    elif status.state is TargetState.BLOCKED:
        words = f"no build is started: {status.message}"
    else:
        words = _failure(status)
    log = f"read its log: {_logs(scene)}" if status.failures else ""
    steps = (remedy_of(status.reason), log, _next_try(scene, status))
    return broken("build", words, "; ".join(step for step in steps if step))


def _logs(scene: Scene) -> str:
    return f"driver-builder logs {scene.driver.name} {scene.target.kernel_version}"


def _failure(status: TargetStatus) -> str:
    tries = f", {status.failures} times" if status.failures > 1 else ""
    return f"the build failed{tries}: {status.reason}: {status.message}"


def _next_try(scene: Scene, status: TargetStatus) -> str:
    """Say when the image of the node's own target is built next, whatever else the controller waits for."""
    if status.reason == Reason.BUILDS_SUSPENDED:
        return ""
    due = next_try(status, scene.settings)
    if due is None:
        return "no build is tried until the spec changes"
    if scene.driver.paused:
        return "no build is tried while the DriverContainer is paused"
    if _is_suspended(scene):
        return f"builds of the driver are suspended: {SUSPENDED_TRIES}"
    return f"the next try is at {timestamp(due)}, in {max(0.0, due - scene.snapshot.now):.0f} s"


def _is_suspended(scene: Scene) -> bool:
    """Tell whether builds are suspended: the queue knows, else the status of another target of the driver."""
    if {"", scene.driver.key} & scene.snapshot.suspended.keys():
        return True
    targets = previous_targets(scene.driver.status).values()
    return any(target.reason == Reason.BUILDS_SUSPENDED for target in targets)
