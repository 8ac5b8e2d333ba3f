"""Operating systems of nodes for which a driver names no further packages, while it does for others. Pure.

Place in the flow: ``lint`` calls it, if it knows the nodes.
"""

from collections.abc import Iterator

from driver_builder.api.driver_spec import DriverSpec
from driver_builder.model.kernels import KernelTarget
from driver_builder.snapshot import inventory
from driver_builder.snapshot.inventory import Node
from driver_builder.targets import resolve_target


def without_packages(spec: DriverSpec, nodes: tuple[Node, ...]) -> Iterator[str]:
    """Return the operating systems that a driver is built for without packages."""
    if not spec.build.packages:
        return
    built = (target for target in inventory.take(nodes, spec.node_selector).targets if _is_built(spec, target))
    for system in sorted({target.os_id for target in built} - spec.build.packages.keys()):
        yield f"nodes run {system}, for which it names none: add {system}: [NAME], or {system}: [] if none is needed"


def _is_built(spec: DriverSpec, target: KernelTarget) -> bool:
    rule = resolve_target.mapping_for(spec, target.kernel_version)
    return rule is not None and not rule.skip and rule.image is None
