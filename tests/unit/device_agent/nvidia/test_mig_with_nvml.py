"""The source and the container nvml with the real pynvml, on the test library: layouts are changed, and cut short."""

import os
import signal
from collections.abc import Awaitable, Callable, Iterator
from contextlib import contextmanager
from pathlib import Path

import pytest

from tests.nvml.machine import FakeMachine
from tests.nvml.mig_file import Gi, MigGpu
from tests.nvml.models import A100_40
from tests.unit.device_agent.mig.world import World
from tests.unit.device_agent.nvidia.mig_life import Life, play
from tests.unit.device_agent.nvml_container.running import WithNvml

GPU, ONE, TWO, THREE = (f"nvidia.com/{name}" for name in ("gpu", "mig-1g.5gb", "mig-2g.10gb", "mig-3g.20gb"))
BEFORE = MigGpu(1, 1, (Gi(7, "1g.5gb", 0, (1,)), Gi(8, "1g.5gb", 1, (1,)), Gi(2, "3g.20gb", 4, (3,))))
BALANCED = ["1g.5gb", "1g.5gb", "2g.10gb", "3g.20gb"]
POINTS = range(1, 18)
"""One before and one after each of what is done to one card for ``balanced``, and a few more."""


def profiles(machine: FakeMachine, gpu: int) -> list[str]:
    """Return the profiles of a card's instances by the library."""
    return sorted(profile for profile, _, _ in machine.mig.gpu(machine.uuid(gpu)).layout)


@contextmanager
def running(folder: Path, library: Path, machine: FakeMachine) -> Iterator[WithNvml]:
    """Run the container ``nvml``."""
    (folder / "sys/module/nvidia").mkdir(parents=True, exist_ok=True)
    (folder / "proc/driver/nvidia").mkdir(parents=True, exist_ok=True)
    machine.write_proc(folder / "proc/driver/nvidia")
    environment = {**machine.environment(), "DEVICE_AGENT_CHANGES_MIG": "true"}
    with WithNvml(folder, library, environment) as container:
        yield container


def dying_machine(folder: Path, cards: int, point: int) -> FakeMachine:
    """Make a machine whose first card has instances, and where who changes them is killed at a point."""
    machine = FakeMachine(folder / "machine", A100_40, cards, changes_mig=True)
    machine.mig.set(machine.uuid(0), BEFORE)
    machine.die_at(point)
    return machine


def play_beside(folder: Path, library: Path, machine: FakeMachine, act: Callable[[Life], Awaitable[None]]) -> None:
    """Run a source beside the container ``nvml``, and act."""
    with running(folder, library, machine):
        play(folder, World(cards=[]), act, has_nvml=True)


def test_two_and_three_on_four_cards(folder: Path, library: Path) -> None:
    """8 and 12 devices are offered, and the library has them; a layout that does not fit destroys nothing of it."""
    machine = FakeMachine(folder / "machine", A100_40, 4, changes_mig=True)

    async def act(life: Life) -> None:
        await life.until(lambda: life.count(GPU) == 4)
        life.world.ask("two-and-three")
        await life.until(lambda: life.world.state == "success")
        assert (life.count(TWO), life.count(ONE), life.count(GPU)) == (8, 12, 0)
        assert all(profiles(machine, gpu) == ["1g.5gb"] * 3 + ["2g.10gb"] * 2 for gpu in range(4))
        done = machine.mig.changes()
        life.world.ask("too-much")
        await life.until(lambda: life.world.state == "failed")
        assert "1g.5gb does not fit beside 2x 3g.20gb" in str(life.world.record["message"])
        assert machine.mig.changes() == done
        assert (life.count(TWO), life.count(ONE)) == (8, 12)

    play_beside(folder, library, machine, act)


@pytest.mark.parametrize("point", [pytest.param(one, marks=() if one == 6 else pytest.mark.long) for one in POINTS])
def test_the_child_is_killed_at_a_point(folder: Path, library: Path, point: int) -> None:
    """Between any two changes of the library: the layout is made all the same, and what stays has stayed."""
    machine = dying_machine(folder, 2, point)

    async def act(life: Life) -> None:
        life.world.ask("balanced")
        await life.until(lambda: life.world.state == "success")
        assert [profiles(machine, gpu) for gpu in range(2)] == [BALANCED, BALANCED]
        assert ("3g.20gb", 4, (3,)) in machine.mig.gpu(machine.uuid(0)).layout
        assert (life.count(THREE), life.count(ONE)) == (2, 4)
        assert life.world.leftovers == []

    play_beside(folder, library, machine, act)


@pytest.mark.parametrize("point", [pytest.param(one, marks=() if one == 4 else pytest.mark.long) for one in POINTS])
def test_the_label_goes_after_the_child_was_killed(folder: Path, library: Path, point: int) -> None:
    """What was there before is there again, at the same places."""
    machine = dying_machine(folder, 1, point)

    async def act(life: Life) -> None:
        life.world.ask("sevens")
        await life.until(lambda: machine.mig.points() >= point or life.world.state == "success")
        if life.world.state == "success":  # before that point
            return
        life.world.ask(None)
        await life.until(lambda: "driverwright.io/mig" not in life.world.annotations)
        assert machine.mig.gpu(machine.uuid(0)).layout == BEFORE.layout
        assert life.world.leftovers == []

    play_beside(folder, library, machine, act)


def test_the_container_is_killed(folder: Path, library: Path) -> None:
    """The supervisor and its child end together while a card is changed; a new container goes on."""
    machine = FakeMachine(folder / "machine", A100_40, 1, changes_mig=True)
    machine.hang("creategi")

    async def act(life: Life) -> None:
        with running(folder, library, machine) as container:
            life.world.ask("balanced")
            await life.until(lambda: any(line.startswith("mode") for line in machine.mig.changes()))
            os.kill(container.child(), signal.SIGKILL)
            container.process.kill()
        machine.heal()
        (folder / "nvml.sock").unlink(missing_ok=True)
        with running(folder, library, machine):
            await life.until(lambda: life.world.state == "success")
        assert profiles(machine, 0) == BALANCED

    play(folder, World(cards=[]), act, has_nvml=True)


def test_a_card_that_is_in_use_is_asked_again_and_no_boot_is_asked_for(folder: Path, library: Path) -> None:
    """The switch of its mode is pending then, as one that wants a boot is."""
    machine = FakeMachine(folder / "machine", A100_40, 1, changes_mig=True)
    machine.add_process(0, 4242, 2**20)

    async def act(life: Life) -> None:
        life.world.ask("balanced")
        await life.until(lambda: machine.mig.gpu(machine.uuid(0)).pending == 1)
        machine.remove_process(0, 4242)
        await life.until(lambda: life.world.state == "success")
        assert (profiles(machine, 0), life.world.states) == (BALANCED, ["pending", "success"])

    play_beside(folder, library, machine, act)
