"""One driver's share of a snapshot: all that a plan for it may depend on. Pure.

Of other drivers it has only the specs, and only where the driver's builds mount Secrets.
"""

from collections.abc import Mapping
from dataclasses import replace
from typing import TypeVar

from driver_builder.api.driver_container import DriverContainer
from driver_builder.api.driver_spec import DriverSpec
from driver_builder.observed.by_driver import PodsByDriver, of_driver
from driver_builder.observed.snapshot import Snapshot

Value = TypeVar("Value")


def share_of(snapshot: Snapshot, driver: DriverContainer) -> Snapshot:
    """Return the driver's part of a snapshot, with all nodes, images and builds."""
    key = driver.key
    secrets = driver.spec.certificate_secrets if isinstance(driver.spec, DriverSpec) else ()
    certificates = {f"{driver.namespace}/{name}" for name in secrets}
    return replace(
        snapshot,
        drivers=_drivers(snapshot, driver),
        sources=_only(snapshot.sources, {key}),
        templates=_only(snapshot.templates, {key}),
        certificates=_only(snapshot.certificates, certificates),
        images_of=_only(snapshot.images_of, {key}),
        daemon_sets=of_driver(snapshot.daemon_sets, key),
        pods=PodsByDriver({key: of_driver(snapshot.pods, key)}),
        orphaned_pods=of_driver(snapshot.orphaned_pods, key),
        unload_pods=of_driver(snapshot.unload_pods, key),
        validation_pods=of_driver(snapshot.validation_pods, key),
        # What is done on a node before its driver is replaced is decided afterwards, for all drivers.
        node_pods={},
        pull_pods=(),
        refused_evictions={},
    )


def _drivers(snapshot: Snapshot, driver: DriverContainer) -> tuple[DriverContainer, ...]:
    """Return the driver, with those whose Secrets its builds may not mount where they mount any."""
    if not isinstance(driver.spec, DriverSpec) or not driver.spec.build.secrets:
        return (driver,)
    return tuple(item for item in snapshot.drivers if item.namespace == driver.namespace)


def _only(values: Mapping[str, Value], keys: set[str]) -> dict[str, Value]:
    return {key: values[key] for key in keys if key in values}
