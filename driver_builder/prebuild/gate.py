"""May this node boot that kernel? Yes, if every driver that it should have has a verified image for it. Pure.

Asked before a reboot, by an admin, kured or system-upgrade-controller (``docs/commands.md``). The answer is for the
cluster as it would be: the node on its new kernel, and the images that it would then want. Unknown means no.
"""

from collections.abc import Mapping
from dataclasses import dataclass, replace

from driver_builder.api.driver_container import DriverContainer
from driver_builder.api.driver_spec import DriverSpec
from driver_builder.api.prebuild_status import previous_ahead
from driver_builder.api.status import previous_targets
from driver_builder.base.boundary import contained
from driver_builder.base.check_result import CheckResult, failed, ok
from driver_builder.base.errors import ConfigurationError
from driver_builder.base.reasons import Reason, TargetState, with_remedy
from driver_builder.model.image_state import Absent, Invalid, NotAsked, Present, Unauthorized, Unreachable
from driver_builder.model.kernels import is_kernel_version
from driver_builder.rollout import image_trust
from driver_builder.snapshot import inventory
from driver_builder.snapshot.inventory import Node
from driver_builder.snapshot.node_record import record_of
from driver_builder.snapshot.snapshot import Snapshot
from driver_builder.targets.desired_target import (
    BlockedTarget,
    ImageTarget,
    PrebuiltTarget,
    SkippedTarget,
    TemplateVersions,
)
from driver_builder.targets.resolve_node import resolve_node
from kube_api import names


@dataclass(frozen=True, slots=True, kw_only=True)
class Gate:
    """The answer for a node and a kernel: open if the check of each driver lets it move."""

    node: str
    kernel: str
    findings: tuple[CheckResult, ...]

    @property
    def is_open(self) -> bool:
        """Whether the node may move."""
        return all(finding.is_ok for finding in self.findings)

    @property
    def sentence(self) -> str:
        """The whole answer in one line."""
        against = [finding.check for finding in self.findings if not finding.is_ok]
        if against:
            return f"{self.node} must not move to {self.kernel}: {', '.join(against)}"
        if not self.findings:
            return f"{self.node} may move to {self.kernel}: no driver is wanted on it"
        return f"{self.node} may move to {self.kernel}"

    def as_document(self) -> Mapping[str, object]:
        """Return plain data, for programs."""
        findings = [{"driver": item.check, "open": item.is_ok, "sentence": item.message} for item in self.findings]
        return {"node": self.node, "kernel": self.kernel, "open": self.is_open, "findings": findings}


def with_kernel(snapshot: Snapshot, node: str, kernel: str) -> Snapshot:
    """Return the cluster as it would be with the node on another kernel; its images have to be inspected again.

    Raises:
        ConfigurationError: when ``kernel`` is not a kernel release.
    """
    if not is_kernel_version(kernel):
        raise ConfigurationError(f"KERNEL: {kernel!r} is not a kernel release: write the output of uname -r")
    nodes = tuple(moved(item, kernel) if item.name == node else item for item in snapshot.nodes)
    return replace(snapshot, nodes=nodes)


def moved(node: Node, kernel: str) -> Node:
    """Return a node as it would be on another kernel."""
    labels = {**node.labels, names.KERNEL_VERSION_LABEL: names.label_value(kernel)}
    return replace(node, labels=labels, annotations={**node.annotations, names.KERNEL_VERSION_ANNOTATION: kernel})


def gate(snapshot: Snapshot, node: str, kernel: str, versions: TemplateVersions) -> Gate:
    """Judge a move; ``snapshot`` holds the states of the images that :func:`with_kernel` makes the node want."""
    known = inventory.by_name(snapshot.nodes).get(node)
    drivers = sorted(snapshot.drivers, key=lambda driver: driver.key) if known is not None else []
    findings = [
        _find_alone(snapshot, moved(known, kernel), driver, versions)
        for driver in drivers
        if known is not None and not driver.deleting
    ]
    findings += [
        failed(f"{namespace}/*", f"whether its drivers select the node is not known: {words}")
        for namespace, words in sorted(snapshot.forbidden.items())
    ]
    return Gate(node=node, kernel=kernel, findings=tuple(finding for finding in findings if finding is not None))


def _find_alone(
    snapshot: Snapshot, node: Node, driver: DriverContainer, versions: TemplateVersions
) -> CheckResult | None:
    """Check one driver; an error of it concerns it alone and means no."""
    return contained(
        "driver",
        driver.key,
        lambda: _find(snapshot, node, driver, versions),
        lambda error: failed(driver.key, str(error)),
    )


def _find(snapshot: Snapshot, node: Node, driver: DriverContainer, versions: TemplateVersions) -> CheckResult | None:
    """Check one driver; None if it does not select the node."""
    if not isinstance(driver.spec, DriverSpec):
        return failed(driver.key, _reasoned(Reason.INVALID_SPEC, f"its spec is invalid: {driver.spec}"))
    resolved = resolve_node(snapshot, driver, driver.spec, node, versions)
    if (why := resolved.inventory.unknown.get(node.name)) is not None:
        return failed(driver.key, _reasoned(Reason.KERNEL_MISMATCH, why))
    item = next((item for item in resolved.targets if node.name in item.nodes), None)
    if item is None:
        return None
    if isinstance(item, ImageTarget):
        is_open, sentence = _by_image(snapshot, driver, driver.spec, item)
    else:
        is_open, sentence = _without_image(item, is_there=may_be_on(node, driver))
    return ok(driver.key, sentence) if is_open else failed(driver.key, sentence)


def may_be_on(node: Node, driver: DriverContainer) -> bool:
    """Return whether a node has a driver now, by its ready label or by the record of what is loaded."""
    return record_of(node, driver.key).may_be_loaded


def _without_image(item: SkippedTarget | BlockedTarget, *, is_there: bool) -> tuple[bool, str]:
    """A kernel that the spec explicitly skips needs no driver; one without a mapping does.

    A driver that is not allowed takes nothing from a node that does not have it: its author holds up no update.
    """
    if item.reason == Reason.SKIPPED_BY_MAPPING:
        return True, f"not wanted on this kernel: {item.message}"
    if item.reason == Reason.NOT_ALLOWED and not is_there:
        return True, f"not allowed, and not on this node: {item.message}"
    if item.reason == Reason.NOT_ALLOWED:
        return False, _reasoned(item.reason, f"the node has it and would lose it: {item.message}")
    return False, _reasoned(item.reason, item.message)


def _by_image(snapshot: Snapshot, driver: DriverContainer, spec: DriverSpec, item: ImageTarget) -> tuple[bool, str]:
    match snapshot.image(driver.key, item.image):
        case Present() as state:
            return _present(snapshot, driver, spec, item, state)
        case Absent():
            return False, _absent(driver, item)
        case NotAsked(reason=reason):
            return False, _reasoned(reason, f"the registry {item.image.host} has not answered yet")
        case (
            Unauthorized(reason=reason, message=message)
            | Unreachable(reason=reason, message=message)
            | Invalid(reason=reason, message=message)
        ):
            return False, _reasoned(reason, message)


def _present(
    snapshot: Snapshot, driver: DriverContainer, spec: DriverSpec, item: ImageTarget, state: Present
) -> tuple[bool, str]:
    before = previous_targets(driver.status).get(item.target.id)
    refusal = image_trust.refusal(snapshot, driver, spec, item, state, before=before)
    if refusal is not None:
        return False, _reasoned(refusal.reason, refusal.message)
    how = "prebuilt" if isinstance(item, PrebuiltTarget) else "built and verified"
    return True, f"{how}: {item.image.at(state.digest)}"


def _absent(driver: DriverContainer, item: ImageTarget) -> str:
    if isinstance(item, PrebuiltTarget):
        return _reasoned(Reason.IMAGE_MISSING, f"{item.image} does not exist")
    ahead = {entry.target.target: entry.target for entry in previous_ahead(driver.status).values()}
    known = {**ahead, **previous_targets(driver.status)}.get(item.target.id)
    if known is not None and known.key == item.request.key and known.state is not TargetState.READY:
        return f"{known.state}, {_reasoned(known.reason, known.message)}"
    command = f"driver-builder preflight --kernel {item.target.kernel_version} --os {item.target.os} --push"
    return f"there is no image for this kernel yet; build it with {command} {driver.name}"


def _reasoned(reason: str, message: str) -> str:
    return f"{reason}: {with_remedy(reason, message)}"
