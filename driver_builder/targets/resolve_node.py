"""What a node would run as it would be: on another kernel, or with other labels. Pure.

``gate``, ``preflight`` and ``prebuild`` resolve kernels that no node runs yet by it, so that all of them mean the same
image.
"""

from dataclasses import replace

from driver_builder.api.driver_container import DriverContainer
from driver_builder.api.driver_spec import DriverSpec
from driver_builder.model.kernels import KernelTarget
from driver_builder.snapshot import inventory
from driver_builder.snapshot.inventory import Node
from driver_builder.snapshot.snapshot import Snapshot
from driver_builder.targets.desired_target import DesiredTarget, TemplateVersions
from driver_builder.targets.resolve import Resolved, resolve, stock_of
from kube_api import names


def resolve_for(
    snapshot: Snapshot, driver: DriverContainer, spec: DriverSpec, target: KernelTarget, versions: TemplateVersions
) -> DesiredTarget | None:
    """Return what a node that the driver selects would run on the target; None if it selects no such node."""
    # No node name contains a slash, so this one is free.
    node = Node(
        name=f"preflight/{driver.key}",
        labels={
            **spec.node_selector,
            names.KERNEL_VERSION_LABEL: names.label_value(target.kernel_version),
            names.OS_ID_LABEL: target.os_id,
            names.OS_VERSION_LABEL: target.os_version,
            names.ARCHITECTURE_LABEL: target.architecture,
        },
        annotations={names.KERNEL_VERSION_ANNOTATION: target.kernel_version},
    )
    items = resolve_node(snapshot, driver, spec, node, versions).targets
    return next((item for item in items if node.name in item.nodes), None)


def resolve_node(
    snapshot: Snapshot, driver: DriverContainer, spec: DriverSpec, node: Node, versions: TemplateVersions
) -> Resolved:
    """Resolve a driver for one node as it would be, in the place of the node of its name.

    Only nodes of the same kernel, operating system and architecture matter to it, and the names of other targets.
    """
    own = inventory.take(snapshot.nodes, spec.node_selector).targets
    target = inventory.target_of(node)
    alike = {
        name
        for known, names_ in own.items()
        if isinstance(target, KernelTarget) and known.group == target.group
        for name in names_
        if name != node.name
    }
    by_name = inventory.by_name(snapshot.nodes)
    beside = (known for known, names_ in stock_of(snapshot, driver, spec).targets.items() if names_ != (node.name,))
    near = replace(snapshot, nodes=(*(by_name[name] for name in sorted(alike)), node))
    return resolve(near, driver, spec, versions, beside=tuple(beside))
