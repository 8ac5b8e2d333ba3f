"""How ``nfd-worker scan`` shows what it found: as a table, as JSON or as YAML. Pure: report in, text out."""

import json
import re
from collections.abc import Iterable, Mapping
from itertools import combinations
from types import MappingProxyType
from typing import Any, NamedTuple

import yaml

from feature_rules.features import Attributes, Features
from kube_api.log_lines import LONGEST_MESSAGE
from kube_api.names import FEATURE_LABEL_PREFIX
from kube_api.text import printable
from nfd_worker.cli.pci_names import PciNames
from nfd_worker.cycle import CycleReport
from nfd_worker.labels.node_content import NodeContent
from nfd_worker.sources import SOURCES
from nfd_worker.sources.pci import FIELDS

_PCI_LABEL = re.compile(rf"{re.escape(FEATURE_LABEL_PREFIX)}/pci-([0-9a-f_]+)\.(present|sriov\.capable)")

_LONGEST_CELL = 320
"""The longest key has 317 characters; what is longer stands in the JSON in full."""

_CONTROLS = re.compile("[\x7f-\x9f\u2028\u2029\u202a-\u202e\u2066-\u2069]")
"""What JSON and YAML let stand as it is and a terminal acts on."""

_OF_RULES = "rules and feature files"


class _Row(NamedTuple):
    name: str
    value: str = ""
    words: str = ""


_Blocks = Mapping[str, list[_Row]]


def render(report: CycleReport, output: str, *, with_features: bool, names: PciNames | None = None) -> str:
    """Render a report as ``table``, ``json`` or ``yaml``; ``names`` gives the table the names of PCI numbers."""
    if output == "table":
        return as_table(report, names or PciNames(), with_features=with_features)
    return dump(as_document(report, with_features=with_features), output)


def dump(document: Mapping[str, Any], output: str) -> str:
    """Write a document as JSON or YAML."""
    if output == "yaml":
        text = str(yaml.safe_dump(document, sort_keys=False, allow_unicode=True))
        return str(yaml.safe_dump(document, sort_keys=False)) if _CONTROLS.search(text) else text
    text = json.dumps(document, indent=2, ensure_ascii=False)
    return _CONTROLS.sub(lambda found: f"\\u{ord(found[0]):04x}", text) + "\n"


def as_document(report: CycleReport, *, with_features: bool) -> dict[str, Any]:
    """Make the plain document that is shown as JSON and YAML."""
    document = content_document(report.content) | {
        "failed": dict(report.failed),
        "problems": [problem._asdict() for problem in report.problems],
        "refused": [refusal._asdict() for refusal in report.refusals],
    }
    if with_features:
        document["features"] = features_document(report.features)
    return document


def content_document(content: NodeContent) -> dict[str, Any]:
    """Make the plain document of what a Node should carry."""
    return {
        "labels": dict(content.labels),
        "annotations": dict(content.annotations),
        "extendedResources": dict(content.extended_resources),
        "taints": [taint._asdict() for taint in content.taints],
    }


def features_document(features: Features) -> dict[str, Any]:
    """Make the plain document of features: what ``rules eval --features`` reads."""
    return {
        "flags": {name: sorted(flags) for name, flags in sorted(features.flags.items())},
        "attributes": {name: dict(values) for name, values in sorted(features.attributes.items())},
        "instances": {name: [dict(one) for one in several] for name, several in sorted(features.instances.items())},
    }


# --- the table --------------------------------------------------------------------------------------------------------


def as_table(report: CycleReport, names: PciNames, *, with_features: bool) -> str:
    """Make a table for people: one block for each source, then what is not a label, then problems, and the sums."""
    words = _words_of_labels(report.features.instances.get("pci.device", ()), names)
    lines = content_table(report.content, words)
    if with_features:
        lines += _lines(_feature_blocks(report.features, names))
    lines += [_message("FAILED   ", f"{name}: {reason}") for name, reason in report.failed.items()]
    lines += [_message("PROBLEM  ", problem) for problem in report.problems]
    lines += [_message("WARNING  ", refusal) for refusal in report.refusals]
    return "\n".join([*lines, _sums(report)]) + "\n"


def _message(word: str, message: object) -> str:
    return word + printable(str(message), LONGEST_MESSAGE)


def content_table(content: NodeContent, words: Mapping[str, str] = MappingProxyType({})) -> list[str]:
    """Make the lines about what a Node should carry; ``words`` say what the numbers of PCI labels mean."""
    return _lines(
        {
            **_label_blocks(content.labels, words),
            "annotations": _rows(content.annotations),
            "extended resources": _rows(content.extended_resources),
            "taints": [_Row(taint.key, taint.value, taint.effect) for taint in content.taints],
        }
    )


def _lines(blocks: _Blocks) -> list[str]:
    return [line for title, rows in blocks.items() if rows for line in _block(title, rows)]


def _label_blocks(labels: Mapping[str, str], words: Mapping[str, str]) -> _Blocks:
    """Part labels by their source, then what rules and feature files gave, then other namespaces."""
    blocks: dict[str, list[_Row]] = {name: [] for name in (*SOURCES, _OF_RULES)}
    for key, value in labels.items():
        row = _Row(key.removeprefix(f"{FEATURE_LABEL_PREFIX}/"), value, _words_of(key, words))
        blocks.setdefault(_title(key), []).append(row)
    return blocks


def _title(key: str) -> str:
    for name, source in SOURCES.items():
        if source.prefixes and key.startswith(tuple(source.prefixes)):
            return name
    namespace = key.partition("/")[0]
    return _OF_RULES if namespace == FEATURE_LABEL_PREFIX else namespace


def _words_of_labels(devices: Iterable[Attributes], names: PciNames) -> dict[str, str]:
    """Return what the numbers of a label can mean, whichever fields of a device it was made of."""
    words: dict[str, str] = {}
    for device in devices:
        for count in range(1, len(FIELDS) + 1):
            for fields in combinations(FIELDS, count):
                part = {field: device[field] for field in fields if field in device}
                words.setdefault("_".join(part.values()), names.device_name(part))
    return words


def _words_of(key: str, words: Mapping[str, str]) -> str:
    found = _PCI_LABEL.fullmatch(key)
    return words.get(found[1], "") if found else ""


def _feature_blocks(features: Features, names: PciNames) -> _Blocks:
    blocks: dict[str, list[_Row]] = {}
    for name, flags in features.flags.items():
        blocks[f"feature {name}"] = [_Row(flag) for flag in sorted(flags)]
    for name, values in features.attributes.items():
        blocks.setdefault(f"feature {name}", []).extend(_rows(values))
    for name, several in features.instances.items():
        words = [names.device_name(one) if name == "pci.device" else "" for one in several]
        rows = [_Row(str(n), words[n] or _line(one), _line(one) if words[n] else "") for n, one in enumerate(several)]
        blocks.setdefault(f"feature {name}", []).extend(rows)
    return dict(sorted(blocks.items()))


def _line(attributes: Attributes) -> str:
    return " ".join(f"{name}={value}" for name, value in attributes.items())


def _rows(values: Mapping[str, str]) -> list[_Row]:
    return [_Row(name, value) for name, value in values.items()]


def _block(title: str, rows: list[_Row]) -> list[str]:
    rows = [_Row(*(printable(cell, _LONGEST_CELL) for cell in row)) for row in rows]
    name_width = max(len(row.name) for row in rows)
    # Only what has words behind it is padded: a long value of another row would push them out of sight.
    value_width = max((len(row.value) for row in rows if row.words), default=0)
    lines = (f"  {row.name:<{name_width}}  {row.value:<{value_width}}  {row.words}".rstrip() for row in rows)
    return [f"{title} ({len(rows)})", *lines, ""]


def _sums(report: CycleReport) -> str:
    content = report.content
    sums = (
        _count(len(content.labels), "label"), _count(len(content.annotations), "annotation"),
        _count(len(content.extended_resources), "extended resource"), _count(len(content.taints), "taint"),
        f"{_count(len(report.matched), 'rule')} matched",
    )  # fmt: skip
    return f"{', '.join(sums)}; {report.seconds * 1000:.0f} ms"


def _count(number: int, thing: str) -> str:
    return f"{number} {thing}" if number == 1 else f"{number} {thing}s"
