"""The DriverContainer object: what an admin asks for, as frozen values.

``parse`` is pure. A spec that cannot be acted on becomes :class:`InvalidDriver` with a message that names the field,
its value and the remedy; the object itself stays readable so that its status can say so.
"""

import re
from collections.abc import Mapping
from dataclasses import dataclass
from typing import Any, Protocol

import re2

from driver_builder.build import ModuleSpec
from driver_builder.errors import InvalidDriver
from kube_api import names

Json = dict[str, Any]

FINALIZER = f"{names.GROUP}/cleanup"

_MODULE_NAME = re.compile(r"[A-Za-z0-9_-]{1,55}")
_PARAMETER = re.compile(r"[A-Za-z0-9_.]+(=[^\s\"'\\$`;|&<>]*)?")
_REPOSITORY = re.compile(r"(?P<host>[a-zA-Z0-9.-]+(?::[0-9]+)?)/(?P<repository>[a-z0-9]+(?:[._/-][a-z0-9]+)*)")
_DIGEST_REFERENCE = re.compile(r"[a-zA-Z0-9.-]+(?::[0-9]+)?/[a-z0-9._/-]+@sha256:[0-9a-f]{64}")

_RE2 = re2.Options()
_RE2.log_errors = False
# Nobody asks what a group matched, and room for the groups of a hostile pattern is gigabytes.
_RE2.never_capture = True

MAX_NAMES_LENGTH = 56
"""``<namespace>.<name>.ready`` is the name part of a label key, which has at most 63 characters."""


@dataclass(frozen=True, slots=True, kw_only=True)
class ImageRepository:
    """``host/repository`` without a tag."""

    host: str
    repository: str

    def __str__(self) -> str:
        return f"{self.host}/{self.repository}"


@dataclass(frozen=True, slots=True, kw_only=True)
class RegistrySettings:
    """How the controller reaches the registry: name of a dockerconfigjson Secret, plain HTTP only when asked."""

    secret: str | None = None
    plain_http: bool = False


@dataclass(frozen=True, slots=True, kw_only=True)
class ConfigMapSource:
    """The driver's source files are the keys of this ConfigMap, in the DriverContainer's namespace."""

    name: str


@dataclass(frozen=True, slots=True, kw_only=True)
class ImageSource:
    """The driver's source lies at ``path`` in the image ``reference``, which is by digest."""

    reference: str
    path: str


class Pattern(Protocol):
    """A compiled regular expression of RE2: no pattern, however it is nested, takes more than linear time."""

    @property
    def pattern(self) -> str:
        """The text it was made of."""

    def fullmatch(self, text: str) -> object | None:
        """Match all of ``text``, or give None."""


@dataclass(frozen=True, slots=True, kw_only=True)
class KernelMapping:
    """One rule of ``spec.kernelMappings``: ``pattern`` matches whole kernel releases; the first match wins."""

    pattern: Pattern
    skip: bool = False
    image: str | None = None
    template: str | None = None
    args: Mapping[str, str]


@dataclass(frozen=True, slots=True, kw_only=True)
class DriverSpec:
    """``spec`` of a DriverContainer, checked."""

    version: str
    node_selector: Mapping[str, str]
    image: ImageRepository
    registry: RegistrySettings
    source: ConfigMapSource | ImageSource
    template: str | None
    base_image: str | None
    args: Mapping[str, str]
    mappings: tuple[KernelMapping, ...]
    modules: tuple[ModuleSpec, ...]
    tolerations: tuple[Json, ...]
    priority_class: str | None
    pull_secrets: tuple[str, ...]


@dataclass(frozen=True, slots=True, kw_only=True)
class DriverContainer:
    """One DriverContainer. ``spec`` is an error where it cannot be acted on; ``status`` is what we wrote last."""

    namespace: str
    name: str
    uid: str
    generation: int
    spec: DriverSpec | InvalidDriver
    status: Json
    rebuild: str | None
    paused: bool
    deleting: bool
    has_finalizer: bool

    @property
    def key(self) -> str:
        """``namespace/name``."""
        return f"{self.namespace}/{self.name}"

    @property
    def ready_label(self) -> str:
        """The node label that says this driver works there."""
        return names.ready_label(self.namespace, self.name)


def parse(obj: Json) -> DriverContainer:
    """Read a DriverContainer object as the API server gives it."""
    metadata = obj["metadata"]
    annotations = metadata.get("annotations") or {}
    try:
        _check_names(metadata)
        spec: DriverSpec | InvalidDriver = parse_spec(obj.get("spec") or {})
    except InvalidDriver as error:
        spec = error
    return DriverContainer(
        namespace=metadata["namespace"],
        name=metadata["name"],
        uid=metadata["uid"],
        generation=int(metadata.get("generation", 1)),
        spec=spec,
        status=obj.get("status") or {},
        rebuild=annotations.get(names.REBUILD_ANNOTATION) or None,
        paused=annotations.get(names.PAUSE_ANNOTATION) == "true",
        deleting="deletionTimestamp" in metadata,
        has_finalizer=FINALIZER in (metadata.get("finalizers") or []),
    )


def parse_spec(spec: Json) -> DriverSpec:
    """Check a spec and make it a value.

    Raises:
        InvalidDriver: naming the first wrong field, its value and the remedy.
    """
    build = spec.get("build") or {}
    registry = spec.get("registry") or {}
    return DriverSpec(
        version=_label_value(spec, "version"),
        node_selector=dict(spec.get("nodeSelector") or {}),
        image=_repository(spec),
        registry=RegistrySettings(
            secret=(registry.get("secretRef") or {}).get("name"), plain_http=bool(registry.get("plainHttp", False))
        ),
        source=_source(spec.get("source") or {}),
        template=build.get("template"),
        base_image=build.get("baseImage"),
        args=dict(build.get("args") or {}),
        mappings=tuple(_mapping(index, item) for index, item in enumerate(spec.get("kernelMappings") or [])),
        modules=_modules(spec.get("module") or {}),
        tolerations=tuple(spec.get("tolerations") or ()),
        priority_class=spec.get("priorityClassName"),
        pull_secrets=tuple(item["name"] for item in spec.get("imagePullSecrets") or ()),
    )


def _check_names(metadata: Json) -> None:
    length = len(metadata["namespace"]) + len(metadata["name"])
    if length > MAX_NAMES_LENGTH:
        raise InvalidDriver(
            f"metadata.name: {metadata['name']!r} and its namespace have {length} characters together; "
            f"the ready label leaves room for {MAX_NAMES_LENGTH}: choose shorter names"
        )


def _label_value(spec: Json, field: str) -> str:
    value = spec.get(field)
    if not isinstance(value, str) or not value or not names.is_label_value(value):
        raise InvalidDriver(
            f"spec.{field}: {value!r} cannot be a label value: use at most 63 letters, digits, '-', '_', '.', "
            "beginning and ending with a letter or digit"
        )
    return value


def _repository(spec: Json) -> ImageRepository:
    value = str(spec.get("image") or "")
    match = _REPOSITORY.fullmatch(value)
    if match is None:
        raise InvalidDriver(
            f"spec.image: {value!r} is no repository: write host[:port]/path without a tag; "
            "the tag is made by driver-builder from everything that goes into the image"
        )
    return ImageRepository(host=match["host"], repository=match["repository"])


def _source(source: Json) -> ConfigMapSource | ImageSource:
    if len(source) != 1:
        given = ", ".join(sorted(source)) or "none"
        raise InvalidDriver(f"spec.source: exactly one of configMap, image is needed, given: {given}")
    if "configMap" in source:
        return ConfigMapSource(name=str(source["configMap"]["name"]))
    if "image" not in source:
        raise InvalidDriver(f"spec.source: {next(iter(source))!r} is unknown: use configMap or image")
    image = source["image"]
    reference = str(image.get("reference") or "")
    if not _DIGEST_REFERENCE.fullmatch(reference):
        raise InvalidDriver(
            f"spec.source.image.reference: {reference!r} is not pinned: write host/repository@sha256:<64 hex digits>"
        )
    path = str(image.get("path") or "/")
    if not path.startswith("/") or ".." in path.split("/"):
        raise InvalidDriver(f"spec.source.image.path: {path!r} must be absolute and without '..'")
    return ImageSource(reference=reference, path=path)


def _mapping(index: int, item: Json) -> KernelMapping:
    field = f"spec.kernelMappings[{index}]"
    if ("literal" in item) == ("regexp" in item):
        raise InvalidDriver(f"{field}: exactly one of literal, regexp is needed")
    return KernelMapping(
        pattern=_pattern(f"{field}.regexp", item["regexp"]) if "regexp" in item else literal(item["literal"]),
        skip=bool(item.get("skip", False)),
        image=item.get("image"),
        template=item.get("template"),
        args=dict(item.get("args") or {}),
    )


def _pattern(field: str, regexp: str) -> Pattern:
    try:
        return compiled(regexp)
    except re2.error as error:
        why = error.args[0].decode(errors="replace")
        raise InvalidDriver(
            f"{field}: {regexp!r} is no regular expression: {why}: write it in the syntax of RE2, which has no "
            "look-around and no back-references"
        ) from error


def compiled(regexp: str) -> Pattern:
    """Compile a regular expression."""
    made: Pattern = re2.compile(regexp, _RE2)
    return made


def literal(text: str) -> Pattern:
    """Make a pattern that matches this text and nothing else."""
    return compiled(re2.escape(text))


def _modules(module: Json) -> tuple[ModuleSpec, ...]:
    modules = module.get("names") or []
    if not modules:
        raise InvalidDriver("spec.module.names: at least one module name is needed, in load order")
    for name in modules:
        if not _MODULE_NAME.fullmatch(name):
            raise InvalidDriver(f"spec.module.names: {name!r} is no module name: use letters, digits, '_' and '-'")
    parameters = module.get("parameters") or {}
    for name, values in parameters.items():
        if name not in modules:
            raise InvalidDriver(f"spec.module.parameters: {name!r} is not in spec.module.names {modules}")
        for value in values:
            if not _PARAMETER.fullmatch(value):
                raise InvalidDriver(f"spec.module.parameters.{name}: {value!r} is no parameter: write name=value")
    return tuple(ModuleSpec(name=name, parameters=tuple(parameters.get(name, ()))) for name in modules)
