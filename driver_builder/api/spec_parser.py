"""What each field of a DriverContainer's ``spec`` may hold: JSON to a :class:`DriverSpec`, or to problems. Pure.

Place in the flow: ``driver_container`` parses what the API server returns, ``lint`` what an admin is about to apply.
The CRD's schema says the same (``deploy/crds/drivercontainers.yaml``; a contract test compares them). API servers
before 1.25 do not evaluate its rules, and it cannot express every rule.
"""

from collections.abc import Mapping
from dataclasses import dataclass, replace

import re2

from driver_builder.api.driver_spec import (
    BuilderKind,
    BuildSettings,
    ConfigMapKey,
    ConfigMapSource,
    DriverSpec,
    Json,
    KernelMapping,
    ModuleSettings,
    Pattern,
    PreflightSettings,
    RegistrySettings,
    ValidationSettings,
    compiled,
    literal,
)
from driver_builder.api.rollout_parser import read_rollout
from driver_builder.api.rollout_settings import RolloutSettings
from driver_builder.api.signing_parser import read_signing
from driver_builder.api.source_parser import read_source
from driver_builder.api.spec_reader import Notes, Path, Problem, Reader, shown
from driver_builder.api.spec_rules import (
    ABSOLUTE_PATH,
    ARG,
    ARG_VALUE,
    BASE_IMAGE,
    CONFIG_MAP_KEY,
    DEVICE_NODE,
    FIRMWARE_HOST_PATH,
    KERNEL,
    LABEL_KEY,
    LABEL_VALUE,
    MAX_ITEMS,
    MIRROR,
    MODULE,
    NO_PROXY,
    OBJECT_NAME,
    OPERATING_SYSTEM,
    PACKAGE,
    PARAMETER,
    PREBUILT_IMAGE,
    PROXY,
    QUANTITY,
    REGEXP,
    REPOSITORY,
    TEMPLATE,
    TEXT,
    VERSION,
)
from driver_builder.api.stage_settings import StageSettings
from driver_builder.api.stages_parser import MAX_RETRIES, read_stages
from driver_builder.api.userspace_parser import read_userspace
from driver_builder.api.vendor_parser import check_given, read_vendor
from driver_builder.base.errors import InvalidDriver
from driver_builder.model import images
from driver_builder.model.build import MIRROR_ARG
from driver_builder.model.build_proxy import BuildProxy
from driver_builder.model.images import ImageRepository
from driver_builder.model.userspace import FOLDER

DEPRECATED: Mapping[str, tuple[object, ...]] = {
    "spec.build.reuseAcrossKernels": (True,),
    "spec.retention": (),
}
"""Fields that are ignored since 0.2, each with the values that only lint reports.

The definition of 0.1 wrote ``reuseAcrossKernels: true`` into every driver with a ``build``: nobody asked for it.
"""

MAX_REGEXPS = 16384
"""Characters of all expressions of a spec together: Unicode classes take a second for each few thousand."""

MAX_SECRETS = 16
"""Secrets of a build."""
MAX_SYSTEMS, MAX_PACKAGES = 16, 32
"""Operating systems with further packages, and packages of one."""
MAX_DEVICE_NODES = 16
MAX_DEPENDENCIES = 8
"""Drivers that one driver depends on."""
DEFAULT_CA_KEY = "ca.crt"
MAX_LISTED = 5
"""Problems that one message lists at most."""


@dataclass(frozen=True, slots=True, kw_only=True)
class Reading:
    """The content of a spec. ``spec`` is None if there are ``problems``; ``unknown`` are fields without a meaning."""

    spec: DriverSpec | None
    problems: tuple[Problem, ...]
    unknown: tuple[Path, ...]


def parse_spec(spec: object) -> DriverSpec:
    """Check a spec and make it a value.

    Raises:
        InvalidDriver: naming each wrong field, its value and the remedy.
    """
    reading = read_spec(spec)
    if reading.spec is None:
        listed = [str(problem) for problem in reading.problems[:MAX_LISTED]]
        more = len(reading.problems) - len(listed)
        raise InvalidDriver("; ".join((*listed, f"and {more} more problems") if more else listed))
    return reading.spec


def read_spec(spec: object) -> Reading:
    """Check a spec and find all its problems."""
    notes = Notes()
    reader = Reader(spec, ("spec",), notes)
    made = _spec(reader)
    problems = tuple(notes.problems)
    return Reading(spec=None if problems else made, problems=problems, unknown=notes.unknown)


def _spec(spec: Reader) -> DriverSpec:
    registry, build, module = spec.object("registry"), spec.object("build"), spec.object("module")
    spec.object("retention").number("versions", low=1, high=1000)
    validation, stages = _validation(spec), read_stages(spec)
    mappings = _mappings(spec)
    check_given(spec, module, mappings)
    return DriverSpec(
        version=spec.needed("version", VERSION),
        node_selector=spec.pairs("nodeSelector", LABEL_KEY, LABEL_VALUE),
        image=_repository(spec),
        registry=_registry(registry),
        source=read_source(spec.object("source")) or ConfigMapSource(name=""),
        build=_build(build),
        kernel_mappings=mappings,
        module=_module(module, has_userspace=spec.has("userspace")),
        signing=read_signing(spec),
        rollout=_rollout(spec, stages),
        preflight=PreflightSettings(follow_repository=spec.object("preflight").flag("followRepository")),
        validation=validation,
        tolerations=_tolerations(spec),
        priority_class_name=spec.text("priorityClassName", OBJECT_NAME),
        image_pull_secrets=_names(spec, "imagePullSecrets"),
        depends_on=_depends_on(spec),
        stages=stages,
        userspace=read_userspace(spec),
        unused=(
            *_unused_validation(spec, validation),
            *(field for field, value in deprecated(spec.given).items() if value not in DEPRECATED[field]),
        ),
    )


def _rollout(spec: Reader, stages: StageSettings | None) -> RolloutSettings:
    """Read how drivers are replaced.

    A drain covers NVIDIA's devices unasked, as which resources these are is open, and what a DRA driver has allocated.
    """
    rollout, plugin = read_rollout(spec.object("rollout")), stages.device_plugin if stages is not None else None
    if rollout.drain is None or plugin is None:
        return rollout
    drain = rollout.drain
    if plugin.nvidia is not None:
        drain = replace(drain, resources=(*drain.resources, plugin.claim))
    if plugin.dra is not None:
        drivers = tuple(dict.fromkeys((*drain.dra_drivers, plugin.dra.driver)))
        drain = replace(drain, dra_drivers=drivers, plugin_leaves_last=True)
    return replace(rollout, drain=drain)


def deprecated(spec: object) -> dict[str, object]:
    """Return the ignored fields that a spec sets, with their values."""
    found: dict[str, object] = {}
    for field in DEPRECATED:
        value = spec
        for name in field.split(".")[1:]:
            value = value.get(name) if isinstance(value, Mapping) else None
        if value is not None:
            found[field] = value
    return found


def _repository(spec: Reader) -> ImageRepository:
    match = REPOSITORY.pattern.fullmatch(spec.needed("image", REPOSITORY))
    return ImageRepository(host=match["host"] if match else "", repository=match["repository"] if match else "")


def _names(fields: Reader, name: str, *, most: int = MAX_ITEMS) -> tuple[str, ...]:
    return tuple(item.needed("name", OBJECT_NAME) for item in fields.objects(name, most=most))


def _depends_on(spec: Reader) -> tuple[str, ...]:
    names = _names(spec, "dependsOn", most=MAX_DEPENDENCIES)
    if len(set(names)) < len(names):
        spec.wrong(f"{shown(list(names))} names a driver twice: name each once", "dependsOn")
    return names


def _registry(registry: Reader) -> RegistrySettings:
    ca = _ca(registry)
    plain_http = registry.flag("plainHttp")
    if ca and plain_http:
        registry.wrong(
            "plainHttp and caConfigMap exclude each other, because plain HTTP uses no certificate: remove one"
        )
    return RegistrySettings(secret=registry.reference("secretRef"), plain_http=plain_http, ca_config_map=ca)


def _ca(fields: Reader) -> ConfigMapKey | None:
    given = fields.object("caConfigMap")
    if not fields.has("caConfigMap"):
        return None
    key = given.text("key", CONFIG_MAP_KEY) or DEFAULT_CA_KEY
    return ConfigMapKey(name=given.needed("name", OBJECT_NAME), key=key)


def _build(build: Reader) -> BuildSettings:
    build.flag("reuseAcrossKernels")
    return BuildSettings(
        template=build.text("template", TEMPLATE),
        template_config_map=_template_config_map(build),
        base_image=build.text("baseImage", BASE_IMAGE),
        args=_args(build),
        secrets=_build_secrets(build),
        resources=_resources(build.object("resources")),
        deadline_seconds=build.duration("deadline"),
        builder=build.choice("builder", BuilderKind),
        packages=_packages(build.object("packages")),
        tools_image=build.text("toolsImage", BASE_IMAGE),
        proxy=_proxy(build.object("proxy")) if build.has("proxy") else None,
        ca_config_map=_ca(build),
    )


def _module(module: Reader, *, has_userspace: bool) -> ModuleSettings:
    names = _module_names(module)
    return ModuleSettings(
        names=names,
        parameters=_parameters(module.object("parameters"), names),
        in_tree_modules_to_remove=module.words("inTreeModulesToRemove", MODULE),
        blacklist=module.words("blacklist", MODULE),
        firmware_path=_firmware_path(module, has_userspace=has_userspace),
        trust_image=module.flag("trustImage"),
        in_tree_modules_to_load=module.words("inTreeModulesToLoad", MODULE),
        firmware_host_path=_firmware_host_path(module),
    )


def _firmware_host_path(module: Reader) -> str | None:
    path = module.text("firmwareHostPath", FIRMWARE_HOST_PATH)
    if path and not module.has("firmwarePath"):
        module.wrong("is where the firmware of firmwarePath goes: set that, or remove this field", "firmwareHostPath")
    return path


def _args(fields: Reader) -> dict[str, str]:
    args = fields.pairs("args", ARG, ARG_VALUE)
    if MIRROR_ARG in args:
        fields.check(args[MIRROR_ARG], MIRROR, "args", MIRROR_ARG)
    return args


def _packages(packages: Reader) -> dict[str, tuple[str, ...]]:
    """Read the packages of each operating system, whose order means nothing."""
    packages.bound(len(packages.given), MAX_SYSTEMS)
    for system in packages.given:
        packages.check(system, OPERATING_SYSTEM, system)
    each = {system: packages.words(system, PACKAGE, most=MAX_PACKAGES) for system in packages.given}
    return {system: tuple(sorted(set(names))) for system, names in each.items()}


def _proxy(proxy: Reader) -> BuildProxy:
    if not proxy.has("httpProxy") and not proxy.has("httpsProxy"):
        proxy.wrong("it names no proxy: write httpProxy, httpsProxy or both")
    return BuildProxy(
        http=proxy.text("httpProxy", PROXY) or "",
        https=proxy.text("httpsProxy", PROXY) or "",
        no_proxy=proxy.text("noProxy", NO_PROXY) or "",
        secret=proxy.reference("secretRef"),
    )


def _template_config_map(build: Reader) -> ConfigMapKey | None:
    given = build.object("templateConfigMap")
    if not build.has("templateConfigMap"):
        return None
    if build.has("template"):
        build.wrong("template and templateConfigMap exclude each other: remove one of them")
    return ConfigMapKey(name=given.needed("name", OBJECT_NAME), key=given.needed("key", CONFIG_MAP_KEY))


def _firmware_path(module: Reader, *, has_userspace: bool) -> str | None:
    path = module.text("firmwarePath", ABSOLUTE_PATH)
    if path == "/":
        module.wrong("'/' is the whole file system: name the firmware's folder, such as /source/firmware",
                     "firmwarePath")  # fmt: skip
    if path and f"{path}/".startswith(f"{FOLDER}/") and not has_userspace:
        module.wrong(f"{path!r} is of the user space, which the driver does not have: set spec.userspace",
                     "firmwarePath")  # fmt: skip
    return path.rstrip("/") if path else None


def _build_secrets(build: Reader) -> tuple[str, ...]:
    names = _names(build, "secrets", most=MAX_SECRETS)
    if names and build.given.get("builder") != BuilderKind.JOB:
        build.wrong("can only be given to a build in a Job: set spec.build.builder: job, or remove them", "secrets")
    if len(set(names)) < len(names):
        build.wrong(f"{shown(list(names))} names a Secret twice: name each once", "secrets")
    return names


def _resources(fields: Reader) -> Json:
    return {name: found for name in ("requests", "limits") if (found := _quantities(fields.object(name)))}


def _quantities(fields: Reader) -> Json:
    fields.asked.update(fields.given)
    for name, value in fields.given.items():
        if isinstance(value, bool) or not isinstance(value, int):
            fields.check(value, QUANTITY, name)
    return dict(fields.given)


def _mappings(spec: Reader) -> tuple[KernelMapping, ...]:
    items = list(spec.objects("kernelMappings"))
    texts = [item.given.get("regexp") for item in items]
    length = sum(len(text) for text in texts if isinstance(text, str) and len(text) <= REGEXP.max_length)
    if length > MAX_REGEXPS:
        words = f"their expressions have {length} characters together: write at most {MAX_REGEXPS}"
        spec.wrong(words, "kernelMappings")
        return ()
    return tuple(_mapping(item) for item in items)


def _mapping(item: Reader) -> KernelMapping:
    if item.has("literal") == item.has("regexp"):
        item.wrong("exactly one of literal, regexp is needed")
    exact, regexp = item.text("literal", KERNEL), item.text("regexp", REGEXP)
    mapping = KernelMapping(
        pattern=literal(exact or "") if regexp is None else _pattern(item, regexp),
        literal=exact,
        skip=item.flag("skip"),
        image=_prebuilt(item),
        template=item.text("template", TEMPLATE),
        args=_args(item),
        signing=read_signing(item),
        vendor=read_vendor(item),
    )
    how = mapping.template or mapping.args or mapping.signing
    if mapping.skip and (mapping.image or how):
        item.wrong(
            "skip excludes image, template, args and signing, because no driver runs there: remove skip, or the others"
        )
    elif mapping.image and how:
        item.wrong("image excludes template, args and signing, which only a build uses: remove image, or the others")
    return mapping


def _prebuilt(item: Reader) -> str | None:
    text = item.text("image", PREBUILT_IMAGE)
    try:
        return text if text is None else str(images.parse_full_reference(text))
    except ValueError as error:
        item.wrong(str(error), "image")
        return None


def _pattern(item: Reader, regexp: str) -> Pattern:
    try:
        return compiled(regexp)
    except re2.error as error:
        why = error.args[0].decode(errors="replace")
        item.wrong(
            f"{shown(regexp)} is not a regular expression: {why}: write it in the syntax of RE2, which has no "
            "look-around and no back-references",
            "regexp",
        )
        return literal("")


def _module_names(module: Reader) -> tuple[str, ...]:
    names = module.words("names", MODULE)
    if not module.items("names"):
        module.wrong("name at least one module, in load order", "names")
    return names


def _parameters(parameters: Reader, names: tuple[str, ...]) -> dict[str, tuple[str, ...]]:
    parameters.bound(len(parameters.given), MAX_ITEMS)
    for name in parameters.given:
        if name not in names:
            parameters.wrong(f"{shown(name)} is not in spec.module.names {list(names)}")
    return {name: words for name in names if (words := parameters.words(name, PARAMETER))}


def _tolerations(spec: Reader) -> tuple[Json, ...]:
    """Read the tolerations, whose fields the API server checks."""
    items = spec.items("tolerations")
    for index, item in enumerate(items):
        if not isinstance(item, Mapping):
            spec.wrong(
                f"{shown(item)} is not a toleration: write fields such as operator: Exists", "tolerations", index
            )
    return tuple(items)


def _validation(spec: Reader) -> ValidationSettings:
    validation, default = spec.object("validation"), ValidationSettings()
    device_nodes = validation.words("deviceNodes", DEVICE_NODE, most=MAX_DEVICE_NODES)
    image, command = validation.text("image", BASE_IMAGE), validation.words("command", TEXT)
    timeout, retries = validation.duration("timeout"), validation.number("retries", low=0, high=MAX_RETRIES)
    privileged = validation.flag("privileged") or not validation.has("privileged")
    is_of_devices = bool(validation.given.get("deviceNodes")) and not validation.has("image")
    taint = validation.flag("taint")
    is_of_nothing_else = taint and not validation.has("image")
    if spec.has("validation") and not validation.items("command") and not (is_of_devices or is_of_nothing_else):
        validation.wrong("name at least the program", "command")
    # A command without an image was reserved before images were read: it is not acted on.
    return ValidationSettings(
        device_nodes=device_nodes,
        image=image,
        command=command if image is not None else (),
        timeout_seconds=default.timeout_seconds if timeout is None else timeout,
        retries=default.retries if retries is None else retries,
        privileged=privileged,
        taint=taint,
    )


def _unused_validation(spec: Reader, validation: ValidationSettings) -> tuple[str, ...]:
    given = spec.given.get("validation")
    if validation.has_command or not isinstance(given, Mapping):
        return ()
    return tuple(f"spec.validation.{name}" for name in _OF_A_COMMAND if given.get(name) is not None)


_OF_A_COMMAND = ("command", "timeout", "retries", "privileged")
"""Fields of a validation that mean nothing without an image."""
