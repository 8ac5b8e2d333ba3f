"""How a scan is shown."""

import json

import pytest
import yaml

from feature_rules.features import Features
from feature_rules.model import RuleProblem, Taint
from nfd_worker.cli.output import render
from nfd_worker.cli.pci_names import PciNames
from nfd_worker.config.config import Settings
from nfd_worker.cycle import CycleReport, run_cycle
from nfd_worker.labels.node_content import Refusal
from tests.support.nfd_worker.trees import recorded

NAMES = PciNames(vendors={"10de": "NVIDIA"}, devices={"10de2330": "H100"}, classes={"03": "Display", "0302": "3D"})


SOME_SOURCES = Settings(feature_sources=("cpu", "kernel", "pci", "system"))


def report(settings: Settings = SOME_SOURCES) -> CycleReport:
    """Scan a recorded host; pretend that rules wanted all kinds, and that something went wrong, too."""
    made = run_cycle(recorded("intel-gpu-server"), settings, {})
    content = made.content._replace(
        labels={**made.content.labels, "vendor.io/x": "1"},
        extended_resources={"vendor.io/e": "2"},
        taints=(Taint("vendor.io/t", "v", "NoSchedule"), Taint("vendor.io/u", "", "NoExecute")),
    )
    return made._replace(
        content=content,
        failed={"usb": "why"},
        problems=(RuleProblem("rule o/r", "f", "wrong", "file", 3),),
        refusals=(Refusal("source cpu", "label", "a/b", "c", "r", "bad"),),
        seconds=0.0123,
    )


def table(made: CycleReport, *, with_features: bool = False) -> list[str]:
    """Render lines."""
    return render(made, "table", with_features=with_features, names=NAMES).splitlines()


def test_json_has_the_documented_shape() -> None:
    """The JSON output has the documented fields, because other programs read it."""
    document = json.loads(render(report(), "json", with_features=False))
    fields = ["labels", "annotations", "extendedResources", "taints", "failed", "problems", "refused"]
    assert list(document) == fields
    assert document["labels"]["feature.node.kubernetes.io/pci-0302_10de.present"] == "true"
    assert document["failed"] == {"usb": "why"}
    assert document["extendedResources"] == {"vendor.io/e": "2"}
    assert document["taints"] == [
        {"key": "vendor.io/t", "value": "v", "effect": "NoSchedule"},
        {"key": "vendor.io/u", "value": "", "effect": "NoExecute"},
    ]


def test_json_says_what_is_wrong() -> None:
    """The exit status is 1 for a problem: the document names it."""
    document = json.loads(render(report(), "json", with_features=False))
    [problem], [refused] = document["problems"], document["refused"]
    assert (problem["rule"], problem["message"], problem["line"]) == ("rule o/r", "wrong", 3)
    assert (refused["key"], refused["reason"], refused["message"]) == ("a/b", "r", "bad")


@pytest.mark.parametrize("output", ["table", "json", "yaml"])
def test_nothing_that_a_terminal_acts_on_is_printed(output: str) -> None:
    """Neither from labels and features nor from problems; JSON still has every character."""
    hostile = "x\033[31m\x9b\x00\u202e"
    made = report()
    made = made._replace(
        content=made.content._replace(annotations={"a/b": hostile}),
        features=Features(attributes={"local.feature": {hostile: hostile}}),
        problems=(RuleProblem(hostile, "", "wrong"),),
        refusals=(Refusal("source local", "label", hostile, hostile, "r", "bad"),),
        failed={"usb": hostile},
    )
    text = render(made, output, with_features=True)
    assert text.replace("\n", "").isprintable()
    if output == "json":
        assert json.loads(text)["annotations"] == {"a/b": hostile}


def test_the_table_cuts_what_nobody_reads() -> None:
    """One long name must not push all other values out of sight."""
    made = report()._replace(features=Features(attributes={"local.feature": {"n" * 60000: "v" * 60000}}))
    assert max(map(len, table(made, with_features=True))) < 1000


def test_features_are_shown_when_asked_for() -> None:
    """Features are listed by kind, then by name."""
    features = json.loads(render(report(), "json", with_features=True))["features"]
    assert "AVX2" in features["flags"]["cpu.cpuid"]
    assert features["attributes"]["kernel.version"]["full"] == "6.8.0-45-generic"
    assert features["attributes"]["kernel.config"]["HZ"] == "1000"
    assert {"class": "0302", "vendor": "10de"}.items() <= features["instances"]["pci.device"][1].items()


def test_yaml_says_the_same_as_json() -> None:
    """YAML and JSON output hold the same data."""
    made = report()
    as_json = json.loads(render(made, "json", with_features=True))
    assert yaml.safe_load(render(made, "yaml", with_features=True)) == as_json


def test_the_table_groups_by_source_and_counts() -> None:
    """Sources in their order, then what is no source's, then what is no label."""
    titles = [line.partition(" (")[0] for line in table(report()) if line and not line.startswith(" ")]
    assert titles[:8] == [
        "cpu", "kernel", "pci", "system", "rules and feature files", "vendor.io", "annotations", "extended resources",
    ]  # fmt: skip
    assert "taints (2)" in table(report())


def test_the_table_ends_with_trouble_and_the_sums() -> None:
    """So that it is on the screen when all else has scrolled away."""
    assert table(report())[-4:-1] == [
        "FAILED   usb: why",
        "PROBLEM  file:3: rule o/r: f: wrong",
        "WARNING  source cpu: label a/b=c left out: bad",
    ]
    assert table(report())[-1].endswith("2 annotations, 1 extended resource, 2 taints, 1 rule matched; 12 ms")


def test_the_table_is_aligned() -> None:
    """The values of the table are in one column."""
    lines = table(report())
    start = lines.index("annotations (2)") + 1
    assert len({line.rindex("  ") for line in lines[start : start + 2]}) == 1


def test_the_table_says_what_pci_numbers_mean() -> None:
    """With the database of names; only it has them."""
    lines = table(report(), with_features=True)
    assert "  pci-0302_10de.present        true  3D: NVIDIA" in lines
    assert any(line.startswith("  1  3D: NVIDIA H100") and line.endswith("version=6:0") for line in lines)
    assert not any("NVIDIA" in line for line in render(report(), "table", with_features=True).splitlines())


def test_other_label_fields_have_words_too() -> None:
    """Labels are described for every setting of sources.pci.deviceLabelFields."""
    plain = Settings().sources
    fields = plain.pci._replace(device_label_fields=("vendor", "device"))
    lines = table(report(Settings(sources=plain._replace(pci=fields))))
    assert "  pci-10de_2330.present        true  NVIDIA H100" in lines


def test_features_of_several_kinds_stand_together() -> None:
    """Each feature has one block with all its kinds."""
    lines = table(report(), with_features=True)
    assert sum(line.startswith("feature pci.device (") for line in lines) == 1
    start = lines.index("feature kernel.version (4)")
    assert [line.split() for line in lines[start + 1 : start + 3]] == [["full", "6.8.0-45-generic"], ["major", "6"]]
