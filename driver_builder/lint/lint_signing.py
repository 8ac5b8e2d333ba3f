"""Drivers whose modules a pool's kernels would refuse, because nobody signs them. Pure.

Place in the flow: ``lint`` asks, where it knows the nodes. That a node boots with Secure Boot is known by a label that
an admin sets, or a feature file of the worker.
"""

from collections.abc import Iterator

from driver_builder.api.driver_spec import DriverSpec
from driver_builder.desired import mapping
from driver_builder.model.kernels import KernelTarget
from driver_builder.observed import inventory
from driver_builder.observed.inventory import Node
from kube_api import names

_SHOWN = 3


def unsigned(spec: DriverSpec, nodes: tuple[Node, ...]) -> Iterator[str]:
    """Name the kernels with Secure Boot for which a driver's modules are not signed, each with nodes that run it."""
    secure = [node for node in nodes if node.labels.get(names.SECURE_BOOT_LABEL) == "true"]
    for target, found in inventory.take(secure, spec.node_selector).targets.items():
        if _is_unsigned(spec, target):
            more = f" and {len(found) - _SHOWN} more" if len(found) > _SHOWN else ""
            shown = ", ".join(found[:_SHOWN])
            yield (
                f"modules for {target.kernel_version} are not signed, and {shown}{more} with Secure Boot would refuse "
                "them: name key and certificate, and enrol it on the nodes (docs/signing.md)"
            )


def _is_unsigned(spec: DriverSpec, target: KernelTarget) -> bool:
    """Whether modules are built for a target and not signed; of a prebuilt image nobody knows."""
    rule = mapping.mapping_for(spec, target.kernel_version)
    if rule is None or rule.skip or rule.image is not None:
        return False
    signing = rule.signing or spec.signing
    return signing is None or signing.key_secret is None
