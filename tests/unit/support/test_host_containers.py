"""Containers of this machine's node: their processes, and what they have written."""

import signal
import subprocess
from pathlib import Path

import pytest

from tests.support.real_parts import host_containers

OF_CONTAINERD = """\
2026-11-30T02:10:01.000000001+00:00 stdout P one
2026-11-30T02:10:01.000000002+00:00 stdout F  line
2026-11-30T02:10:03Z stderr F three
"""
OF_AN_ENGINE = '{"log":"two\\n","stream":"stdout","time":"2026-11-30T02:10:02.5Z"}\n'


def test_what_containers_have_written_is_in_order(tmp_path: Path) -> None:
    """Lines of either runtime, of each container of that name; what a link leads to may be gone."""
    for pod, text in (("ns_a_1", OF_CONTAINERD), ("ns_b_2", OF_AN_ENGINE)):
        (tmp_path / pod / "builder").mkdir(parents=True)
        (tmp_path / pod / "builder/0.log").write_text(text)
    (tmp_path / "ns_b_2/builder/1.log").symlink_to(tmp_path / "gone")
    (tmp_path / "ns_b_2/other").mkdir()
    (tmp_path / "ns_b_2/other/0.log").write_text(OF_AN_ENGINE)
    assert host_containers.written(tmp_path, "builder") == "one line\ntwo\nthree\n"


def test_the_process_that_began_first_is_the_containers(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """What was executed in it later has a smaller PID where the numbers began anew."""
    for pid, group, started in ((70, "/pod/abc", 5000), (9, "/pod/abc", 6000), (8, "/pod/other", 1)):
        folder = tmp_path / str(pid)
        folder.mkdir()
        (folder / "cgroup").write_text(f"4:memory:{group}\n")
        (folder / "stat").write_text(f"{pid} (a name) S {' '.join(['0'] * 18)} {started} 0\n")
        (folder / "status").write_text(f"of {pid}")
    monkeypatch.setattr(host_containers, "_PROC", tmp_path)
    assert host_containers.main_process("abc") == 70
    assert host_containers.in_proc("abc", "status") == "of 70"
    assert host_containers.main_process("gone") is None


def test_a_process_is_killed(monkeypatch: pytest.MonkeyPatch) -> None:
    """By the signal asked for; a container without a process is a fault of the test."""
    with subprocess.Popen(["sleep", "60"]) as process:
        monkeypatch.setattr(host_containers, "main_process", {"abc": process.pid}.get)
        host_containers.kill("abc", signal.SIGTERM)
        assert process.wait() == -signal.SIGTERM
    with pytest.raises(AssertionError, match="no process"):
        host_containers.kill("gone")


def test_a_pod_ends_with_all_its_processes(monkeypatch: pytest.MonkeyPatch) -> None:
    """Each gets SIGKILL."""
    with subprocess.Popen(["sleep", "60"]) as first, subprocess.Popen(["sleep", "60"]) as second:
        monkeypatch.setattr(host_containers, "_processes", {"uid": [first.pid, second.pid]}.get)
        host_containers.end_pod("uid")
        assert (first.wait(), second.wait()) == (-signal.SIGKILL, -signal.SIGKILL)
