"""What is found on a host: files, drivers, NUMA nodes."""

import asyncio
import os
from collections.abc import Callable
from pathlib import Path
from resource import RLIMIT_NOFILE, getrlimit, setrlimit

import pytest

from device_agent.config.config_file import Description
from device_agent.sources.files.files_source import FilesSource
from device_agent.sources.files.find import find_files, fixed_folder
from device_agent.sources.files.scan import scan
from tests.unit.device_agent.host_tree import HostTree, needs_root, resource

DEVICE = "pci0000:00/0000:00:04.0"


@pytest.fixture
def host(tmp_path: Path) -> HostTree:
    """Make an empty host."""
    return HostTree(tmp_path)


def why(host: HostTree, driver: str | None = "edu") -> str:
    """Return what is wrong with the one device of a host."""
    health = {"driver": driver} if driver else {}
    (state,) = scan(host.path, resource("/dev/edu*", health=health), (), lambda _: "")
    return state.why


@needs_root
@pytest.mark.parametrize(
    ("glob", "expected"),
    [
        pytest.param("/dev/tty*", ["/dev/ttyA", "/dev/ttyB"], id="star"),
        pytest.param("/dev/tty?", ["/dev/ttyA", "/dev/ttyB"], id="question mark"),
        pytest.param("/dev/tty[B-Z]", ["/dev/ttyB"], id="range"),
        pytest.param("/dev/tty[^A]", ["/dev/ttyB"], id="all but, as Go writes it"),
        pytest.param("/dev/*/card0", ["/dev/dri/card0"], id="a folder"),
        pytest.param("/dev/*idden", ["/dev/.hidden"], id="a dot, as Go's glob matches it"),
        pytest.param("/dev/ttyA", ["/dev/ttyA"], id="no wildcard"),
        pytest.param("/dev/plain", [], id="a file that is no device"),
        pytest.param("/dev/nothing*", [], id="nothing"),
        pytest.param("/nowhere/*/x", [], id="a folder that is not there"),
    ],
)
def test_globs(host: HostTree, glob: str, expected: list[str]) -> None:
    """Only device nodes are found."""
    for name in ("ttyB", "ttyA", ".hidden", "dri/card0"):
        host.node(f"/dev/{name}")
    host.file("/dev/plain")
    assert find_files(host.path, resource(glob)) == {glob: expected}


def test_a_name_that_is_no_text_is_left_out(host: HostTree) -> None:
    """Anyone may make such files in /dev/shm; one that cannot be sent would end the agent."""
    host.file("/dev/shm/fine")
    for name in (b"\xff", b"two\nlines"):
        (host.root / "dev/shm" / os.fsdecode(name)).touch()
    found = find_files(host.path, resource({"path": "/dev/shm/*", "type": "Mount"}))
    assert found == {"/dev/shm/*": ["/dev/shm/fine"]}


@needs_root
def test_a_link_counts_where_an_admin_made_it(host: HostTree) -> None:
    """Udev makes links to devices; one of another user in a folder where all may write may lead to a disk."""
    host.node("/dev/sda")
    for name, user in (("ours", 0), ("theirs", 65534)):
        host.link(f"/dev/shm/{name}", "/dev/sda")
        os.lchown(host.root / "dev/shm" / name, user, user)
    assert find_files(host.path, resource("/dev/shm/*")) == {"/dev/shm/*": ["/dev/shm/ours"]}


def test_a_mount_may_be_anything(host: HostTree) -> None:
    """Files and folders."""
    host.file("/opt/a/file")
    described = resource({"path": "/opt/*", "type": "Mount"})
    assert find_files(host.path, described) == {"/opt/*": ["/opt/a"]}


def test_what_a_driver_exports_is_found_by_its_link(host: HostTree) -> None:
    """It is relative, as the loader makes it; a container gets what it shows when the container starts."""
    path = "/run/driverwright/team.edu"
    described = resource({"path": path, "type": "Mount", "readOnly": True})
    assert find_files(host.path, described) == {path: []}
    host.file("/run/driverwright/.team.edu@aaaa/lib/libedu.so")
    host.link(path, "/run/driverwright/.team.edu@aaaa")
    assert find_files(host.path, described) == {path: [path]}


@pytest.mark.parametrize(
    ("glob", "expected"),
    [("/dev/edu*", ("/dev", 1)), ("/dev/bus/*/x", ("/dev/bus", 2)), ("/dev/kvm", ("/dev", 1)), ("/*", ("/", 1))],
)
def test_the_folder_that_is_watched(glob: str, expected: tuple[str, int]) -> None:
    """The one before the first wildcard."""
    assert fixed_folder(glob) == expected


def _bound(host: HostTree) -> None:
    host.sysfs("10:120", DEVICE, driver="edu")


def _unbound(host: HostTree) -> None:
    host.sysfs("10:120", DEVICE)


def _bound_to_another(host: HostTree) -> None:
    host.sysfs("10:120", DEVICE, driver="vfio-pci")


def _unknown(_: HostTree) -> None:
    pass


def _unknown_but_used(host: HostTree) -> None:
    host.sysfs("9:9", "pci0000:00/0000:00:05.0", driver="edu")


@needs_root
@pytest.mark.parametrize(
    ("arrange", "expected"),
    [
        pytest.param(_bound, "", id="bound"),
        pytest.param(_unbound, "no device is bound to edu", id="not bound"),
        pytest.param(_bound_to_another, "driver edu is not bound to it, but vfio-pci is", id="bound to another"),
        pytest.param(_unknown, "no device is bound to edu", id="a node that sysfs does not know"),
        pytest.param(_unknown_but_used, "", id="a node that sysfs does not know, of a driver with a device"),
    ],
)
def test_a_driver_is_bound_or_not(host: HostTree, arrange: Callable[[HostTree], None], expected: str) -> None:
    """The node's own device counts; without one, any device of the driver."""
    host.node("/dev/edu0", 10, 120)
    arrange(host)
    assert why(host) == expected
    assert why(host, None) == ""


@needs_root
@pytest.mark.parametrize(("text", "expected"), [("1", (1,)), ("-1", ()), ("", ()), ("many", ())])
def test_the_numa_node_is_that_of_the_device_above(host: HostTree, text: str, expected: tuple[int, ...]) -> None:
    """-1 and nothing are no NUMA node."""
    host.node("/dev/edu0", 10, 120)
    host.sysfs("10:120", DEVICE, numa=text)
    (state,) = scan(host.path, resource("/dev/edu*"), (), lambda _: "")
    assert state.numa_nodes == expected


@needs_root
def test_a_device_that_is_gone_recovers(host: HostTree) -> None:
    """The unit stays while it is away, and is healthy again when it is back."""
    host.node("/dev/edu0")
    described = resource("/dev/edu*")
    (before,) = scan(host.path, described, (), lambda _: "")
    host.remove("/dev/edu0")
    (gone,) = scan(host.path, described, [before.unit], lambda _: "")
    host.node("/dev/edu0")
    (back,) = scan(host.path, described, [gone.unit], lambda _: "")
    assert (gone.why, back) == ("/dev/edu0 is gone", before)


@needs_root
def test_a_command_is_asked_last(host: HostTree) -> None:
    """It is not asked about a device whose driver is not bound."""
    host.node("/dev/edu0", 10, 120)
    described = resource("/dev/edu*", health={"driver": "edu"})
    (unbound,) = scan(host.path, described, (), lambda _: "it fails")
    _bound(host)
    (bound,) = scan(host.path, described, (), lambda _: "it fails")
    assert (unbound.why, bound.why) == ("no device is bound to edu", "it fails")


def test_no_answer_of_the_system_says_nothing_of_devices(tmp_path: Path) -> None:
    """Without a free descriptor no folder can be read: the devices stay as they were."""
    host = HostTree(tmp_path)
    host.file("/run/card0")
    described = resource({"path": "/run/card*", "type": "Mount"})

    async def look() -> list[bool]:
        source = FilesSource(host.path)
        source.start(lambda: None)
        source.configure(Description(resources=(described,)))
        await source.look()
        soft, hard = getrlimit(RLIMIT_NOFILE)
        setrlimit(RLIMIT_NOFILE, (3, hard))
        try:
            await source.look()
        finally:
            setrlimit(RLIMIT_NOFILE, (soft, hard))
        return [unit.is_healthy for unit in source.resources[described.name] or ()]

    assert asyncio.run(look()) == [True]
