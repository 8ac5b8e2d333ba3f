"""Which target each node of a driver has: nodes of one kernel, operating system and architecture share one. Pure.

The version of the operating system is not part of that: it may change while its kernel runs (a minor update without a
reboot), and nothing on the node changes then. A target keeps its recorded version: that of its DaemonSet,
else that of an existing image, else the version that most of its nodes have. The version is an input of
the build and part of the target's short hash, so every target comes from here, also for kernels that no node runs yet.
"""

import re
from collections import Counter
from collections.abc import Iterable, Iterator, Mapping
from dataclasses import dataclass, replace

from driver_builder.api.driver_container import DriverContainer
from driver_builder.api.driver_spec import DriverSpec
from driver_builder.model import images
from driver_builder.model.image_state import Present
from driver_builder.model.kernels import KernelTarget, KernelVersion
from driver_builder.observed import inventory
from driver_builder.observed.inventory import Inventory
from driver_builder.observed.snapshot import DaemonSet, Snapshot
from driver_builder.status.prebuild_status import previous_ahead
from driver_builder.status.status import TargetStatus, previous_targets

Versions = Mapping[KernelTarget, tuple[str, ...]]
"""The nodes of one kernel, operating system and architecture, by the target that their own labels name."""


@dataclass(frozen=True, slots=True)
class _Records:
    """What is recorded of a driver's targets: its DaemonSets, and targets with images, the most reliable first."""

    daemon_sets: tuple[DaemonSet, ...]
    built: tuple[tuple[KernelTarget, ...], ...]

    def in_daemon_sets(self, example: KernelTarget) -> tuple[KernelTarget, ...]:
        """Return the targets of DaemonSets for the example's kernel, operating system and architecture."""
        named = (
            replace(example, os_version=item.os_version)
            for item in self.daemon_sets
            if item.kernel == example.kernel_version and item.os_version is not None and _is_version(item.os_version)
            if replace(example, os_version=item.os_version).short_hash == item.target
        )
        return tuple(sorted(set(named), key=_order))


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


def unrecorded(snapshot: Snapshot, driver: DriverContainer, spec: DriverSpec) -> Iterator[Inventory]:
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
        key = (target.kernel_version, target.os_id, target.architecture)
        groups.setdefault(key, {})[target] = nodes
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
        candidates = [target for target in built if _is_same_but_version(target, example)]
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


def _is_same_but_version(one: KernelTarget, other: KernelTarget) -> bool:
    return (one.kernel_version, one.os_id, one.architecture) == (other.kernel_version, other.os_id, other.architecture)


def _is_version(text: str) -> bool:
    try:
        KernelTarget(KernelVersion("0.0"), "any", text, "any")
    except ValueError:
        return False
    return True


def _records(snapshot: Snapshot, driver: DriverContainer) -> _Records:
    statuses = previous_targets(driver.status).values()
    ahead = (entry.target for entry in previous_ahead(driver.status).values())
    return _Records(
        daemon_sets=tuple(item for item in snapshot.daemon_sets if item.driver == driver.key),
        built=(tuple(_of_statuses(statuses)), tuple(_of_statuses(ahead)), tuple(of_images(snapshot, driver))),
    )


def _of_statuses(statuses: Iterable[TargetStatus]) -> Iterator[KernelTarget]:
    """Return the targets whose image existed when the status was written."""
    for status in statuses:
        target = parsed(status.kernel, status.os, status.architecture) if status.digest else None
        if target is not None:
            yield target


def of_images(snapshot: Snapshot, driver: DriverContainer) -> Iterator[KernelTarget]:
    """Return the targets that existing images say they were built for."""
    for state in snapshot.images.values():
        if isinstance(state, Present) and state.labels.get(images.DRIVER_LABEL) == driver.key:
            labels = state.labels
            target = parsed(
                labels.get(images.KERNEL_LABEL, ""),
                labels.get(images.OS_LABEL, ""),
                labels.get(images.ARCHITECTURE_LABEL, ""),
            )
            if target is not None:
                yield target


def parsed(kernel: str, os: str, architecture: str) -> KernelTarget | None:
    """Read a target from a status or an image's labels; None if it is not one."""
    os_id, _, os_version = os.partition(":")
    try:
        return KernelTarget(KernelVersion(kernel), os_id, os_version, architecture)
    except ValueError:
        return None
