"""The links from a driver to its image in the registry: selector, kernel, mapping, image, build. Pure."""

from difflib import get_close_matches

from driver_builder.explain.explain_driver import BUG, controller_hint
from driver_builder.explain.explanation import Scene, Step, broken, ok, unknown, waiting
from driver_builder.model.image_state import Absent, Invalid, NotAsked, Present, Unauthorised, Unreachable
from driver_builder.model.kernels import KernelTarget
from driver_builder.planning import mapping
from driver_builder.planning.desired import Unwanted, Wanted
from driver_builder.planning.inventory import Node, target_of
from driver_builder.planning.status import Reason, TargetState, TargetStatus, previous_targets
from driver_builder.spec.driver_spec import DriverSpec

_ADVICE = {
    "HeadersMissing": "move the node to a kernel whose headers are published, or add an archive that still has them to "
    "spec.build.baseImage",
    "CompileError": "use a version of the driver that supports this kernel, or mend its source: a change is built at "
    "once",
    "PackageRepositoryUnavailable": "check network, proxy and name service of the build engine",
    "BaseImageMissing": "check spec.build.baseImage and the credentials for its registry",
    "DiskFull": "prune the build engine, or give it more room",
    "OutOfMemory": "give the build engine more memory",
    "DeadlineExceeded": "give the build engine more processors, or raise --build-deadline-seconds",
    "BuilderUnavailable": "check that the build engine runs and that the controller reaches it (--docker-host)",
    "SourceMissing": "make the source, or the template of spec.build.templateConfigMap: the message says which",
    "TemplateInvalid": "mend the template at the line that is named; docs/templates.md says what it is given",
    "TagMoved": "find out who moved the tag; the message says how to accept it",
    "WrongBuildKey": "remove the tag from the registry: the image is built anew",
    "ImageNotSigned": "sign the image, or build it anew (docs/signing.md)",
    "NoIdentity": "label the image, or set spec.module.trustImage (docs/registry.md)",
    "RegistryInvalid": "check spec.image, spec.registry.plainHttp and spec.registry.caConfigMap",
    "SigningCertificateMissing": "make the Secret (docs/signing.md)",
    "InvalidSigningCertificate": "put a certificate into the Secret (docs/signing.md)",
    "SigningFailed": "mend the Secret that the message names (docs/signing.md)",
    "UnsupportedOS": "name spec.build.template and spec.build.baseImage",
    "InvalidSpec": "mend the field",
    "RegistryUnauthorized": "mend the Secret of spec.registry.secretRef: it must let the controller push",
    "RegistryUnreachable": "check that the controller reaches the registry",
    "RegistryFull": "remove images that no node needs, or give the registry's disk or the project's quota more room",
    "RegistryRejected": "see what the registry says: a limit of size or a rule of its own",
    "InternalError": BUG,
    "CompilerMismatch": "give a base image with that compiler in spec.build.baseImage",
}
"""What to do about a reason of a target, where the message does not say it already."""

_UNTRUSTED = frozenset({Reason.TAG_MOVED, Reason.WRONG_BUILD_KEY, Reason.IMAGE_NOT_SIGNED, Reason.NO_IDENTITY})


def selector_link(spec: DriverSpec, node: Node) -> Step:
    """Compare the driver's selector with the node's labels, key by key."""
    wrong = {key: value for key, value in spec.node_selector.items() if node.labels.get(key) != value}
    if wrong:
        words = "; ".join(_difference(node, key, value) for key, value in sorted(wrong.items()))
        labels = " ".join(f"{key}={value}" for key, value in sorted(wrong.items()))
        mend = f"kubectl label node {node.name} --overwrite {labels} (or change spec.nodeSelector)"
        return broken("selector", f"spec.nodeSelector does not pick the node: {words}", mend)
    if not spec.node_selector:
        return ok("selector", "spec.nodeSelector is empty: every node is picked")
    labels = ", ".join(f"{key}={value}" for key, value in sorted(spec.node_selector.items()))
    return ok("selector", f"the node has {labels}")


def _difference(node: Node, key: str, wanted: str) -> str:
    if key in node.labels:
        return f"label {key} is {node.labels[key]!r}, wanted is {wanted!r}"
    close = get_close_matches(key, sorted(node.labels), n=1, cutoff=0.8)
    hint = f" (there is {close[0]}={node.labels[close[0]]})" if close else ""
    return f"label {key} is missing{hint}, wanted is {wanted!r}"


def kernel_link(node: Node) -> Step:
    """Say which target the node's labels name."""
    target = target_of(node)
    if isinstance(target, KernelTarget):
        return ok("kernel", f"the node runs {target.kernel_version} on {target.os}, {target.architecture}")
    return broken(
        "kernel",
        target,
        f"see the nfd-worker pod of the node: kubectl get pods -A -o wide --field-selector spec.nodeName={node.name}",
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
            "add a rule that matches the whole kernel release, the first that does wins; or take all rules away",
        )
    if not spec.mappings:
        return ok("mapping", "there are no spec.kernelMappings: every kernel is wanted")
    number = next(index for index, item in enumerate(spec.mappings) if item is rule)
    where = f"spec.kernelMappings[{number}] ({rule.pattern.pattern})"
    if rule.skip:
        mend = f"where a driver is meant to be: take skip away, or put a rule for {kernel} before it"
        return broken("mapping", f"{where} skips this kernel", mend)
    return ok("mapping", f"{where} matches")


def image_link(item: Wanted | Unwanted) -> Step:
    """Say which image the target should run."""
    if isinstance(item, Unwanted):
        advice = _ADVICE.get(item.reason, "see docs/drivercontainer.md")
        return broken("image", f"{item.reason}: {item.message}", advice)
    if item.request is None:
        return ok("image", f"prebuilt: {item.image}")
    own = item.request.own_template
    how = f"template {own.place if own else item.request.template} in {item.request.base_image}"
    return ok("image", f"{item.image}, built by {how}")


def build_link(scene: Scene, item: Wanted) -> Step:
    """Say whether the image is in its registry, and if not, how its build is."""
    match scene.snapshot.image(scene.driver.key, item.image):
        case Present(digest=digest):
            return _present(scene, digest)
        case Absent():
            return _absent(scene, item)
        case Unauthorised(message=message):
            return broken("build", f"the registry does not let us look: {message}", _ADVICE["RegistryUnauthorized"])
        case NotAsked():
            return unknown("build", f"the registry {item.image.host} has not been asked yet", "ask again in a moment")
        case Unreachable(message=message):
            return unknown("build", f"the registry gave no answer: {message}", _ADVICE["RegistryUnreachable"])
        case Invalid(message=message):
            mend = "check spec.image and spec.registry.plainHttp"
            return broken("build", f"the registry's answer makes no sense: {message}", mend)


def _present(scene: Scene, digest: str) -> Step:
    status = scene.status
    if status is not None and status.reason in _UNTRUSTED:
        return broken("build", f"the registry has it, but {status.message}", _ADVICE[status.reason])
    return ok("build", f"the registry has it: {digest}")


def _absent(scene: Scene, item: Wanted) -> Step:
    status = scene.status
    if item.request is None or status is None:
        mend = f"push {item.image}, or let driver-builder build: take image out of the mapping"
        return broken("build", f"{item.image} does not exist", mend)
    if status.state is not TargetState.BUILDING:
        return _not_building(scene, status)
    before = previous_targets(scene.driver.status).get(scene.target.id)
    logs = f"driver-builder logs {scene.driver.name} {scene.target.kernel_version}"
    again = f"; {status.message}" if status.failures else ""
    if before is not None and before.state is TargetState.BUILDING and before.key == item.request.key:
        seconds = scene.snapshot.now - before.since
        late = seconds > scene.settings.recipes.deadline_seconds
        mend = "longer than a build may take: " + controller_hint(scene.driver) if late else f"wait, or read {logs}"
        return waiting("build", f"is being built, for {seconds:.0f} s now{again}", mend)
    if before is not None and before.reason == Reason.BUILDS_SUSPENDED:
        return broken("build", f"no build is started: {before.message}", "mend what all builds fail of; one tries it")
    if item.request.key in scene.snapshot.running_builds:
        return waiting("build", f"is queued or being built{again}", f"wait, or read {logs}")
    return waiting("build", f"the image is not built yet: that is next{again}", controller_hint(scene.driver))


def _not_building(scene: Scene, status: TargetStatus) -> Step:
    if status.state is TargetState.NOT_APPLICABLE:
        mend = "nothing, if that is meant; else a version of the driver that supports this kernel"
        return broken("build", f"the driver says that it is not for this kernel: {status.message}", mend)
    return broken("build", _failure(status), _after_failure(scene, status))


def _failure(status: TargetStatus) -> str:
    tries = f", {status.failures} times" if status.failures > 1 else ""
    return f"the build failed{tries}: {status.reason}: {status.message}"


def _after_failure(scene: Scene, status: TargetStatus) -> str:
    log = f"read driver-builder logs {scene.driver.name} {scene.target.kernel_version}"
    advice = _ADVICE.get(status.reason, "")
    again = scene.decided.requeue_at
    when = f"it is tried again in {again - scene.snapshot.now:.0f} s" if again is not None else ""
    return "; ".join(words for words in (advice, log, when) if words)
