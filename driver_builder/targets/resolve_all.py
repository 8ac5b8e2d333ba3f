"""All drivers of a snapshot, each resolved once: those whose inputs are the same are not resolved anew. Pure."""

from collections.abc import Iterable, Mapping
from dataclasses import replace
from functools import partial

from driver_builder.api import rebuild_status
from driver_builder.api.driver_container import DriverContainer
from driver_builder.api.driver_spec import DriverSpec
from driver_builder.base.boundary import contained
from driver_builder.snapshot import inventory
from driver_builder.snapshot.share import share_of
from driver_builder.snapshot.snapshot import Snapshot
from driver_builder.targets.desired_target import TemplateVersions
from driver_builder.targets.resolve import Resolved, recorded, resolve


class ResolveMemory:
    """What drivers were resolved to the last time: those whose inputs are the same are not resolved anew."""

    def __init__(self) -> None:
        self._known: dict[str, tuple[tuple[object, ...], Resolved]] = {}

    def resolve(
        self, share: Snapshot, driver: DriverContainer, spec: DriverSpec, versions: TemplateVersions
    ) -> Resolved:
        """Resolve a driver from its share of a snapshot."""
        # Our own status is no news, but for what it records.
        drivers = tuple(replace(item, status={}) for item in share.drivers)
        said = tuple((recorded(item), item.status.get("rebuild")) for item in share.drivers)
        # Of the nodes only these: most of what changes on one resolves nothing anew.
        stocks = tuple(inventory.take(share.nodes, item.spec.node_selector) for item in share.drivers
                       if isinstance(item.spec, DriverSpec))  # fmt: skip
        nodes = (stocks, inventory.every_name(share.nodes), inventory.asking(share.nodes))
        inputs = (drivers, said, versions, *nodes, share.daemon_sets, share.images, share.sources, share.templates,
                  share.certificates)  # fmt: skip
        known = self._known.pop(driver.key, None)
        if known is not None and known[0] == inputs:
            self._known[driver.key] = known
            return known[1]
        resolved = resolve(share, driver, spec, versions)
        # A request that is new takes pods and the time into account.
        if resolved.rebuilds == rebuild_status.from_status(driver.status.get("rebuild")):
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
