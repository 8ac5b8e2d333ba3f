"""Known answers of Node Feature Discovery about what a Node may carry, and its settings (tests/data/nfd_cases.yaml)."""

from pathlib import Path
from typing import Any

import yaml

from feature_rules.dynamic import resolve
from feature_rules.features import Features, merge
from feature_rules.keys.namespaces import (
    NamespaceOptions,
    Problem,
    add_prefixes,
    check_annotation,
    check_extended_resource,
    check_label,
    check_taint,
)
from feature_rules.model import RuleOutput, RuleOutputs, Taint
from kube_api.names import FEATURE_LABEL_PREFIX
from nfd_worker.config.config import load_settings
from nfd_worker.labels.labels import ContentResult, make_content
from tests.support.nfd_worker.nfd_cases import of


def result(problem: Problem | None) -> str:
    """Give the word that the cases have for an answer."""
    return problem.reason if problem else "ok"


def of_rule(output: RuleOutput, options: NamespaceOptions, features: Features = Features()) -> ContentResult:  # noqa: B008 - immutable
    """Make content of what one rule of the cluster wants."""
    return make_content({}, {"cluster": RuleOutputs((output,))}, features, options)


@of("auto_prefix")
def test_auto_prefix(case: dict[str, Any]) -> None:
    """A key that is there in full wins."""
    assert case["input"]["namespace"] == FEATURE_LABEL_PREFIX
    assert add_prefixes(case["input"]["map"]) == case["expect"]["map"]


@of("dynamic_value")
def test_dynamic_value(case: dict[str, Any]) -> None:
    """The value of an attribute, or an error, which is None here."""
    given, expected = case["input"], case["expect"]
    resolved = resolve(given["value"], Features(attributes=given["attributes"]))
    assert resolved == (None if expected["error"] else expected["value"])


@of("filter_label")
def test_filter_label(case: dict[str, Any]) -> None:
    """Denied and extra namespaces filter labels as in upstream."""
    given, expected = case["input"], case["expect"]
    config = given["config"]
    options = NamespaceOptions(tuple(config["denyLabelNs"]), tuple(config["extraLabelNs"]))
    output = RuleOutput("r", "rule r", labels={given["key"]: given["value"]})
    made = of_rule(output, options, Features(attributes=given["attributes"]))
    assert made.content.labels == ({given["key"]: expected["value"]} if expected["accepted"] else {})
    assert len(made.refusals) == (0 if expected["accepted"] else 1)


@of("filter_extended_resources")
def test_filter_extended_resources(case: dict[str, Any]) -> None:
    """Without automatic prefixes the names stay."""
    given = case["input"]
    options = NamespaceOptions(auto_prefix=not given["featureGates"]["DisableAutoPrefix"])
    made = of_rule(RuleOutput("r", "rule r", extended_resources=given["resources"]), options)
    assert made.content.extended_resources == case["expect"]["accepted"]
    assert made.refusals == ()


@of("validate_label")
def test_validate_label(case: dict[str, Any]) -> None:
    """What upstream's master accepts once a key has its namespace."""
    told = check_label(case["input"]["key"], case["input"]["value"], NamespaceOptions())
    assert result(told) == case["expect"]["result"]


@of("validate_annotation")
def test_validate_annotation(case: dict[str, Any]) -> None:
    """The feature namespace alone is free below kubernetes.io."""
    told = check_annotation(case["input"]["key"], case["input"]["value"]["text"])
    assert result(told) == case["expect"]["result"]


@of("validate_extended_resource")
def test_validate_extended_resource(case: dict[str, Any]) -> None:
    """Keys and quantities are validated as in upstream."""
    assert result(check_extended_resource(case["input"]["key"], case["input"]["value"])) == case["expect"]["result"]


@of("validate_taint")
def test_validate_taint(case: dict[str, Any]) -> None:
    """Keys and effects are validated as in upstream."""
    assert result(check_taint(Taint(**case["input"]))) == case["expect"]["result"]


@of("worker_labels")
def test_worker_labels(case: dict[str, Any]) -> None:
    """The whitelist sees the name after the namespace."""
    given = case["input"]
    options = NamespaceOptions(source_label_whitelist=given["labelWhiteList"])
    source_labels = {given["source"]: given["labels"]}
    assert make_content(source_labels, {}, Features(), options).content.labels == case["expect"]["labels"]
    unfiltered = make_content(source_labels, {}, Features(), NamespaceOptions()).content.labels
    assert list(unfiltered) == [f"{FEATURE_LABEL_PREFIX}/fake-{name}" for name in given["labels"]]


@of("worker_config")
def test_worker_config(case: dict[str, Any], tmp_path: Path) -> None:
    """File, inline options and flags."""
    file = tmp_path / "nfd-worker.conf"
    file.write_text(yaml.safe_dump(case["input"]["file"]))
    flags = {"config": str(file), "options": case["input"]["options"], **case["input"]["flags"]}
    settings = load_settings(flags, {})
    assert {
        "noPublish": settings.no_publish,
        "featureSources": list(settings.feature_sources),
        "labelSources": list(settings.label_sources),
        "labelWhiteList": settings.namespaces.source_label_whitelist,
        "kernelConfigOpts": list(settings.sources.kernel.config_opts),
        "pciDeviceClassWhitelist": list(settings.sources.pci.device_class_whitelist),
    } == case["expect"]


@of("merge_nodefeatures")
def test_merge_nodefeatures(case: dict[str, Any]) -> None:
    """What upstream does with objects happens here with sources."""
    merged = merge(
        Features(
            flags={name: frozenset(flags) for name, flags in part["flags"].items()} if "flags" in part else {},
            attributes=part.get("attributes", {}),
            instances={name: tuple(several) for name, several in part.get("instances", {}).items()},
        )
        for part in case["input"]["objects"]
    )
    assert {name: sorted(flags) for name, flags in merged.flags.items()} == case["expect"]["flags"]
    assert merged.attributes == case["expect"]["attributes"]
    assert {name: list(several) for name, several in merged.instances.items()} == case["expect"]["instances"]
