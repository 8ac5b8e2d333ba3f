"""``driver-builder lint``: reports errors in DriverContainers before they are applied. No cluster is needed.

The rules are those of the controller (``spec_parser``). Besides, it reports what is well-formed but not intended:
unknown fields, mappings that never apply, several kernels for one image.
"""

import argparse
from collections.abc import Iterable, Iterator, Mapping
from dataclasses import asdict, dataclass, field, replace
from enum import StrEnum
from pathlib import Path as FilePath
from typing import Any

import yaml

from driver_builder import config, plain_data, snapshot_file
from driver_builder.api.driver_container import DriverContainer, check_names
from driver_builder.api.driver_spec import DriverSpec
from driver_builder.api.spec_parser import DEPRECATED, deprecated, read_spec
from driver_builder.api.spec_reader import Notes, Path, Reader, dotted
from driver_builder.api.spec_rules import OBJECT_NAME
from driver_builder.cli import output
from driver_builder.cli.common import EXIT_FAILED, EXIT_OK, add_output_flag
from driver_builder.config import Settings
from driver_builder.desired import dependencies, permissions
from driver_builder.errors import ConfigurationError, InvalidDriver
from driver_builder.lint.lint_files import Document, Unreadable, read_documents, read_text
from driver_builder.lint.lint_mappings import oddities, undrained, untrusted
from driver_builder.lint.lint_modules import repeated, shared_modules, shared_resource
from driver_builder.lint.lint_packages import without_packages
from driver_builder.lint.lint_signing import unsigned
from driver_builder.lint.lint_stages import without_devices, without_drain
from driver_builder.lint.lint_templates import without_tools_image
from driver_builder.model.driver_key import namespace_of
from driver_builder.model.permissions import Permissions
from driver_builder.observed import inventory
from driver_builder.observed.inventory import Node
from driver_builder.planning.plan_view import PlanSettings
from driver_builder.reasons import Reason
from kube_api.resources import CONFIG_MAPS, DRIVER_CONTAINERS

_WITHOUT_IMAGE = "is not acted on without spec.validation.image: name the image that the command runs in"
_EVERY_NODE = (
    "is missing: every node gets the driver, control planes as well; select a label of the nodes that need it, or "
    "write {} if all do"
)


class Severity(StrEnum):
    """An error keeps the driver from working; a warning is something to know."""

    ERROR = "error"
    WARNING = "warning"


@dataclass(frozen=True, slots=True, kw_only=True)
class Finding:
    """One problem of one driver; ``driver`` is empty for a problem of the file itself."""

    file: str
    line: int
    severity: Severity
    driver: str
    field: str
    message: str


@dataclass(frozen=True, slots=True, kw_only=True)
class Fleet:
    """What is known of the nodes: the nodes, or just their kernels; nothing if both are None."""

    nodes: tuple[Node, ...] | None = None
    kernels: tuple[str, ...] | None = None
    drivers: Mapping[str, DriverSpec] = field(default_factory=dict)
    """By ``namespace/name``: those of the snapshot, and those that are checked."""
    permissions: Permissions = field(default_factory=Permissions)
    config_maps: Mapping[str, Mapping[str, Any]] = field(default_factory=dict)
    """By ``namespace/name``: the data of those among the files."""

    def template_of(self, key: str, spec: DriverSpec) -> str | None:
        """Return the text of a driver's custom template, None if it is not among the files."""
        place = spec.build.template_config_map
        if place is None:
            return None
        text = self.config_maps.get(f"{namespace_of(key)}/{place.name}", {}).get(place.key)
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


def add_flags(parser: argparse.ArgumentParser) -> None:
    """Add the files, and what is known of the nodes."""
    parser.add_argument(
        "files", nargs="+", metavar="FILE", help="manifest, directory of manifests, or - for standard input"
    )
    known = parser.add_mutually_exclusive_group()
    known.add_argument(
        "--snapshot",
        metavar="FILE",
        help="nodes to check mappings against, from driver-builder snapshot or kubectl get nodes -o json",
    )
    known.add_argument("--kernels", metavar="RELEASE,...", help="kernel releases to check mappings against")
    config.add_permission_flags(parser)
    add_output_flag(parser)


def run(flags: argparse.Namespace, settings: Settings) -> int:
    """Check the files; returns 1 if a driver has an error.

    Raises:
        ConfigurationError: a file cannot be read, or none has a DriverContainer.
    """
    fleet = _fleet(flags)
    checked = 0
    findings: list[Finding] = []
    documents = list(read_documents(flags.files))
    known = {**fleet.drivers, **dict(_specs(documents))}
    limits = config.permissions_of(settings.permission_texts, fleet.permissions)
    fleet = replace(fleet, drivers=known, permissions=limits, config_maps=dict(_config_maps(documents)))
    for document in documents:
        if isinstance(document, Unreadable):
            findings.append(_unreadable(document))
            continue
        for value, path in drivers(document.value):
            checked += 1
            findings += lint(document, value, path, fleet)
    if not checked and not findings:
        raise ConfigurationError(f"no {DRIVER_CONTAINERS.kind} in {', '.join(flags.files)}")
    print(_printed(findings, checked, flags.output))
    return EXIT_FAILED if any(finding.severity is Severity.ERROR for finding in findings) else EXIT_OK


def _specs(documents: Iterable[Document | Unreadable]) -> Iterator[tuple[str, DriverSpec]]:
    for document in documents:
        for value, _ in drivers(document.value) if isinstance(document, Document) else ():
            spec = read_spec(value.get("spec")).spec
            if spec is not None:
                yield key_of(value), spec


def _config_maps(documents: Iterable[Document | Unreadable]) -> Iterator[tuple[str, Mapping[str, Any]]]:
    for document in documents:
        found = drivers(document.value, kind=CONFIG_MAPS.kind) if isinstance(document, Document) else ()
        for value, _ in found:
            data = value.get("data")
            yield key_of(value), data if isinstance(data, Mapping) else {}


def key_of(value: Mapping[str, Any]) -> str:
    """Return ``namespace/name`` of an object."""
    metadata = value.get("metadata")
    metadata = metadata if isinstance(metadata, Mapping) else {}
    return f"{metadata.get('namespace') or 'default'}/{metadata.get('name', '')}"


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
            severity=severity,
            driver=name,
            field=dotted(field),
            message=message,
        )
        for severity, field, message in (*_object(value), *_spec(key_of(value), value.get("spec"), fleet))
    ]
    return sorted(findings, key=lambda finding: finding.line)


_Said = tuple[Severity, Path, str]


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
        yield Severity.ERROR, problem.path, problem.message
    yield from _unknown(notes.unknown)


def _spec(key: str, spec: object, fleet: Fleet) -> Iterator[_Said]:
    reading = read_spec(spec)
    for problem in reading.problems:
        yield Severity.ERROR, problem.path, problem.message
    yield from _unknown(reading.unknown)
    if reading.spec is None:
        return
    if isinstance(spec, Mapping) and spec.get("nodeSelector") is None:
        yield Severity.WARNING, ("spec", "nodeSelector"), _EVERY_NODE
    for unused in dict.fromkeys((*reading.spec.unused, *deprecated(spec))):
        words = "is deprecated, and ignored since 0.2: remove it" if unused in DEPRECATED else _WITHOUT_IMAGE
        yield Severity.WARNING, tuple(unused.split(".")), words
    for index, message in repeated(reading.spec.module.names):
        yield Severity.ERROR, ("spec", "module", "names", index), message
    secrets = permissions.protected_secrets(key, reading.spec, fleet.drivers.items, fleet.permissions)
    for refusal in permissions.of_spec(reading.spec, fleet.permissions, secrets):
        yield Severity.ERROR, refusal.path, refusal.message
    for message in without_tools_image(reading.spec, fleet.template_of(key, reading.spec)):
        yield Severity.ERROR, ("spec", "build", "toolsImage"), message
    warnings: Iterable[tuple[Path, Iterable[str]]] = (
        (("spec", "signing"), unsigned(reading.spec, fleet.nodes or ())),
        (("spec", "build", "packages"), without_packages(reading.spec, fleet.nodes or ())),
        (("spec", "module"), shared_modules(key, reading.spec, fleet.drivers, fleet.nodes or ())),
        (("spec", "stages", "devicePlugin"), shared_resource(key, reading.spec, fleet.drivers, fleet.nodes or ())),
    )
    for path, messages in warnings:
        yield from ((Severity.WARNING, path, message) for message in messages)
    of_stages = (*without_devices(reading.spec), *without_drain(reading.spec))
    yield from ((Severity.WARNING, path, message) for path, message in of_stages)
    for obstacle in dependencies.obstacles(key, reading.spec, fleet.drivers):
        # The manifest of a missing driver may be elsewhere.
        severity = Severity.ERROR if obstacle.reason is Reason.DEPENDENCY_CYCLE else Severity.WARNING
        yield severity, ("spec", "dependsOn"), obstacle.message
    of_mappings = oddities(reading.spec.kernel_mappings, fleet.kernels_of(reading.spec))
    for oddity in (*of_mappings, *untrusted(reading.spec), *undrained(reading.spec)):
        severity = Severity.ERROR if oddity.is_error else Severity.WARNING
        yield severity, ("spec", "kernelMappings", oddity.index), oddity.message


def _unknown(paths: Iterable[Path]) -> Iterator[_Said]:
    for path in paths:
        yield (
            Severity.ERROR,
            path,
            "is not a field of a DriverContainer; the API server would drop it: look for a misspelling",
        )


def _unreadable(place: Unreadable) -> Finding:
    return Finding(
        file=place.file, line=place.line, severity=Severity.ERROR, driver="", field="", message=place.message
    )


def _fleet(flags: argparse.Namespace) -> Fleet:
    if flags.kernels is not None:
        return Fleet(kernels=tuple(word for word in (part.strip() for part in flags.kernels.split(",")) if word))
    if flags.snapshot is not None:
        return parse_fleet(flags.snapshot, read_text(FilePath(flags.snapshot)))
    return Fleet()


def parse_fleet(file: str, text: str) -> Fleet:
    """Read a snapshot, or the nodes that kubectl lists: these come without drivers and limit nothing.

    Raises:
        ConfigurationError: when there are no nodes in it, or a driver or setting is of another shape.
    """
    try:
        content = yaml.safe_load(text)
        is_snapshot = content.get("kind") == snapshot_file.KIND
        held = content.get("snapshot", content)
        listed = held["nodes"] if "nodes" in held else held["items"]
        nodes = tuple(_node(item.get("metadata", item)) for item in listed)
    except (yaml.YAMLError, KeyError, TypeError, AttributeError, ValueError, OverflowError) as error:
        raise ConfigurationError(
            f"--snapshot: {file} holds no nodes: pass the output of driver-builder snapshot or "
            "kubectl get nodes -o json"
        ) from error
    if not is_snapshot:
        return Fleet(nodes=nodes)
    found = plain_data.decode(tuple[DriverContainer, ...], held.get("drivers") or [], "snapshot.drivers")
    settings: PlanSettings = plain_data.decode(PlanSettings, content.get("settings"), "settings")
    return Fleet(
        nodes=nodes,
        drivers={item.key: item.spec for item in found if isinstance(item.spec, DriverSpec)},
        permissions=settings.template_versions.permissions,
    )


def _node(metadata: Mapping[str, Any]) -> Node:
    return Node(
        name=metadata["name"],
        labels=dict(metadata.get("labels") or {}),
        annotations=dict(metadata.get("annotations") or {}),
    )


def _printed(findings: list[Finding], checked: int, form: str) -> str:
    if form != "table":
        return output.document([{**asdict(finding), "severity": str(finding.severity)} for finding in findings], form)
    counted = f"{checked} {DRIVER_CONTAINERS.kind}{'' if checked == 1 else 's'} checked"
    if not findings:
        return f"{counted}, no problems"
    rows = [
        (
            f"{finding.file}:{finding.line}",
            finding.severity,
            finding.driver or "-",
            f"{finding.field}: {finding.message}" if finding.field else finding.message,
        )
        for finding in findings
    ]
    return f"{output.table(('WHERE', 'SEVERITY', 'DRIVER', 'WHAT'), rows)}\n{counted}"
