"""The file of allocations is whole at any moment, and what it says outlives the process."""

import os
import signal
import subprocess
import sys
from pathlib import Path
from resource import RLIMIT_FSIZE, getrlimit, setrlimit

import pytest

from device_agent.allocations.given import Allocation
from device_agent.allocations.recent import PENDING, Start
from device_agent.allocations.remembered import Allocations
from device_agent.errors import AllocationRefused, StartRefused
from device_agent.users.in_use import Seen, in_use

GPU = "nvidia.com/gpu"
FIRST, SECOND = ("/dev/nvidia0 195:0",), ("/dev/nvidia1 195:1",)

KILLED = """
import os, sys
from device_agent.allocations.remembered import Allocations
allocations = Allocations(sys.argv[1])
allocations.remember("nvidia.com/gpu", {"old": ("/dev/nvidia0 195:0",)})

def wait(*_):
    print("now", flush=True)
    sys.stdin.read()

setattr(os, sys.argv[2], wait)
allocations.remember("nvidia.com/gpu", {"new": ("/dev/nvidia1 195:1",)})
"""


def names(folder: Path) -> list[str]:
    """List a folder."""
    return sorted(path.name for path in folder.iterdir())


def test_what_was_given_is_known_after_a_restart(tmp_path: Path) -> None:
    """Also in a folder that is not there yet; nobody else can read the file."""
    folder = tmp_path / "state" / "agent"
    Allocations(str(folder)).remember(GPU, {"GPU-0": FIRST, "GPU-1": SECOND})
    Allocations(str(folder)).check(GPU, [("GPU-0", FIRST), ("GPU-1", SECOND)])
    with pytest.raises(StartRefused, match=r"GPU-1 of nvidia.com/gpu was given as /dev/nvidia1"):
        Allocations(str(folder)).check(GPU, [("GPU-0", FIRST), ("GPU-1", FIRST)])
    assert [(path.name, path.stat().st_mode & 0o777) for path in folder.iterdir()] == [("allocations.json", 0o600)]


@pytest.mark.parametrize("call", ["fsync", "replace"])
def test_a_process_that_is_killed_leaves_the_file_whole(tmp_path: Path, call: str) -> None:
    """Before the temporary file is on the disk, and between it and its rename: what was there before is known."""
    command = [sys.executable, "-c", KILLED, str(tmp_path), call]
    with subprocess.Popen(command, stdin=subprocess.PIPE, stdout=subprocess.PIPE, text=True) as process:
        assert process.stdout is not None
        assert process.stdout.readline() == "now\n"
        process.kill()
        assert process.wait() == -signal.SIGKILL
    assert names(tmp_path) == ["allocations.json", "allocations.json.new"]
    after = Allocations(str(tmp_path))
    after.check(GPU, [("old", FIRST)])
    with pytest.raises(StartRefused, match="it is not remembered"):
        after.check(GPU, [("new", SECOND)])
    after.remember(GPU, {"new": SECOND})
    Allocations(str(tmp_path)).check(GPU, [("old", FIRST), ("new", SECOND)])
    assert names(tmp_path) == ["allocations.json"]


@pytest.mark.parametrize("content", [b"", b"{", b"\0" * 4096], ids=["empty", "cut", "zeros after a loss of power"])
def test_a_broken_file_is_set_aside(tmp_path: Path, content: bytes, caplog: pytest.LogCaptureFixture) -> None:
    """Starts are refused with that reason, and devices are given as before."""
    file = tmp_path / "allocations.json"
    file.write_bytes(content)
    allocations = Allocations(str(tmp_path))
    with pytest.raises(StartRefused, match=r"it is not remembered.*was not valid, it is not JSON, and is .*\.broken"):
        allocations.check(GPU, [("GPU-0", FIRST)])
    assert "containers with devices start again when their pods are new" in caplog.text
    assert (tmp_path / "allocations.json.broken").read_bytes() == content
    allocations.remember(GPU, {"GPU-0": FIRST})
    Allocations(str(tmp_path)).check(GPU, [("GPU-0", FIRST)])


def test_what_is_no_file_is_set_aside(tmp_path: Path) -> None:
    """A pipe would never end."""
    os.mkfifo(tmp_path / "allocations.json")
    Allocations(str(tmp_path)).remember(GPU, {"GPU-0": FIRST})
    assert (tmp_path / "allocations.json.broken").is_fifo()
    Allocations(str(tmp_path)).check(GPU, [("GPU-0", FIRST)])


def test_what_cannot_be_written_is_not_given(tmp_path: Path) -> None:
    """The message names the file and the reason; once there is room again it works."""
    allocations = Allocations(str(tmp_path))
    soft, hard = getrlimit(RLIMIT_FSIZE)
    setrlimit(RLIMIT_FSIZE, (10, hard))
    try:
        with pytest.raises(AllocationRefused, match=rf"cannot remember .* in {tmp_path}/allocations.json: File too"):
            allocations.remember(GPU, {"GPU-0": FIRST})
    finally:
        setrlimit(RLIMIT_FSIZE, (soft, hard))
    with pytest.raises(StartRefused, match="it is not remembered"):
        allocations.check(GPU, [("GPU-0", FIRST)])
    allocations.remember(GPU, {"GPU-0": FIRST})
    allocations.check(GPU, [("GPU-0", FIRST)])
    assert names(tmp_path) == ["allocations.json"]


def test_where_no_folder_can_be_nothing_is_given(tmp_path: Path) -> None:
    """Neither is a start checked against nothing."""
    (tmp_path / "file").touch()
    allocations = Allocations(str(tmp_path / "file"))
    with pytest.raises(AllocationRefused, match=r"cannot remember what is given in .*: Not a directory"):
        allocations.remember(GPU, {"GPU-0": FIRST})
    with pytest.raises(StartRefused, match=r"cannot read what was given in .*: Not a directory"):
        allocations.check(GPU, [("GPU-0", FIRST)])


def test_a_device_is_in_use_before_it_is_given(tmp_path: Path) -> None:
    """From the moment at which that is decided, with its shares, and until the kubelet has shown it."""
    allocations = Allocations(str(tmp_path), "boot-1", lambda: 100.0)
    assert allocations.given is None
    allocations.begin(GPU, {"GPU-0::1": 4, "GPU-0::2": 4})
    assert allocations.recent == {(GPU, "GPU-0::1"): Start(PENDING, 4), (GPU, "GPU-0::2"): Start(PENDING, 4)}
    allocations.remember(GPU, {"GPU-0::1": FIRST})
    allocations.end(GPU, {"GPU-0::1": 4, "GPU-0::2": 4})
    assert allocations.recent == {(GPU, "GPU-0::1"): Start(100.0, 4), (GPU, "GPU-0::2"): Start(100.0, 4)}
    assert allocations.given == {(GPU, "GPU-0::1"): Allocation(identity=FIRST, shares=4, at=100.0)}
    allocations.see({(GPU, "GPU-0::1")}, asked_at=101.0)
    assert allocations.recent.keys() == {(GPU, "GPU-0::2")}


def test_the_minute_of_a_device_begins_with_the_answer(tmp_path: Path) -> None:
    """The kubelet shows it only then; a disk that takes longer than that takes nothing from the container."""
    now = [100.0]
    allocations = Allocations(str(tmp_path), "boot-1", lambda: now[0])
    allocations.begin(GPU, {"GPU-0": 1})
    allocations.remember(GPU, {"GPU-0": FIRST})

    def in_use_at(asked_at: float) -> bool:
        now[0] = asked_at
        seen = Seen(asked_at=asked_at, shown=frozenset(), recorded=frozenset())
        allocations.see((), asked_at)
        return bool(in_use(seen, allocations.given, allocations.recent))

    assert in_use_at(1000.0)
    allocations.end(GPU, {"GPU-0": 1})
    assert in_use_at(1059.0)
    assert not in_use_at(1060.0)


@pytest.mark.parametrize(
    ("boot", "recent"),
    [
        pytest.param("boot-1", {(GPU, "GPU-0"): Start(100.0, 1)}, id="of the agent"),
        pytest.param("boot-2", {}, id="of the node: its times are none of this boot"),
    ],
)
def test_what_was_given_is_in_use_after_a_restart(
    tmp_path: Path, boot: str, recent: dict[tuple[str, str], Start]
) -> None:
    """Without podresources; what is being given meanwhile is not lost when the file is read."""
    before = Allocations(str(tmp_path), "boot-1", lambda: 100.0)
    before.begin(GPU, {"GPU-0": 1})
    before.remember(GPU, {"GPU-0": FIRST})
    after = Allocations(str(tmp_path), boot, lambda: 120.0)
    after.begin(GPU, {"GPU-1": 2})
    after.load()
    assert after.recent == {**recent, (GPU, "GPU-1"): Start(PENDING, 2)}
    assert after.given is not None
    assert after.given[GPU, "GPU-0"].shares == 1
