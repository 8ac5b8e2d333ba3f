"""The fields of a profile, and what each may hold: all that NVIDIA's device plugin 0.20 has.

What other fields mean for each other is checked in :mod:`device_agent.profiles.parse`.
"""

import re
from collections.abc import Mapping
from dataclasses import dataclass

from device_agent.gpu_state.state import MOST_CARDS
from device_resources.fields import MAX_SHARES, NAME
from device_resources.kinds import Fields, Flag, Items, Json, Kind, Number, Path, Problem, Text, Word, shown
from device_resources.nvidia_fields import MIG_STRATEGIES, POLICIES
from device_resources.resource import NVIDIA_DOMAIN

MOST_ENTRIES = 64
"""Patterns, and shared resources."""
MOST_NAMED = 256
"""Devices that one entry names, or counts."""

_DEVICE = re.compile(r"[0-9]{1,3}(:[0-9]{1,3})?|(GPU|MIG)-[A-Za-z0-9/-]{1,100}")
_UNKNOWN_DEVICE = "write an index such as 0, a MIG index such as '1:0' in quotes, or a UUID"


def full_name(name: str) -> str:
    """Return the whole name of a resource: one without a domain is NVIDIA's."""
    return name if "/" in name else f"{NVIDIA_DOMAIN}{name}"


@dataclass(frozen=True, slots=True, kw_only=True)
class Ignored:
    """A field of NVIDIA's plugin that means nothing here, whatever it holds."""

    def check(self, value: object, path: Path) -> list[Problem]:  # noqa: ARG002 - a Kind has this form
        """Find nothing."""
        return []

    def schema(self) -> Json:
        """Allow everything."""
        return {}


@dataclass(frozen=True, slots=True, kw_only=True)
class Refused:
    """A field of NVIDIA's plugin that would change what containers get, and is not supported: ``why``."""

    why: str

    def check(self, value: object, path: Path) -> list[Problem]:  # noqa: ARG002 - as above
        """Refuse it."""
        return [Problem(path=path, message=f"is not supported: {self.why}")]

    def schema(self) -> Json:
        """Allow nothing."""
        return {"not": {}}


@dataclass(frozen=True, slots=True, kw_only=True)
class ResourceName:
    """The name of a resource, with or without ``nvidia.com/``. ``is_nvidia``: another domain is refused."""

    is_nvidia: bool

    def check(self, value: object, path: Path) -> list[Problem]:
        """Find what is wrong with a value."""
        if not isinstance(value, str):
            return NAME.check(value, path)
        if problems := NAME.check(full_name(value), path):
            return problems
        if self.is_nvidia and not full_name(value).startswith(NVIDIA_DOMAIN):
            return [Problem(path=path, message=f"{shown(value)} is not in {NVIDIA_DOMAIN}: write {NVIDIA_DOMAIN}NAME")]
        return []

    def schema(self) -> Json:
        """Allow texts: what is completed has no pattern of its own."""
        return {"type": "string", "maxLength": NAME.longest}


@dataclass(frozen=True, slots=True, kw_only=True)
class Devices:
    """``all``, a number of devices, or a list of them."""

    def check(self, value: object, path: Path) -> list[Problem]:
        """Find what is wrong with a value."""
        if value == "all":
            return []
        if isinstance(value, list):
            return Items(kind=_DeviceName(), most=MOST_NAMED).check(value, path) or _named_twice(value, path)
        if isinstance(value, int):
            return Number(low=1, high=MOST_NAMED).check(value, path)
        return [Problem(path=path, message=f"{shown(value)} is not valid: write all, a number, or a list of devices")]

    def schema(self) -> Json:
        """Write the same as an OpenAPI schema."""
        return {"anyOf": [{"enum": ["all"]}, {"type": "integer"}, {"type": "array"}]}


@dataclass(frozen=True, slots=True, kw_only=True)
class _DeviceName:
    def check(self, value: object, path: Path) -> list[Problem]:
        text = str(value) if type(value) is int and 0 <= value < MOST_CARDS else value
        if isinstance(text, str) and _DEVICE.fullmatch(text):
            return []
        return [Problem(path=path, message=f"{shown(value)} is not a device: {_UNKNOWN_DEVICE}")]

    def schema(self) -> Json:
        return {}


def _named_twice(value: list[object], path: Path) -> list[Problem]:
    texts = [str(one) for one in value]
    return [
        Problem(path=(*path, index), message=f"{shown(text)} is named twice")
        for index, text in enumerate(texts)
        if text in texts[:index]
    ]


_ELSEWHERE: Mapping[str, str] = {
    **dict.fromkeys(("migStrategy", "plugin", "gfd", "failOnInitError", "nvidiaDriverRoot"), "flags"),
    **dict.fromkeys(("sharedDevicesAllocationPolicy", "deviceListStrategy", "passDeviceSpecs"), "flags.plugin"),
    **dict.fromkeys(("timeSlicing", "mps"), "sharing"),
    **dict.fromkeys(("renameByDefault", "failRequestsGreaterThanOne"), "sharing.timeSlicing"),
    **dict.fromkeys(("rename", "devices", "replicas"), "sharing.timeSlicing.resources[]"),
    **dict.fromkeys(("gpus", "mig", "migs"), "resources"),
    "pattern": "resources.gpus[]",
}
"""Where a field belongs that stands at another place."""


def _fields(kinds: Mapping[str, Kind], required: tuple[str, ...] = ()) -> Fields:
    return Fields(kinds=kinds, required=required, elsewhere=_ELSEWHERE)


def _ignored(*names: str) -> dict[str, Kind]:
    return dict.fromkeys(names, Ignored())


_PATTERN = Text(
    pattern=r"[^\x00-\x1f\x7f]+", words="must be a product or a MIG profile, with * for any text", longest=128
)
_NAMING = _fields({"pattern": _PATTERN, "name": ResourceName(is_nvidia=True)}, ("pattern", "name"))
_NAMINGS = Items(kind=_NAMING, most=MOST_ENTRIES, least=0)
_SHARED = _fields(
    {
        "name": ResourceName(is_nvidia=False),
        "rename": ResourceName(is_nvidia=False),
        "devices": Devices(),
        "replicas": Number(low=1, high=MAX_SHARES),
    },
    ("name", "replicas"),
)
_PLUGIN = _fields(
    {
        "sharedDevicesAllocationPolicy": Word(words=POLICIES),
        **_ignored("passDeviceSpecs", "deviceListStrategy", "deviceIDStrategy", "cdiAnnotationPrefix", "nvidiaCTKPath"),
        **_ignored("containerDriverRoot"),
    }
)
_FLAGS = _fields(
    {
        "migStrategy": Word(words=MIG_STRATEGIES),
        "plugin": _PLUGIN,
        "gfd": _fields(_ignored("oneshot", "noTimestamp", "sleepInterval", "outputFile", "machineTypeFile")),
        **_ignored(
            "failOnInitError", "restartOnDeviceUnhealthy", "nvidiaDriverRoot", "nvidiaDevRoot", "gdrcopyEnabled"
        ),
        **_ignored("gdsEnabled", "mofedEnabled", "useNodeFeatureAPI", "deviceDiscoveryStrategy", "mpsRoot"),
    }
)
_TIME_SLICING = _fields(
    {
        "renameByDefault": Flag(),
        "failRequestsGreaterThanOne": Flag(),
        "resources": Items(kind=_SHARED, most=MOST_ENTRIES),
    },
    ("resources",),
)

PROFILE_FIELDS = _fields(
    {
        "version": Word(words=("v1",)),
        "flags": _FLAGS,
        "resources": _fields({"gpus": _NAMINGS, "mig": _NAMINGS, "migs": _NAMINGS}),
        "sharing": _fields(
            {
                "timeSlicing": _TIME_SLICING,
                "mps": Refused(why="use timeSlicing, or NVIDIA's device plugin"),
            }
        ),
        "imex": Refused(why="remove it, or use NVIDIA's device plugin"),
    },
    ("version",),
)
