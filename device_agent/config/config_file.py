"""The configuration file: ``resources``, ``nvidia``, ``exporter`` and ``memory``. Text in, a description out.

Any key that has no meaning is an error: a misspelt one would otherwise be a device without its file.
"""

from collections.abc import Callable, Hashable, Iterable, Mapping
from dataclasses import dataclass
from typing import TYPE_CHECKING, TypeVar

from device_agent.config.yaml_file import plain_document
from device_agent.errors import ConfigurationError
from device_agent.regular_file import read_regular
from device_resources.kinds import Path, Problem, nearest, shown
from device_resources.resource import NVIDIA_DOMAIN, Resource
from device_resources.resource_parser import InvalidResource, parse_resource
from kube_api.text import first_few

if TYPE_CHECKING:
    from device_resources.exporter import ExporterSettings
    from device_resources.memory_limits import MemorySettings
    from device_resources.nvidia import NvidiaSettings

Value = TypeVar("Value")

MAX_FILE = 1 << 18
MAX_RESOURCES = 64
_MAX_LISTED = 5
_RESOURCES, _NVIDIA, _EXPORTER, _MEMORY = "resources", "nvidia", "exporter", "memory"
_KEYS = (_RESOURCES, _NVIDIA, _EXPORTER, _MEMORY)
_BELONGS = {
    **dict.fromkeys(("name", "groups", "health", "environment"), f"an entry of {_RESOURCES}"),
    **dict.fromkeys(("migStrategy", "libraries", "sharedDevicesAllocationPolicy", "mig"), _NVIDIA),
    **dict.fromkeys(("enabled", "port", "perPod", "hostnameLabel"), _EXPORTER),
    **dict.fromkeys(("mode", "limits", "graceSeconds", "dryRun"), _MEMORY),
}
"""Fields that stand at the top by mistake, and where they belong."""


@dataclass(frozen=True, slots=True, kw_only=True)
class Description:
    """What the configuration file describes.

    ``resources``: those that are files of the node.
    ``nvidia``: how the devices of NVIDIA's driver are offered; None: they are not.
    ``exporter``: how the use of cards is exported; None: nothing is said of it.
    ``memory``: how the memory of shared cards is limited; None: it is not.
    """

    resources: tuple[Resource, ...] = ()
    nvidia: "NvidiaSettings | None" = None
    exporter: "ExporterSettings | None" = None
    memory: "MemorySettings | None" = None

    @property
    def is_monitored(self) -> bool:
        """Return whether the use of cards has to be followed."""
        return self.limits_memory or (self.exporter is not None and self.exporter.enabled)

    @property
    def limits_memory(self) -> bool:
        """Return whether anybody keeps limits of memory."""
        return self.memory is not None and self.memory.is_on


def read_description(path: str) -> Description:
    """Read the configuration file.

    Raises:
        ConfigurationError: when it cannot be read, or as :func:`parse_description`.
    """
    try:
        return parse_description(read_regular(path, MAX_FILE).decode(), path)
    except (OSError, UnicodeDecodeError) as error:
        why = error.strerror if isinstance(error, OSError) else "it is not UTF-8"
        raise ConfigurationError(f"cannot read the configuration file {path}: {why}") from error


def parse_description(text: str, path: str) -> Description:
    """Read the text of a configuration file; ``path`` is for messages.

    Raises:
        ConfigurationError: names each wrong field, its value and the remedy.
    """
    document = plain_document(text, path)
    problems: list[Problem] = []
    if isinstance(document, dict):
        problems += [_unknown(str(key)[:100]) for key in document if key not in _KEYS]
        resources = _resources(document, problems)
        nvidia = _nvidia(document, resources, problems) if _NVIDIA in document else None
        exporter = _exporter(document, problems) if _EXPORTER in document else None
        memory = _memory(document, problems) if _MEMORY in document else None
    else:
        found = "empty" if document is None else shown(document)
        problems.append(Problem(path=(), message=f"the file is {found}: write {_RESOURCES}: and a list below it"))
    if problems:
        raise ConfigurationError(f"{path}: {first_few(problems, _MAX_LISTED, separator='; ')}")
    return Description(resources=resources, nvidia=nvidia, exporter=exporter, memory=memory)


def _resources(document: Mapping[Hashable, object], problems: list[Problem]) -> tuple[Resource, ...]:
    resources: list[Resource] = []
    for index, value in enumerate(_descriptions(document, problems)):
        try:
            resources.append(parse_resource(value, (_RESOURCES, index)))
        except InvalidResource as error:
            problems += error.problems
    problems += _twice(resource.name for resource in resources)
    return tuple(resources)


def _descriptions(document: Mapping[Hashable, object], problems: list[Problem]) -> list[object]:
    where, value = (_RESOURCES,), document.get(_RESOURCES)
    if value is None:
        if _RESOURCES not in document and _NVIDIA not in document:
            problems.append(Problem(path=where, message="is missing; write [] for none"))
        return []
    if not isinstance(value, list):
        problems.append(Problem(path=where, message=f"{shown(value)} is not a list"))
        return []
    if len(value) > MAX_RESOURCES:
        problems.append(Problem(path=where, message=f"it has {len(value)} entries: write at most {MAX_RESOURCES}"))
        return []
    return value


def _nvidia(
    document: Mapping[Hashable, object], resources: Iterable[Resource], problems: list[Problem]
) -> "NvidiaSettings | None":
    from device_resources.nvidia import parse_nvidia  # noqa: PLC0415 - nodes without such cards do not need it

    for resource in resources:
        if resource.name.startswith(NVIDIA_DOMAIN):
            message = f"{shown(resource.name)} is in a domain whose names {_NVIDIA}: offers: remove one of the two"
            problems.append(Problem(path=(_RESOURCES,), message=message))
    return _checked(document, _NVIDIA, parse_nvidia, problems)


def _exporter(document: Mapping[Hashable, object], problems: list[Problem]) -> "ExporterSettings | None":
    from device_resources.exporter import parse_exporter  # noqa: PLC0415 - most nodes do not need it

    return _checked(document, _EXPORTER, parse_exporter, problems)


def _memory(document: Mapping[Hashable, object], problems: list[Problem]) -> "MemorySettings | None":
    from device_resources.memory_limits import parse_memory  # noqa: PLC0415 - most nodes do not need it

    return _checked(document, _MEMORY, parse_memory, problems)


def _checked(
    document: Mapping[Hashable, object], key: str, parse: Callable[[object, Path], Value], problems: list[Problem]
) -> Value | None:
    try:
        return parse(document[key], (key,))
    except InvalidResource as error:
        problems += error.problems
        return None


def _unknown(key: str) -> Problem:
    place = _BELONGS.get(key)
    hint = f" here; it belongs to {place}" if place else nearest(key, _KEYS)
    return Problem(
        path=(key,), message=f"there is no such field{hint or f'; there are {first_few(_KEYS, len(_KEYS))}'}"
    )


def _twice(names: Iterable[str]) -> list[Problem]:
    seen: set[str] = set()
    problems = []
    for name in names:
        if name in seen:
            problems.append(
                Problem(path=(_RESOURCES,), message=f"{shown(name)} is described twice: put its groups together")
            )
        seen.add(name)
    return problems
