"""The supervisor with a child that misbehaves: real processes, pipes and signals."""

import ctypes
import os
import signal
import time
from pathlib import Path

import pytest

from device_agent.gpu_state.requests import LOOK, MAKE_NODES
from device_agent.gpu_state.state import ABSENT, FAILED, OK, State
from device_agent.gpu_state.state_json import parse_state
from device_agent.nvml_container.messages import Look, XidSeen, dump_message
from tests.unit.device_agent.gpu_state.examples import CARD, LOST
from tests.unit.device_agent.nvml_container.running import StandIn, is_gone, wait_for

WELL = dump_message(Look(OK, driver="550.54.15", cards=(CARD,)))
_PTRACE_SEIZE = 0x4206
_WALL = 0x40000000


def is_ok(state: State) -> bool:
    """Return whether GPUs are read."""
    return state.status == OK


def is_failed(state: State) -> bool:
    """Return whether reading failed."""
    return state.status == FAILED


# ---------------------------------------------------------------- what is said


def test_a_follower_gets_the_state_at_once_and_the_same_one_as_a_sign_of_life(tmp_path: Path) -> None:
    """Nothing has changed between the two lines but the time at which it was read."""
    with StandIn(tmp_path, WELL) as running:
        follower = running.follower()
        state = follower.state(is_ok)
        assert (state.driver, state.cards, state.boot) == ("550.54.15", (CARD,), "boot")
        first, second = parse_state(follower.line()), parse_state(follower.line())
        assert first._replace(read_at=second.read_at) == second
        assert 0 < state.read_at <= first.read_at <= second.read_at


def test_a_state_that_does_not_change_is_sent_as_a_sign_of_life_alone(tmp_path: Path) -> None:
    """Looks go on meanwhile."""
    with StandIn(tmp_path, WELL, look=0.01, sign_of_life=1e6) as running:
        follower = running.follower()
        follower.state(is_ok)
        before = running.left("asked")
        running.follower().ask(LOOK)
        wait_for(lambda: running.left("asked") != before, "another look")
        running.do(dump_message(Look(OK, driver="560.1")))
        assert follower.state().driver == "560.1"


def test_a_change_is_sent_when_a_client_asks_for_a_look(tmp_path: Path) -> None:
    """It need not follow."""
    with StandIn(tmp_path, WELL, look=1e6, silence=1e6) as running:
        follower = running.follower()
        follower.state(is_ok)
        running.do(dump_message(Look(OK, driver="560.1")))
        running.client().ask(LOOK)
        assert follower.state(lambda state: state.driver != "550.54.15").driver == "560.1"


def test_each_xid_event_has_a_number_and_a_time(tmp_path: Path) -> None:
    """Numbers go on after the child has been replaced."""
    with StandIn(tmp_path, dump_message(XidSeen("GPU-1", 79)) + WELL) as running:
        first = running.follower().state(lambda state: bool(state.xids)).xids[-1]
        assert (first.uuid, first.xid) == ("GPU-1", 79)
        assert first.number > 0
        os.kill(running.child(), signal.SIGKILL)
        running.do(dump_message(XidSeen("GPU-1", 31)) + WELL)
        old, new = running.follower().state(lambda state: is_ok(state) and len(state.xids) > 1).xids
        assert first.number <= old.number < new.number
        assert 0 < first.at <= old.at <= new.at
        assert running.log.read_text().count("Xid 79 of GPU GPU-1") == 1


def test_another_load_of_the_module_forgets_the_cards_of_the_last_one(tmp_path: Path) -> None:
    """The child is asked at once; a card that cannot be read now is nobody's that was known."""
    lost = Look(OK, driver="550.54.15", cards=(CARD, LOST._replace(uuid="", pci="", minor=None)))
    with StandIn(tmp_path, WELL, look=1e6, silence=1e6) as running:
        follower = running.follower()
        assert follower.state(is_ok).load == ""
        running.do(dump_message(lost))
        (tmp_path / "sys/module/nvidia").mkdir(parents=True)
        state = follower.state(lambda state: len(state.cards) == 2)
        assert state.load == str((tmp_path / "sys/module/nvidia").stat().st_ino)
        assert state.cards[1].uuid == ""


# ---------------------------------------------------------------- a child that misbehaves


@pytest.mark.parametrize(
    ("say", "then", "reason"),
    [
        pytest.param(WELL, "abort", "has ended by signal 6; the kernel log", id="crashes"),
        pytest.param(WELL, "fail", "has ended with exit status 3", id="ends with an error"),
        pytest.param(b"", "end", "has ended with exit status 0", id="says nothing and ends"),
        pytest.param(b"", "hang", "NVML gave no answer for 1 s: its process was killed", id="says nothing"),
        pytest.param(WELL, "hang", "NVML gave no answer for 1 s: its process was killed", id="says nothing any more"),
        pytest.param(b"rubbish\n", "hang", "said what makes no sense: a line is not JSON", id="says rubbish"),
        pytest.param(b"{}\n", "hang", "said what makes no sense: the version is not 1", id="of no version"),
        pytest.param(b'{"version":1}\n', "", "neither an inventory nor an Xid event", id="of no kind"),
        pytest.param(b"", "endless line", "a line has more than 4194304 bytes", id="a line without an end"),
        pytest.param(WELL, "close", "has ended by signal 9", id="closes its pipe and stays"),
    ],
)
def test_a_child_that_misbehaves_is_a_reason_and_the_next_one_is_heard(
    tmp_path: Path, say: bytes, then: str, reason: str
) -> None:
    """The old one is gone before the next one is started; the cards that were known stay."""
    with StandIn(tmp_path, say, then, silence=1.0 if reason.startswith("NVML gave no") else 60.0) as running:
        follower = running.follower()
        state = follower.state(is_failed)
        assert reason in state.reason
        running.do(WELL)
        assert follower.state(is_ok).cards == (CARD,)
        pids = [int(pid) for pid in running.left("pids").split()]
        assert len(pids) > 1
        wait_for(lambda: running.children() == [int(running.left("pids").split()[-1])], "the last one alone")
        assert running.process.poll() is None


def test_a_child_that_is_stopped_is_killed_and_replaced(tmp_path: Path) -> None:
    """SIGSTOP stands in for a driver that hangs; cards that were known stay in the state."""
    with StandIn(tmp_path, WELL, silence=2.0) as running:
        follower = running.follower()
        follower.state(is_ok)
        child = running.child()
        os.kill(child, signal.SIGSTOP)
        state = follower.state(is_failed)
        assert "NVML gave no answer for 2 s" in state.reason
        assert state.cards == (CARD,)
        follower.state(is_ok)
        assert is_gone(child)


def test_a_child_that_was_stopped_with_its_supervisor_goes_on(tmp_path: Path) -> None:
    """As when a container is frozen, for longer than a child may say nothing."""
    with StandIn(tmp_path, WELL, silence=3.0, late=1.0) as running:
        follower = running.follower()
        follower.state(is_ok)
        processes = (running.process.pid, running.child())
        for pid in processes:
            os.kill(pid, signal.SIGSTOP)
        end = time.monotonic() + 4.0
        wait_for(lambda: time.monotonic() > end, "a time in which a child has to say something")
        running.process.send_signal(signal.SIGCONT)
        wait_for(lambda: "was stopped for a while" in running.log.read_text(), "the supervisor")
        asked = running.left("asked")
        os.kill(processes[1], signal.SIGCONT)
        wait_for(lambda: running.left("asked") != asked, "a look")
        assert running.child() == processes[1]
        assert "gave no answer" not in running.log.read_text()


def test_there_is_no_second_child_while_the_first_one_cannot_be_reaped(tmp_path: Path) -> None:
    """A tracer keeps a killed process from being reaped, as a driver does that hangs in the kernel."""
    ptrace = ctypes.CDLL(None, use_errno=True).ptrace
    ptrace.argtypes = [ctypes.c_long, ctypes.c_int, ctypes.c_void_p, ctypes.c_void_p]
    with StandIn(tmp_path, WELL, silence=2.0) as running:
        follower = running.follower()
        follower.state(is_ok)
        child = running.child()
        if ptrace(_PTRACE_SEIZE, child, None, None):
            pytest.skip(f"no process can be traced here: {os.strerror(ctypes.get_errno())}")
        os.kill(child, signal.SIGSTOP)
        state = follower.state(lambda state: "hangs in the kernel" in state.reason)
        assert state.reason.startswith(f"process {child}, which asks NVML, hangs in the kernel and cannot be killed")
        running.client().ask(LOOK)
        assert [follower.state(), follower.state()] == [state, state]
        assert running.children() == [child]
        assert running.left("pids") == f"{child}\n"
        while not os.WIFSIGNALED(os.waitpid(child, _WALL)[1]):
            pass
        follower.state(is_ok)
        assert running.child() != child


def test_a_program_of_a_child_that_hangs_ends_with_it_and_is_reaped(tmp_path: Path) -> None:
    """The driver's library starts nvidia-modprobe, and waits for it; nobody else reaps it in a container."""
    with StandIn(tmp_path, WELL, "program", silence=1.0) as running:
        wait_for(lambda: running.left("program") != "", "a program")
        running.follower().state(is_failed)
        running.do(WELL)
        running.follower().state(is_ok)
        wait_for(lambda: running.children() == [int(running.left("pids").split()[-1])], "the last child alone")
        assert is_gone(int(running.left("program")))


def test_there_is_no_second_child_while_a_program_of_the_first_one_cannot_be_reaped(tmp_path: Path) -> None:
    """Each next child would start another one that hangs in the kernel."""
    ptrace = ctypes.CDLL(None, use_errno=True).ptrace
    ptrace.argtypes = [ctypes.c_long, ctypes.c_int, ctypes.c_void_p, ctypes.c_void_p]
    with StandIn(tmp_path, WELL, "program", silence=1e6) as running:
        wait_for(lambda: running.left("program") != "", "a program")
        child, program = running.child(), int(running.left("program"))
        if ptrace(_PTRACE_SEIZE, program, None, None):
            pytest.skip(f"no process can be traced here: {os.strerror(ctypes.get_errno())}")
        running.do(WELL)
        os.kill(child, signal.SIGKILL)
        follower = running.follower()
        state = follower.state(lambda state: "hangs in the kernel" in state.reason)
        assert state.reason.startswith(f"a program that the driver's library has started, in process group {child}, ")
        running.client().ask(LOOK)
        assert [follower.state(), follower.state()] == [state, state]
        assert running.left("pids") == f"{child}\n"
        while not os.WIFSIGNALED(os.waitpid(program, _WALL)[1]):
            pass
        follower.state(is_ok)
        assert running.child() != child


def test_a_driver_that_is_absent_is_asked_for_without_a_process_that_stays(tmp_path: Path) -> None:
    """Nothing holds a device of it; whoever asks for a look gets one at once."""
    with StandIn(tmp_path, dump_message(Look(ABSENT, "there is no libnvidia-ml.so.1")), "end") as running:
        follower = running.follower()
        state = follower.state()
        assert (state.status, state.reason) == (ABSENT, "there is no libnvidia-ml.so.1")
        wait_for(lambda: running.children() == [], "the end of the child")
        running.do(WELL)
        running.client().ask(LOOK)
        assert follower.state(is_ok).cards == (CARD,)


def test_device_nodes_may_be_made_once_a_client_has_asked(tmp_path: Path) -> None:
    """The child that runs is told, and so is each later one."""
    with StandIn(tmp_path, WELL) as running:
        running.follower().state(is_ok)
        running.client().ask(MAKE_NODES)
        wait_for(lambda: "m" in running.left("asked"), "the request")
        assert "M" not in running.left("asked")
        os.kill(running.child(), signal.SIGKILL)
        wait_for(lambda: "M" in running.left("asked"), "another child")


def test_the_child_has_nothing_of_the_supervisors(tmp_path: Path) -> None:
    """Its requests, its output, standard error and its lines: no socket, no client. ``4`` is the listing itself."""
    with StandIn(tmp_path, WELL) as running:
        running.follower().state(is_ok)
        os.kill(running.child(), signal.SIGKILL)
        wait_for(lambda: len(running.left("pids").split()) == 2, "another child")
        assert running.left("descriptors") == "0 1 2 3 4"


# ---------------------------------------------------------------- the end


@pytest.mark.parametrize("stop", [pytest.param(False, id="child answers"), pytest.param(True, id="child hangs")])
def test_sigterm_ends_both_and_removes_the_socket(tmp_path: Path, stop: bool) -> None:
    """Whatever the child does; exit status 0."""
    with StandIn(tmp_path, WELL, silence=1e6) as running:
        running.follower().state(is_ok)
        child = running.child()
        if stop:
            os.kill(child, signal.SIGSTOP)
        assert running.terminate() == 0
        assert is_gone(child)
        assert not running.socket.exists()


def test_sigterm_is_obeyed_while_a_child_cannot_be_killed(tmp_path: Path) -> None:
    """The upgrade of a driver waits for nothing of ours."""
    ptrace = ctypes.CDLL(None).ptrace
    ptrace.argtypes = [ctypes.c_long, ctypes.c_int, ctypes.c_void_p, ctypes.c_void_p]
    with StandIn(tmp_path, WELL, silence=2.0, end=0.1) as running:
        follower = running.follower()
        follower.state(is_ok)
        child = running.child()
        if ptrace(_PTRACE_SEIZE, child, None, None):
            pytest.skip("no process can be traced here")
        os.kill(child, signal.SIGSTOP)
        follower.state(lambda state: "hangs in the kernel" in state.reason)
        assert running.terminate() == 0
        assert not running.socket.exists()
        while not os.WIFSIGNALED(os.waitpid(child, _WALL)[1]):
            pass


@pytest.mark.parametrize("end", [pytest.param(signal.SIGKILL, id="killed"), pytest.param(signal.SIGINT, id="SIGINT")])
def test_the_child_ends_with_its_supervisor(tmp_path: Path, end: signal.Signals) -> None:
    """However that ends; a child that hangs, too."""
    with StandIn(tmp_path, WELL, "hang", silence=1e6) as running:
        running.follower().state(is_ok)
        child = running.child()
        running.process.send_signal(end)
        running.process.wait()
        wait_for(lambda: is_gone(child), "the end of the child")


# ---------------------------------------------------------------- the socket


def test_only_its_user_may_connect(tmp_path: Path) -> None:
    """Mode 0600."""
    with StandIn(tmp_path, WELL) as running:
        assert running.socket.stat().st_mode & 0o7777 == 0o600


def test_a_socket_of_one_that_was_killed_is_replaced(tmp_path: Path) -> None:
    """Nobody answers on it any more."""
    with StandIn(tmp_path, WELL) as running:
        running.process.kill()
        running.process.wait()
        wait_for(lambda: not running.is_listening(), "the end of a child that was just started")
        assert running.socket.exists()
    with StandIn(tmp_path, WELL) as running:
        running.follower().state(is_ok)


@pytest.mark.parametrize(
    ("is_answered", "message"),
    [
        pytest.param(True, "another process answers there", id="a socket that answers"),
        pytest.param(False, "a file that is no socket is there", id="a file"),
    ],
)
def test_what_is_in_use_is_left_alone(tmp_path: Path, is_answered: bool, message: str) -> None:
    """Exit status 1, and whoever answers there goes on."""
    (tmp_path / "other").mkdir()
    with StandIn(tmp_path, WELL) as first:
        if not is_answered:
            first.terminate()
            # One that is ended while it starts leaves its socket.
            first.socket.unlink(missing_ok=True)
            first.socket.write_text("")
        second = StandIn(tmp_path, WELL)
        assert second.process.wait() == 1
        assert message in second.log.read_text()
        assert first.socket.exists()
        if is_answered:
            first.follower().state(is_ok)
