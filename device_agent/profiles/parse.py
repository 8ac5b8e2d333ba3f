"""The text of a profile, in NVIDIA's words, to a value. Pure."""

from collections.abc import Iterator, Mapping, Sequence
from typing import Any

from device_agent.config.yaml_file import plain_document
from device_agent.errors import ConfigurationError, ProfileRefused
from device_agent.profiles.fields import PROFILE_FIELDS, Ignored, full_name
from device_agent.profiles.profile import Naming, Profile, Shared
from device_resources.fields import NAME
from device_resources.kinds import Fields, Kind, Path, Problem, shown
from device_resources.nvidia import AllocationPolicy, MigStrategy
from device_resources.resource import NVIDIA_DOMAIN
from kube_api.text import first_few, printable

LONGEST_PROFILE = 1 << 15
"""Characters. Each entry of YAML costs 1.2 kB while it is read, in a pod with a limit of 40 MiB."""

SHARED_SUFFIX = ".shared"
"""What ``renameByDefault`` puts after the name of a resource."""

_MAX_LISTED = 5
_LONGEST_MESSAGE = 2000
_SHARED: Path = ("sharing", "timeSlicing", "resources")

Plain = Mapping[str, Any]


def parse_profile(text: str, name: str) -> Profile:
    """Read the text of the key ``name``.

    Raises:
        ProfileRefused: names each wrong field, its value and the remedy.
    """
    if len(text) > LONGEST_PROFILE:
        raise ProfileRefused(f"profile {name} is longer than {LONGEST_PROFILE} characters")
    try:
        document = plain_document(text, f"profile {name}")
    except ConfigurationError as error:
        raise ProfileRefused(printable(str(error), _LONGEST_MESSAGE)) from error
    if document is None:
        raise ProfileRefused(f"profile {name} is empty: write at least version: v1, which offers each GPU whole")
    problems = PROFILE_FIELDS.check(document, ())
    if not problems and isinstance(document, Mapping):
        profile = _profile(document)
        problems = [*_both_words(document), *_problems(profile.shared)]
        if not problems:
            return profile
    listed = first_few(problems, _MAX_LISTED, separator="; ")
    raise ProfileRefused(printable(f"profile {name}: {listed}", _LONGEST_MESSAGE))


def _profile(document: Plain) -> Profile:
    flags, resources = document.get("flags") or {}, document.get("resources") or {}
    slicing = (document.get("sharing") or {}).get("timeSlicing") or {}
    strategy, policy = flags.get("migStrategy"), (flags.get("plugin") or {}).get("sharedDevicesAllocationPolicy")
    return Profile(
        mig_strategy=strategy and MigStrategy(strategy),
        policy=policy and AllocationPolicy(policy),
        gpus=_namings(resources.get("gpus")),
        migs=_namings(resources.get("mig") or resources.get("migs")),
        shared=tuple(_shared(entry, bool(slicing.get("renameByDefault"))) for entry in slicing.get("resources") or ()),
        fails_greater_than_one=bool(slicing.get("failRequestsGreaterThanOne")),
        ignored=tuple(_ignored(document, PROFILE_FIELDS, "")),
    )


def _namings(entries: Sequence[Plain] | None) -> tuple[Naming, ...]:
    return tuple(Naming(pattern=entry["pattern"], name=full_name(entry["name"])) for entry in entries or ())


def _shared(entry: Plain, is_renamed: bool) -> Shared:
    name, rename, devices = full_name(entry["name"]), entry.get("rename"), entry.get("devices")
    by_default = f"{name}{SHARED_SUFFIX}" if is_renamed else name
    return Shared(
        name=name,
        becomes=full_name(rename) if rename else by_default,
        replicas=entry["replicas"],
        devices=tuple(map(str, devices)) if isinstance(devices, list) else None if devices == "all" else devices,
    )


def _ignored(value: object, kind: Kind, name: str) -> Iterator[str]:
    """Name the fields that are given and mean nothing."""
    if isinstance(kind, Ignored):
        yield name
    elif isinstance(kind, Fields) and isinstance(value, Mapping):
        for key, item in value.items():
            if item is not None:
                yield from _ignored(item, kind.kinds[key], f"{name}.{key}".removeprefix("."))


def _both_words(document: Plain) -> Iterator[Problem]:
    resources = document.get("resources") or {}
    if resources.get("mig") and resources.get("migs"):
        yield Problem(path=("resources", "migs"), message="and mig are the same field: put them together")


def _problems(entries: Sequence[Shared]) -> Iterator[Problem]:
    """Find what a table of fields cannot say."""
    for index, entry in enumerate(entries):
        path = (*_SHARED, index)
        yield from NAME.check(entry.becomes, path)
        is_nvidia = entry.name.startswith(NVIDIA_DOMAIN)
        if not is_nvidia and entry.devices is not None:
            yield Problem(
                path=(*path, "devices"), message=f"{shown(entry.name)} has no indexes: write all, or remove it"
            )
        domain = entry.name.partition("/")[0]
        if entry.becomes.partition("/")[0] != domain:
            yield Problem(
                path=(*path, "rename"), message=f"{shown(entry.becomes)} is in another domain: write {domain}/NAME"
            )
        if any(_are_same_devices(entry, other) for other in entries[:index]):
            message = f"devices of {shown(entry.name)} are in two entries: write one, or list devices"
            yield Problem(path=path, message=message)


def _are_same_devices(entry: Shared, other: Shared) -> bool:
    """Return whether two entries share a device on any node; of lists it depends on the node."""
    is_listed = isinstance(entry.devices, tuple), isinstance(other.devices, tuple)
    return entry.name == other.name and (not any(is_listed) or None in (entry.devices, other.devices))
