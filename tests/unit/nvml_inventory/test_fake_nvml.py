"""The test library itself (tests/nvml), asked through the real pynvml."""

import signal
from pathlib import Path

import pytest

from tests.nvml.child import NvmlChild
from tests.nvml.machine import FakeMachine
from tests.nvml.models import A30, A100_40, Model
from tests.unit.nvml_inventory.conftest import NewChild

XID_EVENTS = "nvml.nvmlEventTypeXidCriticalError"


@pytest.fixture
def machine(tmp_path: Path) -> FakeMachine:
    """Make a machine of four GPUs."""
    return FakeMachine(tmp_path / "machine", count=4)


@pytest.fixture
def child(new_child: NewChild, machine: FakeMachine) -> NvmlChild:
    """Start a process that has the handles of the machine's GPUs."""
    child = new_child(machine)
    child.ask("nvml.nvmlInit()")
    child.ask("gpus = [nvml.nvmlDeviceGetHandleByIndex(at) for at in range(4)]")
    return child


def watch(child: NvmlChild, *gpus: int) -> None:
    """Register the events of GPUs in a new event set."""
    child.ask("events = nvml.nvmlEventSetCreate()")
    for gpu in gpus:
        assert child.ask(f"nvml.nvmlDeviceRegisterEvents(gpus[{gpu}], {XID_EVENTS}, events)") is None


def wait(milliseconds: int) -> str:
    """Say how a child waits for an event."""
    fields = "eventType, e.eventData, e.gpuInstanceId, e.computeInstanceId, nvml.nvmlDeviceGetMinorNumber(e.device)"
    return f"(lambda e: (e.{fields}))(nvml.nvmlEventSetWait_v2(events, {milliseconds}))"


# ---------------------------------------------------------------- questions


@pytest.mark.parametrize(
    ("fact", "question", "answer"),
    [
        pytest.param("minor 7", "nvml.nvmlDeviceGetMinorNumber(gpus[1])", 7, id="minor number"),
        pytest.param("rows 1 2 0 1", "nvml.nvmlDeviceGetRemappedRows(gpus[1])", [1, 2, 0, 1], id="remapped rows"),
        pytest.param("events 11", "nvml.nvmlDeviceGetSupportedEventTypes(gpus[1])", 11, id="types of events"),
        pytest.param(
            "recovery 4",
            "(lambda f: (f.fieldId, f.nvmlReturn, f.valueType, f.value.uiVal))"
            "(nvml.nvmlDeviceGetFieldValues(gpus[1], [1, 230])[1])",
            [230, 0, 1, 4],
            id="recovery action",
        ),
        pytest.param(
            "fabric 3 999",
            "(lambda f: (nvml.nvmlDeviceGetGpuFabricInfoV(gpus[1], ctypes.byref(f)), f.status, f.state, f.healthMask))"
            "(nvml.c_nvmlGpuFabricInfoV_t())",
            [0, 999, 3, 0],
            id="fabric",
        ),
    ],
)
def test_what_is_set_is_answered(
    child: NvmlChild, machine: FakeMachine, fact: str, question: str, answer: object
) -> None:
    """Structures have pynvml's layout; a program that runs sees the change."""
    machine.set(1, *fact.split(" ", 1))
    assert child.ask(question) == answer


@pytest.mark.parametrize(
    ("key", "question"),
    [
        ("minor", "nvml.nvmlDeviceGetMinorNumber(gpus[0])"),
        ("rows", "nvml.nvmlDeviceGetRemappedRows(gpus[0])"),
        ("events", "nvml.nvmlDeviceGetSupportedEventTypes(gpus[0])"),
        ("fabric", "nvml.nvmlDeviceGetGpuFabricInfoV(gpus[0], ctypes.byref(nvml.c_nvmlGpuFabricInfoV_t()))"),
    ],
)
def test_what_is_not_said_is_not_supported(child: NvmlChild, machine: FakeMachine, key: str, question: str) -> None:
    """As an older GPU answers."""
    machine.unset(0, key)
    assert child.ask(question) == {"error": 3}


def test_a_field_has_an_error_of_its_own(child: NvmlChild, machine: FakeMachine) -> None:
    """The question about fields succeeds, and each field says whether it has a value."""
    machine.unset(0, "recovery")
    assert child.ask("nvml.nvmlDeviceGetFieldValues(gpus[0], [230])[0].nvmlReturn") == 3


def test_nothing_is_answered_outside_of_init_and_shutdown(child: NvmlChild) -> None:
    """A program that asks too late sees it."""
    child.ask("nvml.nvmlShutdown()")
    assert child.ask("nvml.nvmlDeviceGetCount()") == {"error": 1}


@pytest.mark.parametrize(
    ("model", "profile", "expected"),
    [
        pytest.param(A100_40, "3g.20gb", ["NVIDIA A100-SXM4-40GB MIG 3g.20gb", 42, 3, 3, 19968], id="A100"),
        pytest.param(A30, "1g.6gb", ["NVIDIA A30 MIG 1g.6gb", 14, 1, 1, 5836], id="A30"),
    ],
)
def test_a_mig_device_is_known_by_its_handle(
    new_child: NewChild, tmp_path: Path, model: Model, profile: str, expected: list[object]
) -> None:
    """It has numbers of its instances, its profile's attributes, and a GPU."""
    machine = FakeMachine(tmp_path / "machine", model, count=2)
    uuid = machine.add_mig(1, profile, gi=2, ci=1)
    child = new_child(machine)
    child.ask("nvml.nvmlInit()")
    child.ask(f"mig = nvml.nvmlDeviceGetHandleByUUID({uuid!r})")
    child.ask("a = nvml.nvmlDeviceGetAttributes_v2(mig)")
    attributes = "a.multiprocessorCount, a.gpuInstanceSliceCount, a.computeInstanceSliceCount, a.memorySizeMB"
    assert child.ask(f"(nvml.nvmlDeviceGetName(mig), {attributes})") == expected
    assert child.ask("(nvml.nvmlDeviceGetGpuInstanceId(mig), nvml.nvmlDeviceGetComputeInstanceId(mig))") == [2, 1]
    child.ask("gpu = nvml.nvmlDeviceGetDeviceHandleFromMigDeviceHandle(mig)")
    assert child.ask("nvml.nvmlDeviceGetUUID(gpu)") == machine.uuid(1)


# ---------------------------------------------------------------- what happens to GPUs


def test_processes_agree(new_child: NewChild, child: NvmlChild, machine: FakeMachine) -> None:
    """All see a change at once."""
    other = new_child(machine)
    other.ask("nvml.nvmlInit()")
    machine.set(0, "migmode", 1)
    assert child.ask("nvml.nvmlDeviceGetMigMode(gpus[0])[0]") == 1
    assert other.ask("nvml.nvmlDeviceGetMigMode(nvml.nvmlDeviceGetHandleByIndex(0))[0]") == 1


def test_a_lost_gpu_counts_on_and_comes_back(child: NvmlChild, machine: FakeMachine) -> None:
    """Every question about it fails meanwhile; its handle is good again afterwards."""
    machine.lose(1)
    assert child.ask("nvml.nvmlDeviceGetCount()") == 4
    assert child.ask("nvml.nvmlDeviceGetUUID(gpus[1])") == {"error": 15}
    assert child.ask("nvml.nvmlDeviceGetHandleByIndex(1)") == {"error": 15}
    assert child.ask("nvml.nvmlDeviceGetUUID(gpus[2])") == machine.uuid(2)
    machine.recover(1)
    assert child.ask("nvml.nvmlDeviceGetUUID(gpus[1])") == machine.uuid(1)


def test_the_handles_of_the_others_stay_theirs_when_a_gpu_goes(child: NvmlChild, machine: FakeMachine) -> None:
    """The indexes behind it shift, and shift back when it comes."""
    machine.remove(1)
    assert child.ask("nvml.nvmlDeviceGetCount()") == 3
    assert child.ask("nvml.nvmlDeviceGetUUID(gpus[1])") == {"error": 15}
    assert child.ask("nvml.nvmlDeviceGetUUID(gpus[2])") == machine.uuid(2)
    assert child.ask("nvml.nvmlDeviceGetUUID(nvml.nvmlDeviceGetHandleByIndex(1))") == machine.uuid(2)
    machine.bring_back(1)
    assert child.ask("nvml.nvmlDeviceGetUUID(gpus[1])") == machine.uuid(1)
    assert child.ask("nvml.nvmlDeviceGetUUID(nvml.nvmlDeviceGetHandleByIndex(2))") == machine.uuid(2)


def test_links_are_known_by_pairs_and_by_ends(child: NvmlChild, machine: FakeMachine) -> None:
    """Islands of two."""
    machine.connect(0, 2)
    machine.connect(1, 3)
    status = "nvml.nvmlDeviceGetP2PStatus(gpus[0], gpus[{}], nvml.NVML_P2P_CAPS_INDEX_NVLINK)"
    assert [child.ask(status.format(other)) for other in (1, 2, 3)] == [5, 0, 5]
    assert child.ask("nvml.nvmlDeviceGetNvLinkRemotePciInfo(gpus[0], 3).busId") == machine.gpus[2].facts["pci"]


# ---------------------------------------------------------------- events


def test_an_event_arrives_once_at_each_set_that_was_there(
    new_child: NewChild, child: NvmlChild, machine: FakeMachine
) -> None:
    """A process that waits already gets it; one that registers later does not."""
    machine.xid(0, 13)
    watch(child, 0, 1)
    child.start(wait(60_000))
    machine.xid(1, 79)
    assert child.answer() == [8, 79, 0xFFFFFFFF, 0xFFFFFFFF, 1]
    assert child.ask(wait(0)) == {"error": 10}
    other = new_child(machine)
    other.ask("nvml.nvmlInit()")
    other.ask("gpus = [nvml.nvmlDeviceGetHandleByIndex(at) for at in range(2)]")
    watch(other, 0, 1)
    assert other.ask(wait(0)) == {"error": 10}
    machine.xid(0, 94, gi=1, ci=0)
    assert [one.ask(wait(0)) for one in (child, other)] == [[8, 94, 1, 0, 0]] * 2


def test_events_arrive_in_their_order(child: NvmlChild, machine: FakeMachine) -> None:
    """Also those of several GPUs that have appeared together; one that is not registered has none."""
    watch(child, 0, 1)
    with machine.at_once():
        for gpu, xid in ((1, 31), (2, 62), (0, 43), (1, 45)):
            machine.xid(gpu, xid)
    assert [child.ask(wait(0))[1] for _ in range(3)] == [31, 43, 45]
    assert child.ask(wait(0)) == {"error": 10}


def test_a_lost_gpu_fails_each_wait_after_its_event(child: NvmlChild, machine: FakeMachine) -> None:
    """As the driver does. A set without it waits as before."""
    watch(child, 0, 1)
    with machine.at_once():
        machine.xid(1, 79)
        machine.lose(1)
    child.ask("nvml.nvmlDeviceGetMinorNumber = lambda device: 'not asked'")
    assert child.ask(wait(60_000))[1] == 79
    assert [child.ask(wait(60_000)) for _ in range(2)] == [{"error": 15}] * 2
    watch(child, 0)
    assert child.ask(wait(0)) == {"error": 10}


def test_a_gpu_that_came_back_has_to_be_registered_again(child: NvmlChild, machine: FakeMachine) -> None:
    """The driver has forgotten who wants its events."""
    watch(child, 0, 1)
    machine.lose(1)
    assert child.ask(wait(0)) == {"error": 15}
    machine.recover(1)
    assert child.ask(wait(0)) == {"error": 10}
    machine.xid(1, 79)
    assert child.ask(wait(0)) == {"error": 10}
    child.ask(f"nvml.nvmlDeviceRegisterEvents(gpus[1], {XID_EVENTS}, events)")
    machine.xid(1, 48)
    assert child.ask(wait(0))[1] == 48


def test_a_gpu_registers_only_the_types_that_it_supports(child: NvmlChild, machine: FakeMachine) -> None:
    """One more fails the whole registration."""
    child.ask("events = nvml.nvmlEventSetCreate()")
    assert child.ask("nvml.nvmlDeviceRegisterEvents(gpus[0], 0x18, events)") == {"error": 3}
    machine.unset(0, "events")
    assert child.ask("nvml.nvmlDeviceRegisterEvents(gpus[0], 8, events)") == {"error": 3}


# ---------------------------------------------------------------- faults


def test_a_question_that_hangs_is_answered_when_it_heals(child: NvmlChild, machine: FakeMachine) -> None:
    """Until then it has no answer."""
    machine.hang("ecc", gpu=1)
    child.start("nvml.nvmlDeviceGetEccMode(gpus[1])[0]")
    assert not child.has_answered(0.2)
    machine.heal()
    assert child.answer() == 1


@pytest.mark.parametrize(
    ("place", "gpu", "question"),
    [
        ("count", None, "nvml.nvmlDeviceGetCount()"),
        ("name", 2, "nvml.nvmlDeviceGetName(gpus[2])"),
        ("wait", None, "nvml.nvmlEventSetWait_v2(nvml.nvmlEventSetCreate(), 0)"),
    ],
)
def test_a_crash_ends_the_process(
    child: NvmlChild, machine: FakeMachine, place: str, gpu: int | None, question: str
) -> None:
    """At the named place."""
    machine.crash(place, gpu)
    child.start(question)
    assert child.end() == -signal.SIGABRT


def test_a_control_node_is_open_between_init_and_shutdown(
    new_child: NewChild, machine: FakeMachine, tmp_path: Path
) -> None:
    """So that a driver's module is in use meanwhile; without the node, no driver is loaded."""
    node = tmp_path / "control"
    machine.hold(str(node))
    child = new_child(machine)
    child.ask("import os")
    opened = f"[fd for fd in os.listdir('/proc/self/fd') if os.path.realpath('/proc/self/fd/' + fd) == {str(node)!r}]"
    assert child.ask("nvml.nvmlInit()") == {"error": 9}
    node.touch()
    child.ask("nvml.nvmlInit()")
    child.ask("nvml.nvmlInit()")
    child.ask("nvml.nvmlShutdown()")
    assert len(child.ask(opened)) == 1
    child.ask("nvml.nvmlShutdown()")
    assert child.ask(opened) == []


def test_the_file_may_lie_beside_the_library(library: Path, tmp_path: Path) -> None:
    """On a guest no program has our environment."""
    (tmp_path / library.name).write_bytes(library.read_bytes())
    FakeMachine(tmp_path / "fake_nvml_machine", count=3)
    with NvmlChild(tmp_path / library.name, {}) as child:
        child.ask("nvml.nvmlInit()")
        assert child.ask("nvml.nvmlDeviceGetCount()") == 3
