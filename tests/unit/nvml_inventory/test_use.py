"""How much GPUs are used, by the real pynvml, on the test library (tests/nvml), whose machine changes meanwhile."""

from collections.abc import Mapping
from pathlib import Path
from typing import Any

import pytest

from device_agent.gpu_state.use import VALUES
from tests.nvml import build
from tests.nvml.child import NvmlChild
from tests.nvml.gpu import USE
from tests.nvml.machine import FakeMachine
from tests.nvml.models import A100_40
from tests.unit.nvml_inventory.conftest import NewChild

GIB = 2**30
GPM = {"engine_active", "sm_active", "tensor_active", "dram_active"}
MEMORY = {"memory_total", "memory_used", "memory_free", "memory_reserved"}


@pytest.fixture
def machine(tmp_path: Path) -> FakeMachine:
    """Make a machine of two GPUs, of which the first knows all."""
    machine = FakeMachine(tmp_path / "machine", count=2)
    machine.set_use(0, **USE)
    return machine


@pytest.fixture
def child(new_child: NewChild, machine: FakeMachine) -> NvmlChild:
    """Start a process with a session that has read the machine once."""
    return open_session(new_child(machine))


def open_session(child: NvmlChild) -> NvmlChild:
    """Open the session of a process, and read."""
    child.ask("session = open_session(library=sys.argv[1])")
    child.ask("session.read()")
    return child


def use(child: NvmlChild, place: int = 0) -> Any:
    """Ask how much all are used, and return one of the answers."""
    return child.ask("session.use()")[place]


def values(child: NvmlChild, place: int = 0) -> dict[str, float]:
    """Ask for the values of one."""
    found: dict[str, float] = use(child, place)["values"]
    return found


def processes(child: NvmlChild, place: int = 0) -> list[tuple[int, int | None, float | None]]:
    """Ask for the processes of one: PID, memory, busy."""
    return [(one["pid"], one["memory"], one["busy"]) for one in use(child, place)["processes"]]


# ---------------------------------------------------------------- values


def test_a_gpu_is_known_with_all_its_values(child: NvmlChild, machine: FakeMachine) -> None:
    """In the units of the values' names; what GPM measures needs a second look."""
    machine.add_process(0, 42, 5 * GIB)
    found = use(child)
    assert (found["uuid"], found["pci"], found["index"]) == (machine.uuid(0), machine.pci(0), 0)
    assert (found["name"], found["parent"], found["profile"], found["gi"]) == ("NVIDIA H100 80GB HBM3", "", "", None)
    total = machine.gpus[0].model.memory
    memory = {
        "memory_total": total,
        "memory_used": 5 * GIB,
        "memory_free": total - 5 * GIB - USE["memory_reserved"],
    }
    assert found["values"] == {**{name: value for name, value in USE.items() if name not in GPM}, **memory}
    assert {*found["values"], *GPM} == set(VALUES)


TOGETHER = ({"busy_percent", "memory_busy_percent"}, {"rows_correctable", "rows_uncorrectable", "rows_failed"})


def test_what_a_gpu_does_not_know_is_not_there(child: NvmlChild, machine: FakeMachine) -> None:
    """All else is."""
    complete = values(child).keys()
    for name in USE.keys() - GPM - MEMORY:
        machine.set_use(0, **{name: None})
        missing = next((names for names in TOGETHER if name in names), {name})
        assert complete - values(child).keys() == missing
        machine.set_use(0, **USE)


@pytest.mark.parametrize("error", [pytest.param(999, id="unknown error"), pytest.param(13, id="no such function")])
def test_each_question_may_fail_by_itself(child: NvmlChild, machine: FakeMachine, error: int) -> None:
    """The others are answered."""
    complete = values(child).keys()
    questions: Mapping[str, set[str]] = {
        "clock": {"sm_clock_mhz", "memory_clock_mhz"},
        "fields": {"memory_temperature_c"},
        "field": {"memory_temperature_c"},
        "power": {"power_w"},
        "energy": {"energy_mj"},
        "utilization": {"busy_percent", "memory_busy_percent"},
        "encoder": {"encoder_percent"},
        "decoder": {"decoder_percent"},
        "replays": {"pcie_replays"},
        "eccerrors": {name for name in VALUES if name.startswith("ecc_")},
        "rows": {name for name in VALUES if name.startswith("rows_")},
        "throttle": {"throttle"},
        "memory2": {"memory_reserved"},
        "temperature": set(),
        "temperaturev": set(),
        "compute_list": set(),
        "samples": set(),
        "gpm": set(),
    }
    for place, missing in questions.items():
        machine.fault(place, error, gpu=0)
        assert complete - values(child).keys() == missing, place
        machine.heal()
    with machine.at_once():
        machine.fault("temperature", error, gpu=0)
        machine.fault("temperaturev", error, gpu=0)
        machine.fault("memory", error, gpu=0)
        machine.fault("memory2", error, gpu=0)
    assert complete - values(child).keys() == {"temperature_c"} | MEMORY


def test_numbers_that_stand_for_something_else_are_not_there(child: NvmlChild, machine: FakeMachine) -> None:
    """NVML's "not available", and the 0 degrees of a sensor that does not exist."""
    complete = values(child).keys()
    absurd = {"sm_clock_mhz": 2**32 - 1, "energy_mj": 2**64 - 1, "busy_percent": 12345, "memory_temperature_c": 0}
    machine.set_use(0, **absurd)
    assert complete - values(child).keys() == absurd.keys()


def test_an_old_driver_answers_what_it_knows(tmp_path: Path, machine: FakeMachine) -> None:
    """Its used memory includes what it has reserved for itself."""
    machine.add_process(0, 42, 5 * GIB, busy=37)
    (tmp_path / "old").mkdir()
    with NvmlChild(build(tmp_path / "old", "-DOLD_DRIVER"), machine.environment()) as child:
        open_session(child)
        found = values(child)
        lacks = {"memory_reserved", "memory_temperature_c", "rows_correctable", "rows_uncorrectable", "rows_failed"}
        assert set(VALUES) - found.keys() == lacks | GPM
        assert found["memory_used"] == 5 * GIB + USE["memory_reserved"]
        assert found["throttle"] == USE["throttle"]
        assert processes(child) == [(42, 5 * GIB, 37.0)]
        assert (
            child.ask(f"session.set_memory_limit({machine.uuid(0)!r}, '/x', 1)") == "this driver has no memory limits"
        )
        assert child.ask(f"session.memory_limit({machine.uuid(0)!r}, '/x')") is None


def test_a_lost_gpu_leaves_the_others_as_they_are(child: NvmlChild, machine: FakeMachine) -> None:
    """Nothing is known of it, until it is not in the inventory any more; it may come back."""
    machine.add_process(0, 42, GIB)
    machine.lose(0)
    lost, other = child.ask("session.use()")
    assert (lost["uuid"], lost["values"], lost["processes"]) == (machine.uuid(0), {}, None)
    assert (other["values"]["memory_total"], other["processes"]) == (machine.gpus[1].model.memory, [])
    assert child.ask(f"session.processes({machine.uuid(0)!r})") is None
    child.ask("session.read()")
    assert [one["uuid"] for one in child.ask("session.use()")] == [machine.uuid(1)]
    assert [one["index"] for one in child.ask("session.use()")] == [1]
    machine.recover(0)
    child.ask("session.read()")
    assert processes(child) == [(42, GIB, 0.0)]


def test_before_an_inventory_nothing_is_used(new_child: NewChild, machine: FakeMachine) -> None:
    """There is no GPU whose use could be asked for."""
    child = new_child(machine)
    child.ask("session = open_session(library=sys.argv[1])")
    assert child.ask("session.use()") == []
    assert child.ask(f"session.processes({machine.uuid(0)!r})") == []


# ---------------------------------------------------------------- processes


def test_processes_have_memory_and_are_busy(child: NvmlChild, machine: FakeMachine) -> None:
    """Memory that is not known is none; one without a sample is idle; one in both lists counts once."""
    with machine.at_once():
        machine.add_process(0, 42, 2 * GIB, busy=37)
        machine.add_process(0, 42, 3 * GIB, graphics=True)
        machine.add_process(0, 43, None, busy=250)
        machine.add_process(0, 44, 4 * GIB)
        machine.add_process(1, 44, GIB, busy=100)
    assert processes(child) == [(44, 4 * GIB, 0.0), (42, 3 * GIB, 37.0), (43, None, None)]
    assert processes(child, 1) == [(44, GIB, 100.0)]
    machine.remove_process(0, 44)
    assert [pid for pid, _, _ in processes(child)] == [42, 43]


def test_only_samples_since_the_last_look_count(child: NvmlChild, machine: FakeMachine) -> None:
    """Of several the mean."""
    machine.add_process(0, 42, GIB)
    machine.add_sample(0, 42, 10, at=1000)
    machine.add_sample(0, 42, 30, at=1001)
    assert processes(child) == [(42, GIB, 20.0)]
    assert processes(child) == [(42, GIB, 0.0)]
    machine.add_sample(0, 42, 80, at=1002)
    assert processes(child) == [(42, GIB, 80.0)]


def test_a_clock_that_was_set_back_hides_no_sample(child: NvmlChild, machine: FakeMachine) -> None:
    """The driver's samples have the clock's times: new ones would be older than the last look for long."""
    machine.add_sample(0, 42, 10, at=1000)
    child.ask("from nvml_inventory.processes import Busy")
    child.ask("now, gpu = [5000.0], nvml.nvmlDeviceGetHandleByIndex(0)")
    child.ask("busy = Busy(lambda: now[0])")
    assert child.ask("busy.read('GPU', gpu)") == {"42": 10.0}
    machine.add_sample(0, 42, 90, at=500)
    assert child.ask("busy.read('GPU', gpu)") == {}
    child.ask("now[0] = 1000.0")
    assert child.ask("busy.read('GPU', gpu)") == {"42": 50.0}


@pytest.mark.parametrize(
    ("answer", "busy"),
    [pytest.param(0, 0.0, id="success"), pytest.param(6, 0.0, id="not found"), pytest.param(None, None, id="unknown")],
)
def test_without_samples_nothing_is_busy(
    child: NvmlChild, machine: FakeMachine, answer: int | None, busy: float | None
) -> None:
    """NVML answers success or not found, of which pynvml makes errors alike; not supported is not known."""
    machine.add_process(0, 42, GIB)
    machine.unset(0, "nosamples")
    if answer is not None:
        machine.set(0, "nosamples", answer)
    assert processes(child) == [(42, GIB, busy)]


def test_processes_are_asked_anew(child: NvmlChild, machine: FakeMachine) -> None:
    """One question takes no samples away from the next look, and knows no GPU that is not there."""
    ask = f"session.processes({machine.uuid(0)!r})"
    machine.add_sample(0, 42, 10, at=1000)
    machine.add_process(0, 42, GIB)
    assert child.ask(ask) == [{"kind": "Process", "pid": 42, "memory": GIB, "busy": None}]
    assert processes(child) == [(42, GIB, 10.0)]
    machine.remove_process(0, 42)
    assert child.ask(ask) == []
    assert child.ask("session.processes('GPU-of-another-node')") == []


def test_of_many_processes_those_with_most_memory_are_known(child: NvmlChild, machine: FakeMachine) -> None:
    """A GPU has 1024 at most."""
    with machine.at_once():
        for pid in range(1, 1101):
            machine.add_process(0, pid, pid * 2**20)
    found = [pid for pid, _, _ in processes(child)]
    assert found == list(range(1100, 1100 - 1024, -1))


# ---------------------------------------------------------------- MIG


def test_mig_devices_have_memory_and_processes_of_their_own(new_child: NewChild, tmp_path: Path) -> None:
    """Their GPU has none of its own then, and no utilization: NVML does not say it in MIG mode."""
    machine = FakeMachine(tmp_path / "machine", A100_40, count=2)
    machine.set_use(1, **USE)
    small, large = machine.add_mig(1, "1g.5gb", gi=7), machine.add_mig(1, "3g.20gb", gi=2)
    machine.add_process(1, 42, GIB, mig=small)
    machine.add_process(1, 43, 2 * GIB, mig=large)
    child = open_session(new_child(machine))
    _, card, one, other = child.ask("session.use()")
    assert (card["uuid"], card["processes"]) == (machine.uuid(1), [])
    assert card["values"]["memory_used"] == 3 * GIB
    assert not {"busy_percent", "encoder_percent"} & card["values"].keys()
    assert (one["uuid"], one["parent"], one["index"], one["pci"]) == (small, machine.uuid(1), 1, machine.pci(1))
    assert (one["name"], one["profile"], one["gi"]) == ("NVIDIA A100-SXM4-40GB", "1g.5gb", 7)
    assert one["processes"] == [{"kind": "Process", "pid": 42, "memory": GIB, "busy": None}]
    total = 4864 * 2**20
    assert one["values"] == {
        "memory_total": total,
        "memory_used": GIB,
        "memory_free": total - GIB,
        "memory_reserved": 0,
    }
    assert [process["pid"] for process in other["processes"]] == [43]
    assert [process["pid"] for process in child.ask(f"session.processes({large!r})")] == [43]
    assert child.ask(f"session.processes({machine.uuid(1)!r})") == []
    machine.remove_mig(1, small)
    assert [found["uuid"] for found in child.ask("session.use()")][2:] == [large]
    assert child.ask(f"session.processes({small!r})") == []
