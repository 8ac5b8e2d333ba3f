"""What an admin asks for, as frozen values: ``spec`` of a DriverContainer once it is checked.

Place in the flow: ``spec_parser`` makes a :class:`DriverSpec` of JSON, ``desired`` says what follows from it.
"""

from collections.abc import Mapping
from dataclasses import dataclass
from enum import StrEnum
from typing import Any, Protocol

import re2

from driver_builder.model.build import ModuleSpec, Signing, SourceArchive, SourceGit, SourceImage, SourcePackage
from driver_builder.model.images import ImageRepository

Json = dict[str, Any]

_RE2 = re2.Options()
_RE2.log_errors = False
# Nobody asks what a group matched, and room for the groups of a hostile pattern is gigabytes.
_RE2.never_capture = True


@dataclass(frozen=True, slots=True, kw_only=True)
class ConfigMapKey:
    """One text of a ConfigMap in the DriverContainer's namespace."""

    name: str
    key: str


@dataclass(frozen=True, slots=True, kw_only=True)
class RegistrySettings:
    """How the controller reaches the registry: name of a dockerconfigjson Secret, plain HTTP only when asked.

    ``ca`` has the only certificates that are believed, in PEM; without it, they are the controller's.
    """

    secret: str | None = None
    plain_http: bool = False
    ca: ConfigMapKey | None = None


@dataclass(frozen=True, slots=True, kw_only=True)
class ConfigMapSource:
    """The driver's source files are the keys of this ConfigMap, in the DriverContainer's namespace."""

    name: str


SourceSpec = ConfigMapSource | SourceImage | SourceGit | SourceArchive | SourcePackage
"""Where a driver's source comes from. All but the ConfigMap are pinned, so that a builder is given them as they are."""


class BuilderKind(StrEnum):
    """Who builds: the engine that the controller is connected to, or a Kubernetes Job."""

    DOCKER = "docker"
    JOB = "job"


class Pattern(Protocol):
    """A compiled regular expression of RE2: no pattern, however it is nested, takes more than linear time."""

    @property
    def pattern(self) -> str:
        """The text it was made of."""

    def fullmatch(self, text: str) -> object | None:
        """Match all of ``text``, or give None."""


@dataclass(frozen=True, slots=True, kw_only=True)
class KernelMapping:
    """One rule of ``spec.kernelMappings``: ``pattern`` matches whole kernel releases; the first match wins.

    ``literal`` is the kernel release of a rule that names just one; ``signing`` stands in for all of the spec's.
    """

    pattern: Pattern
    literal: str | None = None
    skip: bool = False
    image: str | None = None
    template: str | None = None
    args: Mapping[str, str]
    signing: Signing | None = None


@dataclass(frozen=True, slots=True, kw_only=True)
class DriverSpec:
    """``spec`` of a DriverContainer, checked.

    ``reuse`` allows modules of one kernel on another one that takes them. ``trust_image`` lets an image run that does
    not say which modules it has. ``unused`` names the fields that were set and that this version does not act on.
    """

    version: str
    node_selector: Mapping[str, str]
    image: ImageRepository
    registry: RegistrySettings
    source: SourceSpec
    template: str | None
    own_template: ConfigMapKey | None
    base_image: str | None
    args: Mapping[str, str]
    reuse: bool
    build_secrets: tuple[str, ...]
    build_resources: Json
    deadline_seconds: float | None
    builder: BuilderKind | None
    mappings: tuple[KernelMapping, ...]
    modules: tuple[ModuleSpec, ...]
    in_tree_modules_to_remove: tuple[str, ...]
    blacklist: tuple[str, ...]
    firmware_path: str | None
    trust_image: bool
    signing: Signing | None
    follow_repository: bool
    tolerations: tuple[Json, ...]
    priority_class: str | None
    pull_secrets: tuple[str, ...]
    unused: tuple[str, ...]

    @property
    def certificate_secrets(self) -> tuple[str, ...]:
        """Names of all Secrets with certificates that modules are signed with, for whichever kernels."""
        every = (self.signing, *(mapping.signing for mapping in self.mappings))
        names = {signing.certificate_secret for signing in every if signing}
        return tuple(sorted(name for name in names if name))


def compiled(regexp: str) -> Pattern:
    """Compile a regular expression.

    Raises:
        re2.error: when it is none in the syntax of RE2.
    """
    made: Pattern = re2.compile(regexp, _RE2)
    return made


def literal(text: str) -> Pattern:
    """Make a pattern that matches this text and nothing else."""
    return compiled(re2.escape(text))
