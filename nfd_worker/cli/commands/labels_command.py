"""``nfd-worker labels validate``: what of a wanted content a Node would get, and why not the rest."""

import json
import sys
from collections.abc import Iterator, Mapping
from typing import Any, NamedTuple

from feature_rules.features import Features
from feature_rules.keys.namespaces import NamespaceOptions, add_prefixes, is_whitelisted
from feature_rules.model import RuleOutput, RuleOutputs, Taint
from kube_api.log_lines import LONGEST_MESSAGE
from kube_api.names import BOOT_ID_ANNOTATION, KERNEL_VERSION_ANNOTATION
from kube_api.text import printable
from nfd_worker.cli.documents import MAX_DOCUMENT, parse_document, read_text, shown
from nfd_worker.cli.output import content_document, content_table, dump
from nfd_worker.config.config import build_settings
from nfd_worker.config.config_file import parse_file
from nfd_worker.config.file_text import read_file
from nfd_worker.errors import ConfigurationError
from nfd_worker.labels.labels import CLUSTER, make_content
from nfd_worker.labels.node_content import NodeContent, Refusal

_ORIGIN = "file"
_FIELDS = ("labels", "annotations", "extendedResources", "taints", "options")
_BOOKKEEPING = (BOOT_ID_ANNOTATION, KERNEL_VERSION_ANNOTATION)
_IGNORED = ("failed", "features", "problems", "refused")
"""What ``nfd-worker scan`` prints beside."""


class Verdict(NamedTuple):
    """What a Node would get, and what not."""

    accepted: NodeContent
    refused: tuple[Refusal, ...]


def validate(file: str, config: str | None, output: str) -> int:
    """Print what a Node would get of the content in a file; 1 when anything is refused.

    Raises:
        ConfigurationError: for a file that cannot be read or holds something else.
    """
    document = parse_document(read_text(file, MAX_DOCUMENT), shown(file))
    wanted = parse_content(document, shown(file))
    verdict = judge(wanted, _options(document, shown(file), config))
    sys.stdout.write(_table(verdict) if output == "table" else dump(_document(verdict), output))
    return 1 if verdict.refused else 0


def parse_content(document: object, file: str) -> NodeContent:
    """Read what a Node is wanted to carry; ``file`` is for messages.

    Raises:
        ConfigurationError: names the field and what should be there.
    """
    if not isinstance(document, Mapping):
        raise ConfigurationError(f"{file}: must be a mapping with some of {', '.join(_FIELDS)}")
    for field in document:
        if field not in (*_FIELDS, *_IGNORED):
            raise ConfigurationError(f"{file}: {field} is not one of {', '.join(_FIELDS)}")
    return NodeContent(
        labels=_texts(document, "labels", file),
        annotations=_texts(document, "annotations", file),
        extended_resources=_texts(document, "extendedResources", file),
        taints=tuple(_taints(document.get("taints") or [], file)),
    )


def judge(wanted: NodeContent, options: NamespaceOptions) -> Verdict:
    """Part what is wanted into what a Node would get and what not, as for the rules of a cluster.

    What the worker itself writes of each scan may stand among it, as it does in what ``nfd-worker scan`` prints.
    """
    own = {key: value for key, value in wanted.annotations.items() if key in _BOOKKEEPING}
    output = RuleOutput(
        rule="", origin=_ORIGIN, labels=wanted.labels, extended_resources=wanted.extended_resources,
        annotations={key: value for key, value in wanted.annotations.items() if key not in own}, taints=wanted.taints,
    )  # fmt: skip
    accepted, refusals = make_content({}, {CLUSTER: RuleOutputs((output,))}, Features(), options, own)
    silent = _left_out_silently(wanted, accepted, refusals, options)
    return Verdict(accepted, tuple(sorted((*refusals, *silent))))


def _left_out_silently(
    wanted: NodeContent, accepted: NodeContent, refusals: tuple[Refusal, ...], options: NamespaceOptions
) -> Iterator[Refusal]:
    """Find what a node leaves out without a word, because its admin wants it so."""
    reported = {(refusal.kind, refusal.key) for refusal in refusals}
    for kind, field, some, restriction in (
        ("label", "labels", accepted.labels, "disableLabels"),
        ("annotation", "annotations", accepted.annotations, "disableAnnotations"),
        ("extended resource", "extended_resources", accepted.extended_resources, "disableExtendedResources"),
    ):
        asked = getattr(wanted, field)
        for key, value in (add_prefixes(asked) if options.auto_prefix else asked).items():
            if key not in some and (kind, key) not in reported:
                by_list = kind == "label" and not is_whitelisted(key, options.label_whitelist)
                reason = "not-whitelisted" if by_list else "disabled"
                setting = "labelWhiteList" if by_list else f"restrictions.{restriction}"
                yield Refusal(_ORIGIN, kind, key, value, reason, f"excluded by the configuration: {setting}")
    for taint in wanted.taints:
        if taint not in accepted.taints and ("taint", taint.key) not in reported:
            message = "taints are off, or another taint has the same key and effect"
            yield Refusal(_ORIGIN, "taint", taint.key, f"{taint.value}:{taint.effect}", "left-out", message)


def _options(document: object, file: str, config: str | None) -> NamespaceOptions:
    """Put the options of a configuration file and of the document together; taints are on unless they say otherwise."""
    inline = document.get("options") or {} if isinstance(document, Mapping) else {}
    values = {
        "enable_taints": True,
        **(read_file(config, must_exist=True) if config is not None else {}),
        **parse_file(json.dumps(inline), f"{file}: options"),
    }
    return build_settings(values).namespaces


def _texts(document: Mapping[str, Any], field: str, file: str) -> dict[str, str]:
    values = document.get(field) or {}
    if not isinstance(values, Mapping):
        raise ConfigurationError(f"{file}: {field} must be a mapping")
    for key, value in values.items():
        is_count = field == "extendedResources" and isinstance(value, int) and not isinstance(value, bool)
        if not isinstance(key, str) or not (isinstance(value, str) or is_count):
            raise ConfigurationError(f"{file}: {field}.{key} must be a string; put {value!r:.40} in quotes")
    return {key: str(value) for key, value in values.items()}


def _taints(taints: object, file: str) -> Iterator[Taint]:
    if not isinstance(taints, list):
        raise ConfigurationError(f"{file}: taints must be a list")
    for index, taint in enumerate(taints):
        try:
            made = Taint(**taint)
        except TypeError as error:
            message = f"{file}: taints[{index}] must be a mapping of key, value and effect"
            raise ConfigurationError(message) from error
        if not all(isinstance(part, str) for part in made):
            raise ConfigurationError(f"{file}: taints[{index}] must have strings for key, value and effect")
        yield made


def _document(verdict: Verdict) -> dict[str, Any]:
    refused = [
        {"kind": one.kind, "key": one.key, "value": one.value, "reason": one.reason, "message": one.message}
        for one in verdict.refused
    ]
    return {**content_document(verdict.accepted), "refused": refused}


def _table(verdict: Verdict) -> str:
    texts = (f"REFUSED  {one.kind} {one.shown}: {one.message}" for one in verdict.refused)
    lines = [printable(text, LONGEST_MESSAGE) for text in texts]
    return "\n".join([*content_table(verdict.accepted), *lines]) + "\n"
