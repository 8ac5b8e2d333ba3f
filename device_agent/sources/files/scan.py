"""Looks at the devices of a resource: files, drivers, NUMA nodes; what commands have found is added."""

from collections.abc import Callable, Sequence
from dataclasses import replace
from functools import cache

from device_agent.devices.model import DeviceNode
from device_agent.sources.files.assemble import assemble
from device_agent.sources.files.file_unit import FileUnit, UnitState
from device_agent.sources.files.find import find_files
from device_agent.sources.files.pci import silent_device
from device_agent.sources.files.sysfs import has_devices, has_driver, numa_nodes
from device_resources.resource import Resource

Verdict = Callable[[FileUnit], str]
"""Why a unit whose files and driver are there does not work; empty if it does."""


def scan(root: str, resource: Resource, known: Sequence[FileUnit], verdict: Verdict) -> tuple[UnitState, ...]:
    """Find the units of a resource and what is wrong with each.

    Raises:
        OSError: when the system could not look, which says nothing of the devices.
    """
    return judged(found(root, resource, known), verdict)


def found(root: str, resource: Resource, known: Sequence[FileUnit]) -> tuple[UnitState, ...]:
    """Find the units of a resource, by what files say. It may block; no command is asked.

    Raises:
        OSError: as :func:`scan`.
    """
    units = assemble(resource, find_files(root, resource), known)
    # Once for all units, of which there may be thousands.
    has_any = cache(lambda: has_devices(root, resource.health.driver or ""))
    return tuple(_state(root, resource, unit, has_any) for unit in units)


def judged(states: Sequence[UnitState], verdict: Verdict) -> tuple[UnitState, ...]:
    """Add what commands say of the units with which nothing else is wrong."""
    return tuple(state if state.why else replace(state, why=verdict(state.unit)) for state in states)


def _state(root: str, resource: Resource, unit: FileUnit, has_any: Callable[[], bool]) -> UnitState:
    nodes = [file.path for file in unit.files if isinstance(file, DeviceNode)]
    why = _missing(unit) or _silent(root, resource, nodes) or _unbound(root, resource, nodes, has_any)
    return UnitState(unit=unit, why=why, numa_nodes=numa_nodes(root, nodes))


def _missing(unit: FileUnit) -> str:
    present = {file.path for file in unit.files}
    missing = [path for path in unit.required if path not in present]
    if missing:
        return f"{missing[0]} is gone"
    return "" if present else "none of its files exists"


def _silent(root: str, resource: Resource, nodes: list[str]) -> str:
    return silent_device(root, nodes) if resource.health.pci else ""


def _unbound(root: str, resource: Resource, nodes: list[str], has_any: Callable[[], bool]) -> str:
    driver = resource.health.driver
    return has_driver(root, nodes, driver, has_any) if driver else ""
