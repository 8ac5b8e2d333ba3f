"""What is wrong with a DriverContainer before it is applied: its object, its spec, and what is odd in it. Pure.

The rules are those of the controller (``spec_parser``). Besides, it reports what is well-formed but not intended:
unknown fields, mappings that never apply, several kernels for one image.
"""

from collections.abc import Iterable, Iterator, Mapping
from dataclasses import dataclass, field
from typing import Any

from driver_builder.api.driver_container import check_names
from driver_builder.api.driver_spec import DriverSpec
from driver_builder.api.spec_parser import DEPRECATED, deprecated, read_spec
from driver_builder.api.spec_reader import Notes, Path, Reader, dotted
from driver_builder.api.spec_rules import OBJECT_NAME
from driver_builder.base.check_result import CheckResult, Status
from driver_builder.base.errors import InvalidDriver
from driver_builder.base.reasons import Reason
from driver_builder.checks.lint_files import Document
from driver_builder.checks.lint_mappings import oddities, undrained, untrusted
from driver_builder.checks.lint_modules import repeated, shared_modules, shared_resource
from driver_builder.checks.lint_packages import without_packages
from driver_builder.checks.lint_signing import unsigned
from driver_builder.checks.lint_stages import without_devices, without_drain
from driver_builder.checks.lint_templates import without_tools_image
from driver_builder.model.driver_key import DriverKey
from driver_builder.model.permissions import Permissions
from driver_builder.snapshot import inventory
from driver_builder.snapshot.inventory import Node
from driver_builder.targets import dependencies, permissions
from kube_api.resources import DRIVER_CONTAINERS

_WITHOUT_IMAGE = "is not acted on without spec.validation.image: name the image that the command runs in"
_EVERY_NODE = (
    "is missing: every node gets the driver, control planes as well; select a label of the nodes that need it, or "
    "write {} if all do"
)


@dataclass(frozen=True, slots=True, kw_only=True)
class Finding(CheckResult):
    """One problem of a field of one driver; ``driver`` and ``check`` are empty for a problem of the file itself."""

    file: str
    line: int
    driver: str = ""


@dataclass(frozen=True, slots=True, kw_only=True)
class Fleet:
    """What is known of the nodes: the nodes, or just their kernels; nothing if both are None."""

    nodes: tuple[Node, ...] | None = None
    kernels: tuple[str, ...] | None = None
    drivers: Mapping[DriverKey, DriverSpec] = field(default_factory=dict)
    """By ``namespace/name``: those of the snapshot, and those that are checked."""
    permissions: Permissions = field(default_factory=Permissions)
    config_maps: Mapping[str, Mapping[str, Any]] = field(default_factory=dict)
    """By ``namespace/name``: the data of those among the files."""

    def template_of(self, key: DriverKey, spec: DriverSpec) -> str | None:
        """Return the text of a driver's custom template, None if it is not among the files."""
        place = spec.build.template_config_map
        if place is None:
            return None
        text = self.config_maps.get(f"{key.namespace}/{place.name}", {}).get(place.key)
        return text if isinstance(text, str) else None

    def kernels_of(self, spec: DriverSpec) -> tuple[str, ...] | None:
        """Return the kernels of the nodes that a driver selects, None if they are not known.

        A snapshot holds only the labels that its drivers select by: a label that none of its nodes has proves nothing.
        """
        if self.nodes is None:
            return self.kernels
        if not set(spec.node_selector) <= {label for node in self.nodes for label in node.labels}:
            return None
        targets = inventory.take(self.nodes, spec.node_selector).targets
        return tuple(target.kernel_version for target in targets)


def key_of(value: Mapping[str, Any]) -> DriverKey:
    """Return ``namespace/name`` of an object."""
    metadata = value.get("metadata")
    metadata = metadata if isinstance(metadata, Mapping) else {}
    return DriverKey(f"{metadata.get('namespace') or 'default'}/{metadata.get('name', '')}")


def drivers(
    value: Any, path: Path = (), *, kind: str = DRIVER_CONTAINERS.kind
) -> Iterator[tuple[Mapping[str, Any], Path]]:
    """Find the DriverContainers of a document, or the objects of another kind, also in a List."""
    return ((found, place) for found, place in objects(value, path) if found.get("kind") == kind)


def objects(value: Any, path: Path = ()) -> Iterator[tuple[Mapping[str, Any], Path]]:
    """Find the objects of a document, also in a List."""
    if not isinstance(value, Mapping):
        return
    if str(value.get("kind", "")).endswith("List") and isinstance(value.get("items"), list):
        for index, item in enumerate(value["items"]):
            yield from objects(item, (*path, "items", index))
    else:
        yield value, path


def lint(document: Document, value: Mapping[str, Any], path: Path, fleet: Fleet) -> list[Finding]:
    """Return all problems of one DriverContainer, in the order of its lines."""
    metadata = value.get("metadata")
    name = str(metadata.get("name", "")) if isinstance(metadata, Mapping) else ""
    findings = [
        Finding(
            file=document.file,
            line=document.line((*path, *field)),
            status=status,
            driver=name,
            check=dotted(field),
            message=message,
        )
        for status, field, message in (*_object(value), *_spec(key_of(value), value.get("spec"), fleet))
    ]
    return sorted(findings, key=lambda finding: finding.line)


_Said = tuple[Status, Path, str]


def _object(value: Mapping[str, Any]) -> Iterator[_Said]:
    """Check the object without its spec."""
    notes = Notes()
    reader = Reader(value, (), notes)
    for known in ("kind", "spec", "status"):
        reader.raw(known)
    if reader.raw("apiVersion") != DRIVER_CONTAINERS.api_version:
        reader.wrong(f"{value.get('apiVersion')!r} is unknown: write {DRIVER_CONTAINERS.api_version}", "apiVersion")
    metadata = reader.object("metadata")
    metadata.asked.update(map(str, metadata.given))
    written = metadata.needed("name", OBJECT_NAME)
    try:
        check_names({"namespace": str(metadata.given.get("namespace") or "default"), "name": written})
    except InvalidDriver as error:
        metadata.wrong(str(error).partition(": ")[2], "name")
    for problem in notes.problems:
        yield Status.FAILED, problem.path, problem.message
    yield from _unknown(notes.unknown)


def _spec(key: DriverKey, spec: object, fleet: Fleet) -> Iterator[_Said]:
    reading = read_spec(spec)
    for problem in reading.problems:
        yield Status.FAILED, problem.path, problem.message
    yield from _unknown(reading.unknown)
    if reading.spec is None:
        return
    if isinstance(spec, Mapping) and spec.get("nodeSelector") is None:
        yield Status.WARNING, ("spec", "nodeSelector"), _EVERY_NODE
    for unused in dict.fromkeys((*reading.spec.unused, *deprecated(spec))):
        words = "is deprecated, and ignored since 0.2: remove it" if unused in DEPRECATED else _WITHOUT_IMAGE
        yield Status.WARNING, tuple(unused.split(".")), words
    for index, message in repeated(reading.spec.module.names):
        yield Status.FAILED, ("spec", "module", "names", index), message
    secrets = permissions.protected_secrets(key, reading.spec, fleet.drivers.items, fleet.permissions)
    for refusal in permissions.of_spec(reading.spec, fleet.permissions, secrets):
        yield Status.FAILED, refusal.path, refusal.message
    for message in without_tools_image(reading.spec, fleet.template_of(key, reading.spec)):
        yield Status.FAILED, ("spec", "build", "toolsImage"), message
    warnings: Iterable[tuple[Path, Iterable[str]]] = (
        (("spec", "signing"), unsigned(reading.spec, fleet.nodes or ())),
        (("spec", "build", "packages"), without_packages(reading.spec, fleet.nodes or ())),
        (("spec", "module"), shared_modules(key, reading.spec, fleet.drivers, fleet.nodes or ())),
        (("spec", "stages", "devicePlugin"), shared_resource(key, reading.spec, fleet.drivers, fleet.nodes or ())),
    )
    for path, messages in warnings:
        yield from ((Status.WARNING, path, message) for message in messages)
    of_stages = (*without_devices(reading.spec), *without_drain(reading.spec))
    yield from ((Status.WARNING, path, message) for path, message in of_stages)
    for obstacle in dependencies.obstacles(key, reading.spec, fleet.drivers):
        # The manifest of a missing driver may be elsewhere.
        status = Status.FAILED if obstacle.reason is Reason.DEPENDENCY_CYCLE else Status.WARNING
        yield status, ("spec", "dependsOn"), obstacle.message
    of_mappings = oddities(reading.spec.kernel_mappings, fleet.kernels_of(reading.spec))
    for oddity in (*of_mappings, *untrusted(reading.spec), *undrained(reading.spec)):
        status = Status.FAILED if oddity.is_error else Status.WARNING
        yield status, ("spec", "kernelMappings", oddity.index), oddity.message


def _unknown(paths: Iterable[Path]) -> Iterator[_Said]:
    for path in paths:
        yield (
            Status.FAILED,
            path,
            "is not a field of a DriverContainer; the API server would drop it: look for a misspelling",
        )
