"""The container's processes with the real pynvml, on the test library (tests/nvml), whose machine changes meanwhile."""

import os
import signal
import stat
from collections.abc import Callable
from pathlib import Path

import pytest

from device_agent.gpu_state.requests import LOOK, MAKE_NODES
from device_agent.gpu_state.state import ABSENT, FAILED, OK, CardState, InstanceState, NodeState, State
from tests.nvml.machine import FakeMachine
from tests.nvml.models import A100_40
from tests.unit.device_agent.device_nodes.driver_texts import DEVICES, INFORMATION, PARAMS
from tests.unit.device_agent.host_tree import needs_root
from tests.unit.device_agent.nvml_container.running import WithNvml, is_gone, wait_for

Start = Callable[..., WithNvml]

DRIVER_NOT_LOADED, LIBRARY_AND_MODULE_DIFFER = 9, 18


@pytest.fixture
def machine(tmp_path: Path) -> FakeMachine:
    """Make a machine of eight GPUs."""
    return FakeMachine(tmp_path / "machine", A100_40, 8)


@pytest.fixture
def start(tmp_path: Path, library: Path, machine: FakeMachine) -> Start:
    """Give a function that starts the processes."""

    def run(library: Path = library, **timing: float) -> WithNvml:
        environment = {**machine.environment(), "FAKE_NVML_LOG": str(tmp_path / "nvml.log")}
        return WithNvml(tmp_path, library, environment, **timing)

    return run


def is_ok(state: State) -> bool:
    """Return whether GPUs are read."""
    return state.status == OK


def is_failed(state: State) -> bool:
    """Return whether reading failed."""
    return state.status == FAILED


def whys(state: State) -> list[str]:
    """Return the reasons of the cards."""
    return [card.why for card in state.cards]


# ---------------------------------------------------------------- cards


def test_the_state_has_all_cards_with_what_is_known_of_them(start: Start, machine: FakeMachine, tmp_path: Path) -> None:
    """MIG instances, NVLinks, conditions, and the NUMA node of sysfs."""
    mig = machine.add_mig(0, "1g.5gb", gi=7)
    machine.connect(0, 1, links=4)
    machine.set(0, "recovery", 1)
    machine.set(0, "rows", "0 0 0 1")
    machine.set(0, "fabric", "2 0")
    device = tmp_path / "sys/bus/pci/devices" / machine.pci(0)
    device.mkdir(parents=True)
    (device / "numa_node").write_text("1\n")
    with start() as running:
        state = running.follower().state(is_ok)
    assert (state.driver, len(state.cards), whys(state)) == ("550.54.15", 8, [""] * 8)
    first = state.cards[0]
    assert "NVSwitch fabric is in progress" in first.fabric
    assert first._replace(fabric="") == CardState(
        index=0,
        uuid=machine.uuid(0),
        name="NVIDIA A100-SXM4-40GB",
        pci=machine.pci(0),
        minor=0,
        memory_mib=40960,
        mig_mode=1,
        links=((machine.uuid(1), 4),),
        recovery_action=1,
        row_remap_failed=True,
        numa_node=1,
        instances=(InstanceState(mig, "1g.5gb", 7, 0, 4864),),
        pci_id="0x20b010de",
        mig_pending=1,
    )
    assert [card.index for card in state.cards] == list(range(8))


def test_a_lost_card_keeps_its_name_over_children_and_is_back_when_it_answers(
    start: Start, machine: FakeMachine
) -> None:
    """One of eight; a new child would not know who it was."""
    with start() as running:
        follower = running.follower()
        well = follower.state(is_ok).cards
        machine.lose(3)
        state = follower.state(lambda state: any(whys(state)))
        assert (state.status, [bool(why) for why in whys(state)]) == (OK, [index == 3 for index in range(8)])
        assert state.cards[3].why.startswith("GPU 3 cannot be read: GPU is lost")
        assert state.cards[3] == well[3]._replace(why=state.cards[3].why, error=15, recovery_action=None)
        child = running.child()
        os.kill(child, signal.SIGKILL)
        follower.state(is_failed)
        assert follower.state(is_ok).cards == state.cards
        machine.recover(3)
        assert follower.state(lambda state: not any(whys(state))).cards == well


def test_a_card_that_is_lost_at_the_start_is_unknown_and_the_others_are_there(
    start: Start, machine: FakeMachine
) -> None:
    """Nobody can say which one it is."""
    machine.lose(0)
    with start() as running:
        state = running.follower().state(is_ok)
    assert (state.cards[0].uuid, state.cards[0].error) == ("", 15)
    assert whys(state)[1:] == [""] * 7


def test_nvml_is_started_anew_now_and_then_while_a_card_is_lost(
    start: Start, machine: FakeMachine, tmp_path: Path
) -> None:
    """A card that was reset is back for a new session alone; without a lost card there is one session."""
    with start() as running:
        running.follower().state(is_ok)
        assert (tmp_path / "nvml.log").read_text() == "init\n"
        machine.lose(0)
        wait_for(lambda: (tmp_path / "nvml.log").read_text().startswith("init\nshutdown\ninit\n"), "a new session")


def test_an_xid_event_is_said_at_once(start: Start, machine: FakeMachine) -> None:
    """No look is due; MIG instances are named."""
    with start(look=1e6, silence=1e6) as running:
        follower = running.follower()
        follower.state(is_ok)
        machine.xid(2, 79)
        event = follower.state(lambda state: bool(state.xids)).xids[0]
        assert (event.number, event.uuid, event.xid, event.gi, event.ci) == (1, machine.uuid(2), 79, None, None)
        machine.xid(3, 94, gi=7, ci=0)
        event = follower.state(lambda state: len(state.xids) == 2).xids[1]
        assert (event.uuid, event.xid, event.gi, event.ci) == (machine.uuid(3), 94, 7, 0)


def test_an_xid_event_that_arrives_while_a_session_ends_is_said(start: Start, machine: FakeMachine) -> None:
    """Each session ends after its inventory here, and waits for no event."""
    machine.lose(7)
    with start(look=0.0, reopen=0.0) as running:
        follower = running.follower()
        follower.state(is_ok)

        def is_said() -> bool:
            machine.xid(0, 48)
            return bool(follower.state().xids)

        assert any(is_said() for _ in range(200))


def test_an_xid_event_of_a_card_whose_uuid_makes_no_sense_may_be_any_cards(start: Start, machine: FakeMachine) -> None:
    """The process goes on."""
    machine.set(0, "uuid", "GPU a")
    with start() as running:
        follower = running.follower()
        assert follower.state(is_ok).cards[0].why
        child = running.child()
        machine.xid(0, 79)
        event = follower.state(lambda state: bool(state.xids) or is_failed(state)).xids[0]
        assert (event.uuid, event.xid) == ("", 79)
        assert running.child() == child


def test_gpus_of_which_no_xid_is_reported_are_logged(start: Start, machine: FakeMachine) -> None:
    """Once, not at each look."""
    machine.set(0, "events", 0)
    with start(look=0.05) as running:
        follower = running.follower()
        follower.state(is_ok)
        machine.lose(1)
        follower.state(lambda state: any(whys(state)))
        assert running.log.read_text().count(f"NVML reports no Xid errors of {machine.uuid(0)}\n") == 1


# ---------------------------------------------------------------- NVML that fails


@pytest.mark.parametrize(
    ("place", "gpu"),
    [
        pytest.param("init", None, id="at its start"),
        pytest.param("name", 1, id="at a card"),
        pytest.param("wait", None, id="while events are waited for"),
    ],
)
def test_nvml_that_hangs_is_a_reason_and_it_is_asked_again(
    start: Start, machine: FakeMachine, place: str, gpu: int | None
) -> None:
    """Its process is killed; when NVML answers, all is as before."""
    machine.hang(place, gpu)
    with start(silence=1.5) as running:
        follower = running.follower()
        state = follower.state(is_failed)
        assert state.reason.startswith("NVML gave no answer for 1.5 s: its process was killed")
        machine.heal()
        assert len(follower.state(is_ok).cards) == 8


def test_a_program_that_nvml_waits_for_ends_with_its_process(start: Start, machine: FakeMachine) -> None:
    """NVIDIA's library starts nvidia-modprobe where a device node is missing, and that may hang."""
    machine.run("init")
    with start(silence=1.5) as running:
        follower = running.follower()
        assert follower.state(is_failed).reason.startswith("NVML gave no answer for 1.5 s: its process was killed")
        machine.heal()
        assert len(follower.state(is_ok).cards) == 8
        assert len(running.children()) == 1


def test_sigterm_ends_all_while_nvml_hangs(start: Start, machine: FakeMachine, tmp_path: Path) -> None:
    """The upgrade of the driver waits for nothing of ours."""
    machine.hang("init")
    with start(silence=1e6) as running:
        child = running.child()
        wait_for(lambda: "init" in (tmp_path / "nvml.log").read_text() if (tmp_path / "nvml.log").exists() else False,
                 "NVML's start")  # fmt: skip
        assert running.terminate() == 0
        wait_for(lambda: is_gone(child), "the end of the child")


@pytest.mark.parametrize(
    ("fault", "status", "reason"),
    [
        pytest.param(LIBRARY_AND_MODULE_DIFFER, FAILED, "are of different versions", id="versions differ"),
        pytest.param(999, FAILED, "NVML cannot start: Unknown Error", id="an unknown error"),
        pytest.param(DRIVER_NOT_LOADED, ABSENT, "where the kernel module nvidia is loaded", id="no driver"),
    ],
)
def test_nvml_that_does_not_start_has_its_reason_and_no_process(
    start: Start, machine: FakeMachine, fault: int, status: str, reason: str
) -> None:
    """In nvml_inventory's words. Nothing keeps a device open, so that a driver can go; it is asked again on request."""
    machine.fault("init", fault)
    with start(first_pause=30.0, longest_pause=30.0) as running:
        follower = running.follower()
        state = follower.state()
        assert (state.status, state.cards) == (status, ())
        assert reason in state.reason
        wait_for(lambda: running.children() == [], "the end of the child")
    machine.heal()
    with start(first_pause=0.1) as running:
        follower = running.follower()
        running.client().ask(LOOK)
        assert follower.state(is_ok).driver == "550.54.15"


def test_a_library_that_crashes_is_a_reason(start: Start, machine: FakeMachine) -> None:
    """The supervisor goes on."""
    machine.crash("name", 1)
    with start() as running:
        follower = running.follower()
        assert "has ended by signal 6" in follower.state(is_failed).reason
        machine.heal()
        assert len(follower.state(is_ok).cards) == 8


def test_without_a_library_the_driver_is_absent(start: Start, tmp_path: Path) -> None:
    """Which is normal."""
    with start(tmp_path / "libnvidia-ml.so.1") as running:
        state = running.follower().state()
    assert (state.status, state.reason) == (ABSENT, f"there is no {tmp_path}/libnvidia-ml.so.1")


def test_a_library_that_is_none_is_a_reason(start: Start, tmp_path: Path) -> None:
    """Such as one for another C library."""
    (tmp_path / "libnvidia-ml.so.1").write_text("no library")
    with start(tmp_path / "libnvidia-ml.so.1") as running:
        state = running.follower().state()
    assert state.status == FAILED
    assert "cannot be loaded" in state.reason


# ---------------------------------------------------------------- device nodes


def proc(folder: Path, devices: str, minors: int) -> None:
    """Write what the kernel and the driver say in /proc."""
    driver = folder / "proc/driver/nvidia"
    (driver / "gpus").mkdir(parents=True, exist_ok=True)
    (folder / "proc/devices").write_text(devices)
    (driver / "params").write_text(PARAMS)
    for minor in range(minors):
        card = driver / f"gpus/0000:{minor:02x}:00.0"
        card.mkdir(exist_ok=True)
        (card / "information").write_text(INFORMATION.format(minor=minor))
    (folder / "dev").mkdir(exist_ok=True)


def numbers(path: Path) -> tuple[int, int]:
    """Return the numbers of a device."""
    device = path.stat().st_rdev
    return os.major(device), os.minor(device)


def test_device_nodes_that_are_missing_have_a_reason(start: Start, tmp_path: Path) -> None:
    """Nobody has asked for them to be made."""
    proc(tmp_path, DEVICES, 1)
    with start() as running:
        state = running.follower().state(is_ok)
    assert NodeState("/dev/nvidia0", 195, 0, "it is missing") in state.nodes
    assert {node.path for node in state.nodes} >= {"/dev/nvidiactl", "/dev/nvidia-uvm", "/dev/nvidia-modeset"}
    assert not list((tmp_path / "dev").iterdir())


def test_a_loaded_driver_whose_nodes_are_missing_is_not_absent(
    start: Start, machine: FakeMachine, tmp_path: Path
) -> None:
    """NVML itself says only that no driver is loaded."""
    proc(tmp_path, DEVICES, 1)
    machine.fault("init", DRIVER_NOT_LOADED)
    with start() as running:
        state = running.follower().state()
    assert state.status == FAILED
    assert state.reason.startswith(
        "the driver is loaded, and its device nodes are not right: /dev/nvidiactl: it is missing; "
    )
    assert len(state.nodes) == 5


@pytest.fixture
def _device_nodes(tmp_path: Path) -> None:
    """Skip where device nodes cannot be made."""
    try:
        os.mknod(tmp_path / "try", stat.S_IFCHR, os.makedev(1, 3))
    except PermissionError:
        pytest.skip("mknod is not permitted here")


@needs_root
@pytest.mark.usefixtures("_device_nodes")
def test_device_nodes_are_made_once_a_client_asks_and_again_after_a_reload(
    start: Start, machine: FakeMachine, tmp_path: Path
) -> None:
    """At once, and NVML is asked anew then; a later major number is seen at the next look."""
    proc(tmp_path, DEVICES, 1)
    machine.fault("init", DRIVER_NOT_LOADED)
    with start() as running:
        follower = running.follower()
        follower.state(is_failed)
        machine.heal()
        running.client().ask(MAKE_NODES)
        state = follower.state(lambda state: is_ok(state) and not any(node.why for node in state.nodes))
        assert NodeState("/dev/nvidia-uvm", 511, 0) in state.nodes
        assert numbers(tmp_path / "dev/nvidia-uvm") == (511, 0)
        assert numbers(tmp_path / "dev/char/511:0") == (511, 0)
        proc(tmp_path, DEVICES.replace("511 nvidia-uvm", "510 nvidia-uvm"), 1)
        follower.state(lambda state: NodeState("/dev/nvidia-uvm", 510, 0) in state.nodes)
        assert numbers(tmp_path / "dev/nvidia-uvm") == (510, 0)


@needs_root
@pytest.mark.usefixtures("_device_nodes")
def test_a_card_whose_node_is_made_is_read_by_a_new_session(start: Start, tmp_path: Path) -> None:
    """NVML looks for device nodes at its start alone."""
    proc(tmp_path, DEVICES, 1)
    with start(look=1e6, silence=1e6) as running:
        follower = running.follower()
        follower.state(is_ok)
        running.client().ask(MAKE_NODES)
        follower.state(lambda state: not any(node.why for node in state.nodes))
        wait_for(lambda: (tmp_path / "nvml.log").read_text().startswith("init\nshutdown\ninit\n"), "a new session")


@needs_root
@pytest.mark.usefixtures("_device_nodes")
def test_a_card_that_comes_later_is_read_by_a_new_session(start: Start, tmp_path: Path) -> None:
    """Its device node is the sign of it."""
    proc(tmp_path, DEVICES, 1)
    with start() as running:
        follower = running.follower()
        follower.state(is_ok)
        running.client().ask(MAKE_NODES)
        follower.state(lambda state: is_ok(state) and bool(state.nodes) and not any(node.why for node in state.nodes))
        wait_for(lambda: (tmp_path / "nvml.log").read_text() == "init\nshutdown\ninit\n", "a session with all nodes")
        proc(tmp_path, DEVICES, 2)
        wait_for(lambda: (tmp_path / "nvml.log").read_text().count("init") == 3, "a new session")
