"""What each target of a driver should run, in the cluster as it is or as it would be. Pure.

Place in the flow: a reconcile resolves each driver once, the registries are asked for the resulting images, and
``plan`` acts on them. ``gate``, ``preflight`` and ``prebuild`` resolve kernels that no node runs yet, so that
all of them mean the same image.
"""

from collections.abc import Iterable, Iterator, Mapping
from dataclasses import dataclass, replace
from functools import partial

from driver_builder.api.driver_container import DriverContainer
from driver_builder.api.driver_spec import DriverSpec
from driver_builder.boundary import contained
from driver_builder.desired import permissions, targets
from driver_builder.desired.desired_target import BlockedTarget, DesiredTarget, ImageTarget, TemplateVersions
from driver_builder.desired.resolve_target import BuildInputs, blocked_target, resolve_target
from driver_builder.model.build import OwnTemplate
from driver_builder.model.kernels import KernelTarget
from driver_builder.observed import inventory, rebuild
from driver_builder.observed.by_driver import of_driver
from driver_builder.observed.inventory import Inventory, Node
from driver_builder.observed.rebuild import Rebuilds
from driver_builder.observed.share import share_of
from driver_builder.observed.snapshot import Snapshot, SourceMissing
from driver_builder.reasons import Reason
from kube_api import names


@dataclass(frozen=True, slots=True, kw_only=True)
class Resolved:
    """What the targets of a driver should run, which nodes have which target, and its rebuilds.

    ``alternatives`` are images that are wanted instead if they exist.
    """

    targets: tuple[DesiredTarget, ...]
    inventory: Inventory
    rebuilds: Rebuilds
    alternatives: tuple[ImageTarget, ...] = ()

    @property
    def images(self) -> tuple[ImageTarget, ...]:
        """The targets whose images the registries are asked for, each image once."""
        every = (*self.targets, *self.alternatives)
        return tuple({item.image: item for item in every if isinstance(item, ImageTarget)}.values())

    def holds(self, snapshot: Snapshot, driver: DriverContainer) -> bool:
        """Return whether the images known now change nothing: each was built for what is wanted anyway."""
        homes = {_kernel(item.target): item.target for item in self.targets}
        return all(homes.get(_kernel(found), found) == found for found in targets.of_images(snapshot, driver))


def _kernel(target: KernelTarget) -> tuple[str, str, str]:
    """Return the target without the version of its operating system."""
    return target.kernel_version, target.os_id, target.architecture


class ResolveMemory:
    """What drivers were resolved to the last time: those whose inputs are the same are not resolved anew."""

    def __init__(self) -> None:
        self._known: dict[str, tuple[tuple[object, ...], Resolved]] = {}

    def resolve(
        self, share: Snapshot, driver: DriverContainer, spec: DriverSpec, versions: TemplateVersions
    ) -> Resolved:
        """Resolve a driver from its share of a snapshot."""
        inputs = (driver, versions, share.drivers, share.nodes, share.daemon_sets, share.images, share.sources,
                  share.templates, share.certificates)  # fmt: skip
        known = self._known.pop(driver.key, None)
        if known is not None and known[0] == inputs:
            self._known[driver.key] = known
            return known[1]
        resolved = resolve(share, driver, spec, versions)
        # A request that is new takes pods and the time into account.
        if resolved.rebuilds == rebuild.from_status(driver.status.get("rebuild")):
            self._known[driver.key] = (inputs, resolved)
        return resolved

    def forget_others(self, drivers: Iterable[str]) -> None:
        """Forget the drivers that are gone."""
        for driver in self._known.keys() - set(drivers):
            del self._known[driver]


def resolve_all(
    snapshot: Snapshot, versions: TemplateVersions, memory: ResolveMemory | None = None
) -> Mapping[str, Resolved]:
    """Resolve the drivers of a snapshot, by their keys; a driver that fails is left out."""
    memory = ResolveMemory() if memory is None else memory
    found = {
        driver.key: contained(
            "driver", driver.key, partial(_resolve_readable, snapshot, driver, versions, memory), lambda _error: None
        )
        for driver in snapshot.drivers
    }
    memory.forget_others(found)
    return {key: resolved for key, resolved in found.items() if resolved is not None}


def _resolve_readable(
    snapshot: Snapshot, driver: DriverContainer, versions: TemplateVersions, memory: ResolveMemory
) -> Resolved | None:
    if not isinstance(driver.spec, DriverSpec) or driver.deleting or driver.namespace in snapshot.forbidden:
        return None
    return memory.resolve(share_of(snapshot, driver), driver, driver.spec, versions)


def resolve(
    snapshot: Snapshot,
    driver: DriverContainer,
    spec: DriverSpec,
    versions: TemplateVersions,
    *,
    beside: tuple[KernelTarget, ...] = (),
) -> Resolved:
    """Resolve one driver; ``beside`` are targets of nodes that are left out of the snapshot."""
    stock = targets.stock_of(snapshot, driver, spec)
    rebuilds = rebuild.acknowledge(
        rebuild.from_status(driver.status.get("rebuild")),
        driver=driver.rebuild,
        targets=stock.targets,
        nodes=snapshot.nodes,
        pods=partial(_uids, snapshot, driver),
        now=snapshot.now,
    )
    inputs = _inputs(snapshot, driver, spec, versions, rebuilds)
    others = (item for other in targets.unrecorded(snapshot, driver, spec) for item in resolve_each(inputs, other))
    return Resolved(
        targets=_without_namesakes(tuple(resolve_each(inputs, stock)), snapshot, driver, beside),
        inventory=stock,
        rebuilds=rebuilds,
        alternatives=tuple(item for item in others if isinstance(item, ImageTarget)),
    )


def _uids(snapshot: Snapshot, driver: DriverContainer) -> Mapping[str, str]:
    return {pod.node: pod.uid for pod in of_driver(snapshot.pods, driver.key) if not pod.deleting}


def _inputs(
    snapshot: Snapshot, driver: DriverContainer, spec: DriverSpec, versions: TemplateVersions, rebuilds: Rebuilds
) -> BuildInputs:
    template: OwnTemplate | SourceMissing | None = None
    if spec.build.template_config_map is not None:
        template = snapshot.templates.get(driver.key, SourceMissing(message="the template has not been read yet"))
    return BuildInputs(
        driver=driver,
        spec=spec,
        source=snapshot.sources.get(driver.key, SourceMissing(message="the source has not been read yet")),
        template=template,
        rebuilds=rebuilds,
        known_templates=versions,
        certificates=snapshot.certificates,
        protected_secrets=permissions.protected_secrets(
            driver.key, spec, lambda: permissions.specs_of(snapshot.drivers), versions.permissions
        ),
    )


def resolve_each(inputs: BuildInputs, stock: Inventory) -> Iterator[DesiredTarget]:
    """Resolve the targets of an inventory, one by one."""
    for target, nodes in stock.targets.items():
        yield resolve_target(inputs, target, nodes, selects_os_version=target in stock.divided)


def _without_namesakes(
    items: tuple[DesiredTarget, ...],
    snapshot: Snapshot,
    driver: DriverContainer,
    beside: tuple[KernelTarget, ...],
) -> tuple[DesiredTarget, ...]:
    """Block targets whose short hash is that of another one: they would share its DaemonSet.

    The target that the DaemonSet was made for keeps it, otherwise the first in order.
    """
    made_for = {item.target: item.kernel for item in snapshot.daemon_sets if item.driver == driver.key}
    owners: dict[str, KernelTarget] = {}
    for target in sorted({*beside, *(item.target for item in items)}):
        known = owners.setdefault(target.short_hash, target)
        if made_for.get(target.short_hash) == target.kernel_version != known.kernel_version:
            owners[target.short_hash] = target
    return tuple(
        item if owners[item.target.short_hash] == item.target else _refused(item, owners[item.target.short_hash])
        for item in items
    )


def _refused(item: DesiredTarget, owner: KernelTarget) -> BlockedTarget:
    message = (
        f"the names of its objects end in {item.target.short_hash}, like those of {owner.id}: nothing is rolled out "
        "to its nodes"
    )
    return blocked_target(item.target, item.nodes, Reason.TARGET_NAME_TAKEN, message)


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
        if isinstance(target, KernelTarget) and _kernel(known) == _kernel(target)
        for name in names_
        if name != node.name
    }
    by_name = inventory.by_name(snapshot.nodes)
    beside = (
        known for known, names_ in targets.stock_of(snapshot, driver, spec).targets.items() if names_ != (node.name,)
    )
    near = replace(snapshot, nodes=(*(by_name[name] for name in sorted(alike)), node))
    return resolve(near, driver, spec, versions, beside=tuple(beside))
