"""What goes wrong with a spec on its nodes, for all that it is valid. Pure.

Place in the flow: ``lint`` calls it. Without ``nodes`` nothing is known of kernels and operating systems.
"""

from collections.abc import Iterator

from driver_builder.api.driver_spec import DriverSpec
from driver_builder.base.check_result import Remark, Status
from driver_builder.builds.templates.template_engine import TemplateInvalid, mentioned
from driver_builder.model.kernels import KernelTarget
from driver_builder.model.userspace import NVIDIA_PATH
from driver_builder.snapshot import inventory
from driver_builder.snapshot.inventory import Node
from driver_builder.targets import resolve_target
from kube_api import names
from kube_api.text import first_few

_DEVICES = "/dev/nvidia"
_SHOWN = 3


def unsigned(spec: DriverSpec, nodes: tuple[Node, ...]) -> Iterator[Remark]:
    """Find the kernels with Secure Boot for which a driver's modules are not signed, each with nodes that run it.

    A label that an admin or a feature file of the worker sets says that a node boots with Secure Boot.
    """
    secure = [node for node in nodes if node.labels.get(names.SECURE_BOOT_LABEL) == "true"]
    for target, found in inventory.take(secure, spec.node_selector).targets.items():
        rule = resolve_target.mapping_for(spec, target.kernel_version)
        signing = (rule.signing if rule is not None else None) or spec.signing
        if _is_built(spec, target) and (signing is None or signing.key_secret is None):
            yield Remark(
                ("spec", "signing"),
                f"modules for {target.kernel_version} are not signed, and {first_few(found, _SHOWN)} with Secure Boot"
                " would refuse them: name key and certificate, and enrol it on the nodes (docs/signing.md)",
            )


def without_packages(spec: DriverSpec, nodes: tuple[Node, ...]) -> Iterator[Remark]:
    """Find the operating systems that a driver is built for without packages, while it names some for others."""
    if not spec.build.packages:
        return
    built = (target for target in inventory.take(nodes, spec.node_selector).targets if _is_built(spec, target))
    for system in sorted({target.os_id for target in built} - spec.build.packages.keys()):
        words = f"nodes run {system}, for which it names none: add {system}: [NAME], or {system}: [] if none is needed"
        yield Remark(("spec", "build", "packages"), words)


def _is_built(spec: DriverSpec, target: KernelTarget) -> bool:
    """Whether modules are built for a target; of a prebuilt image nothing is known."""
    rule = resolve_target.mapping_for(spec, target.kernel_version)
    return rule is not None and not rule.skip and rule.image is None


def without_devices(spec: DriverSpec) -> Iterator[Remark]:
    """Find what keeps NVIDIA's plugin from its devices."""
    if spec.device_plugin is None or spec.device_plugin.nvidia is None:
        return
    if early := [path for path in spec.validation.device_nodes if path.startswith(_DEVICES)]:
        words = f"stages.devicePlugin.nvidia makes {first_few(early, _SHOWN)} after the validation that waits for them"
        yield Remark(("spec", "validation", "deviceNodes"), f"{words}: remove them, and use stages.pluginValidation")
    if spec.userspace is not None and spec.userspace.host_path is None:
        words = f"stages.devicePlugin.nvidia looks for the driver's library below {NVIDIA_PATH}"
        yield Remark(("spec", "userspace", "hostPath"), f"{words}: set it to that, or no device is found")


def without_drain(spec: DriverSpec) -> Iterator[Remark]:
    """Find a DRA driver without a drain: where it leaves a node, no pod with a claim ends."""
    dra = spec.device_plugin.dra if spec.device_plugin is not None else None
    if dra is not None and spec.rollout.drain is None:
        words = "is not set, and without the DRA driver the kubelet ends no pod with a ResourceClaim"
        yield Remark(
            ("spec", "rollout", "drain"), f"{words}: write draDrivers: [{dra.driver}], so that these leave first"
        )


def without_tools_image(spec: DriverSpec, template: str | None) -> Iterator[Remark]:
    """Find a custom template that leaves out ``build.toolsImage``; one that is not known, or does not parse, has none.

    What else a template leaves out ends the build; this changes nothing in an image, and so does not.
    """
    place = spec.build.template_config_map
    if place is None or template is None or not spec.build.tools_image:
        return
    try:
        found = mentioned(template)
    except TemplateInvalid:
        # The build says so, with the line.
        return
    if "tools_image" not in found:
        words = f"has no effect: the template in ConfigMap {place.name} does not mention tools_image"
        yield Remark(("spec", "build", "toolsImage"), words, Status.FAILED)
