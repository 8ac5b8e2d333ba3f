"""Processes by number, start and pod."""

import os
import subprocess
import sys
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path
from threading import Thread

import pytest

from device_agent.nvml_container.processes import Process, Processes, read_process, read_start, why_unseen
from tests.unit.device_agent.nvml_container.node_folder import OTHER_UID, UID, NodeFolder, cgroup, plain, stat

LATER = 1e6
"""Seconds since the boot at which no process is young."""


@pytest.fixture
def node(tmp_path: Path) -> NodeFolder:
    """Make a node with its first process alone."""
    return NodeFolder(tmp_path)


def test_a_process_has_its_start_and_its_pod(node: NodeFolder) -> None:
    """Also one whose name looks like other fields."""
    node.process(4711, UID, start=123456)
    assert read_process(str(node.proc), 4711) == Process(4711, 123456, plain(UID))
    assert read_process(str(node.proc), 1) == Process(1, 2, "")


def test_the_start_of_a_real_process_is_read_whatever_its_name_is() -> None:
    """The name is the one thing in that file that a process chooses."""
    script = (
        "import ctypes, sys; ctypes.CDLL(None).prctl(15, b') R 1 (x) ', 0, 0, 0); print(flush=True); sys.stdin.read()"
    )
    with subprocess.Popen([sys.executable, "-c", script], stdin=subprocess.PIPE, stdout=subprocess.PIPE) as process:
        assert process.stdout is not None
        process.stdout.readline()
        name = Path(f"/proc/{process.pid}/comm").read_text()
        start, own = read_start("/proc", process.pid), read_start("/proc", os.getpid())
        process.communicate()
    assert name == ") R 1 (x) \n"
    assert start is not None
    assert own is not None
    assert own <= start


@pytest.mark.parametrize(
    "text",
    [
        pytest.param("", id="empty"),
        pytest.param("17", id="a number"),
        pytest.param("17 (x) S 1 2 3", id="too short"),
        pytest.param(stat(17, 5).replace(" 5 ", " -5 "), id="a negative start"),
        pytest.param(stat(17, 5).replace(" 5 ", " 99999999999999999999 "), id="a start of too many digits"),
    ],
)
def test_a_process_without_a_start_is_none(node: NodeFolder, text: str) -> None:
    """Such as one that has just ended."""
    (node.process(17, UID) / "stat").write_text(text)
    assert read_process(str(node.proc), 17) is None
    assert read_process(str(node.proc), 18) is None


@contextmanager
def replaced_between_reads(node: NodeFolder, pid: int) -> Iterator[None]:
    """Let another process have a number as soon as the cgroup of the first one was read.

    A named pipe stands in for the file: its writer goes on when there is a reader.
    """
    folder = node.process(pid, UID, start=100)
    (folder / "cgroup").unlink()
    os.mkfifo(folder / "cgroup")

    def write() -> None:
        with (folder / "cgroup").open("w") as pipe:
            (folder / "stat").write_text(stat(pid, 200))
            pipe.write(cgroup(UID))

    thread = Thread(target=write)
    thread.start()
    try:
        yield
    finally:
        thread.join()


def test_a_process_whose_number_another_one_gets_between_two_reads_is_none(node: NodeFolder) -> None:
    """What was read may be of either."""
    with replaced_between_reads(node, 4711):
        assert read_process(str(node.proc), 4711) is None


def test_the_processes_of_pods_are_found_among_all(node: NodeFolder) -> None:
    """Those of other pods and of the node are left out, and so is what is no process."""
    for pid, uid in ((20, UID), (3, OTHER_UID), (7, ""), (9, UID)):
        node.process(pid, uid)
    (node.proc / "self").mkdir()
    (node.proc / "5x").mkdir()
    found = Processes(str(node.proc)).of_pods({plain(UID)}, LATER)
    assert found == [Process(9, 100, plain(UID)), Process(20, 100, plain(UID))]
    assert Processes(f"{node.proc}/nowhere").of_pods({plain(UID)}, LATER) == []


def found_in(processes: Processes, samples: int) -> bool:
    """Return whether a process of the pod is found in so many samples."""
    return any(processes.of_pods({plain(UID)}, LATER) for _ in range(samples))


def test_a_process_of_no_wanted_pod_is_seldom_looked_at_again_and_found_if_it_has_moved(node: NodeFolder) -> None:
    """At the latest at the sixteenth sample."""
    for pid in range(100, 116):
        node.process(pid, "")
    processes = Processes(str(node.proc))
    assert not found_in(processes, 1)
    for pid in range(100, 116):
        node.process(pid, UID)
    assert len(processes.of_pods({plain(UID)}, LATER)) == 1
    assert sum(len(processes.of_pods({plain(UID)}, LATER)) == 16 for _ in range(15)) == 1


def test_a_process_that_has_got_the_number_of_another_one_is_found_at_once(node: NodeFolder) -> None:
    """It started at another time."""
    for pid in (101, 102):
        node.process(pid, "", start=100)
    processes = Processes(str(node.proc))
    assert processes.of_pods({plain(UID)}, LATER) == []
    for pid in (101, 102):
        node.process(pid, UID, start=200)
    assert processes.of_pods({plain(UID)}, LATER) == [Process(101, 200, plain(UID)), Process(102, 200, plain(UID))]


def test_a_young_process_is_looked_at_at_each_sample(node: NodeFolder) -> None:
    """A runtime starts it, and moves it into the pod's cgroup then."""
    node.process(101, "", start=100)
    processes = Processes(str(node.proc))
    assert processes.of_pods({plain(UID)}, 2.0) == []
    node.process(101, UID, start=100)
    assert processes.of_pods({plain(UID)}, 2.0) == [Process(101, 100, plain(UID))]


def test_each_process_is_looked_at_when_other_pods_are_wanted(node: NodeFolder) -> None:
    """It may be one of theirs."""
    node.process(101, OTHER_UID)
    processes = Processes(str(node.proc))
    assert processes.of_pods({plain(UID)}, LATER) == []
    processes.forget()
    assert processes.of_pods({plain(OTHER_UID)}, LATER) == [Process(101, 100, plain(OTHER_UID))]


@pytest.mark.parametrize(
    ("first", "own", "why"),
    [
        pytest.param("0::/init.scope\n", cgroup(UID), "", id="the node's, with systemd"),
        pytest.param("0::/\n", cgroup(UID), "", id="the node's, without systemd"),
        pytest.param("0::/../../../../init.scope\n", "0::/\n", "", id="the node's, from a cgroup namespace"),
        pytest.param(cgroup(UID), cgroup(UID), "its pod needs hostPID", id="our own"),
        pytest.param(cgroup(UID) + "x\n", cgroup(UID), "its pod needs hostPID", id="another container of the pod"),
        pytest.param("0::/\n", "0::/\n", "its pod needs hostPID", id="our own, from a cgroup namespace"),
        pytest.param("", cgroup(UID), "/proc/1/cgroup is missing", id="nothing"),
    ],
)
def test_the_first_process_says_whether_the_nodes_processes_are_seen(
    node: NodeFolder, first: str, own: str, why: str
) -> None:
    """Without hostPID it is one of the pod's."""
    (node.proc / "1/cgroup").write_text(first)
    (node.proc / "self").mkdir()
    (node.proc / "self/cgroup").write_text(own)
    said = why_unseen(str(node.proc))
    assert said.endswith(why)
    assert bool(said) == bool(why)
