"""``device-agent scan``: the devices of this node, without a kubelet. The commands of resources are run once."""

import asyncio
import sys
from collections.abc import Iterator

from device_agent.config.config_file import read_resources
from device_agent.config.options import Settings
from device_agent.devices.model import MAX_DEVICES, Unit, is_too_much, offered
from device_agent.sources.files.command import Running, run_command
from device_agent.sources.files.file_unit import FileUnit, units_of
from device_agent.sources.files.scan import scan
from device_resources.resource import Resource
from kube_api.text import printable


def show(settings: Settings) -> int:
    """Print the devices; 1 if one is not healthy."""
    rows = [row for resource in read_resources(settings.config_file) for row in _rows(settings.root, resource)]
    table = [("RESOURCE", "DEVICE", "NUMA", "HEALTH", "FILES"), *rows]
    widths = [max(len(row[column]) for row in table) for column in range(4)]
    for row in table:
        cells = [cell.ljust(width) for cell, width in zip(row, widths, strict=False)]
        sys.stdout.write(f"{'  '.join((*cells, row[4]))}\n")
    return 1 if any(row[3] != "healthy" for row in rows) else 0


def _rows(root: str, resource: Resource) -> Iterator[tuple[str, str, str, str, str]]:
    units = units_of(resource, scan(root, resource, (), lambda unit: _verdict(resource, unit)))
    if is_too_much(units):
        sys.stderr.write(f"{resource.name}: has more than {MAX_DEVICES} devices: the others are left out\n")
    for name, device in offered(units).items():
        yield resource.name, name, _numa(device.unit), device.unit.why or "healthy", _files(device.unit)


def _verdict(resource: Resource, unit: FileUnit) -> str:
    if not resource.health.command:
        return ""
    variables = {"DEVICE_ID": unit.id, "DEVICE_PATHS": ":".join(file.path for file in unit.files)}
    why, _ = asyncio.run(run_command(resource.health, variables, Running()))
    return why


def _numa(unit: Unit) -> str:
    return ",".join(map(str, unit.numa_nodes)) or "-"


def _files(unit: Unit) -> str:
    return " ".join(printable(file.path) for file in unit.files) or "-"
