"""``devicePlugin.exporter`` and ``.memory``: what our agent shows of the devices' use, and limits. Pure.

Both are fields of the agent's configuration, read by the same tables. What is switched off is left out of it, so that
a spec with ``enabled: false`` makes the same pods as one that says nothing.
"""

from collections.abc import Mapping
from typing import Any

from device_resources.exporter import EXPORTER_FIELDS, parse_exporter
from device_resources.memory_limits import MEMORY_FIELDS, MemoryMode, parse_memory
from driver_builder.api.spec_reader import Reader
from driver_builder.api.stage_settings import UseSettings

Json = dict[str, Any]

OWN_PORT = 8080
"""Of the agent's own pages, in the pod that the exporter serves in."""

FIELDS_OF_USE = {"exporter": EXPORTER_FIELDS, "memory": MEMORY_FIELDS}


def read_use(plugin: Reader) -> UseSettings | None:
    """Read ``exporter`` and ``memory``; None where neither is switched on.

    Problems are noted; what is wrong is left out.
    """
    given = {name: plugin.raw(name) for name in FIELDS_OF_USE}
    good = {name: value for name, value in given.items() if value is not None and _is_good(plugin, name, value)}
    exporter, memory = parse_exporter(good.get("exporter", {})), parse_memory(good.get("memory", {}))
    if exporter.port == OWN_PORT:
        plugin.wrong(f"{OWN_PORT} is the port of the agent's own pages: write another one", "exporter", "port")
    on = {"exporter": exporter.enabled, "memory": memory.is_on}
    if not any(on.values()):
        return None
    return UseSettings(
        config={name: dict(good[name]) for name, is_on in on.items() if is_on},
        port=exporter.port if exporter.enabled else None,
        sees_processes=memory.is_on or (exporter.enabled and exporter.per_pod),
        limits_memory=memory.is_on,
        writes_cgroups=memory.mode is MemoryMode.DRIVER,
        ends_processes=memory.is_on and not memory.dry_run,
    )


def _is_good(plugin: Reader, name: str, value: object) -> bool:
    problems = FIELDS_OF_USE[name].check(value, ())
    for problem in problems:
        plugin.wrong(problem.message, name, *problem.path)
    return not problems and isinstance(value, Mapping)
