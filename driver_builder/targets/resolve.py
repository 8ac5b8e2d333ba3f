"""What each target of a driver should run, in the cluster as it is. Pure.

Place in the flow: a reconcile resolves each driver once (``resolve_all``), the registries are asked for the resulting
images, and ``plan`` acts on them. For a node as it would be there is ``resolve_node``.

A target is a kernel, operating system and architecture. The version of the operating system is not what divides nodes:
it may change while its kernel runs (a minor update without a reboot), and nothing on the node changes then. A target
keeps its recorded version: that of its DaemonSet, else that of an existing image, else the version that most of its
nodes have. The version is an input of the build and part of the target's short hash, so every target comes from here,
also for kernels that no node runs yet.
"""

import re
from collections import Counter
from collections.abc import Iterable, Iterator, Mapping
from dataclasses import dataclass
from functools import partial

from driver_builder.api import rebuild_status
from driver_builder.api.driver_container import DriverContainer
from driver_builder.api.driver_spec import DriverSpec
from driver_builder.api.prebuild_status import previous_ahead
from driver_builder.api.rebuild_status import Rebuilds
from driver_builder.api.status import Json, TargetStatus, previous_targets
from driver_builder.base.memo import remembers_last
from driver_builder.base.reasons import Reason
from driver_builder.model import images
from driver_builder.model.build import OwnTemplate
from driver_builder.model.driver_key import DriverKey
from driver_builder.model.image_state import Present
from driver_builder.model.kernels import KernelTarget, parse_target
from driver_builder.snapshot import inventory, rebuild
from driver_builder.snapshot.by_driver import pods_of
from driver_builder.snapshot.inventory import Inventory
from driver_builder.snapshot.snapshot import DaemonSet, Snapshot, SourceMissing
from driver_builder.targets import permissions
from driver_builder.targets.dependencies import NONE, dependencies
from driver_builder.targets.desired_target import BlockedTarget, DesiredTarget, ImageTarget, TemplateVersions
from driver_builder.targets.resolve_target import BuildInputs, First, blocked_target, resolve_target

Versions = Mapping[KernelTarget, tuple[str, ...]]
"""The nodes of one kernel, operating system and architecture, by the target that their own labels name."""


@dataclass(frozen=True, slots=True, kw_only=True)
class Resolved:
    """What the targets of a driver should run, which nodes have which target, and its rebuilds.

    ``images`` are the targets whose images the registries are asked for, each image once: those of the targets, and
    those that are wanted instead if they exist.
    """

    targets: tuple[DesiredTarget, ...]
    inventory: Inventory
    rebuilds: Rebuilds
    images: tuple[ImageTarget, ...]

    def holds(self, snapshot: Snapshot, driver: DriverContainer) -> bool:
        """Return whether the images known now change nothing: each was built for what is wanted anyway."""
        homes = {item.target.group: item.target for item in self.targets}
        return all(homes.get(found.group, found) == found for found in _of_images(snapshot, driver))


def resolve(
    snapshot: Snapshot,
    driver: DriverContainer,
    spec: DriverSpec,
    versions: TemplateVersions,
    *,
    beside: tuple[KernelTarget, ...] = (),
) -> Resolved:
    """Resolve one driver; ``beside`` are targets of nodes that are left out of the snapshot."""
    stock = stock_of(snapshot, driver, spec)
    rebuilds = rebuild.acknowledge(
        rebuild_status.from_status(driver.status.get("rebuild")),
        driver=driver.rebuild,
        targets=stock.targets,
        nodes=snapshot.nodes,
        pods=partial(_uids, snapshot, driver),
        now=snapshot.now,
    )
    inputs = _inputs(snapshot, driver, spec, versions, rebuilds)
    others = (item for other in _unrecorded(snapshot, driver, spec) for item in resolve_each(inputs, other))
    targets = _without_namesakes(tuple(resolve_each(inputs, stock)), snapshot, driver, beside)
    by_image = {item.image: item for item in (*targets, *others) if isinstance(item, ImageTarget)}
    return Resolved(targets=targets, inventory=stock, rebuilds=rebuilds, images=tuple(by_image.values()))


def _uids(snapshot: Snapshot, driver: DriverContainer) -> Mapping[str, str]:
    return {pod.node: pod.uid for pod in pods_of(snapshot.pods, driver.key) if not pod.deleting}


def _inputs(
    snapshot: Snapshot, driver: DriverContainer, spec: DriverSpec, versions: TemplateVersions, rebuilds: Rebuilds
) -> BuildInputs:
    template: OwnTemplate | SourceMissing | None = None
    if spec.build.template_config_map is not None:
        template = snapshot.templates.get(driver.key, SourceMissing(message="the template has not been read yet"))
    found = dependencies(snapshot.drivers).get(driver.key, NONE) if spec.depends_on else NONE
    return BuildInputs(
        driver=driver,
        spec=spec,
        source=snapshot.sources.get(driver.key, SourceMissing(message="the source has not been read yet")),
        template=template,
        rebuilds=rebuilds,
        known_templates=versions,
        certificates=snapshot.certificates,
        obstacle=found.obstacle,
        first=() if found.obstacle else tuple(_first(snapshot, key, versions) for key, _ in found.first),
        protected_secrets=permissions.protected_secrets(
            driver.key, spec, lambda: permissions.specs_of(snapshot.drivers), versions.permissions
        ),
    )


def _first(snapshot: Snapshot, key: DriverKey, versions: TemplateVersions) -> First:
    """Resolve a driver that another one depends on. It is not in a cycle with that one, and may be in another cycle."""
    driver = next(item for item in snapshot.drivers if item.key == key)
    if not isinstance(driver.spec, DriverSpec):
        raise driver.spec
    found = resolve(snapshot, driver, driver.spec, versions).targets
    return First(driver=key, registry=driver.spec.registry, targets={item.target.group: item for item in found})


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


@dataclass(frozen=True, slots=True)
class _Records:
    """What is recorded of a driver's targets: its DaemonSets, and targets with images, the most reliable first."""

    daemon_sets: tuple[DaemonSet, ...]
    built: tuple[tuple[KernelTarget, ...], ...]

    def in_daemon_sets(self, example: KernelTarget) -> tuple[KernelTarget, ...]:
        """Return the targets of DaemonSets for the example's kernel, operating system and architecture."""
        named = (
            (parse_target(example.kernel_version, f"{example.os_id}:{item.os_version}", example.architecture), item)
            for item in self.daemon_sets
            if item.kernel == example.kernel_version and item.os_version is not None
        )
        found = {target for target, item in named if target is not None and target.short_hash == item.target}
        return tuple(sorted(found, key=_order))


def stock_of(snapshot: Snapshot, driver: DriverContainer, spec: DriverSpec) -> Inventory:
    """Group the nodes that a driver selects by the targets that serve them."""
    own = inventory.take(snapshot.nodes, spec.node_selector)
    records = _records(snapshot, driver)
    targets: dict[KernelTarget, tuple[str, ...]] = {}
    divided: set[KernelTarget] = set()
    for versions in _grouped(own.targets):
        homes = _homes(versions, records)
        if len(set(homes.values())) > 1:
            divided.update(homes.values())
        for mine, home in homes.items():
            targets[home] = (*targets.get(home, ()), *versions[mine])
    return Inventory(
        targets={target: tuple(sorted(targets[target])) for target in sorted(targets)},
        unknown=own.unknown,
        divided=frozenset(divided),
    )


def _unrecorded(snapshot: Snapshot, driver: DriverContainer, spec: DriverSpec) -> Iterator[Inventory]:
    """Return the targets that nodes could have as well, if nothing is recorded and their versions differ.

    The image of one of them may exist already; the registries are asked, and an existing image is a record.
    """
    records = _records(snapshot, driver)
    for versions in _grouped(inventory.take(snapshot.nodes, spec.node_selector).targets):
        if len(versions) > 1 and not records.in_daemon_sets(next(iter(versions))):
            nodes = tuple(sorted(name for names in versions.values() for name in names))
            yield from (Inventory(targets={target: nodes}, unknown={}) for target in versions)


def _grouped(targets: Versions) -> Iterator[Versions]:
    groups: dict[tuple[str, str, str], dict[KernelTarget, tuple[str, ...]]] = {}
    for target, nodes in targets.items():
        groups.setdefault(target.group, {})[target] = nodes
    yield from groups.values()


def _homes(versions: Versions, records: _Records) -> Mapping[KernelTarget, KernelTarget]:
    """Return for each target that nodes name themselves the one that serves them."""
    example = next(iter(versions))
    known = records.in_daemon_sets(example)
    in_use = [target for target in known if target in versions]
    if len(in_use) > 1:
        # Each selects its version of the operating system, as DaemonSets once did, until only one of them has nodes.
        return {target: target for target in versions}
    if known:
        return dict.fromkeys(versions, (in_use or known)[0])
    for built in records.built:
        candidates = [target for target in built if target.group == example.group]
        if candidates:
            return dict.fromkeys(versions, _preferred(candidates, versions))
    return dict.fromkeys(versions, _preferred(versions, versions))


def _preferred(candidates: Iterable[KernelTarget], versions: Versions) -> KernelTarget:
    """Choose the version that most nodes have; if equal, the lower."""
    counts = Counter({target: len(nodes) for target, nodes in versions.items()})
    return min(candidates, key=lambda target: (-counts[target], _order(target)))


def _order(target: KernelTarget) -> tuple[tuple[int, ...], str]:
    """Compare versions number by number: 9.9 comes before 9.10."""
    numbers = re.findall(r"[0-9]{1,9}", target.os_version)
    return tuple(int(number) for number in numbers), target.os_version


def _records(snapshot: Snapshot, driver: DriverContainer) -> _Records:
    return _Records(
        daemon_sets=tuple(item for item in snapshot.daemon_sets if item.driver == driver.key),
        built=(*recorded(driver), tuple(_of_images(snapshot, driver))),
    )


def recorded(driver: DriverContainer) -> tuple[tuple[KernelTarget, ...], ...]:
    """Return the targets with images by a driver's status: those of nodes, and those prebuilt."""
    return _recorded(driver.status)


@remembers_last(256)
def _recorded(status: Json) -> tuple[tuple[KernelTarget, ...], ...]:
    ahead = (entry.target for entry in previous_ahead(status).values())
    return tuple(_of_statuses(previous_targets(status).values())), tuple(_of_statuses(ahead))


def _of_statuses(statuses: Iterable[TargetStatus]) -> Iterator[KernelTarget]:
    """Return the targets whose image existed when the status was written."""
    for status in statuses:
        target = parse_target(status.kernel, status.os, status.architecture) if status.digest else None
        if target is not None:
            yield target


def _of_images(snapshot: Snapshot, driver: DriverContainer) -> Iterator[KernelTarget]:
    """Return the targets that existing images say they were built for."""
    for state in snapshot.images.values():
        if isinstance(state, Present) and state.labels.get(images.DRIVER_LABEL) == driver.key:
            labels = state.labels
            target = parse_target(
                labels.get(images.KERNEL_LABEL, ""),
                labels.get(images.OS_LABEL, ""),
                labels.get(images.ARCHITECTURE_LABEL, ""),
            )
            if target is not None:
                yield target
