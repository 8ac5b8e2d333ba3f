"""The exporter, as an admin asks for it by ``exporter:``: checked and made a value. Pure."""

from collections.abc import Mapping
from dataclasses import dataclass

from device_resources.kinds import Fields, Flag, Json, Number, Path, Problem, Text, shown
from device_resources.resource_parser import InvalidResource

PORT = 9400
"""That of NVIDIA's dcgm-exporter."""
HOSTNAME_LABEL = "Hostname"

OTHER_LABELS = frozenset({
    "gpu", "UUID", "pci_bus_id", "device", "modelName", "GPU_I_ID", "GPU_I_PROFILE",
    "namespace", "pod", "container", "resource", "xid", "reason", "job", "instance", "le", "quantile",
})  # fmt: skip
"""The other labels of the exporter's series, and those that mean something to Prometheus."""

LABEL = Text(
    pattern="[A-Za-z][A-Za-z0-9_]*",
    words="must be the name of a label of Prometheus, such as Hostname or node",
    longest=63,
)

EXPORTER_FIELDS = Fields(
    kinds={
        "enabled": Flag(),
        "port": Number(low=1, high=65535),
        "perPod": Flag(),
        "hostnameLabel": LABEL,
    },
    elsewhere=dict.fromkeys(("enabled", "port", "perPod", "hostnameLabel"), "exporter"),
)


@dataclass(frozen=True, slots=True, kw_only=True)
class ExporterSettings:
    """What ``exporter:`` says; without a field, its default.

    ``per_pod``: how much of a shared card each pod uses, which needs the node's processes (``hostPID``).
    ``hostname_label``: the label with the node's name.
    """

    enabled: bool = False
    port: int = PORT
    per_pod: bool = False
    hostname_label: str = HOSTNAME_LABEL


def parse_exporter(value: object, where: Path = ()) -> ExporterSettings:
    """Check what ``exporter:`` says (JSON) and make it a value; ``where`` is its path in messages.

    Raises:
        InvalidResource: naming each wrong field, its value and the remedy.
    """
    problems = EXPORTER_FIELDS.check(value, where)
    label = value.get("hostnameLabel") if isinstance(value, Mapping) else None
    if isinstance(label, str) and label in OTHER_LABELS:
        message = f"{shown(label)} is another label of the same series: write another name, such as node"
        problems.append(Problem(path=(*where, "hostnameLabel"), message=message))
    if problems or not isinstance(value, Mapping):
        raise InvalidResource(tuple(problems))
    return ExporterSettings(
        enabled=value.get("enabled") or False,
        port=value.get("port") or PORT,
        per_pod=value.get("perPod") or False,
        hostname_label=value.get("hostnameLabel") or HOSTNAME_LABEL,
    )


def exporter_schema() -> Json:
    """Write what ``exporter:`` may hold as an OpenAPI schema, as a CRD has it."""
    return EXPORTER_FIELDS.schema()
