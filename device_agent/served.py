"""One resource while it is offered: what its devices were at the last look, its commands, and its plugin."""

import asyncio
import logging
from collections import Counter
from collections.abc import Callable, Mapping

from device_agent.devices.command import CommandChecks, Running
from device_agent.devices.model import MAX_DEVICES, OfferedDevice, Unit, UnitState, is_too_much, offered
from device_agent.devices.scan import scan
from device_agent.kubelet.plugin import Plugin
from device_agent.metrics import ResourceCounts
from device_resources.resource import Resource

log = logging.getLogger(__name__)


class Served:
    """A resource and its plugin. ``running`` are the commands of all resources."""

    def __init__(
        self, resource: Resource, root: str, folder: str, running: Running, on_change: Callable[[], None]
    ) -> None:
        self.resource = resource
        self.plugin = Plugin(resource, folder, on_change)
        self._root = root
        self._running = running
        self._on_change = on_change
        self._checks = CommandChecks(resource.health, running, on_change)
        self._states: tuple[UnitState, ...] = ()
        self._changes = 0
        self._has_excess = False
        self._registrar: asyncio.Task[None] | None = None

    def register(self, tasks: asyncio.TaskGroup, period: float) -> None:
        """Keep the resource registered until it is stopped."""
        self._registrar = tasks.create_task(self.plugin.keep_registered(period))

    async def change(self, resource: Resource) -> None:
        """Take another description of the same resource; its registration stays."""
        await self._checks.stop()
        self.resource = self.plugin.service.resource = resource
        self._checks = CommandChecks(resource.health, self._running, self._on_change)
        self._states = ()

    async def refresh(self) -> None:
        """Look at the devices, and change the kubelet's list if it is another one."""
        asked: set[str] = set()

        def verdict(unit: Unit) -> str:
            asked.add(unit.id)
            return self._checks.verdict(unit)

        known = [state.unit for state in self._states]
        try:
            states = scan(self._root, self.resource, known, verdict)
        except OSError as error:
            log.warning("%s: not looked at, its devices stay as they were: %s", self.resource.name, error)
            return
        self._checks.forget(lambda name: name not in asked)
        self._note(states)
        self._states = states
        self._note_excess(is_too_much(self.resource, states))
        devices = offered(self.resource, states)
        if devices != self.plugin.service.devices:
            await self.plugin.service.publish(devices)

    async def stop(self) -> None:
        """End registration and commands, empty the kubelet's list, and leave."""
        if self._registrar is not None:
            self._registrar.cancel()
            await asyncio.wait([self._registrar])
        await self._checks.stop()
        await self.plugin.stop()

    def counts(self) -> ResourceCounts:
        """Count for the metrics."""
        service = self.plugin.service
        return ResourceCounts(
            name=self.resource.name,
            is_registered=self.plugin.is_registered,
            devices=_by_health(service.devices),
            registrations=self.plugin.registrations,
            allocations=service.allocations,
            commands=self._checks.counts,
            changes=self._changes,
        )

    def _note_excess(self, is_too_much: bool) -> None:
        if is_too_much and not self._has_excess:
            log.error("%s: has more than %d devices: the others are left out", self.resource.name, MAX_DEVICES)
        self._has_excess = is_too_much

    def _note(self, states: tuple[UnitState, ...]) -> None:
        """Log what changed, and count units that became healthy or unhealthy."""
        before = {state.unit.id: state.why for state in self._states}
        for state in states:
            name, why = state.unit.id, state.why
            was = before.get(name)
            if was == why:
                continue
            self._changes += was is not None and bool(was) is not bool(why)
            if why:
                log.warning("%s: %s is not healthy: %s", self.resource.name, name, why)
            else:
                log.info("%s: %s is healthy", self.resource.name, name)


def _by_health(devices: Mapping[str, OfferedDevice]) -> dict[str, int]:
    found = Counter("healthy" if device.state.is_healthy else "unhealthy" for device in devices.values())
    return {health: found[health] for health in ("healthy", "unhealthy")}
