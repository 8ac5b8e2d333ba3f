"""A process is ended if it is the one that is meant, and no other ever."""

import os
import re
import shutil
import signal
import subprocess
import sys
from collections.abc import Iterator
from pathlib import Path

import pytest

from device_agent.gpu_state.ending import LONGEST_DELAY
from device_agent.nvml_container.ending import end_process
from tests.unit.device_agent.nvml_container.real_processes import CARD, CGROUP, OTHER_POD, POD, Echo, Proc
from tests.unit.device_agent.nvml_container.running import REPOSITORY, SECONDS

IN_POD = CGROUP.format(POD)
IN_ANOTHER = CGROUP.format(OTHER_POD)
NAMESPACE = ["unshare", "--user", "--map-root-user", "--pid", "--fork", "--mount-proc"]
PROGRAM = "tests.unit.device_agent.nvml_container.real_processes"


@pytest.fixture
def echo() -> Iterator[Echo]:
    """Start a process that is there until the end of the test at the latest."""
    process = Echo()
    yield process
    process.end()


@pytest.fixture
def proc(tmp_path: Path) -> Proc:
    """Make a folder of processes."""
    return Proc(tmp_path)


def test_the_process_that_is_meant_is_ended_and_its_neighbour_lives(proc: Proc, echo: Echo) -> None:
    """By SIGKILL: it can neither refuse nor free memory slowly; another one of the same pod goes on."""
    victim = Echo()
    proc.put(echo.pid, IN_POD)
    assert end_process(proc.put(victim.pid, IN_POD), lambda card: {victim.pid, echo.pid} if card == CARD else (),
                       proc.path) == ""  # fmt: skip
    assert victim.reap() == -signal.SIGKILL
    assert echo.lives()


@pytest.mark.parametrize(
    ("cgroup", "why"),
    [
        pytest.param(IN_ANOTHER, "is in another pod", id="another pod"),
        pytest.param("0::/system.slice/cron.service\n", "is in no pod", id="a service of the node"),
        pytest.param("0::/\n", "is in no pod", id="the root"),
        pytest.param("", "is in no pod", id="a cgroup that cannot be read"),
        pytest.param(f"{IN_ANOTHER.strip()}/kubepods.slice/kubepods-pod{POD}.slice\n", "is in another pod",
                     id="a pod inside of another one"),
        pytest.param(f"2:memory:/kubepods/pod{POD}/0a\n1:pids:/kubepods/pod{OTHER_POD}/0a\n", "is in no pod",
                     id="two pods"),
    ],
)  # fmt: skip
def test_a_process_of_another_pod_or_of_none_lives(proc: Proc, echo: Echo, cgroup: str, why: str) -> None:
    """Whatever a request says."""
    request = proc.put(echo.pid, cgroup)
    assert why in end_process(request, lambda _card: {echo.pid}, proc.path)
    assert echo.lives()


@pytest.mark.parametrize(
    ("listed", "why"),
    [
        pytest.param((), "does not use GPU-0 any more", id="not any more"),
        pytest.param(None, "NVML does not say which processes use GPU-0", id="not known"),
    ],
)
def test_a_process_that_does_not_use_the_card_lives(
    proc: Proc, echo: Echo, listed: tuple[int, ...] | None, why: str
) -> None:
    """NVML is asked again, and has to name it."""
    assert why in end_process(proc.put(echo.pid, IN_POD), lambda _card: listed, proc.path)
    assert echo.lives()


def test_another_start_is_another_process(proc: Proc, echo: Echo) -> None:
    """Though all else is the same."""
    request = proc.put(echo.pid, IN_POD)
    why = end_process(request._replace(start=request.start - 1), lambda _card: {echo.pid}, proc.path)
    assert f"process {echo.pid} is another one now" in why
    assert echo.lives()


@pytest.mark.parametrize("delay", [pytest.param(LONGEST_DELAY + 1, id="old"), pytest.param(-60, id="of the future")])
def test_a_request_that_waited_for_too_long_ends_nobody(proc: Proc, echo: Echo, delay: float) -> None:
    """As behind an NVML that hung: the pod may be within its limit by now."""
    request = proc.put(echo.pid, IN_POD)
    why = end_process(request._replace(at=request.at - delay), lambda _card: {echo.pid}, proc.path, _refuse)
    assert re.fullmatch(r"the request is -?\d+ s old", why)
    assert echo.lives()


def test_a_process_that_has_ended_is_no_failure_of_the_kernel(proc: Proc, echo: Echo) -> None:
    """Before the request, or between the comparison and the kill: the answer says so."""
    request = proc.put(echo.pid, IN_POD)
    expected = f"process {echo.pid} has ended"
    assert end_process(request, lambda _card: [echo.end(), echo.pid], proc.path) == expected
    assert end_process(request, lambda _card: {echo.pid}, proc.path) == expected


def test_the_container_itself_what_has_started_it_and_the_first_process_live(proc: Proc) -> None:
    """Even where all that is compared agrees."""
    for pid in (1, os.getpid(), os.getppid()):
        request = proc.put(pid, IN_POD)
        why = end_process(request, lambda _card, pid=pid: {pid}, proc.path, _refuse)  # type: ignore[misc]
        assert re.match(rf"process {pid} is the (first one|container nvml itself)", why)


def test_nobody_in_the_pod_of_the_agent_is_ended(proc: Proc, echo: Echo) -> None:
    """The agent beside the container nvml is not what has started it."""
    proc.put(os.getpid(), IN_POD)
    assert "is in the pod of the agent" in end_process(proc.put(echo.pid, IN_POD), lambda _card: {echo.pid}, proc.path)
    assert echo.lives()


def test_nothing_is_ended_while_the_own_processes_cannot_be_read(tmp_path: Path, proc: Proc, echo: Echo) -> None:
    """Nobody can say then what has started this process."""
    request = proc.put(echo.pid, IN_POD)
    shutil.rmtree(tmp_path / "proc" / str(os.getpid()))
    assert "cannot be said" in end_process(request, lambda _card: {echo.pid}, proc.path)
    assert echo.lives()


@pytest.mark.parametrize("error", [PermissionError(1, "Operation not permitted"), OSError(38, "Function not implem")])
def test_a_kernel_that_refuses_is_quoted(proc: Proc, echo: Echo, error: OSError) -> None:
    """As where the container is not privileged."""

    def send(_process: int, _number: int) -> None:
        raise error

    why = end_process(proc.put(echo.pid, IN_POD), lambda _card: {echo.pid}, proc.path, send)
    assert why == f"process {echo.pid} cannot be ended: {error.strerror}"


@pytest.mark.parametrize(
    ("when", "why"),
    [
        pytest.param("before", r"process \d+ is another one now: it started at \d+ and not at \d+", id="before"),
        pytest.param("between", r"process \d+ has ended", id="between the comparison and the kill"),
    ],
)
def test_a_process_with_a_pid_that_is_used_again_lives(tmp_path: Path, when: str, why: str) -> None:
    """The kernel really gives the PID to another process, of the same pod and on the same card."""
    trial = subprocess.run([*NAMESPACE, "true"], check=False, capture_output=True, text=True)
    if trial.returncode:
        pytest.skip(f"no PID namespace can be had here: {trial.stderr.strip()}")
    run = subprocess.run(
        [*NAMESPACE, sys.executable, "-m", PROGRAM, when, tmp_path],
        check=False, capture_output=True, text=True, cwd=REPOSITORY, timeout=SECONDS,
    )  # fmt: skip
    assert re.fullmatch(rf"lives: {why}\n", run.stdout), run.stdout + run.stderr


def _refuse(_process: int, _number: int) -> None:
    raise AssertionError("it would have been ended")
