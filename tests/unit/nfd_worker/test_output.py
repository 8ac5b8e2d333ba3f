"""How a scan is shown."""

import json

import yaml

from nfd_worker.config import Settings
from nfd_worker.cycle import CycleReport, run_cycle
from nfd_worker.labels import LabelWarning
from nfd_worker.output import render
from tests.unit.nfd_worker.trees import recorded


def report() -> CycleReport:
    """Scan a recorded host; pretend that something went wrong, too."""
    made = run_cycle(recorded("intel-gpu-server"), Settings(), {})
    return made._replace(failed={"usb": "why"}, warnings=(LabelWarning("cpu", "a/b", "c", "bad"),))


def test_json_has_the_documented_shape() -> None:
    """Other programs read it."""
    document = json.loads(render(report(), "json", with_features=False))
    assert list(document) == ["labels", "annotations", "extendedResources", "taints", "failed"]
    assert document["labels"]["feature.node.kubernetes.io/pci-0302_10de.present"] == "true"
    assert document["failed"] == {"usb": "why"}
    assert (document["extendedResources"], document["taints"]) == ({}, [])


def test_features_are_shown_when_asked_for() -> None:
    """By kind, then by name."""
    features = json.loads(render(report(), "json", with_features=True))["features"]
    assert "AVX2" in features["flags"]["cpu.cpuid"]
    assert features["attributes"]["kernel.version"]["full"] == "6.8.0-45-generic"
    assert features["attributes"]["kernel.config"]["HZ"] == "1000"
    assert {"class": "0302", "vendor": "10de"}.items() <= features["instances"]["pci.device"][1].items()


def test_yaml_says_the_same_as_json() -> None:
    """Only the form differs."""
    made = report()
    as_json = json.loads(render(made, "json", with_features=True))
    assert yaml.safe_load(render(made, "yaml", with_features=True)) == as_json


def test_the_table_groups_by_source_and_ends_with_trouble() -> None:
    """It is for people."""
    lines = render(report(), "table", with_features=True).splitlines()
    blocks = [line for line in lines if line and not line.startswith(" ")]
    assert blocks[:5] == ["cpu", "kernel", "pci", "system", "annotations"]
    assert "feature pci.device" in blocks
    assert blocks[-2:] == ["FAILED usb: why", "WARNING cpu: label a/b=c left out: bad"]
    assert any(line.split() == ["pci-0302_10de.present", "true"] for line in lines)
