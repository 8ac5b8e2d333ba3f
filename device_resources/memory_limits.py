"""How much of a shared card's memory a pod may use, as an admin says it by ``memory:``. Pure."""

from collections.abc import Mapping
from dataclasses import dataclass, field
from enum import StrEnum
from types import MappingProxyType

from device_resources.fields import NAME
from device_resources.kinds import Fields, Flag, Json, Number, Pairs, Path, Problem, Word, shown
from device_resources.resource_parser import InvalidResource
from kube_api.quantity import parse_quantity

GRACE_SECONDS = 10
MOST_LIMITS = 64
"""As many resources as a configuration may have."""
LEAST_LIMIT = 1 << 20
MOST_LIMIT = 1 << 53
"""Bytes of a limit. Less is a forgotten unit (``10``) or a wrong one (``10m``); more, JSON does not keep exactly."""
_LONGEST_QUANTITY = 32


class MemoryMode(StrEnum):
    """Who keeps a limit: nobody, the agent by ending a process that is over it, or the card's driver."""

    OFF = "off"
    WATCH = "watch"
    DRIVER = "driver"


class DefaultLimit(StrEnum):
    """What a pod may use of a shared card where no limit is written: its share of it, or all."""

    SHARE = "share"
    NONE = "none"


@dataclass(frozen=True, slots=True, kw_only=True)
class MemorySettings:
    """What ``memory:`` says; without a field, its default.

    ``limits``: resource -> bytes for each device of it that a pod has.
    ``grace_seconds``: how long a pod may be over its limit before a process of it is ended.
    ``dry_run``: nothing is ended; that it would be is said.
    """

    mode: MemoryMode = MemoryMode.OFF
    limits: Mapping[str, int] = field(default_factory=lambda: MappingProxyType({}))
    default: DefaultLimit = DefaultLimit.SHARE
    grace_seconds: int = GRACE_SECONDS
    dry_run: bool = False

    @property
    def is_on(self) -> bool:
        """Return whether anybody keeps limits."""
        return self.mode is not MemoryMode.OFF


_MODES = Word(words=tuple(MemoryMode))


@dataclass(frozen=True, slots=True, kw_only=True)
class _Mode:
    """A mode. YAML 1.1, which the agent and Kubernetes read, takes a bare ``off`` for false, and ``on`` for true."""

    def check(self, value: object, path: Path) -> list[Problem]:
        if value is False:
            return []
        if value is True:
            message = f"true is no mode (YAML reads a bare 'on' and 'yes' as true): use one of {', '.join(MemoryMode)}"
            return [Problem(path=path, message=message)]
        return _MODES.check(value, path)

    def schema(self) -> Json:
        """Write the same as an OpenAPI schema: without a type, since a structural schema has no two for one field."""
        return {"enum": [*map(str, MemoryMode), False], "x-kubernetes-preserve-unknown-fields": True}


@dataclass(frozen=True, slots=True, kw_only=True)
class _Bytes:
    """A Kubernetes quantity of bytes, or a whole number of them."""

    def check(self, value: object, path: Path) -> list[Problem]:
        found = _bytes(value)
        if found is None:
            return [Problem(path=path, message=f"{shown(value)} is not a quantity of bytes: write one such as 10Gi")]
        if not LEAST_LIMIT <= found <= MOST_LIMIT:
            message = f"{shown(value)} is not from 1Mi to 8Pi: write a quantity with its unit, such as 10Gi"
            return [Problem(path=path, message=message)]
        return []

    def schema(self) -> Json:
        """Write the same as an OpenAPI schema, which can bound numbers alone."""
        return {
            "x-kubernetes-int-or-string": True,
            "anyOf": [{"type": "integer"}, {"type": "string"}],
            "maxLength": _LONGEST_QUANTITY,
            "pattern": "^[0-9.]+([KMGTPE]i|[kMGTPE]|[eE][+]?[0-9]+)?$",
            "minimum": LEAST_LIMIT,
            "maximum": MOST_LIMIT,
        }


MEMORY_FIELDS = Fields(
    kinds={
        "mode": _Mode(),
        "limits": Pairs(keys=NAME, values=_Bytes(), most=MOST_LIMITS),
        "default": Word(words=tuple(DefaultLimit)),
        "graceSeconds": Number(low=1, high=3600),
        "dryRun": Flag(),
    },
)


def parse_memory(value: object, where: Path = ()) -> MemorySettings:
    """Check what ``memory:`` says (JSON) and make it a value; ``where`` is its path in messages.

    Raises:
        InvalidResource: naming each wrong field, its value and the remedy.
    """
    problems = MEMORY_FIELDS.check(value, where)
    if problems or not isinstance(value, Mapping):
        raise InvalidResource(tuple(problems))
    limits = {name: _bytes(quantity) or 0 for name, quantity in (value.get("limits") or {}).items()}
    return MemorySettings(
        mode=MemoryMode(value.get("mode") or MemoryMode.OFF),
        limits=MappingProxyType(limits),
        default=DefaultLimit(value.get("default") or DefaultLimit.SHARE),
        grace_seconds=value.get("graceSeconds") or GRACE_SECONDS,
        dry_run=value.get("dryRun") or False,
    )


def memory_schema() -> Json:
    """Write what ``memory:`` may hold as an OpenAPI schema, as a CRD has it."""
    return MEMORY_FIELDS.schema()


def _bytes(value: object) -> int | None:
    """Read a number of bytes; None for what is none. A fraction of a byte is rounded up, as Kubernetes does."""
    if isinstance(value, int) and not isinstance(value, bool):
        return value
    if not isinstance(value, str) or len(value) > _LONGEST_QUANTITY:
        return None
    found = parse_quantity(value)
    return None if found is None else found.value
