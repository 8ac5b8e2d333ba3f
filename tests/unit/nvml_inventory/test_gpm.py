"""What GPM measures between two looks, by the real pynvml, on the test library (tests/nvml)."""

from math import nan
from pathlib import Path

import pytest

from tests.nvml.child import NvmlChild
from tests.nvml.machine import FakeMachine
from tests.nvml.models import A100_40

SHARES = {"engine_active": 0.97, "sm_active": 0.5, "tensor_active": 0.25, "dram_active": 0.125}
MANY = 100_000
"""Looks that take longer than two samples have to be apart, whatever the machine."""


@pytest.fixture
def machine(tmp_path: Path) -> FakeMachine:
    """Make a machine of a GPU with GPM, and of one without."""
    machine = FakeMachine(tmp_path / "machine", count=2)
    machine.set_use(0, **SHARES)
    machine.set_use(1, **SHARES)
    machine.set(1, "gpm", 0)
    return machine


@pytest.fixture
def log(tmp_path: Path) -> Path:
    """Say where the library notes what it made and freed."""
    return tmp_path / "log"


def open_session(library: Path, machine: FakeMachine, log: Path) -> NvmlChild:
    """Start a process with a session that has read the machine once.

    ``look()`` looks until something was measured, ``look_until(happened)`` until something has happened.
    """
    child = NvmlChild(library, {**machine.environment(), "FAKE_NVML_LOG": str(log)})
    child.ask("session = open_session(library=sys.argv[1])")
    child.ask("session.read()")
    child.ask("parts = ('engine_active', 'sm_active', 'tensor_active', 'dram_active')")
    child.ask("gpm_of = lambda use: {name: use.values[name] for name in parts if name in use.values}")
    looks = f"(tuple(map(gpm_of, session.use())) for _ in range({MANY}))"
    child.ask(f"look = lambda: next((found for found in {looks} if any(found)), None)")
    child.ask(f"look_until = lambda happened: any(session.use() and happened() for _ in range({MANY}))")
    child.ask(f"count = lambda note: open({str(log)!r}).read().split('\\n').count(note)")
    return child


def samples(log: Path) -> int:
    """Return how many samples are not freed."""
    notes = log.read_text().splitlines()
    return notes.count("gpm alloc") - notes.count("gpm free")


def test_a_second_look_knows_what_was_active(library: Path, machine: FakeMachine, log: Path) -> None:
    """From 0 to 1, and only what this GPU can tell; a GPU without GPM has nothing of it."""
    with open_session(library, machine, log) as child:
        assert child.ask("tuple(map(gpm_of, session.use()))") == [{}, {}]
        assert child.ask("look()") == [SHARES, {}]
        machine.set_use(0, sm_active=nan, tensor_active=None, dram_active=1.02)
        assert child.ask("look()") == [{"engine_active": 0.97, "dram_active": 1.0}, {}]


def test_samples_that_are_too_close_are_not_compared(library: Path, machine: FakeMachine, log: Path) -> None:
    """NVML would refuse them; a look right after another one keeps the sample that is there."""
    with open_session(library, machine, log) as child:
        assert child.ask("look()") == [SHARES, {}]
        assert child.ask("look()") == [SHARES, {}]
    assert "gpm refused" not in log.read_text()


def test_samples_are_freed(library: Path, machine: FakeMachine, log: Path) -> None:
    """One is kept of each GPU with GPM: none of one that fails or is lost, and none at the end."""
    made = 'count("gpm alloc")'
    with open_session(library, machine, log) as child:
        child.ask("look()")
        assert samples(log) == 1
        machine.fault("gpmmetrics", 999)
        child.ask(f"before = {made}")
        assert child.ask(f"look_until(lambda: {made} > before + 1)")
        assert samples(log) == 1
        machine.heal()
        machine.fault("gpmsample", 999, gpu=0)
        child.ask(f"before = {made}")
        assert child.ask(f"look_until(lambda: {made} > before + 1)")
        assert samples(log) == 0
        machine.heal()
        child.ask("look()")
        machine.lose(0)
        child.ask("session.read()")
        child.ask("session.use()")
        assert samples(log) == 0
        machine.recover(0)
        child.ask("session.read()")
        child.ask("look()")
        child.ask("session.close()")
        assert samples(log) == 0


def test_a_mig_device_has_what_its_gpu_instance_measures(library: Path, tmp_path: Path, log: Path) -> None:
    """The GPU itself is not measured in MIG mode."""
    machine = FakeMachine(tmp_path / "machine", A100_40)
    machine.set(0, "gpm", 1)
    mig = machine.add_mig(0, "1g.5gb", gi=7)
    machine.set_use(0, mig, sm_active=0.75)
    with open_session(library, machine, log) as child:
        assert child.ask("look()") == [{}, {"sm_active": 0.75}]
        machine.remove_mig(0, mig)
        child.ask("session.use()")
        assert samples(log) == 0
