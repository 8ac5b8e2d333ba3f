"""One resource while it is offered: what its units were when they were last shown, and its plugin."""

import asyncio
import logging
from collections import Counter
from collections.abc import Mapping, Sequence

from device_agent.devices.model import MAX_DEVICES, OfferedDevice, Traits, Unit, is_too_much, offered
from device_agent.kubelet.plugin import Plugin
from device_agent.metrics import ResourceCounts

log = logging.getLogger(__name__)

_HEALTHY, _UNHEALTHY, _WAITING = "healthy", "unhealthy", "waiting"


class Served:
    """A resource by its plugin."""

    def __init__(self, plugin: Plugin) -> None:
        self.resource = plugin.service.resource
        self.plugin = plugin
        self._units: Sequence[Unit] | None = None
        self._changes = 0
        self._has_excess = False
        self._registrar: asyncio.Task[None] | None = None

    @property
    def missing(self) -> str:
        """Name the resource if it is not registered, with the other plugin that has it; empty if it is."""
        if self.plugin.is_registered:
            return ""
        rival = self.plugin.rival
        return f"{self.resource} (another plugin answers on {rival})" if rival else self.resource

    def keep_registered(self, tasks: asyncio.TaskGroup, period: float) -> None:
        """Keep the resource registered until it is stopped."""
        if self._registrar is None:
            self._registrar = tasks.create_task(self.plugin.keep_registered(period))

    async def show(self, units: Sequence[Unit], traits: Traits) -> None:
        """Show the kubelet these units, and change its list if it is another one; the same object needs no look."""
        self.plugin.service.traits = traits
        if units is self._units:
            return
        self._note(units)
        self._units = units
        self._note_excess(is_too_much(units))
        devices = offered(units)
        if devices != self.plugin.service.devices:
            await self.plugin.service.publish(devices)

    def forget(self) -> None:
        """Forget how units were: they are described anew. The kubelet keeps its list until they are shown."""
        self._units = None

    async def stop(self) -> None:
        """End the registration, empty the kubelet's list, and leave."""
        if self._registrar is not None:
            self._registrar.cancel()
            await asyncio.wait([self._registrar])
        await self.plugin.stop()

    def counts(self, commands: Mapping[str, int]) -> ResourceCounts:
        """Count for the metrics; ``commands`` are those of its source."""
        service = self.plugin.service
        return ResourceCounts(
            name=self.resource,
            is_registered=self.plugin.is_registered,
            devices=_by_health(service.devices),
            registrations=self.plugin.registrations,
            allocations=service.allocations,
            commands=commands,
            changes=self._changes,
        )

    def _note_excess(self, is_too_much: bool) -> None:
        if is_too_much and not self._has_excess:
            log.error("%s: has more than %d devices: the others are left out", self.resource, MAX_DEVICES)
        self._has_excess = is_too_much

    def _note(self, units: Sequence[Unit]) -> None:
        """Log what changed, and count units that became healthy or unhealthy; one that only waits is well."""
        before = {(unit.id, unit.shares): unit for unit in self._units or ()}
        for unit in units:
            was = before.get((unit.id, unit.shares))
            if was is not None and was.why == unit.why:
                continue
            self._changes += was is not None and (_health(was) == _UNHEALTHY) is not (_health(unit) == _UNHEALTHY)
            if unit.is_healthy:
                log.info("%s: %s is healthy", self.resource, unit.id)
            elif unit.is_waiting:
                log.info("%s: %s is not given yet: %s", self.resource, unit.id, unit.why)
            else:
                log.warning("%s: %s is not healthy: %s", self.resource, unit.id, unit.why)


def _health(unit: Unit) -> str:
    if unit.is_healthy:
        return _HEALTHY
    return _WAITING if unit.is_waiting else _UNHEALTHY


def _by_health(devices: Mapping[str, OfferedDevice]) -> dict[str, int]:
    return {_HEALTHY: 0, _UNHEALTHY: 0, **Counter(_health(device.unit) for device in devices.values())}
