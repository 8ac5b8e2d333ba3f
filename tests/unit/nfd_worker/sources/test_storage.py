"""Source storage: block devices."""

from pathlib import Path

import pytest

from feature_rules.features import Failed, Features
from nfd_worker.sources import discover
from nfd_worker.sources.settings import SourceSettings
from nfd_worker.sources.storage import labels
from tests.support.nfd_worker.trees import host


def found_in(root: Path, files: dict[str, str]) -> Features:
    """Discover a few files below /sys/block."""
    it = host(root, {"sys/bus/cpu/x": "", **{f"sys/block/{name}": text for name, text in files.items()}})
    found = discover("storage", it, SourceSettings())
    assert isinstance(found, Features)
    return found


def test_a_device_has_the_attributes_of_its_queue(tmp_path: Path) -> None:
    """A block device has the attributes of its queue; an old kernel has no zones."""
    found = found_in(tmp_path, {
        "sda/queue/rotational": "1\n", "sdb/queue/rotational": "0\n", "sdb/queue/zoned": "host-aware\n",
        "sdb/queue/dax": "0\n", "sdb/queue/nr_zones": "55880\n", "sr0/size": "0\n",
    })  # fmt: skip
    assert found.instances["storage.block"] == (
        {"name": "sda", "rotational": "1"},
        {"name": "sdb", "dax": "0", "rotational": "0", "nr_zones": "55880", "zoned": "host-aware"},
        {"name": "sr0"},
    )


@pytest.mark.parametrize(
    ("files", "expected"),
    [
        ({}, {}),
        ({"sda/queue/rotational": "1\n", "sr0/size": "0\n"}, {}),
        ({"sda/queue/rotational": "1\n", "sdb/queue/rotational": "0\n"}, {"nonrotationaldisk": "true"}),
    ],
    ids=["diskless", "all rotate", "one does not"],
)
def test_one_disk_that_does_not_rotate_is_enough(
    tmp_path: Path, files: dict[str, str], expected: dict[str, str]
) -> None:
    """The label says that there is one."""
    assert labels(found_in(tmp_path, files), SourceSettings()) == expected


def test_a_missing_sysfs_is_a_failure(tmp_path: Path) -> None:
    """Then a mount is missing, and not the disks."""
    assert isinstance(discover("storage", host(tmp_path, {}), SourceSettings()), Failed)
