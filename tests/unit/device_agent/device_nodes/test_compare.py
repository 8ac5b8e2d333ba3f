"""What stands at a node's place, judged."""

import os
import stat

import pytest

from device_agent.device_nodes.compare import Place, Verdict, compare
from device_agent.device_nodes.values import WantedNode

NODE = WantedNode("/dev/nvidia-uvm", 511, 0, 0o660, 0, 44)


def status(kind: int, mode: int = 0o660, *, major: int = 511, minor: int = 0, uid: int = 0, gid: int = 44) -> object:
    """Return the status of an entry."""
    return os.stat_result((kind | mode, 1, 2, 1, uid, gid, 0, 0, 0, 0), {"st_rdev": os.makedev(major, minor)})


@pytest.mark.parametrize(
    ("found", "expected"),
    [
        pytest.param(None, Place(Verdict.MISSING, "it is missing"), id="nothing"),
        pytest.param(status(stat.S_IFCHR), Place(Verdict.RIGHT), id="the node"),
        pytest.param(status(stat.S_IFCHR, 0o4660), Place(Verdict.RIGHT), id="a bit that devices do not use"),
        pytest.param(
            status(stat.S_IFCHR, major=510),
            Place(Verdict.OTHER_NUMBERS, "it is 510:0 instead of 511:0"),
            id="another major number",
        ),
        pytest.param(
            status(stat.S_IFBLK),
            Place(Verdict.OTHER_NUMBERS, "it is block device 511:0 instead of 511:0"),
            id="a block device",
        ),
        pytest.param(
            status(stat.S_IFCHR, 0o600),
            Place(Verdict.OTHER_ACCESS, "it has mode 0600 and owner 0:44 instead of mode 0660 and owner 0:44"),
            id="another mode",
        ),
        pytest.param(
            status(stat.S_IFCHR, uid=7, gid=8),
            Place(Verdict.OTHER_ACCESS, "it has mode 0660 and owner 7:8 instead of mode 0660 and owner 0:44"),
            id="another owner",
        ),
        pytest.param(
            status(stat.S_IFREG),
            Place(Verdict.NO_DEVICE, "a file that is no device is at its place: remove it"),
            id="a file",
        ),
        pytest.param(
            status(stat.S_IFLNK), Place(Verdict.NO_DEVICE, "a symbolic link is at its place: remove it"), id="a link"
        ),
        pytest.param(
            status(stat.S_IFDIR), Place(Verdict.NO_DEVICE, "a folder is at its place: remove it"), id="a folder"
        ),
    ],
)
def test_places(found: os.stat_result | None, expected: Place) -> None:
    """The numbers come first, then mode and owner; what is no device is not the driver's."""
    assert compare(found, NODE) == expected
