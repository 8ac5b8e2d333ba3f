"""Devices of files, for tests of what knows only units: they describe them as an admin does."""

from collections.abc import Callable, Mapping, Sequence

from device_agent.devices import model
from device_agent.devices.allocate import allocate as allocate_units
from device_agent.kubelet import plugin
from device_agent.protocol.messages import ContainerAllocateResponse
from device_agent.sources.files.file_unit import UnitState, units_of
from device_resources.resource import Resource


class OfferedDevice(model.OfferedDevice):
    """A share of a unit of files."""

    def __init__(self, *, id: str, state: UnitState) -> None:
        unit = model.Unit(id=state.unit.id, why=state.why, numa_nodes=state.numa_nodes, files=state.unit.files)
        super().__init__(id=id, unit=unit)


class Plugin(plugin.Plugin):
    """The plugin of a resource that is described."""

    def __init__(self, described: Resource, folder: str, on_change: Callable[[], None]) -> None:
        super().__init__(described.name, folder, on_change)


def offered(described: Resource, states: Sequence[UnitState]) -> Mapping[str, model.OfferedDevice]:
    """List the devices of units of files."""
    return model.offered(units_of(described, states))


def is_too_much(described: Resource, states: Sequence[UnitState]) -> bool:
    """Return whether there are more than can be offered."""
    return model.is_too_much(units_of(described, states))


def allocate(
    described: Resource, devices: Mapping[str, model.OfferedDevice], ids: Sequence[str]
) -> ContainerAllocateResponse:
    """Bring devices into one container."""
    return allocate_units(described.name, devices, ids)
