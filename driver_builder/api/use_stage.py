"""``devicePlugin.exporter`` and ``.memory``: what our agent shows of the devices' use, and limits. Pure.

Both are fields of the agent's configuration, read by the same tables. What is switched off is left out of it, so that
a spec with ``enabled: false`` makes the same pods as one that says nothing.
"""

from typing import Any

from device_resources.exporter import EXPORTER_FIELDS, parse_exporter
from device_resources.memory_limits import MEMORY_FIELDS, MemoryMode, parse_memory
from driver_builder.api.spec_kinds import Cel, described
from driver_builder.api.stage_settings import UseSettings

Json = dict[str, Any]

OWN_PORT = 8080
"""Of the agent's own pages, in the pod that the exporter serves in."""

EXPORTER = described(
    EXPORTER_FIELDS,
    {
        "enabled": "Serve the metrics. Default is false.",
        "port": "Port of the pods. Default is 9400.",
        "perPod": "Also how much of a shared card each pod uses. The pods use the node's process ids (hostPID), and "
        "have a privileged container with any driver. Default is false.",
        "hostnameLabel": "Label with the node's name. Default is Hostname.",
    },
    (Cel(f"!has(self.port) || self.port != {OWN_PORT}", f"port {OWN_PORT} is that of the agent's own pages"),),
)
MEMORY = described(
    MEMORY_FIELDS,
    {
        "mode": "Who keeps a limit: nobody, the agent by ending a process of a pod that is over it, or the card's "
        "driver. Default is off.",
        "limits": "By resource, bytes of a device that a pod may use, such as 10Gi.",
        "default": "Limit of resources that limits does not name: the pod's share of the card, or none. Default is "
        "share.",
        "graceSeconds": "How long a pod may be over its limit. Default is 10.",
        "dryRun": "Only say what would be ended. Default is false.",
    },
)


def use(exporter_given: Json | None, memory_given: Json | None) -> UseSettings | None:
    """Return what is switched on of ``exporter`` and ``memory``; None where neither is."""
    exporter, memory = parse_exporter(exporter_given or {}), parse_memory(memory_given or {})
    given = {"exporter": exporter_given if exporter.enabled else None, "memory": memory_given if memory.is_on else None}
    config = {name: value for name, value in given.items() if value is not None}
    if not config:
        return None
    return UseSettings(
        config=config,
        port=exporter.port if exporter.enabled else None,
        sees_processes=memory.is_on or (exporter.enabled and exporter.per_pod),
        limits_memory=memory.is_on,
        writes_cgroups=memory.mode is MemoryMode.DRIVER,
        ends_processes=memory.is_on and not memory.dry_run,
    )
