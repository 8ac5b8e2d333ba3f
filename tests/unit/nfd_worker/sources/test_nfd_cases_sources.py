"""Known answers of Node Feature Discovery for the sources memory, network, storage, usb, local and fake."""

from pathlib import Path
from typing import Any

from feature_rules.features import Features
from nfd_worker.guarded_file import MAX_FEATURE_FILE
from nfd_worker.labels.labels import label_key
from nfd_worker.sources import SOURCES, discover
from nfd_worker.sources.local import FEATURE_FILES, parse_feature_file, parse_time
from nfd_worker.sources.memory import discover_huge_pages, parse_swaps
from nfd_worker.sources.settings import LocalSettings, SourceSettings
from tests.support.nfd_worker.nfd_cases import of
from tests.support.nfd_worker.trees import host

Case = dict[str, Any]


def found_in(
    source: str, root: Path, files: dict[str, str], settings: SourceSettings
) -> tuple[Features, dict[str, str]]:
    """Discover a few files: features, and labels with their whole keys."""
    found = discover(source, host(root, {"sys/bus/cpu/x": "", **files}), settings)
    assert isinstance(found, Features)
    labels = SOURCES[source].labels(found, settings)
    return found, {label_key(source, name): value for name, value in labels.items()}


@of("swap")
def test_swap(case: Case) -> None:
    """/proc/swaps with its heading alone means no swap."""
    assert parse_swaps(case["input"]["swaps"]) == case["expect"]


@of("hugepages")
def test_huge_pages(case: Case, tmp_path: Path) -> None:
    """Each directory of huge pages becomes a size."""
    files = {f"sys/kernel/mm/hugepages/{name}/nr_hugepages": count for name, count in case["input"]["dirs"].items()}
    assert discover_huge_pages(host(tmp_path, files)) == case["expect"]["attributes"]


@of("network_labels")
def test_network_labels(case: Case, tmp_path: Path) -> None:
    """Virtual functions that an interface can have, and has."""
    files = {
        f"sys/class/net/{device['name']}/device/{name}": value
        for device in case["input"]["device"]
        for name, value in device.items()
        if name != "name"
    }
    assert found_in("network", tmp_path, files, SourceSettings())[1] == case["expect"]["labels"]


@of("storage_labels")
def test_storage_labels(case: Case, tmp_path: Path) -> None:
    """One disk that does not rotate is enough."""
    files = {f"sys/block/{disk['name']}/queue/rotational": disk["rotational"] for disk in case["input"]["block"]}
    files |= {f"sys/block/{disk['name']}/device/model": "a disk" for disk in case["input"]["block"]}
    assert found_in("storage", tmp_path, files, SourceSettings())[1] == case["expect"]["labels"]


@of("usb_labels")
def test_usb_labels(case: Case, tmp_path: Path) -> None:
    """A class of the device, or of each of its interfaces."""
    files: dict[str, str] = {}
    for number, device in enumerate(case["input"]["devices"], 1):
        folder = f"sys/bus/usb/devices/1-{number}"
        files |= {f"{folder}/{name}": value for name, value in device.items() if name != "interfaces"}
        for index, interface in enumerate(device["interfaces"]):
            files[f"{folder}/1-{number}:1.{index}/bInterfaceClass"] = interface
    assert case["input"]["config"] == {}
    assert found_in("usb", tmp_path, files, SourceSettings())[1] == case["expect"]["labels"]


@of("features_fixture")
def test_features_fixture(case: Case, tmp_path: Path) -> None:
    """What the source fake says by default."""
    found, labels = found_in(case["input"]["source"], tmp_path, {}, SourceSettings())
    expected = case["expect"]["features"]
    assert {name: sorted(flags) for name, flags in found.flags.items()} == expected["flags"]
    assert found.attributes == expected["attributes"]
    assert {name: [dict(each) for each in all_of] for name, all_of in found.instances.items()} == expected["instances"]
    assert labels == case["expect"]["labels"]


def local(case: Case, root: Path) -> Features:
    """Discover the feature files of a case at its time."""
    now = parse_time(case["input"]["now"])
    files = {f"{FEATURE_FILES}/{name}": text for name, text in case["input"]["files"].items()}
    return found_in("local", root, files, SourceSettings(local=LocalSettings(clock=lambda: now)))[0]


@of("feature_files")
def test_feature_files(case: Case, tmp_path: Path) -> None:
    """Features and labels to the letter."""
    attributes = local(case, tmp_path).attributes
    assert attributes["local.feature"] == case["expect"]["local_feature"]
    assert attributes["local.label"] == case["expect"]["local_label"]


@of("feature_files_totals")
def test_feature_files_totals(case: Case, tmp_path: Path) -> None:
    """How many there are over upstream's own files."""
    attributes = local(case, tmp_path).attributes
    found = {"features": len(attributes["local.feature"]), "labels": len(attributes["local.label"])}
    assert found == case["expect"]


@of("feature_file_directive")
def test_feature_file_directive(case: Case) -> None:
    """Each directive is accepted or refused as upstream does."""
    problems = parse_feature_file(case["input"]["line"], "f", 0.0).problems
    assert bool(problems) is case["expect"]["error"]


@of("feature_file_size")
def test_feature_file_size(case: Case, tmp_path: Path) -> None:
    """A feature file of 64 KiB is read; a longer one is not."""
    size = case["input"]["bytes"]
    it = host(tmp_path, {"f": "a" * size})
    assert (it.find_regular("f", MAX_FEATURE_FILE) is not None) is case["expect"]["accepted"]
