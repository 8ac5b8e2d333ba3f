"""What an admin asks for, as frozen values: the checked ``spec`` of a DriverContainer, a class for each object.

A field has the name of its field in the manifest, in snake_case. A reference to an object that has only a name is that
name: ``secretRef.name`` is ``secret``, ``imagePullSecrets[].name`` are ``image_pull_secrets``.

Place in the flow: ``spec_parser`` makes a :class:`DriverSpec` of JSON, ``targets`` says what follows from it.
"""

from collections.abc import Mapping
from dataclasses import dataclass, field
from enum import StrEnum
from typing import Any, Protocol

import re2

from driver_builder.api.environment import EnvironmentVariable
from driver_builder.api.rollout_settings import RolloutSettings
from driver_builder.api.stage_settings import DevicePluginSettings, StageSettings
from driver_builder.model.build import ModuleSpec, Signing, SourceArchive, SourceGit, SourceImage, SourcePackage
from driver_builder.model.build_proxy import BuildProxy
from driver_builder.model.images import ImageRepository
from driver_builder.model.userspace import Userspace

Json = dict[str, Any]

_RE2 = re2.Options()
_RE2.log_errors = False
# Groups are never read, and room for the groups of a hostile pattern is gigabytes.
_RE2.never_capture = True


@dataclass(frozen=True, slots=True, kw_only=True)
class ConfigMapKey:
    """One text of a ConfigMap in the DriverContainer's namespace."""

    name: str
    key: str


@dataclass(frozen=True, slots=True, kw_only=True)
class RegistrySettings:
    """``spec.registry``: how the controller connects to it. ``secret`` names a dockerconfigjson Secret.

    ``ca_config_map`` has the only trusted certificates, in PEM; without it, the controller's are trusted.
    """

    secret: str | None = None
    plain_http: bool = False
    ca_config_map: ConfigMapKey | None = None


@dataclass(frozen=True, slots=True, kw_only=True)
class ConfigMapSource:
    """The driver's source files are the keys of this ConfigMap, in the DriverContainer's namespace."""

    name: str


SourceSpec = ConfigMapSource | SourceImage | SourceGit | SourceArchive | SourcePackage
"""Where a driver's source comes from. All but the ConfigMap are pinned, so that every build gets the same."""


class BuilderKind(StrEnum):
    """Who builds: the engine that the controller is connected to, or a Kubernetes Job."""

    DOCKER = "docker"
    JOB = "job"


class Pattern(Protocol):
    """A compiled regular expression of RE2: every pattern, however nested, takes linear time."""

    @property
    def pattern(self) -> str:
        """The text it was made of."""

    def fullmatch(self, text: str) -> object | None:
        """Match all of ``text``, or give None."""


@dataclass(frozen=True, slots=True, kw_only=True)
class BuildSettings:
    """``spec.build``: ``template`` names one of ours, ``template_config_map`` has a custom one.

    ``secrets`` are names. ``packages`` are further ones that a build needs, by the ``ID`` of the operating system.
    ``tools_image`` is the Debian image of the tools that templates of other distributions need. ``ca_config_map`` has
    certificates, in PEM, that builds trust besides those of their images.
    """

    template: str | None
    template_config_map: ConfigMapKey | None
    base_image: str | None
    args: Mapping[str, str]
    secrets: tuple[str, ...]
    resources: Json
    deadline_seconds: float | None
    builder: BuilderKind | None
    packages: Mapping[str, tuple[str, ...]] = field(default_factory=dict)
    tools_image: str | None = None
    proxy: BuildProxy | None = None
    ca_config_map: ConfigMapKey | None = None


@dataclass(frozen=True, slots=True, kw_only=True)
class ModuleSettings:
    """``spec.module``: ``names`` in load order, ``parameters`` of those that have any.

    ``trust_image`` allows an image that does not say which modules it has. ``firmware_host_path`` is where firmware
    goes on nodes, None for ``/lib/firmware``.
    """

    names: tuple[str, ...]
    parameters: Mapping[str, tuple[str, ...]]
    in_tree_modules_to_remove: tuple[str, ...]
    blacklist: tuple[str, ...]
    firmware_path: str | None
    trust_image: bool
    in_tree_modules_to_load: tuple[str, ...] = ()
    firmware_host_path: str | None = None

    @property
    def load_order(self) -> tuple[ModuleSpec, ...]:
        """Each module with its parameters, the first one to load first."""
        return tuple(ModuleSpec(name=name, parameters=self.parameters.get(name, ())) for name in self.names)


@dataclass(frozen=True, slots=True, kw_only=True)
class UserspaceSettings:
    """``spec.userspace``: what is built into the image, and where nodes have it; None for the place of every driver."""

    build: Userspace
    host_path: str | None = None


@dataclass(frozen=True, slots=True, kw_only=True)
class PreflightSettings:
    """``spec.preflight``: whether images are built for kernels that no node runs yet."""

    follow_repository: bool


@dataclass(frozen=True, slots=True, kw_only=True)
class ValidationSettings:
    """``spec.validation``: what a ready label needs besides the load.

    ``device_nodes`` are files below ``/dev``. ``command`` runs once per node and boot in ``image``, and is tried again
    ``retries`` times; it is empty where there is no image. With ``taint`` nodes are tainted until the driver is proven
    there in this boot.
    """

    device_nodes: tuple[str, ...] = ()
    image: str | None = None
    command: tuple[str, ...] = ()
    timeout_seconds: float = 300.0
    retries: int = 2
    privileged: bool = True
    taint: bool = False

    @property
    def has_command(self) -> bool:
        """Return whether a command has to succeed."""
        return self.image is not None

    @property
    def is_set(self) -> bool:
        """Return whether a ready label needs anything besides the load."""
        return self.has_command or bool(self.device_nodes)


class LoadedBy(StrEnum):
    """Who loads the modules of a prebuilt image: our loader, or the image's own program."""

    OURS = "ours"
    IMAGE = "image"


class Propagation(StrEnum):
    """How mounts below a folder of the node are seen on the other side, in Kubernetes' words."""

    NONE = "None"
    HOST_TO_CONTAINER = "HostToContainer"
    BIDIRECTIONAL = "Bidirectional"


@dataclass(frozen=True, slots=True, kw_only=True)
class HostPath:
    """A folder of the node that an image's own program sees at ``mount_path``."""

    path: str
    mount_path: str
    read_only: bool = False
    propagation: Propagation | None = None


@dataclass(frozen=True, slots=True, kw_only=True)
class ContainerSettings:
    """``kernelMappings[].container``: how an image's own program is run; empty words are those of the image.

    ``timeout_seconds`` is how long it may take until the modules are live.
    """

    command: tuple[str, ...] = ()
    args: tuple[str, ...] = ()
    env: tuple[EnvironmentVariable, ...] = ()
    host_paths: tuple[HostPath, ...] = ()
    timeout_seconds: float = 1200.0


@dataclass(frozen=True, slots=True, kw_only=True)
class VendorSettings:
    """How the modules of a prebuilt image are loaded; ``dir_name`` is its folder with ``lib/modules/<kernel>``."""

    loader: LoadedBy = LoadedBy.OURS
    dir_name: str | None = None
    container: ContainerSettings = field(default_factory=ContainerSettings)

    @property
    def is_for_many_kernels(self) -> bool:
        """Return whether the image may be that of several kernels; one in our layout is built for one."""
        return self.loader is LoadedBy.IMAGE or self.dir_name is not None


@dataclass(frozen=True, slots=True, kw_only=True)
class KernelMapping:
    """One rule of ``spec.kernelMappings``: ``pattern`` matches whole kernel releases; the first match wins.

    ``literal`` is the kernel release of a rule that names just one; ``signing`` replaces all of the spec's. ``vendor``
    says how the modules of ``image`` are loaded.
    """

    pattern: Pattern
    literal: str | None = None
    skip: bool = False
    image: str | None = None
    template: str | None = None
    args: Mapping[str, str]
    signing: Signing | None = None
    vendor: VendorSettings = field(default_factory=VendorSettings)


@dataclass(frozen=True, slots=True, kw_only=True)
class DriverSpec:
    """``spec`` of a DriverContainer, checked.

    ``unused`` names the fields that were set and that this version ignores: they have no values here.
    """

    version: str
    node_selector: Mapping[str, str]
    image: ImageRepository
    registry: RegistrySettings
    source: SourceSpec
    build: BuildSettings
    kernel_mappings: tuple[KernelMapping, ...]
    module: ModuleSettings
    signing: Signing | None
    rollout: RolloutSettings
    preflight: PreflightSettings
    validation: ValidationSettings
    tolerations: tuple[Json, ...]
    priority_class_name: str | None
    image_pull_secrets: tuple[str, ...]
    unused: tuple[str, ...]
    depends_on: tuple[str, ...] = ()
    """Names of drivers of the same namespace whose modules are loaded before these, and unloaded after them."""
    stages: StageSettings | None = None
    """What follows on a node once the driver is proven there; None for nothing."""
    userspace: UserspaceSettings | None = None

    @property
    def device_plugin(self) -> DevicePluginSettings | None:
        """The device plugin among the stages, None without one."""
        return self.stages.device_plugin if self.stages is not None else None

    @property
    def certificate_secrets(self) -> tuple[str, ...]:
        """Names of all Secrets with certificates that modules are signed with, for any kernel."""
        every = (self.signing, *(mapping.signing for mapping in self.kernel_mappings))
        names = {signing.certificate_secret for signing in every if signing}
        return tuple(sorted(name for name in names if name))


def compiled(regexp: str) -> Pattern:
    """Compile a regular expression.

    Raises:
        re2.error: when it is not one in the syntax of RE2.
    """
    made: Pattern = re2.compile(regexp, _RE2)
    return made


def literal(text: str) -> Pattern:
    """Make a pattern that matches this text and nothing else."""
    return compiled(re2.escape(text))
