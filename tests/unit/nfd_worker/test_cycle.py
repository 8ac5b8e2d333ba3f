"""One cycle: labels of what was read, the last good of what could not be, and silence about what never was."""

import shutil
from pathlib import Path

import pytest

from nfd_worker.config import Settings, load_settings
from nfd_worker.cycle import run_cycle
from nfd_worker.host import Host
from tests.unit.nfd_worker.trees import HOSTS, recorded


@pytest.fixture
def root(tmp_path: Path) -> Path:
    """Copy a recorded host, to break it."""
    return Path(shutil.copytree(HOSTS / "intel-gpu-server", tmp_path / "host"))


def break_source(root: Path, source: str) -> None:
    """Make a source unreadable: what it reads becomes a directory, or goes away with its mount."""
    if source == "pci":
        shutil.rmtree(root / "sys")
    else:
        path = root / {"kernel": "proc/sys/kernel/osrelease", "system": "etc/os-release"}[source]
        path.unlink()


def test_the_boot_is_named() -> None:
    """The controller compares it with what driver pods prove."""
    report = run_cycle(recorded("arm64-cloud"), Settings(), {})
    assert report.annotations == {
        "driverwright.io/boot-id": "9d2b7fe8-0d7b-4b60-9c2a-7e1f4a0f6a52",
        "driverwright.io/kernel-version": "6.1.109-118.189.amzn2023.aarch64",
    }
    assert not report.failed
    assert report.seconds > 0


def test_without_a_boot_id_nothing_is_said(root: Path) -> None:
    """An unreadable boot id proves nothing, and is no reason to stop labelling."""
    file = root / "proc/sys/kernel/random/boot_id"
    file.unlink()
    assert "driverwright.io/boot-id" not in run_cycle(Host(str(root)), Settings(), {}).annotations
    file.mkdir()
    report = run_cycle(Host(str(root)), Settings(), {})
    assert "driverwright.io/boot-id" not in report.annotations
    assert report.labels


@pytest.mark.parametrize("source", ["kernel", "pci", "system"])
def test_labels_of_a_failed_source_stay_as_they_were(root: Path, source: str) -> None:
    """A failed read is not an absent feature."""
    host = Host(str(root))
    before = run_cycle(host, Settings(), {})
    break_source(root, source)
    after = run_cycle(host, Settings(), before.last_good)
    mine = {key: value for key, value in before.labels.items() if f"/{source}-" in key}
    assert mine
    assert mine.items() <= after.labels.items()
    assert list(after.failed) == [source]
    assert after.unknown == ()
    assert run_cycle(host, Settings(), after.last_good).labels == after.labels


@pytest.mark.parametrize("source", ["kernel", "pci", "system"])
def test_a_source_that_was_never_read_is_unknown(root: Path, source: str) -> None:
    """After a restart nothing is known, and what the Node says must stay."""
    break_source(root, source)
    report = run_cycle(Host(str(root)), Settings(), {})
    assert report.unknown == (source,)
    assert not any(f"/{source}-" in key for key in report.labels)
    assert any("/cpu-" in key for key in report.labels)


def test_a_source_that_shall_not_label_is_not_unknown_either(root: Path) -> None:
    """Its labels go, whether it can be read or not."""
    break_source(root, "pci")
    settings = load_settings({"label-sources": "all,-pci"}, {})
    report = run_cycle(Host(str(root)), settings, {})
    assert report.unknown == ()
    assert list(report.failed) == ["pci"]


def test_only_chosen_sources_are_read_and_label() -> None:
    """Feature sources are read; of these the label sources make labels."""
    settings = load_settings({"feature-sources": "pci,system", "label-sources": "pci,cpu"}, {})
    report = run_cycle(recorded("intel-gpu-server"), settings, {})
    assert set(report.last_good) == {"pci", "system"}
    assert "system.osrelease" in report.features.attributes
    assert {key.partition("/")[2].partition("-")[0] for key in report.labels} == {"pci"}


def test_the_whitelist_of_the_settings_is_used() -> None:
    """It comes from core.labelWhiteList."""
    settings = load_settings({"label-whitelist": "10de"}, {})
    labels = run_cycle(recorded("intel-gpu-server"), settings, {}).labels
    assert set(labels) == {
        "feature.node.kubernetes.io/pci-0302_10de.present",
        "feature.node.kubernetes.io/pci-0302_10de.sriov.capable",
    }


def test_the_same_host_gives_the_same_report() -> None:
    """Nothing but time differs between two cycles."""
    host = recorded("debian-qemu-guest")
    first = run_cycle(host, Settings(), {})
    second = run_cycle(host, Settings(), first.last_good)
    assert (first.labels, first.annotations) == (second.labels, second.annotations)
