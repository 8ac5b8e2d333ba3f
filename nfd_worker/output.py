"""How ``nfd-worker scan`` shows what it found: as a table, as JSON or as YAML. Pure: report in, text out."""

import json
from collections.abc import Mapping
from typing import Any

import yaml

from kube_api.names import FEATURE_LABEL_PREFIX
from nfd_worker.cycle import CycleReport
from nfd_worker.features import Features

FORMATS = ("table", "json", "yaml")


def render(report: CycleReport, output: str, *, with_features: bool) -> str:
    """Render a report in one of :data:`FORMATS`."""
    match output:
        case "json":
            return json.dumps(as_document(report, with_features=with_features), indent=2) + "\n"
        case "yaml":
            return str(yaml.safe_dump(as_document(report, with_features=with_features), sort_keys=False))
        case _:
            return as_table(report, with_features=with_features)


def as_document(report: CycleReport, *, with_features: bool) -> dict[str, Any]:
    """Make the plain document that is shown as JSON and YAML."""
    document: dict[str, Any] = {
        "labels": dict(report.labels),
        "annotations": dict(report.annotations),
        "extendedResources": {},
        "taints": [],
        "failed": dict(report.failed),
    }
    if with_features:
        document["features"] = _features_document(report.features)
    return document


def as_table(report: CycleReport, *, with_features: bool) -> str:
    """Make a table of labels for people, one block a source, with what failed below."""
    blocks: dict[str, dict[str, str]] = {}
    for key, value in report.labels.items():
        blocks.setdefault(_source_of(key), {})[key.removeprefix(f"{FEATURE_LABEL_PREFIX}/")] = value
    if report.annotations:
        blocks["annotations"] = dict(report.annotations)
    if with_features:
        blocks |= {f"feature {name}": rows for name, rows in sorted(_feature_rows(report.features).items())}
    lines = [line for title, rows in blocks.items() for line in _block(title, rows)]
    lines += [f"FAILED {name}: {reason}" for name, reason in report.failed.items()]
    lines += [f"WARNING {warning}" for warning in report.warnings]
    return "\n".join(lines) + "\n"


def _source_of(key: str) -> str:
    namespace, _, name = key.partition("/")
    return name.partition("-")[0] if namespace == FEATURE_LABEL_PREFIX else namespace


def _block(title: str, rows: Mapping[str, str]) -> list[str]:
    width = max((len(name) for name in rows), default=0)
    return [title, *(f"  {name:<{width}}  {value}".rstrip() for name, value in rows.items()), ""]


def _features_document(features: Features) -> dict[str, Any]:
    return {
        "flags": {name: sorted(flags) for name, flags in sorted(features.flags.items())},
        "attributes": {name: dict(values) for name, values in sorted(features.attributes.items())},
        "instances": {name: [dict(one) for one in several] for name, several in sorted(features.instances.items())},
    }


def _feature_rows(features: Features) -> dict[str, dict[str, str]]:
    rows: dict[str, dict[str, str]] = {name: dict.fromkeys(sorted(flags), "") for name, flags in features.flags.items()}
    for name, values in features.attributes.items():
        rows[name] = rows.get(name, {}) | dict(values)
    for name, several in features.instances.items():
        rows[name] = {str(n): " ".join(f"{k}={v}" for k, v in one.items()) for n, one in enumerate(several)}
    return rows
