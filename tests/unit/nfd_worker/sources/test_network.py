"""Source network: interfaces of devices and virtual ones, and SR-IOV."""

from pathlib import Path

import pytest

from feature_rules.features import Failed, Features
from nfd_worker.sources import discover
from nfd_worker.sources.network import is_positive, labels
from nfd_worker.sources.settings import SourceSettings
from tests.support.nfd_worker.trees import host

NET = "sys/class/net"


def found_in(root: Path, files: dict[str, str]) -> Features:
    """Discover a few files below class/net."""
    it = host(root, {"sys/bus/cpu/x": "", **{f"{NET}/{name}": text for name, text in files.items()}})
    found = discover("network", it, SourceSettings())
    assert isinstance(found, Features)
    return found


def test_an_interface_with_a_device_is_no_virtual_one(tmp_path: Path) -> None:
    """Each interface has the attributes that it reports."""
    found = found_in(tmp_path, {
        "eth0/device/sriov_totalvfs": "8\n", "eth0/device/sriov_numvfs": "0\n", "eth0/operstate": "up\n",
        "eth0/speed": "25000\n", "eth0/mtu": "9000\n", "lo/operstate": "unknown\n", "lo/mtu": "65536\n",
    })  # fmt: skip
    eth0 = {"name": "eth0", "operstate": "up", "speed": "25000", "mtu": "9000"}
    assert found.instances == {
        "network.device": ({**eth0, "sriov_numvfs": "0", "sriov_totalvfs": "8"},),
        "network.virtual": ({"name": "lo", "operstate": "unknown", "mtu": "65536"},),
    }


def test_the_control_file_of_bonding_is_no_interface(tmp_path: Path) -> None:
    """The file bonding_masters is not reported as an interface."""
    assert found_in(tmp_path, {"bonding_masters": "bond0\n"}).instances["network.virtual"] == ()


@pytest.mark.parametrize(
    ("files", "expected"),
    [
        pytest.param({"eth0/device/x": ""}, set(), id="no SR-IOV"),
        pytest.param({"eth0/device/sriov_totalvfs": "0\n"}, set(), id="none possible"),
        pytest.param({"eth0/device/sriov_totalvfs": "many\n"}, set(), id="no number"),
        pytest.param({"lo/sriov_totalvfs": "8\n"}, set(), id="no device"),
        pytest.param({"a/device/sriov_totalvfs": "8\n"}, {"sriov.capable"}, id="possible"),
        pytest.param(
            {"a/device/sriov_totalvfs": "8\n", "b/device/sriov_totalvfs": "8\n", "b/device/sriov_numvfs": "2\n"},
            {"sriov.capable", "sriov.configured"},
            id="configured on one",
        ),
    ],
)
def test_labels_report_virtual_functions(tmp_path: Path, files: dict[str, str], expected: set[str]) -> None:
    """One interface with virtual functions is enough for the label."""
    assert set(labels(found_in(tmp_path, files), SourceSettings())) == expected


@pytest.mark.parametrize(
    ("text", "expected"),
    [("1", True), ("0", False), ("000", False), ("-1", False), ("", False), ("²", False), ("9" * 9999, True)],
    ids=["one", "zero", "zeros", "negative", "nothing", "no decimal", "huge"],
)
def test_only_a_number_above_zero_is_positive(text: str, expected: bool) -> None:
    """Only text that is a number above zero counts, however long it is."""
    assert is_positive(text) is expected


def test_a_missing_sysfs_is_a_failure(tmp_path: Path) -> None:
    """A missing /sys/class/net is a failed read."""
    assert isinstance(discover("network", host(tmp_path, {}), SourceSettings()), Failed)
