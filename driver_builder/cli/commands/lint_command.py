"""``driver-builder lint``: reports errors in DriverContainers before they are applied. No cluster is needed.

What is checked is in :mod:`driver_builder.checks.lint`; here it is read from files, and printed.
"""

import argparse
from collections.abc import Iterable, Iterator, Mapping
from dataclasses import replace
from pathlib import Path as FilePath
from typing import Any

import yaml

from driver_builder import config
from driver_builder.api.driver_spec import DriverSpec
from driver_builder.base.check_result import has_failed
from driver_builder.base.errors import ConfigurationError
from driver_builder.checks.lint import LintContext, found, key_of, lint, specs
from driver_builder.checks.lint_files import Document, FileResult, read_documents, read_text
from driver_builder.cli import common, output
from driver_builder.cli.common import EXIT_FAILED, EXIT_OK, add_output_flag
from driver_builder.cluster import snapshot_file
from driver_builder.config import Settings
from driver_builder.model.permissions import read as read_permissions
from driver_builder.model.setting import Group
from driver_builder.nodes.plan_view import PlanSettings
from driver_builder.snapshot.inventory import Node
from driver_builder.snapshot.snapshot import Snapshot
from kube_api.resources import CONFIG_MAPS, DRIVER_CONTAINERS

_NAMES = {"check": "field", "status": "severity", "message": "message"}
_FAILED = "error"
"""How ``lint`` names what keeps a driver from working."""


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
    config.add_flags(parser, Group.PERMISSIONS)
    add_output_flag(parser)


def run(flags: argparse.Namespace, settings: Settings) -> int:
    """Check the files; returns 1 if a driver has an error.

    Raises:
        ConfigurationError: a file cannot be read, or none has a DriverContainer.
    """
    fleet = _fleet(flags)
    documents = list(read_documents(flags.files))
    given = list(found(documents))
    fleet = replace(
        fleet,
        drivers={**fleet.drivers, **specs(value for _, value, _ in given)},
        permissions=read_permissions(settings.permission_texts, fleet.permissions),
        config_maps=dict(_config_maps(documents)),
    )
    results: list[FileResult] = []
    for document in documents:
        if isinstance(document, FileResult):
            results.append(document)
        else:
            results += (result for _, value, path in found([document]) for result in lint(document, value, path, fleet))
    if not given and not results:
        raise ConfigurationError(f"no {DRIVER_CONTAINERS.kind} in {', '.join(flags.files)}")
    print(_printed(results, len(given), flags.output))
    return EXIT_FAILED if has_failed(results) else EXIT_OK


def _config_maps(documents: Iterable[Document | FileResult]) -> Iterator[tuple[str, Mapping[str, Any]]]:
    for _, value, _ in found(documents, CONFIG_MAPS.kind):
        data = value.get("data")
        yield key_of(value), data if isinstance(data, Mapping) else {}


def _fleet(flags: argparse.Namespace) -> LintContext:
    if flags.kernels is not None:
        return LintContext(kernels=tuple(word for word in (part.strip() for part in flags.kernels.split(",")) if word))
    if flags.snapshot is not None:
        return parse_fleet(flags.snapshot, read_text(FilePath(flags.snapshot)))
    return LintContext()


def parse_fleet(file: str, text: str) -> LintContext:
    """Read a snapshot, or the nodes that kubectl lists: these come without drivers and limit nothing.

    Raises:
        ConfigurationError: when there are no nodes in it, or a driver or setting is of another shape.
    """
    try:
        content = common.parse(text)
        if isinstance(content, dict) and content.get("kind") == snapshot_file.KIND:
            return _fleet_of(*snapshot_file.from_document(content))
        return LintContext(nodes=tuple(_node(item["metadata"]) for item in content["items"]))
    except ConfigurationError as error:
        raise ConfigurationError(f"--snapshot {file}: {error}") from error
    except (yaml.YAMLError, KeyError, TypeError, AttributeError, ValueError, OverflowError, RecursionError) as error:
        raise ConfigurationError(
            f"--snapshot: {file} holds no nodes: pass the output of driver-builder snapshot or "
            "kubectl get nodes -o json"
        ) from error


def _fleet_of(seen: Snapshot, settings: PlanSettings) -> LintContext:
    return LintContext(
        nodes=tuple(seen.nodes),
        drivers={item.key: item.spec for item in seen.drivers if isinstance(item.spec, DriverSpec)},
        permissions=settings.template_versions.permissions,
    )


def _node(metadata: Mapping[str, Any]) -> Node:
    return Node(
        name=metadata["name"],
        labels=dict(metadata.get("labels") or {}),
        annotations=dict(metadata.get("annotations") or {}),
    )


def _plain(result: FileResult) -> dict[str, object]:
    named = result.as_document(_NAMES, _FAILED)
    return {"file": result.file, "line": result.line, "driver": result.driver, **named}


def _printed(results: list[FileResult], checked: int, form: str) -> str:
    if form != "table":
        return output.document([_plain(result) for result in results], form)
    counted = f"{checked} {DRIVER_CONTAINERS.kind}{'' if checked == 1 else 's'} checked"
    if not results:
        return f"{counted}, no problems"
    rows = [(item.place, item.status.word(_FAILED), item.driver or "-", item.sentence) for item in results]
    return f"{output.table(('WHERE', 'SEVERITY', 'DRIVER', 'WHAT'), rows)}\n{counted}"
