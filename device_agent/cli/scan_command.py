"""``device-agent scan``: the devices of this node, without a kubelet. The commands of resources are run once."""

import asyncio
import sys
from collections.abc import Iterator, Sequence

from device_agent.cli.streams import write_table
from device_agent.config.config_file import Description, read_description
from device_agent.config.options import Settings
from device_agent.devices.model import MAX_DEVICES, Unit, is_too_much, offered
from device_agent.sources.files.command import Running, run_command
from device_agent.sources.files.file_unit import FileUnit, units_of
from device_agent.sources.files.scan import scan
from device_agent.sources.source import Known
from device_resources.resource import Resource
from kube_api.text import printable


def show(settings: Settings) -> int:
    """Print the devices; 1 if one is not healthy."""
    description = read_description(settings.config_file)
    rows = [row for resource in description.resources for row in _rows(resource.name, _units(settings.root, resource))]
    if description.nvidia is not None:
        made = asyncio.run(_nvidia(settings, description))
        rows += [row for name, units in made.items() for row in _rows(name, units or ())]
    write_table([("RESOURCE", "DEVICE", "NUMA", "HEALTH", "FILES"), *rows])
    return 1 if any(row[3] != "healthy" for row in rows) else 0


def _units(root: str, resource: Resource) -> Sequence[Unit]:
    return units_of(resource, scan(root, resource, (), lambda unit: _verdict(resource, unit)))


async def _nvidia(settings: Settings, description: Description) -> Known:
    """Take one state of the container ``nvml``; what is wrong with it is logged."""
    from device_agent.sources.nvidia.client import Timing  # noqa: PLC0415 - most nodes do not need it
    from device_agent.sources.nvidia.nvidia_source import NvidiaSource  # noqa: PLC0415 - as above

    source = NvidiaSource(settings, Timing(first_ask=0.0), write=None)
    source.start(lambda: None)
    source.expect()  # the profile that is in force; what the Node asks for is not looked up
    source.configure(description)
    try:
        await source.look()
        return source.resources
    finally:
        await source.close()


def _rows(resource: str, units: Sequence[Unit]) -> Iterator[tuple[str, str, str, str, str]]:
    if is_too_much(units):
        sys.stderr.write(f"{resource}: has more than {MAX_DEVICES} devices: the others are left out\n")
    for name, device in offered(units).items():
        yield resource, name, _numa(device.unit), device.unit.why or "healthy", _files(device.unit)


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
