"""What sources find: flags, attributes and instances under names like ``pci.device``. Frozen values and their merge.

The three kinds are those of Node Feature Discovery:

- flags: a set of names, ``cpu.cpuid`` -> {AVX2, ADX}
- attributes: names with a value, ``kernel.version`` -> {full: 6.1.0-31-amd64, major: 6}
- instances: a list of things with attributes, ``pci.device`` -> [{class: 0300, vendor: 10de}]

NamedTuples, because ``dataclasses`` would cost the resident process 2.8 MiB.
"""

from collections.abc import Iterable, Mapping
from types import MappingProxyType
from typing import NamedTuple, Never

Flags = frozenset[str]
Attributes = Mapping[str, str]
Instances = tuple[Attributes, ...]

_NONE: Mapping[str, Never] = MappingProxyType({})


class FileFeatures(NamedTuple):
    """What one file of others says.

    ``expiry``: when which of these names expires, in seconds since 1970. ``expired``: names that are left out because
    they have.
    """

    features: Attributes = _NONE
    labels: Attributes = _NONE
    expiry: Mapping[str, float] = _NONE
    expired: Flags = frozenset()


class Features(NamedTuple):
    """All features by their dotted name; a name that is present with nothing in it was looked for and is empty.

    ``files``: of a source that reads files of others, what each says, None where it could not be read yet; lost in a
    merge.
    """

    flags: Mapping[str, Flags] = _NONE
    attributes: Mapping[str, Attributes] = _NONE
    instances: Mapping[str, Instances] = _NONE
    files: Mapping[str, FileFeatures | None] = _NONE


NO_FEATURES = Features()


class Failed(NamedTuple):
    """A source that could not read what it needed: nothing is known, which is not the same as nothing there."""

    reason: str


def merge(parts: Iterable[Features]) -> Features:
    """Make one of many: flags unite, later attributes overwrite earlier ones, instances follow each other."""
    flags: dict[str, Flags] = {}
    attributes: dict[str, Attributes] = {}
    instances: dict[str, Instances] = {}
    for part in parts:
        for name, some_flags in part.flags.items():
            flags[name] = flags.get(name, frozenset()) | some_flags
        for name, some_attributes in part.attributes.items():
            attributes[name] = {**attributes[name], **some_attributes} if name in attributes else some_attributes
        for name, some_instances in part.instances.items():
            instances[name] = instances.get(name, ()) + some_instances
    return Features(flags, attributes, instances)
