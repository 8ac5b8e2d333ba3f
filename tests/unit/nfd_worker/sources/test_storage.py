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


def device(name: str, scsi_type: str = "0") -> dict[str, str]:
    """Give a block device the hardware behind it."""
    return {f"{name}/device/type": f"{scsi_type}\n"}


def test_a_device_has_the_attributes_of_its_queue(tmp_path: Path) -> None:
    """A block device has the attributes of its queue; an old kernel has no zones."""
    found = found_in(tmp_path, {
        "sda/queue/rotational": "1\n", "sdb/queue/rotational": "0\n", "sdb/queue/zoned": "host-aware\n",
        "sdb/queue/dax": "0\n", "sdb/queue/nr_zones": "55880\n", "sr0/size": "0\n",
        **device("sda"), **device("sdb"), **device("sr0", "5"),
    })  # fmt: skip
    assert found.instances["storage.block"] == (
        {"name": "sda", "type": "disk", "rotational": "1"},
        {"name": "sdb", "type": "disk", "dax": "0", "rotational": "0", "nr_zones": "55880", "zoned": "host-aware"},
        {"name": "sr0", "type": "rom"},
    )


@pytest.mark.parametrize(
    ("name", "files", "kind"),
    [
        pytest.param("sda", {"device/type": "0\n"}, "disk", id="SCSI disk"),
        pytest.param("sdb", {"device/type": "20\n"}, "disk", id="zoned SCSI disk"),
        pytest.param("nvme0n1", {"device/transport": "pcie\n"}, "disk", id="NVMe"),
        pytest.param("vda", {"device/vendor": "0x1af4\n"}, "disk", id="virtio"),
        pytest.param("mmcblk0", {"device/type": "SD\n"}, "disk", id="SD card"),
        pytest.param("sr0", {"device/type": "5\n"}, "rom", id="CD drive"),
        pytest.param("loop0", {"loop/autoclear": "0\n"}, "virtual", id="loop"),
        pytest.param("zram0", {"disksize": "0\n"}, "virtual", id="zram"),
        pytest.param("nbd0", {"size": "0\n"}, "virtual", id="network block device"),
        pytest.param("dm-0", {"dm/name": "root\n"}, "virtual", id="device mapper"),
        pytest.param("md0", {"md/level": "raid1\n"}, "virtual", id="RAID"),
    ],
)
@pytest.mark.parametrize("upstream", [False, True], ids=["by default", "as upstream"])
def test_only_a_disk_is_a_disk_that_does_not_rotate(
    tmp_path: Path, name: str, files: dict[str, str], kind: str, upstream: bool
) -> None:
    """What no hardware is behind, and a CD drive, say rotational 0 as well; one setting labels these, too."""
    found = found_in(tmp_path, {f"{name}/{file}": text for file, text in {"queue/rotational": "0\n", **files}.items()})
    assert found.instances["storage.block"] == ({"name": name, "type": kind, "rotational": "0"},)
    made = labels(found, SourceSettings(upstream_hardware_labels=upstream))
    assert made == ({"nonrotationaldisk": "true"} if upstream or kind == "disk" else {})


@pytest.mark.parametrize(
    ("files", "expected"),
    [
        ({}, {}),
        ({"sda/queue/rotational": "1\n", "sr0/size": "0\n"}, {}),
        (
            {"sda/queue/rotational": "1\n", "sdb/queue/rotational": "0\n", **device("sdb")},
            {"nonrotationaldisk": "true"},
        ),
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
