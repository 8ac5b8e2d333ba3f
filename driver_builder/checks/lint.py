"""What is wrong with a DriverContainer before it is applied: its object, its spec, and what is odd in it. Pure.

The rules are those of the controller (``spec_parser``). Besides, it reports what is well-formed but not intended:
unknown fields, mappings that never apply, several kernels for one image.
"""

from collections.abc import Iterable, Iterator, Mapping
from dataclasses import dataclass, field
from typing import Any

from driver_builder.api.driver_container import check_names
from driver_builder.api.driver_spec import DriverSpec
from driver_builder.api.spec_parser import DEPRECATED, Reading, deprecated, read_spec
from driver_builder.api.spec_reader import Notes, Path, Reader
from driver_builder.api.spec_rules import OBJECT_NAME
from driver_builder.base.check_result import Remark, Status
from driver_builder.base.errors import InvalidDriver
from driver_builder.base.reasons import Reason
from driver_builder.checks.lint_files import Document, FileResult
from driver_builder.checks.lint_mappings import oddities, undrained, untrusted
from driver_builder.checks.lint_modules import repeated, shared_modules, shared_resource
from driver_builder.checks.lint_spec import (
    unsigned,
    without_devices,
    without_drain,
    without_packages,
    without_tools_image,
)
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
class LintContext:
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


Found = tuple[Document, Mapping[str, Any], Path]
"""An object, the document that it is in, and the way to it there."""


def found(documents: Iterable[Document | FileResult], kind: str = DRIVER_CONTAINERS.kind) -> Iterator[Found]:
    """Find the objects of a kind, also in Lists."""
    for document in documents:
        if isinstance(document, Document):
            yield from ((document, value, path) for value, path in objects(document.value) if value.get("kind") == kind)


def specs(values: Iterable[Mapping[str, Any]]) -> dict[DriverKey, DriverSpec]:
    """Read the specs of DriverContainers; those that are invalid are left out."""
    read = ((key_of(value), read_spec(value.get("spec")).spec) for value in values)
    return {key: spec for key, spec in read if spec is not None}


def objects(value: Any, path: Path = ()) -> Iterator[tuple[Mapping[str, Any], Path]]:
    """Find the objects of a document, also in a List."""
    if not isinstance(value, Mapping):
        return
    if str(value.get("kind", "")).endswith("List") and isinstance(value.get("items"), list):
        for index, item in enumerate(value["items"]):
            yield from objects(item, (*path, "items", index))
    else:
        yield value, path


def lint(document: Document, value: Mapping[str, Any], path: Path, fleet: LintContext) -> list[FileResult]:
    """Return all problems of one DriverContainer, in the order of its lines."""
    metadata = value.get("metadata")
    name = str(metadata.get("name", "")) if isinstance(metadata, Mapping) else ""
    remarks = (*_object(value), *_spec(key_of(value), value.get("spec"), fleet))
    return sorted((document.result(path, remark, name) for remark in remarks), key=lambda result: result.line)


def _object(value: Mapping[str, Any]) -> Iterator[Remark]:
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
    yield from _wrong(notes)


def _spec(key: DriverKey, spec: object, fleet: LintContext) -> Iterator[Remark]:
    reading = read_spec(spec)
    yield from _wrong(reading)
    if reading.spec is None:
        return
    if isinstance(spec, Mapping) and spec.get("nodeSelector") is None:
        yield Remark(("spec", "nodeSelector"), _EVERY_NODE)
    for unused in dict.fromkeys((*reading.spec.unused, *deprecated(spec))):
        words = "is deprecated, and ignored since 0.2: remove it" if unused in DEPRECATED else _WITHOUT_IMAGE
        yield Remark(tuple(unused.split(".")), words)
    yield from repeated(reading.spec.module.names)
    secrets = permissions.protected_secrets(key, reading.spec, fleet.drivers.items, fleet.permissions)
    for refusal in permissions.of_spec(reading.spec, fleet.permissions, secrets):
        yield Remark(refusal.path, refusal.message, Status.FAILED)
    nodes = fleet.nodes or ()
    yield from without_tools_image(reading.spec, fleet.template_of(key, reading.spec))
    yield from unsigned(reading.spec, nodes)
    yield from without_packages(reading.spec, nodes)
    yield from shared_modules(key, reading.spec, fleet.drivers, nodes)
    yield from shared_resource(key, reading.spec, fleet.drivers, nodes)
    yield from without_devices(reading.spec)
    yield from without_drain(reading.spec)
    for obstacle in dependencies.obstacles(key, reading.spec, fleet.drivers):
        # The manifest of a missing driver may be elsewhere.
        status = Status.FAILED if obstacle.reason is Reason.DEPENDENCY_CYCLE else Status.WARNING
        yield Remark(("spec", "dependsOn"), obstacle.message, status)
    yield from oddities(reading.spec.kernel_mappings, fleet.kernels_of(reading.spec))
    yield from untrusted(reading.spec)
    yield from undrained(reading.spec)


def _wrong(reading: Notes | Reading) -> Iterator[Remark]:
    for problem in reading.problems:
        yield Remark(problem.path, problem.message, Status.FAILED)
    for path in reading.unknown:
        words = "is not a field of a DriverContainer; the API server would drop it: look for a misspelling"
        yield Remark(path, words, Status.FAILED)
