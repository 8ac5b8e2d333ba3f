"""ScanRunner: when a scan child is started, and what becomes of it. The children are real processes."""

import json
import logging
import os
import select
import sys
import time
from pathlib import Path

import pytest

from feature_rules.features import Failed, Features
from nfd_worker.gpu import scan_runner
from nfd_worker.gpu.scan_runner import RESCAN_SECONDS, RETRY_SECONDS, SCAN_DEADLINE_SECONDS, ScanRunner
from nfd_worker.host import BOOT_ID, Host
from tests.support.nfd_worker.trees import host, pci_device
from tests.unit.nfd_worker.sources.test_gpu import device

PATIENCE = 120.0
"""Seconds: a child on a busy machine takes its time."""
FOUND = '{"state": "ok", "reason": "", "driver": "550.54.15", "cuda": 12040, "machine": "", "devices": []}'


def script(code: str) -> tuple[str, ...]:
    """Make a command that runs some Python, with the pid of each run appended to the file below the request's root."""
    note = (
        "import json, os, sys; root = json.load(sys.stdin)['root']; open(root + '/pids', 'a').write(f'{os.getpid()} ')"
    )
    return (sys.executable, "-I", "-c", f"{note}\n{code}")


OK = script(f"print('''{FOUND}''')")
ABSENT = script('print(\'{"state": "absent", "reason": "no driver"}\')')
ANSWERS = script("print(open(root + '/answer').read())")
"""Prints what a file says."""
HANGS = script("import time; time.sleep(600)")
UNKILLABLE = script(
    "import time\n"
    "child = os.fork()\n"
    "for _ in range(6000):\n"
    "    if child == 0 and os.path.exists(root + '/let-go'): break\n"
    "    time.sleep(0.01)"
)
"""A child of this child holds the pipe after it is killed, until it is let go, as one in the kernel's hands would."""


class World:
    """Scans on a machine with an NVIDIA device, and when they told of a change."""

    def __init__(
        self, root: Path, command: tuple[str, ...] = OK, vendor: str = "0x10de", device_class: str = "0x030200"
    ) -> None:
        boot_id = Path("/", BOOT_ID).read_text()
        card = pci_device("0000:01:00.0", vendor, device_class)
        self.host: Host = host(root, {BOOT_ID: boot_id, **card})
        self.changes: list[float] = []
        self.scans = ScanRunner(command, on_change=self.changes.append)
        self._pids = root / "pids"
        self._let_go = root / "let-go"

    def step(self, now: float) -> float:
        """Let the scans do what is due."""
        return self.scans.step(now, self.host)

    def wait(self, now: float) -> None:
        """Serve the running child until it ends."""
        while readers := self.scans.readers():
            (descriptor,) = readers
            ready, _, _ = select.select([descriptor], [], [], PATIENCE)
            assert ready, "the child did not end"
            readers[descriptor](now)

    def let_go(self) -> None:
        """End what an unkillable child left behind."""
        self._let_go.touch()

    @property
    def pids(self) -> list[int]:
        """The children that were started."""
        return [int(pid) for pid in self._pids.read_text().split()] if self._pids.exists() else []


def is_gone(pid: int) -> bool:
    """Tell whether a child was reaped."""
    try:
        os.kill(pid, 0)
    except ProcessLookupError:
        return True
    return False


def wait_for_start(world: World) -> None:
    """Wait until the child runs its script."""
    deadline = time.monotonic() + PATIENCE
    while not world.pids:
        assert time.monotonic() < deadline, "the child did not start"
        time.sleep(0.01)


def test_a_node_without_nvidia_hardware_never_starts_a_child(tmp_path: Path) -> None:
    """It is known at once that there is nothing."""
    world = World(tmp_path, vendor="0x8086")
    assert world.step(0.0) == RESCAN_SECONDS
    assert world.scans.outcome() == Features()
    world.step(RESCAN_SECONDS)
    assert (world.scans.readers(), world.pids) == ({}, [])


def test_nothing_is_known_before_the_first_answer(tmp_path: Path) -> None:
    """Which the daemon must not take for: no GPUs."""
    world = World(tmp_path)
    assert world.step(0.0) == SCAN_DEADLINE_SECONDS
    assert world.scans.outcome() is None
    world.wait(2.0)
    outcome = world.scans.outcome()
    assert isinstance(outcome, Features)
    assert outcome.attributes["gpu.driver"]["version"] == "550.54.15"
    assert world.changes == [2.0]


def test_gpus_are_scanned_again_after_a_while_and_the_same_answer_is_no_change(tmp_path: Path) -> None:
    """An unchanged node costs one child in five minutes, and no cycle."""
    world = World(tmp_path)
    world.step(0.0)
    world.wait(2.0)
    assert world.step(2.0) == RESCAN_SECONDS
    assert len(world.pids) == 1
    assert world.step(RESCAN_SECONDS) == RESCAN_SECONDS + SCAN_DEADLINE_SECONDS
    world.wait(RESCAN_SECONDS)
    assert len(world.pids) == 2
    assert world.changes == [2.0]


def test_a_device_event_starts_a_scan(tmp_path: Path) -> None:
    """After a device event a scan starts before the interval ends."""
    world = World(tmp_path)
    world.step(0.0)
    world.wait(1.0)
    world.scans.poke()
    world.step(5.0)
    world.wait(6.0)
    assert len(world.pids) == 2
    assert world.step(6.0) == 5.0 + RESCAN_SECONDS


def test_an_event_during_a_scan_starts_another_after_it(tmp_path: Path) -> None:
    """The first may have looked too early; one child runs at a time."""
    world = World(tmp_path)
    world.step(0.0)
    world.scans.poke()
    assert world.step(1.0) == SCAN_DEADLINE_SECONDS
    world.wait(2.0)
    world.step(2.0)
    world.wait(3.0)
    assert len(world.pids) == 2


@pytest.mark.parametrize(
    ("command", "reason"),
    [
        pytest.param(script('print(\'{"state": "failed", "reason": "lost"}\')'), "lost", id="failed"),
        pytest.param(script("print('nonsense')"), "the GPU scan's output b'nonsense", id="nonsense"),
        pytest.param(script("sys.exit(3)"), "the GPU scan ended with status 3", id="crashed"),
        pytest.param(script("os.kill(os.getpid(), 11)"), "the GPU scan ended with status -11", id="segmentation fault"),
        pytest.param(("/nonexistent/python",), "cannot scan for GPUs: ", id="not started"),
    ],
)
def test_any_failure_is_an_outcome_and_tried_again_sooner(
    tmp_path: Path, command: tuple[str, ...], reason: str
) -> None:
    """A driver that is being repaired is soon found to work."""
    world = World(tmp_path, command)
    world.step(0.0)
    world.wait(0.0)
    outcome = world.scans.outcome()
    assert isinstance(outcome, Failed)
    assert outcome.reason.startswith(reason)
    assert world.step(1.0) == RETRY_SECONDS
    assert world.changes == [0.0]


def test_hardware_without_a_driver_is_looked_at_again_sooner(tmp_path: Path) -> None:
    """NVIDIA hardware without a driver is scanned again after the shorter interval."""
    world = World(tmp_path, ABSENT)
    world.step(0.0)
    world.wait(0.0)
    assert world.scans.outcome() == Features()
    assert world.step(1.0) == RETRY_SECONDS


NO_LIBRARY = '{"state": "absent", "reason": "there is no libnvidia-ml.so.1"}'
NOT_LOADED = '{"state": "absent", "reason": "NVML cannot start: Driver Not Loaded"}'
ONE_GPU = json.dumps({**json.loads(FOUND), "devices": [device()]})
HAS_FAILED = '{"state": "failed", "reason": "GPU 0 cannot be read: GPU is lost"}'


def scan_each(world: World, root: Path, *answers: str) -> None:
    """Scan once for each of these answers."""
    for answer in answers:
        (root / "answer").write_text(answer)
        world.scans.poke()
        world.step(0.0)
        world.wait(0.0)


def logged(caplog: pytest.LogCaptureFixture) -> list[tuple[str, str]]:
    """Return level and reason of what was logged."""
    about = "gpu: this node has an NVIDIA card and no GPU labels (the kernel module nvidia is "
    page = "; see docs/gpu.md"
    found = [(record.levelname, record.message) for record in caplog.records]
    assert all(message.startswith(about) and message.endswith(page) for _, message in found)
    return [(level, message.removeprefix(about).removesuffix(page)) for level, message in found]


@pytest.mark.parametrize(
    ("answers", "reasons"),
    [
        pytest.param((NO_LIBRARY,) * 3, ["there is no libnvidia-ml.so.1"], id="once"),
        pytest.param(
            (NO_LIBRARY, NOT_LOADED, NOT_LOADED),
            ["there is no libnvidia-ml.so.1", "NVML cannot start: Driver Not Loaded"],
            id="again when the reason changes",
        ),
        pytest.param(
            (NO_LIBRARY, ONE_GPU, NO_LIBRARY), ["there is no libnvidia-ml.so.1"] * 2, id="again after GPUs were found"
        ),
        pytest.param(
            (NO_LIBRARY, HAS_FAILED, NO_LIBRARY), ["there is no libnvidia-ml.so.1"], id="a failure between is no change"
        ),
        pytest.param(
            (FOUND,),
            ["NVML lists no GPU; check that this container may use /dev/nvidia*"],
            id="a driver that lists none",
        ),
        pytest.param((ONE_GPU,), [], id="GPUs"),
    ],
)
def test_why_a_node_with_an_nvidia_card_has_no_labels_is_logged_once(
    tmp_path: Path, caplog: pytest.LogCaptureFixture, answers: tuple[str, ...], reasons: list[str]
) -> None:
    """Not at each scan, of which there is one a minute."""
    caplog.set_level(logging.INFO)
    scan_each(World(tmp_path, ANSWERS), tmp_path, *answers)
    assert logged(caplog) == [("INFO", f"not loaded): {reason}") for reason in reasons]


def test_no_labels_with_a_loaded_driver_are_a_warning(tmp_path: Path, caplog: pytest.LogCaptureFixture) -> None:
    """The node has all that it needs, and the worker's container lacks something."""
    world = World(tmp_path, ANSWERS)
    (tmp_path / "proc/driver/nvidia").mkdir(parents=True)
    scan_each(world, tmp_path, NO_LIBRARY)
    assert logged(caplog) == [("WARNING", "loaded): there is no libnvidia-ml.so.1")]


@pytest.mark.parametrize(
    "device_class", [pytest.param("0x068000", id="NVSwitch"), pytest.param("0x040300", id="sound")]
)
def test_a_node_without_an_nvidia_card_lacks_no_labels(
    tmp_path: Path, caplog: pytest.LogCaptureFixture, device_class: str
) -> None:
    """Another device of NVIDIA's is no card."""
    caplog.set_level(logging.INFO)
    scan_each(World(tmp_path, ANSWERS, device_class=device_class), tmp_path, NO_LIBRARY)
    assert logged(caplog) == []


BROKEN = json.dumps({**json.loads(ONE_GPU), "sharing_problem": "/run/x.json: it is not JSON"})
OTHERWISE = json.dumps({**json.loads(ONE_GPU), "sharing_problem": "/run/x.json: no version"})


@pytest.mark.parametrize(
    ("answers", "reasons"),
    [
        pytest.param((BROKEN, BROKEN), ["it is not JSON"], id="once"),
        pytest.param((BROKEN, OTHERWISE), ["it is not JSON", "no version"], id="again when the reason changes"),
        pytest.param((BROKEN, ONE_GPU, BROKEN), ["it is not JSON"] * 2, id="again after it was good"),
        pytest.param((ONE_GPU,), [], id="nothing wrong"),
    ],
)
def test_why_a_report_of_sharing_is_not_used_is_logged_once(
    tmp_path: Path, caplog: pytest.LogCaptureFixture, answers: tuple[str, ...], reasons: list[str]
) -> None:
    """With the name of the file, as a warning."""
    scan_each(World(tmp_path, ANSWERS), tmp_path, *answers)
    assert [(record.levelname, record.message) for record in caplog.records] == [
        ("WARNING", f"gpu: labelled as if no GPU were shared: /run/x.json: {reason}; see docs/gpu.md")
        for reason in reasons
    ]


def test_a_host_that_cannot_be_read_is_a_failure(tmp_path: Path) -> None:
    """A file in place of the directory stands in for an I/O error of the bus."""
    world = World(tmp_path)
    (tmp_path / "sys/bus/pci/devices/0000:01:00.0/vendor").unlink()
    (tmp_path / "sys/bus/pci/devices/0000:01:00.0/vendor").mkdir()
    assert world.step(0.0) == RETRY_SECONDS
    outcome = world.scans.outcome()
    assert isinstance(outcome, Failed)
    assert outcome.reason.startswith("cannot scan for GPUs: cannot read ")


def test_a_scan_is_killed_at_its_deadline_and_reaped(tmp_path: Path) -> None:
    """A hanging driver does not hang the worker."""
    world = World(tmp_path, HANGS)
    deadline = world.step(0.0)
    wait_for_start(world)
    assert world.step(deadline - 1) == deadline
    world.step(deadline)
    assert world.scans.outcome() == Failed("the GPU scan took longer than 30 s and was killed")
    assert world.changes == [deadline]
    world.wait(deadline)
    assert is_gone(world.pids[0])
    assert world.step(deadline) == deadline + RETRY_SECONDS


def test_a_scan_that_does_not_die_is_not_waited_for_and_has_no_successor(tmp_path: Path) -> None:
    """A process that hangs in the kernel dies when the kernel lets it go; one of them is enough."""
    world = World(tmp_path, UNKILLABLE)
    deadline = world.step(0.0)
    wait_for_start(world)
    assert world.step(deadline) == float("inf")
    assert world.step(deadline + 2 * RESCAN_SECONDS) == float("inf")
    assert len(world.pids) == 1
    world.let_go()
    world.wait(deadline + 2 * RESCAN_SECONDS)
    assert is_gone(world.pids[0])
    assert world.step(deadline + 2 * RESCAN_SECONDS) < float("inf")
    world.scans.stop()


@pytest.mark.parametrize("command", [HANGS, UNKILLABLE], ids=["dies", "does not die"])
def test_stopping_ends_a_running_scan_at_once(tmp_path: Path, command: tuple[str, ...]) -> None:
    """SIGTERM ends a running scan without waiting for it."""
    world = World(tmp_path, command)
    world.step(0.0)
    wait_for_start(world)
    start = time.monotonic()
    world.scans.stop()
    assert time.monotonic() - start < 30, "it would have lived for a minute"
    assert world.scans.readers() == {}
    world.scans.stop()
    world.let_go()


def test_stopping_reaps(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """No zombie is left where the worker is the container's first process."""
    # The kernel ends a child that was killed when a busy machine lets it.
    monkeypatch.setattr(scan_runner, "_DEATH_SECONDS", PATIENCE)
    world = World(tmp_path, HANGS)
    world.step(0.0)
    wait_for_start(world)
    world.scans.stop()
    assert is_gone(world.pids[0])


def test_one_scan_can_be_waited_for(tmp_path: Path) -> None:
    """``scan`` and ``--oneshot`` wait for the result of one scan."""
    outcome = World(tmp_path).scans.run_once(World(tmp_path).host)
    assert isinstance(outcome, Features)
    assert "gpu.driver" in outcome.attributes


def test_one_scan_of_a_node_without_nvidia_hardware_needs_no_child(tmp_path: Path) -> None:
    """Without NVIDIA hardware a scan returns at once and starts no child process."""
    world = World(tmp_path, ("/nonexistent/python",), vendor="0x8086")
    assert world.scans.run_once(world.host) == Features()
