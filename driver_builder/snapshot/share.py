"""One driver's share of a snapshot: all that a plan for it may depend on. Pure.

Of other drivers it has those that the driver depends on, and the specs where builds mount Secrets.
"""

from collections.abc import Mapping
from dataclasses import replace
from typing import TypeVar

from driver_builder.api.driver_container import DriverContainer
from driver_builder.api.driver_spec import DriverSpec
from driver_builder.base.memo import remembers_last
from driver_builder.snapshot.by_driver import PodsByDriver, of_driver, pods_of
from driver_builder.snapshot.snapshot import Snapshot
from driver_builder.tasks.node_task import NodeTask
from driver_builder.tasks.pull_pod import PULL

Key = TypeVar("Key", bound=str)
Value = TypeVar("Value")


def share_of(snapshot: Snapshot, driver: DriverContainer) -> Snapshot:
    """Return the driver's part of a snapshot, with all nodes, images and builds."""
    key = driver.key
    first = drivers_before(snapshot, driver)
    every = (driver, *first)
    keys = {item.key for item in every}
    certificates = {
        f"{driver.namespace}/{name}"
        for item in every
        if isinstance(item.spec, DriverSpec)
        for name in item.spec.certificate_secrets
    }
    return replace(
        snapshot,
        drivers=_drivers(snapshot, driver, first),
        sources=_only(snapshot.sources, keys),
        templates=_only(snapshot.templates, keys),
        certificates=_only(snapshot.certificates, certificates),
        images_of=_only(snapshot.images_of, keys),
        daemon_sets=tuple(found for one in every for found in of_driver(snapshot.daemon_sets, one.key))
        if first
        else of_driver(snapshot.daemon_sets, key),
        pods=PodsByDriver({one.key: pods_of(snapshot.pods, one.key) for one in every}),
        orphaned_pods=of_driver(snapshot.orphaned_pods, key),
        # What is done on a node before its driver is replaced is decided afterwards, for all drivers.
        tasks=_without_pulls(of_driver(snapshot.tasks, key)),
        node_pods={},
        refused_evictions={},
        locks_first_seen={},
        plugin_sets=of_driver(snapshot.plugin_sets, key),
        plugin_pods=of_driver(snapshot.plugin_pods, key),
        plugin_configs=_only(snapshot.plugin_configs, {key}),
        plugin_strays=_only(snapshot.plugin_strays, {key}),
        plugin_accounts=_only(snapshot.plugin_accounts, {driver.plugin_account}),
        node_slices=_only(snapshot.node_slices, {driver.dra_driver}),
        slices_unread=snapshot.slices_unread if driver.dra_driver else None,
        resource_users=snapshot.resource_users if _asks_for_users(driver) else {},
        drained_last=_only(snapshot.drained_last, {key}),
    )


@remembers_last(16)
def _without_pulls(tasks: tuple[NodeTask, ...]) -> tuple[NodeTask, ...]:
    return tuple(task for task in tasks if task.kind != PULL.name)


def drivers_before(snapshot: Snapshot, driver: DriverContainer) -> tuple[DriverContainer, ...]:
    """Return the drivers that one depends on, directly or not: its builds get their symbols."""
    if not isinstance(driver.spec, DriverSpec) or not driver.spec.depends_on:
        return ()
    known = {item.name: item for item in snapshot.drivers if item.namespace == driver.namespace}
    found: dict[str, DriverContainer] = {}
    left = [driver]
    while left:
        spec = left.pop().spec
        for name in spec.depends_on if isinstance(spec, DriverSpec) else ():
            if name in known and name not in found and name != driver.name:
                found[name] = known[name]
                left.append(known[name])
    return tuple(found[name] for name in sorted(found))


def _drivers(
    snapshot: Snapshot, driver: DriverContainer, first: tuple[DriverContainer, ...]
) -> tuple[DriverContainer, ...]:
    """Return the driver with those that it depends on, and those whose Secrets its builds may not mount if they do."""
    every = (driver, *first)
    if not any(isinstance(item.spec, DriverSpec) and item.spec.build.secrets for item in every):
        return every
    return tuple(item for item in snapshot.drivers if item.namespace == driver.namespace)


def _asks_for_users(driver: DriverContainer) -> bool:
    stages = driver.spec.stages if isinstance(driver.spec, DriverSpec) else None
    return stages is not None and stages.asks_for_users


def _only(values: Mapping[Key, Value], keys: set[Key]) -> dict[Key, Value]:
    return {key: values[key] for key in keys if key in values}
