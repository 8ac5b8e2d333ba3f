"""Limits of a cgroup's memory on a GPU, by the real pynvml, on the test library (tests/nvml)."""

from pathlib import Path

import pytest

from tests.nvml.child import NvmlChild
from tests.nvml.machine import FakeMachine
from tests.nvml.models import A100_40
from tests.unit.nvml_inventory.conftest import NewChild

GIB = 2**30
FOLDER = "/sys/fs/cgroup/kubepods.slice/a pod.slice"


@pytest.fixture
def machine(tmp_path: Path) -> FakeMachine:
    """Make a machine of two GPUs, whose driver has memory limits for the first."""
    machine = FakeMachine(tmp_path / "machine", A100_40, count=2)
    machine.set(0, "limits", 1)
    return machine


@pytest.fixture
def child(new_child: NewChild, machine: FakeMachine) -> NvmlChild:
    """Start a process with a session that has read the machine once."""
    child = new_child(machine)
    child.ask("session = open_session(library=sys.argv[1])")
    child.ask("session.read()")
    return child


def set_limit(child: NvmlChild, uuid: str, hard: int = 5 * GIB) -> str:
    """Set a limit; return why it is not."""
    why: str = child.ask(f"session.set_memory_limit({uuid!r}, {FOLDER!r}, {hard})")
    return why


def limit(child: NvmlChild, uuid: str, folder: str = FOLDER) -> int | None:
    """Read a limit back."""
    found: int | None = child.ask(f"session.memory_limit({uuid!r}, {folder!r})")
    return found


def test_a_limit_is_set_and_read_back(child: NvmlChild, machine: FakeMachine) -> None:
    """Of this cgroup on this GPU alone, without a soft limit, which somebody would have to take back."""
    assert limit(child, machine.uuid(0)) is None
    assert set_limit(child, machine.uuid(0), GIB) == ""
    assert set_limit(child, machine.uuid(0)) == ""
    assert limit(child, machine.uuid(0)) == 5 * GIB
    assert machine.limits() == {(machine.uuid(0), FOLDER): (0, 5 * GIB)}
    assert limit(child, machine.uuid(0), FOLDER + "/a container") is None
    assert set_limit(child, machine.uuid(0), 2**64 - 1) == ""
    assert limit(child, machine.uuid(0)) is None


def test_a_limit_that_cannot_be_set_has_a_reason(child: NvmlChild, machine: FakeMachine) -> None:
    """And is not there."""
    assert "no memory limits for this GPU" in set_limit(child, machine.uuid(1))
    assert set_limit(child, "GPU-of-another-node") == "there is no GPU GPU-of-another-node"
    machine.fault("setlimits", 4, gpu=0)
    assert f"NVML cannot limit the memory of {FOLDER}: " in set_limit(child, machine.uuid(0))
    machine.lose(0)
    assert "drain the node and reset the GPU" in set_limit(child, machine.uuid(0))
    assert limit(child, machine.uuid(0)) is None
    assert machine.limits() == {}


def test_a_gpu_in_mig_mode_has_no_limits(child: NvmlChild, machine: FakeMachine) -> None:
    """Neither has a MIG device."""
    mig = machine.add_mig(0, "1g.5gb", gi=7)
    child.ask("session.read()")
    for uuid in (machine.uuid(0), mig):
        assert "the GPU is in MIG mode" in set_limit(child, uuid)
        assert limit(child, uuid) is None
