"""Drivers whose modules a node pool's kernels would refuse, because they are not signed. Pure.

Place in the flow: ``lint`` calls it, if it knows the nodes. A label that an admin or a feature file of the worker sets
says that a node boots with Secure Boot.
"""

from collections.abc import Iterator

from driver_builder.api.driver_spec import DriverSpec
from driver_builder.model.kernels import KernelTarget
from driver_builder.snapshot import inventory
from driver_builder.snapshot.inventory import Node
from driver_builder.targets import resolve_target
from kube_api import names
from kube_api.text import first_few

_SHOWN = 3


def unsigned(spec: DriverSpec, nodes: tuple[Node, ...]) -> Iterator[str]:
    """Return the kernels with Secure Boot for which a driver's modules are not signed, each with nodes that run it."""
    secure = [node for node in nodes if node.labels.get(names.SECURE_BOOT_LABEL) == "true"]
    for target, found in inventory.take(secure, spec.node_selector).targets.items():
        if _is_unsigned(spec, target):
            yield (
                f"modules for {target.kernel_version} are not signed, and {first_few(found, _SHOWN)} with Secure Boot"
                " would refuse them: name key and certificate, and enrol it on the nodes (docs/signing.md)"
            )


def _is_unsigned(spec: DriverSpec, target: KernelTarget) -> bool:
    """Whether modules are built for a target and not signed; False for a prebuilt image, of which it is not known."""
    rule = resolve_target.mapping_for(spec, target.kernel_version)
    if rule is None or rule.skip or rule.image is not None:
        return False
    signing = rule.signing or spec.signing
    return signing is None or signing.key_secret is None
