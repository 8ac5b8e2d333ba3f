"""The use of cards by the container's processes with the real pynvml, on the test library and a folder for a node."""

import shutil
import subprocess
from collections.abc import Callable
from pathlib import Path

import pytest

from device_agent.boot import seconds_since_boot
from device_agent.gpu_state.ending import EndRequest
from device_agent.gpu_state.requests import END, FOLLOW_USE, LEAVE_USE, LOOK, dump_request
from device_agent.gpu_state.state import ABSENT, FAILED, OK
from device_agent.gpu_state.use import ProcessUse
from tests.nvml.gpu import USE
from tests.nvml.machine import FakeMachine
from tests.nvml.models import A100_40
from tests.unit.device_agent.nvml_container.node_folder import (
    OTHER_POD,
    POD,
    UID,
    NodeFolder,
    plain,
    two_pods,
)
from tests.unit.device_agent.nvml_container.running import WithNvml, wait_for

Start = Callable[..., WithNvml]
AMD = "0000:0a:00.0"
GIB = 1 << 30


@pytest.fixture
def node(tmp_path: Path) -> NodeFolder:
    """Make a node with two pods of one process each; 30 is of no pod."""
    return two_pods(tmp_path)


@pytest.fixture
def machine(tmp_path: Path) -> FakeMachine:
    """Make a machine of two GPUs."""
    return FakeMachine(tmp_path / "machine", A100_40, 2)


@pytest.fixture
def start(tmp_path: Path, library: Path, machine: FakeMachine, node: NodeFolder) -> Start:
    """Give a function that starts the processes."""
    assert node.root == tmp_path

    def run(library: Path = library, **timing: float) -> WithNvml:
        environment = {**machine.environment(), "FAKE_NVML_LOG": str(tmp_path / "nvml.log")}
        return WithNvml(tmp_path, library, environment, **timing)

    return run


def test_a_follower_gets_values_and_the_processes_of_its_pods(start: Start, machine: FakeMachine) -> None:
    """What a card does not know is not there; other pods' processes and the node's are left out."""
    machine.set_use(0, **USE)
    for pid, memory in ((10, 2 * GIB), (20, GIB), (30, GIB), (40, GIB)):
        machine.add_process(0, pid, memory)
    machine.add_process(1, 10, None)
    with start() as running:
        use = running.user((POD,)).use(lambda use: len(use.cards) == 2)
        session = running.follower().state().session
    first, second = use.cards
    assert (first.id, first.pci, first.driver, first.index) == (machine.uuid(0), machine.pci(0), "nvidia", 0)
    assert (first.values["temperature_c"], first.values["memory_used"]) == (41, 5 * GIB)
    assert [one._replace(busy=None) for one in first.processes] == [ProcessUse(10, 100, plain(UID), POD, 2 * GIB)]
    assert [one.memory for one in second.processes] == [None]
    assert "temperature_c" not in second.values
    assert (use.pods, use.processes, use.session) == ((POD,), "", session)


@pytest.mark.parametrize(
    ("environment", "why"),
    [
        pytest.param({}, "the container nvml runs without --ends-processes=true", id="no limits are kept"),
        pytest.param({"DEVICE_AGENT_ENDS_PROCESSES": "true"}, "it cannot be said whether", id="limits are kept"),
    ],
)
def test_a_request_to_end_a_process_is_refused_where_no_limits_are_kept(
    start: Start, monkeypatch: pytest.MonkeyPatch, environment: dict[str, str], why: str
) -> None:
    """As chart and stage start it then: whoever owns the socket ends nothing. Else the process is compared first."""
    for name, value in environment.items():
        monkeypatch.setenv(name, value)
    with start() as running, subprocess.Popen(["sleep", "infinity"]) as victim:
        try:
            user = running.user((POD,))
            user.use()
            named = EndRequest(card="GPU-0", uid=plain(UID), pid=victim.pid, start=1, at=seconds_since_boot())
            user.connection.sendall(dump_request(END, process=named))
            (answer,) = user.use(lambda use: bool(use.ended)).ended
            assert (answer.pid, answer.why[: len(why)]) == (victim.pid, why)
            assert victim.poll() is None
        finally:
            victim.kill()


def test_mig_devices_have_their_own_processes(start: Start, machine: FakeMachine) -> None:
    """Their card has none."""
    mig = machine.add_mig(0, "1g.5gb", gi=7)
    machine.add_process(0, 20, GIB, mig=mig)
    with start() as running:
        use = running.user((OTHER_POD,)).use(lambda use: len(use.cards) == 3)
    card, device, _ = use.cards
    assert (device.id, device.parent, device.profile, device.gi) == (mig, machine.uuid(0), "1g.5gb", 7)
    assert (card.processes, [one.pod for one in device.processes]) == ((), [OTHER_POD])


def test_xid_events_are_said_at_once_while_samples_are_taken(start: Start, machine: FakeMachine) -> None:
    """And counted in the next sample."""
    with start(look=1e6, silence=1e6) as running:
        follower, user = running.follower(), running.user()
        follower.state(lambda state: state.status == OK)
        user.use()
        machine.xid(1, 79)
        assert follower.state(lambda state: bool(state.xids)).xids[0].xid == 79
        assert user.use(lambda use: bool(use.xids)).xids == ((machine.uuid(1), 79, 1),)


def test_samples_end_with_their_last_follower_and_looks_go_on(start: Start) -> None:
    """In the same session of NVML's; a follower that comes back gets samples again."""
    with start(look=0.05) as running:
        user, follower = running.user(), running.follower()
        user.use()
        user.ask(LEAVE_USE)
        read_at = follower.state(lambda state: state.status == OK).read_at
        follower.state(lambda state: state.read_at > read_at)
        user.ask(FOLLOW_USE)
        assert len(user.use(lambda use: use.at > read_at).cards) == 2
        assert running.process.poll() is None


def holds_no_device(pid: int) -> bool:
    """Return whether a process has pipes and its log open, and nothing else."""
    folder = Path(f"/proc/{pid}/fd")
    are_pipes = all(str((folder / name).readlink()).startswith("pipe:") for name in ("0", "3"))
    return are_pipes and len(list(folder.iterdir())) == 4


def test_without_a_driver_of_nvidias_other_cards_are_looked_at(
    start: Start, node: NodeFolder, library: Path, tmp_path: Path
) -> None:
    """By a child that holds no device, and ends when it is asked to look for a driver: the next one finds it."""
    node.card(1, AMD, "amdgpu", {"mem_info_vram_used": f"{GIB}\n"})
    node.opened(10, 3, f"drm-client-id:\t1\ndrm-pdev:\t{AMD}\ndrm-resident-vram:\t{GIB}\n")
    place = tmp_path / "lib" / "libnvidia-ml.so.1"
    with start(place, unloaded_pause=1e6, silence=1e6) as running:
        follower, user = running.follower(), running.user((POD,))
        assert follower.state().status == ABSENT
        use = user.use(lambda use: bool(use.cards))
        assert (use.cards[0].id, use.cards[0].values) == (AMD, {"memory_used": GIB})
        assert use.cards[0].processes == (ProcessUse(10, 100, plain(UID), POD, GIB),)
        child = running.child()
        assert holds_no_device(child)
        user.use(lambda later: later.at > use.at)
        assert running.child() == child
        place.parent.mkdir()
        shutil.copy(library, place)
        running.client().ask(LOOK)
        assert follower.state(lambda state: state.status == OK).driver == "550.54.15"
        assert len(user.use(lambda use: len(use.cards) == 3).cards) == 3
        assert running.child() != child


def test_a_driver_that_comes_later_is_found_without_being_asked_for(
    start: Start, library: Path, tmp_path: Path
) -> None:
    """The child that waits is replaced now and then; without a follower it does not stay at all."""
    place = tmp_path / "lib" / "libnvidia-ml.so.1"
    with start(place, unloaded_pause=0.3) as running:
        follower, user = running.follower(), running.user()
        assert follower.state().status == ABSENT
        user.use()
        place.parent.mkdir()
        shutil.copy(library, place)
        assert follower.state(lambda state: state.status == OK).driver == "550.54.15"
    shutil.rmtree(place.parent)
    with start(place) as running:
        assert running.follower().state().status == ABSENT
        wait_for(lambda: running.children() == [], "the end of the child")


def test_other_cards_are_looked_at_while_nvml_fails(start: Start, node: NodeFolder, machine: FakeMachine) -> None:
    """By the child that has said so, which ends when it is time to ask NVML again, and the next one follows soon."""
    node.card(1, AMD, "amdgpu", {"mem_info_vram_used": f"{GIB}\n"})
    machine.fault("init", 999)
    with start(first_pause=0.1, longest_pause=1e6, silence=1e6) as running:
        follower, user = running.follower(), running.user()
        assert follower.state().status == FAILED
        use = user.use(lambda use: bool(use.cards))
        child = running.child()
        assert [card.id for card in use.cards] == [AMD]
        assert user.use(lambda later: later.at > use.at).cards == use.cards
        assert running.child() == child
        machine.heal()
        running.client().ask(LOOK)
        assert follower.state(lambda state: state.status == OK).driver == "550.54.15"
    machine.fault("init", 999)
    with start(first_pause=0.1, longest_pause=0.3, silence=1e6) as running:
        follower = running.follower()
        running.user()
        assert follower.state().status == FAILED
        machine.heal()
        assert follower.state(lambda state: state.status == OK).driver == "550.54.15"


def test_a_pod_with_too_many_open_files_is_logged_once(start: Start, node: NodeFolder) -> None:
    """Each sample names it."""
    node.card(1, AMD, "amdgpu", {})
    (node.proc / "10/fd").mkdir()
    for number in range((1 << 13) + 1):
        (node.proc / "10/fd" / f"x{number}").touch()
    with start(use=0.1) as running:
        user = running.user((POD, OTHER_POD))
        at = user.use(lambda use: use.unread == (POD,)).at
        user.use(lambda use: use.at > at and use.unread == (POD,))
        assert running.log.read_text().count(f"{POD}: too many open files or processes to look at") == 1


@pytest.mark.parametrize("place", [pytest.param("memory", id="memory"), pytest.param("power", id="power")])
def test_nvml_that_hangs_in_a_sample_is_a_reason_and_samples_go_on_afterwards(
    start: Start, machine: FakeMachine, place: str
) -> None:
    """Its process is killed; the next one samples from its start."""
    with start(silence=1.5) as running:
        follower, user = running.follower(), running.user()
        user.use()
        machine.hang(place, 0)
        assert follower.state(lambda state: state.status == FAILED).reason.startswith("NVML gave no answer for 1.5 s")
        machine.heal()
        at = follower.state(lambda state: state.status == OK).read_at
        assert len(user.use(lambda use: use.at > at).cards) == 2
