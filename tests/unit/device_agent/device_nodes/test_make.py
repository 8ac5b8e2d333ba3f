"""The nodes and links on a file system, made as root."""

import os
import stat
from collections.abc import Iterator
from pathlib import Path
from typing import NamedTuple

import pytest

from device_agent.device_nodes.make import look_at_nodes, make_nodes
from device_agent.device_nodes.values import MadeNode, Wanted
from tests.unit.device_agent.device_nodes.driver_texts import CAPABILITIES, DEVICES, PARAMS, wanted
from tests.unit.device_agent.host_tree import needs_root

pytestmark = needs_root

RELOADED = DEVICES.replace("511 nvidia-uvm", "510 nvidia-uvm")
TAKEN = RELOADED.replace("510", "511 a-stranger\n510")
FORBIDDING = PARAMS.replace("ModifyDeviceFiles: 1", "ModifyDeviceFiles: 0")


class Node(NamedTuple):
    """A device node as it is."""

    numbers: tuple[int, int]
    mode: int
    owner: tuple[int, int]


class Dev:
    """A folder that stands for /dev."""

    def __init__(self, root: Path) -> None:
        self.root = root

    def make(self, wanted: Wanted) -> dict[str, MadeNode]:
        """Make what is wanted; returns what came of each path."""
        return {made.path: made for made in make_nodes(wanted, str(self.root))}

    def look(self, wanted: Wanted) -> dict[str, MadeNode]:
        """Look at what is wanted."""
        return {made.path: made for made in look_at_nodes(wanted, str(self.root))}

    def put(self, name: str, major: int, minor: int, kind: int = stat.S_IFCHR) -> None:
        """Make a node by hand."""
        (self.root / name).parent.mkdir(exist_ok=True)
        os.mknod(self.root / name, kind | 0o600, os.makedev(major, minor))

    def node(self, name: str) -> Node:
        """Return a character device."""
        found = (self.root / name).lstat()
        assert stat.S_ISCHR(found.st_mode)
        return Node(_numbers(found), stat.S_IMODE(found.st_mode), (found.st_uid, found.st_gid))

    def links(self) -> dict[str, str]:
        """Return the links in char."""
        return {path.name: str(path.readlink()) for path in (self.root / "char").iterdir() if path.is_symlink()}

    def entries(self) -> dict[str, tuple[int, ...]]:
        """Return all that there is, so that two moments can be compared: inode, mode and numbers of each entry."""
        return dict(self._entries())

    def _entries(self) -> Iterator[tuple[str, tuple[int, ...]]]:
        for path in self.root.rglob("*"):
            found = path.lstat()
            yield str(path.relative_to(self.root)), (found.st_ino, found.st_mode, found.st_uid, *_numbers(found))


def _numbers(found: os.stat_result) -> tuple[int, int]:
    return os.major(found.st_rdev), os.minor(found.st_rdev)


@pytest.fixture
def dev(tmp_path: Path) -> Dev:
    """Make an empty /dev, on a file system that has device nodes."""
    try:
        os.mknod(tmp_path / "try", stat.S_IFCHR, os.makedev(1, 3))
    except PermissionError:
        pytest.skip("mknod is not permitted here")
    (tmp_path / "try").unlink()
    (tmp_path / "dev").mkdir()
    return Dev(tmp_path / "dev")


def whys(made: dict[str, MadeNode]) -> dict[str, str]:
    """Return the reasons of those that have one."""
    return {path: node.why for path, node in made.items() if node.why}


def test_all_nodes_are_made(dev: Dev) -> None:
    """With the driver's numbers, owners and modes, whatever the umask is."""
    before = os.umask(0o077)
    try:
        made = dev.make(wanted())
    finally:
        os.umask(before)
    assert {node.did for node in made.values()} == {"made"}
    assert whys(made) == {}
    assert dev.node("nvidia0") == Node((195, 0), 0o660, (0, 44))
    assert dev.node("nvidiactl") == Node((195, 255), 0o660, (0, 44))
    assert dev.node("nvidia-modeset") == Node((195, 254), 0o660, (0, 44))
    assert dev.node("nvidia-uvm") == Node((511, 0), 0o666, (0, 0))
    assert dev.node("nvidia-uvm-tools") == Node((511, 1), 0o666, (0, 0))
    assert dev.node("nvidia-caps/nvidia-cap1") == Node((236, 1), 0o400, (0, 0))
    assert stat.S_IMODE((dev.root / "nvidia-caps").stat().st_mode) == 0o755
    assert {made[f"/dev/nvidia-caps/nvidia-cap{n}"].capability for n in (1, 2, 12, 13)} == set(CAPABILITIES)


def test_nodes_are_linked_by_their_numbers(dev: Dev) -> None:
    """As udev links other drivers' devices."""
    dev.make(wanted())
    assert dev.links() == {
        "195:0": "../nvidia0",
        "195:254": "../nvidia-modeset",
        "195:255": "../nvidiactl",
        "236:1": "../nvidia-caps/nvidia-cap1",
        "236:2": "../nvidia-caps/nvidia-cap2",
        "236:12": "../nvidia-caps/nvidia-cap12",
        "236:13": "../nvidia-caps/nvidia-cap13",
        "511:0": "../nvidia-uvm",
        "511:1": "../nvidia-uvm-tools",
    }


def test_the_second_time_nothing_is_written(dev: Dev) -> None:
    """What is right stays, to the inode."""
    dev.make(wanted())
    before = dev.entries()
    made = dev.make(wanted())
    assert dev.entries() == before
    assert {(node.why, node.did) for node in made.values()} == {("", "")}


def test_a_look_writes_nothing(dev: Dev) -> None:
    """And says what is missing."""
    made = dev.look(wanted())
    assert dev.entries() == {}
    assert made["/dev/nvidia0"].why == "it is missing"
    assert made["/dev/nvidia-caps/nvidia-cap1"].why == "it is missing: /dev/nvidia-caps: No such file or directory"
    dev.make(wanted())
    assert whys(dev.look(wanted())) == {}


def test_a_reload_replaces_what_got_other_numbers(dev: Dev) -> None:
    """The driver's nodes and links alone; the links of the old numbers go."""
    dev.make(wanted())
    made = dev.make(wanted(RELOADED))
    assert {path: node.did for path, node in made.items() if node.did} == {
        "/dev/nvidia-uvm": "replaced: it is 511:0 instead of 510:0",
        "/dev/nvidia-uvm-tools": "replaced: it is 511:1 instead of 510:1",
    }
    assert whys(made) == {}
    assert dev.node("nvidia-uvm") == Node((510, 0), 0o666, (0, 0))
    assert {name for name in dev.links() if name.startswith("51")} == {"510:0", "510:1"}


def test_another_mode_and_owner_are_the_drivers_again(dev: Dev) -> None:
    """As nvidia-modprobe does it; a look has nothing against it."""
    dev.make(wanted())
    (dev.root / "nvidia0").chmod(0o600)
    os.chown(dev.root / "nvidiactl", 7, 8)
    assert whys(dev.look(wanted())) == {}
    made = dev.make(wanted())
    assert made["/dev/nvidia0"].did.startswith("replaced: it has mode 0600")
    assert dev.node("nvidia0") == Node((195, 0), 0o660, (0, 44))
    assert dev.node("nvidiactl").owner == (0, 44)


def test_a_driver_that_forbids_it_gets_none(dev: Dev) -> None:
    """Neither a node nor a folder, and each node says why."""
    made = dev.make(wanted(params=FORBIDDING))
    assert dev.entries() == {}
    assert len(whys(made)) == 9
    assert made["/dev/nvidia0"].why.startswith("it is missing; the driver's parameter ModifyDeviceFiles is 0")


def test_nodes_of_an_admin_are_right_and_linked(dev: Dev) -> None:
    """Where the driver forbids them to us, somebody else makes them: their owner and mode are theirs."""
    for name, numbers in {"nvidia0": (195, 0), "nvidiactl": (195, 255), "nvidia-uvm": (509, 0)}.items():
        dev.put(name, *numbers)
    made = dev.make(wanted(params=FORBIDDING))
    assert {"/dev/nvidia0", "/dev/nvidiactl"}.isdisjoint(whys(made))
    assert made["/dev/nvidia-uvm"].why.startswith("it is 509:0 instead of 511:0; the driver's parameter")
    assert dev.node("nvidia0").mode == 0o600
    assert dev.links() == {"195:0": "../nvidia0", "195:255": "../nvidiactl"}


@pytest.mark.parametrize("kind", ["file", "folder", "link", "dangling link", "socket"])
def test_what_is_no_device_stays(dev: Dev, kind: str) -> None:
    """It is reported, nothing it leads to is touched, and the other nodes are made."""
    place, elsewhere = dev.root / "nvidia0", dev.root.parent / "elsewhere"
    os.mknod(elsewhere, stat.S_IFCHR | 0o600, os.makedev(195, 0))
    if kind == "file":
        place.write_text("mine")
    elif kind == "folder":
        place.mkdir()
    elif kind == "link":
        place.symlink_to(elsewhere)
    elif kind == "dangling link":
        place.symlink_to("nothing")
    else:
        os.mknod(place, stat.S_IFSOCK | 0o600)
    before = (place.lstat(), elsewhere.lstat())
    made = dev.make(wanted())
    assert list(whys(made)) == ["/dev/nvidia0"]
    assert made["/dev/nvidia0"].why.endswith("is at its place: remove it")
    assert (place.lstat(), elsewhere.lstat()) == before
    assert "195:0" not in dev.links()


def test_a_block_device_is_replaced(dev: Dev) -> None:
    """It is a node, and not the driver's."""
    dev.put("nvidia0", 195, 0, stat.S_IFBLK)
    assert dev.make(wanted())["/dev/nvidia0"].did.startswith("replaced: it is block device 195:0")
    assert dev.node("nvidia0").numbers == (195, 0)


@pytest.mark.parametrize("kind", ["link", "file"])
def test_the_folder_of_capabilities_is_not_followed(dev: Dev, kind: str) -> None:
    """Nothing is made elsewhere; the capabilities have the reason, the other nodes are made."""
    elsewhere = dev.root.parent / "elsewhere"
    elsewhere.mkdir()
    if kind == "link":
        (dev.root / "nvidia-caps").symlink_to(elsewhere)
    else:
        (dev.root / "nvidia-caps").write_text("")
    made = dev.make(wanted())
    assert list(elsewhere.iterdir()) == []
    assert set(whys(made)) == {f"/dev/nvidia-caps/nvidia-cap{n}" for n in (1, 2, 12, 13)}
    assert made["/dev/nvidia-caps/nvidia-cap1"].why == "it is missing: /dev/nvidia-caps: Not a directory"
    assert dev.node("nvidia0").numbers == (195, 0)


def test_a_killed_process_leaves_nothing_for_ever(dev: Dev) -> None:
    """What it left under another name is used up by the next one."""
    dev.put(".nvidia0.driverwright", 195, 0)
    (dev.root / "char").mkdir()
    (dev.root / "char/.195:0.driverwright").symlink_to("nothing")
    assert whys(dev.make(wanted())) == {}
    assert not [name for name in dev.entries() if "driverwright" in name]


def test_what_a_killed_process_left_of_a_node_that_is_not_wanted_is_removed(dev: Dev) -> None:
    """Its numbers may be another driver's by now; a look leaves it."""
    dev.put(".nvidia7.driverwright", 195, 7)
    dev.put(".other.driverwright", 1, 3)
    dev.look(wanted())
    assert ".nvidia7.driverwright" in dev.entries()
    dev.make(wanted())
    assert [name for name in dev.entries() if "driverwright" in name] == [".other.driverwright"]


def test_a_node_that_cannot_be_made_stops_no_other(dev: Dev) -> None:
    """A name that is taken by a folder in the way is one node's trouble."""
    (dev.root / ".nvidia0.driverwright").mkdir()
    made = dev.make(wanted())
    assert whys(made) == {"/dev/nvidia0": "it is missing, and cannot be made: Is a directory"}
    assert dev.node("nvidiactl").numbers == (195, 255)


def test_without_dev_each_node_has_a_reason(dev: Dev) -> None:
    """Nothing is raised."""
    dev.root.rmdir()
    made = dev.make(wanted())
    assert len(whys(made)) == len(made) == 9
    assert made["/dev/nvidia0"].why == "it is missing: /dev: No such file or directory"


@pytest.mark.parametrize(
    ("devices", "stays"),
    [
        pytest.param("Character devices:\n  1 mem\n511 a-stranger\n\n", False, id="another driver has its numbers"),
        pytest.param("Character devices:\n  1 mem\n\n", True, id="nobody has its numbers"),
        pytest.param("", True, id="who has them cannot be read"),
    ],
)
def test_nodes_of_a_driver_that_is_gone(dev: Dev, devices: str, *, stays: bool) -> None:
    """They stay until another driver's device would be opened by them; the cards' numbers are never another one's."""
    dev.make(wanted())
    made = dev.make(wanted(devices))
    assert (dev.root / "nvidia-uvm").exists() == stays
    assert ("511:0" in dev.links()) == stays
    assert dev.node("nvidia0").numbers == (195, 0)
    removed = [] if stays else ["/dev/nvidia-uvm", "/dev/nvidia-uvm-tools"]
    assert sorted(path for path, node in made.items() if node.did.startswith("removed")) == removed
    assert all(node.why == "it is a device of a-stranger now, and was removed" for node in made.values())
    assert not any(node.did for node in dev.make(wanted(devices)).values())


@pytest.mark.parametrize("params", [pytest.param(FORBIDDING, id="forbidden"), pytest.param("", id="not known")])
def test_a_strangers_node_stays_where_removing_is_not_allowed(dev: Dev, params: str) -> None:
    """It is reported."""
    dev.put("nvidia-uvm", 511, 0)
    devices = "Character devices:\n195 nvidia\n511 a-stranger\n\n"
    made = dev.make(wanted(devices, params))
    assert made["/dev/nvidia-uvm"].why == "it is a device of a-stranger now"
    assert dev.node("nvidia-uvm").numbers == (511, 0)


def test_a_look_reports_a_strangers_node(dev: Dev) -> None:
    """And leaves it."""
    dev.put("nvidia-uvm", 511, 0)
    found = dev.look(wanted("Character devices:\n511 a-stranger\n\n"))
    assert whys(found) == {"/dev/nvidia-uvm": "it is a device of a-stranger now"}
    assert dev.node("nvidia-uvm").numbers == (511, 0)


def test_capabilities_of_instances_that_are_gone(dev: Dev) -> None:
    """They stay while the driver has their numbers, and go when a stranger has them."""
    dev.put("nvidia-caps/nvidia-cap99", 236, 99)
    dev.put("nvidia-caps/nvidia-cap98", 511, 98)
    made = dev.make(wanted())
    assert "/dev/nvidia-caps/nvidia-cap99" not in made
    assert made["/dev/nvidia-caps/nvidia-cap98"].why == "it is a device of nvidia-uvm now, and was removed"
    assert not (dev.root / "nvidia-caps/nvidia-cap98").exists()
    assert dev.node("nvidia-caps/nvidia-cap99").numbers == (236, 99)


def test_a_replaced_node_was_a_strangers(dev: Dev) -> None:
    """A reload that gives the old numbers to another driver leaves no way to its device."""
    dev.make(wanted())
    made = dev.make(wanted(TAKEN))
    assert made["/dev/nvidia-uvm"].did == "replaced: it is 511:0 instead of 510:0"
    assert {name: target for name, target in dev.links().items() if "uvm" in target} == {
        "510:0": "../nvidia-uvm",
        "510:1": "../nvidia-uvm-tools",
    }


def test_foreign_entries_of_char_stay(dev: Dev) -> None:
    """Links of other devices, other names, and what is no link."""
    (dev.root / "char").mkdir()
    dev.put("tty", 5, 0)
    (dev.root / "char/5:0").symlink_to("../tty")
    (dev.root / "char/9:9").symlink_to("../nothing")
    (dev.root / "char/note").symlink_to("../nvidia0")
    dev.make(wanted())
    assert {"5:0", "9:9", "note"} <= set(dev.links())


def test_links_that_lead_nowhere_stay(dev: Dev) -> None:
    """nvidia-ctk makes them before there are nodes."""
    (dev.root / "char").mkdir()
    for name, target in {"195:9": "../nvidia9", "236:99": "/dev/nvidia-caps/nvidia-cap99"}.items():
        (dev.root / "char" / name).symlink_to(target)
    dev.make(wanted())
    assert {"195:9", "236:99"} <= set(dev.links())


@pytest.mark.parametrize("target", ["../nvidia1", "../nothing", "../tty", "195:0"])
def test_a_link_that_leads_elsewhere_is_replaced(dev: Dev, target: str) -> None:
    """Its name is the numbers of this node."""
    (dev.root / "char").mkdir()
    dev.put("tty", 5, 0)
    (dev.root / "char/195:0").symlink_to(target)
    dev.make(wanted())
    assert dev.links()["195:0"] == "../nvidia0"


def test_a_link_that_is_written_otherwise_stays(dev: Dev) -> None:
    """nvidia-ctk writes whole paths: what a link leads to counts."""
    dev.make(wanted())
    (dev.root / "char/195:0").unlink()
    (dev.root / "char/195:0").symlink_to(dev.root / "nvidia0")
    dev.make(wanted())
    assert dev.links()["195:0"] == str(dev.root / "nvidia0")


def test_what_is_no_link_is_the_nodes_reason(dev: Dev) -> None:
    """It is not removed."""
    (dev.root / "char").mkdir()
    (dev.root / "char/195:0").write_text("")
    assert whys(dev.make(wanted())) == {"/dev/nvidia0": "/dev/char/195:0 is no link: remove it"}


def test_a_link_that_cannot_be_made_stops_no_other(dev: Dev) -> None:
    """It is its node's reason."""
    (dev.root / "char/.195:0.driverwright").mkdir(parents=True)
    assert whys(dev.make(wanted())) == {"/dev/nvidia0": "its link /dev/char/195:0 cannot be made: Is a directory"}
    assert dev.links()["195:255"] == "../nvidiactl"


def test_a_folder_of_links_is_not_followed(dev: Dev) -> None:
    """Each node has the reason."""
    (dev.root.parent / "elsewhere").mkdir()
    (dev.root / "char").symlink_to(dev.root.parent / "elsewhere")
    made = dev.make(wanted())
    assert set(whys(made).values()) == {"its link cannot be made: /dev/char: Not a directory"}
    assert list((dev.root.parent / "elsewhere").iterdir()) == []
    assert dev.node("nvidia0").numbers == (195, 0)
