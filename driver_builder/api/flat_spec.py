"""A spec as a snapshot file has it: all fields on one level, under the names of the files' first version. Pure.

Place in the flow: ``plain_data`` writes and reads a :class:`FlatSpec` instead of each :class:`DriverSpec`, so that
files of every version of driver-builder stay readable. A new field of a spec needs a default here.
"""

from collections.abc import Mapping
from dataclasses import dataclass, field

from driver_builder.api.build_settings import BuilderKind, BuildSettings, ConfigMapKey, SourceSpec, UserspaceSettings
from driver_builder.api.driver_spec import (
    DriverSpec,
    Json,
    ModuleSettings,
    PreflightSettings,
    RegistrySettings,
    ValidationSettings,
)
from driver_builder.api.mapping_settings import KernelMapping
from driver_builder.api.rollout_settings import RolloutSettings
from driver_builder.api.stage_settings import StageSettings
from driver_builder.model.build import ModuleSpec, Signing
from driver_builder.model.build_proxy import BuildProxy
from driver_builder.model.images import ImageRepository


@dataclass(frozen=True, slots=True, kw_only=True)
class FlatRegistry:
    """``registry`` of a spec in a file."""

    secret: str | None = None
    plain_http: bool = False
    ca: ConfigMapKey | None = None


@dataclass(frozen=True, slots=True, kw_only=True)
class FlatSpec:
    """``spec`` of a driver in a file."""

    version: str
    node_selector: Mapping[str, str]
    image: ImageRepository
    registry: FlatRegistry
    source: SourceSpec
    template: str | None
    own_template: ConfigMapKey | None
    base_image: str | None
    args: Mapping[str, str]
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
    rollout: RolloutSettings = field(default_factory=RolloutSettings)
    validation: ValidationSettings = field(default_factory=ValidationSettings)
    depends_on: tuple[str, ...] = ()
    stages: StageSettings | None = None
    userspace: UserspaceSettings | None = None
    build_packages: Mapping[str, tuple[str, ...]] = field(default_factory=dict)
    tools_image: str | None = None
    build_proxy: BuildProxy | None = None
    in_tree_modules_to_load: tuple[str, ...] = ()
    firmware_host_path: str | None = None
    build_ca: ConfigMapKey | None = None
    reuse: bool = True
    """Of 0.1, which needs it in a file."""


def flattened(spec: DriverSpec) -> FlatSpec:
    """Return a spec the shape it has in a file."""
    registry, build, module = spec.registry, spec.build, spec.module
    return FlatSpec(
        version=spec.version,
        node_selector=spec.node_selector,
        image=spec.image,
        registry=FlatRegistry(secret=registry.secret, plain_http=registry.plain_http, ca=registry.ca_config_map),
        source=spec.source,
        template=build.template,
        own_template=build.template_config_map,
        base_image=build.base_image,
        args=build.args,
        build_secrets=build.secrets,
        build_resources=build.resources,
        deadline_seconds=build.deadline_seconds,
        builder=build.builder,
        mappings=spec.kernel_mappings,
        modules=module.load_order,
        in_tree_modules_to_remove=module.in_tree_modules_to_remove,
        blacklist=module.blacklist,
        firmware_path=module.firmware_path,
        trust_image=module.trust_image,
        signing=spec.signing,
        follow_repository=spec.preflight.follow_repository,
        tolerations=spec.tolerations,
        priority_class=spec.priority_class_name,
        pull_secrets=spec.image_pull_secrets,
        unused=spec.unused,
        rollout=spec.rollout,
        validation=spec.validation,
        depends_on=spec.depends_on,
        stages=spec.stages,
        userspace=spec.userspace,
        build_packages=build.packages,
        tools_image=build.tools_image,
        build_proxy=build.proxy,
        in_tree_modules_to_load=module.in_tree_modules_to_load,
        firmware_host_path=module.firmware_host_path,
        build_ca=build.ca_config_map,
    )


def nested(flat: FlatSpec) -> DriverSpec:
    """Make the spec of which :func:`flattened` made this shape."""
    registry = flat.registry
    return DriverSpec(
        version=flat.version,
        node_selector=flat.node_selector,
        image=flat.image,
        registry=RegistrySettings(secret=registry.secret, plain_http=registry.plain_http, ca_config_map=registry.ca),
        source=flat.source,
        build=_build(flat),
        kernel_mappings=flat.mappings,
        module=_module(flat),
        signing=flat.signing,
        rollout=flat.rollout,
        preflight=PreflightSettings(follow_repository=flat.follow_repository),
        validation=flat.validation,
        tolerations=flat.tolerations,
        priority_class_name=flat.priority_class,
        image_pull_secrets=flat.pull_secrets,
        unused=flat.unused,
        depends_on=flat.depends_on,
        stages=flat.stages,
        userspace=flat.userspace,
    )


def _build(flat: FlatSpec) -> BuildSettings:
    return BuildSettings(
        template=flat.template,
        template_config_map=flat.own_template,
        base_image=flat.base_image,
        args=flat.args,
        secrets=flat.build_secrets,
        resources=flat.build_resources,
        deadline_seconds=flat.deadline_seconds,
        builder=flat.builder,
        packages=flat.build_packages,
        tools_image=flat.tools_image,
        proxy=flat.build_proxy,
        ca_config_map=flat.build_ca,
    )


def _module(flat: FlatSpec) -> ModuleSettings:
    return ModuleSettings(
        names=tuple(module.name for module in flat.modules),
        parameters={module.name: module.parameters for module in flat.modules if module.parameters},
        in_tree_modules_to_remove=flat.in_tree_modules_to_remove,
        blacklist=flat.blacklist,
        firmware_path=flat.firmware_path,
        trust_image=flat.trust_image,
        in_tree_modules_to_load=flat.in_tree_modules_to_load,
        firmware_host_path=flat.firmware_host_path,
    )
