"""A live session with the real pynvml, on the test library (tests/nvml), whose machine changes meanwhile."""

from collections.abc import Callable
from pathlib import Path
from typing import Any

import pytest

from nvml_inventory.session import name_unreadable
from nvml_inventory.values import Card, Unreadable
from tests.nvml import build
from tests.nvml.child import NvmlChild
from tests.nvml.machine import FakeMachine
from tests.nvml.models import A100_40
from tests.unit.nvml_inventory.conftest import NewChild

LONG = 120
"""Seconds that no wait takes when its event is there."""


@pytest.fixture
def machine(tmp_path: Path) -> FakeMachine:
    """Make a machine of three GPUs."""
    return FakeMachine(tmp_path / "machine", count=3)


@pytest.fixture
def child(new_child: NewChild, machine: FakeMachine) -> NvmlChild:
    """Start a process with a session that has read the machine once."""
    return open_session(new_child(machine))


def open_session(child: NvmlChild) -> NvmlChild:
    """Open the session of a process, and read."""
    child.ask("session = open_session(library=sys.argv[1])")
    child.ask("session.read()")
    return child


def kinds(child: NvmlChild) -> list[str]:
    """Read again, and say which GPUs could be read."""
    return [card["kind"] for card in child.ask("session.read()")["cards"]]


def xid(uuid: str, number: int, gi: int | None = None, ci: int | None = None) -> dict[str, Any]:
    """Say what a wait answers."""
    return {"kind": "Xid", "uuid": uuid, "xid": number, "gi": gi, "ci": ci}


# ---------------------------------------------------------------- reading


def test_each_read_is_a_new_look(child: NvmlChild, machine: FakeMachine) -> None:
    """MIG devices come and go while a session is open."""
    uuid = "GPU-with-mig"
    machine.set(1, "uuid", uuid)
    assert [card["uuid"] for card in child.ask("session.read()")["cards"]][1] == uuid
    machine.gpus[1].model = A100_40
    mig = machine.add_mig(1, "1g.5gb", gi=7)
    (found,) = child.ask("session.read()")["cards"][1]["migs"]
    assert (found["uuid"], found["gi"], found["ci"]) == (mig, 7, 0)
    machine.remove_migs(1)
    assert child.ask("session.read()")["cards"][1]["migs"] == []


def test_a_lost_gpu_keeps_its_name_in_a_session(child: NvmlChild, machine: FakeMachine) -> None:
    """NVML refuses its handle, and nobody else says which one is lost."""
    machine.lose(1)
    lost = child.ask("session.read()")["cards"][1]
    assert (lost["kind"], lost["index"], lost["error"]) == ("Unreadable", 1, 15)
    assert (lost["uuid"], lost["pci"]) == (machine.uuid(1), machine.pci(1))
    assert child.ask("session.read()")["cards"][1] == lost
    machine.recover(1)
    assert kinds(child) == ["Card"] * 3


def test_a_gpu_that_was_lost_before_the_session_has_no_name(new_child: NewChild, machine: FakeMachine) -> None:
    """Its index and the error are known."""
    machine.lose(1)
    child = open_session(new_child(machine))
    lost = child.ask("session.read()")["cards"][1]
    assert (lost["uuid"], lost["pci"], lost["index"], lost["error"]) == ("", "", 1, 15)


CARD = Card("GPU-0", "H100", "0000:10:00.0", 81559, 9, 0, 1, 1, 0, 0, None)
LOST = Unreadable("lost", index=1, error=15)


@pytest.mark.parametrize(
    ("known", "expected"),
    [
        pytest.param((("GPU-0", "0"), ("GPU-1", "1")), ("GPU-1", "1"), id="known"),
        pytest.param((), ("", ""), id="never read"),
        pytest.param((("GPU-1", "1"),), ("", ""), id="fewer GPUs before"),
        pytest.param((("GPU-1", "1"), ("GPU-0", "0")), ("", ""), id="the indexes have shifted"),
        pytest.param((("GPU-0", "0"), ("", "")), ("", ""), id="never readable"),
    ],
)
def test_an_unreadable_gpu_has_its_name_of_before(
    known: tuple[tuple[str, str], ...], expected: tuple[str, str]
) -> None:
    """Where it cannot be that of another GPU."""
    card, lost = name_unreadable((CARD, LOST), known)
    assert card == CARD
    assert lost == LOST._replace(uuid=expected[0], pci=expected[1])


def test_an_unreadable_gpu_at_another_address_is_another_one() -> None:
    """As far as NVML says one thing of it, that counts."""
    elsewhere = LOST._replace(pci="0000:99:00.0")
    assert name_unreadable((elsewhere,), (("GPU-1", "0000:11:00.0"),)) == (elsewhere,)
    here = LOST._replace(pci="0000:11:00.0")
    assert name_unreadable((here,), (("GPU-1", "0000:11:00.0"),)) == (here._replace(uuid="GPU-1"),)


@pytest.mark.parametrize("trouble", [("count", 15), ("driver", 999)], ids=["no count", "no version"])
def test_a_driver_that_does_not_answer_ends_the_session(
    child: NvmlChild, machine: FakeMachine, trouble: tuple[str, int]
) -> None:
    """The caller opens a new one."""
    machine.fault(*trouble)
    child.ask("from nvml_inventory.errors import DriverUnreadable")
    child.ask(
        "def read():\n  try: session.read()\n  except DriverUnreadable as error: return str(error)\n"
        "  finally: session.close()"
    )
    assert child.ask("read()").startswith("NVML cannot read the driver: ")
    machine.heal()
    open_session(child)
    assert kinds(child) == ["Card"] * 3


def test_a_driver_that_is_not_there_is_absent(new_child: NewChild, machine: FakeMachine) -> None:
    """As for a single inventory."""
    machine.fault("init", 9)
    found = new_child(machine).ask("open_session(library=sys.argv[1])")
    assert found["kind"] == "Absent"
    assert found["reason"].startswith("NVML cannot start: Driver Not Loaded; ")


# ---------------------------------------------------------------- conditions


@pytest.mark.parametrize(
    ("fact", "expected"),
    [
        pytest.param("recovery 0", (0, False, ""), id="nothing to be done"),
        pytest.param("recovery 4", (4, False, ""), id="drain and reset"),
        pytest.param("rows 0 2 1 1", (0, True, ""), id="row remap failed"),
        pytest.param("rows 1 2 1 0", (0, False, ""), id="rows were remapped"),
        pytest.param("fabric 0 0", (0, False, ""), id="no fabric"),
        pytest.param("fabric 0 3", (0, False, ""), id="no fabric, and a status of it"),
        pytest.param("fabric 1 0", (0, False, "is not started"), id="fabric not started"),
        pytest.param("fabric 2 0", (0, False, "is in progress"), id="fabric in progress"),
        pytest.param("fabric 3 0", (0, False, ""), id="fabric ready"),
        pytest.param("fabric 3 999", (0, False, "has failed: Unknown Error"), id="fabric failed"),
        pytest.param("lost 15", (None, False, ""), id="lost"),
    ],
)
def test_a_gpu_says_how_it_is(
    child: NvmlChild, machine: FakeMachine, fact: str, expected: tuple[int | None, bool, str]
) -> None:
    """What the driver says of its health; a lost one is known from the inventory."""
    machine.set(2, *fact.split(" ", 1))
    found = child.ask("session.conditions(2)")
    assert (found["recovery_action"], found["row_remap_failed"]) == expected[:2]
    assert (found["fabric"] == "") == (expected[2] == "")
    assert expected[2] in found["fabric"]


@pytest.mark.parametrize("place", ["handle", "fields", "field", "rows", "fabric"])
def test_a_question_about_conditions_that_fails_is_no_complaint(
    child: NvmlChild, machine: FakeMachine, place: str
) -> None:
    """An old driver, or trouble that the next inventory shows."""
    machine.fault(place, 999, gpu=2)
    found = child.ask("session.conditions(2)")
    assert (found["row_remap_failed"], found["fabric"]) == (False, "")
    assert found["recovery_action"] == (0 if place in {"rows", "fabric"} else None)


# ---------------------------------------------------------------- events


@pytest.mark.parametrize(
    ("instances", "expected"),
    [
        pytest.param((None, None), (None, None), id="of the GPU"),
        pytest.param((1, 0), (1, 0), id="of a compute instance"),
        pytest.param((2, None), (2, None), id="of a GPU instance"),
    ],
)
def test_an_xid_ends_a_wait(
    child: NvmlChild,
    machine: FakeMachine,
    instances: tuple[int | None, int | None],
    expected: tuple[int | None, int | None],
) -> None:
    """It names GPU, error and MIG instances."""
    assert child.ask("session.watched") == [machine.uuid(at) for at in range(3)]
    child.start(f"session.wait({LONG})")
    machine.xid(2, 94, *instances)
    assert child.answer() == xid(machine.uuid(2), 94, *expected)
    assert child.ask("session.wait(0)") is None


def test_the_error_of_a_gpu_that_falls_off_the_bus_has_its_name(child: NvmlChild, machine: FakeMachine) -> None:
    """NVML no longer says it. The others are watched on, without a wait that fails; it is again once it is back."""
    with machine.at_once():
        machine.xid(1, 79)
        machine.lose(1)
    assert child.ask(f"session.wait({LONG})") == xid(machine.uuid(1), 79)
    assert child.ask("session.wait(0)") is None
    assert child.ask("session.watched") == [machine.uuid(0), machine.uuid(2)]
    child.start(f"session.wait({LONG})")
    machine.xid(0, 31)
    assert child.answer() == xid(machine.uuid(0), 31)
    assert kinds(child) == ["Card", "Unreadable", "Card"]
    assert child.ask("session.watched") == [machine.uuid(0), machine.uuid(2)]
    machine.recover(1)
    assert kinds(child) == ["Card"] * 3
    assert child.ask("session.watched") == [machine.uuid(at) for at in range(3)]
    machine.xid(1, 48)
    assert child.ask(f"session.wait({LONG})") == xid(machine.uuid(1), 48)


def test_no_event_is_lost_when_the_event_set_is_made_anew(child: NvmlChild, machine: FakeMachine) -> None:
    """What had arrived in the old one comes first."""
    with machine.at_once():
        machine.xid(0, 31)
        machine.xid(2, 43)
        machine.lose(1)
    assert kinds(child) == ["Card", "Unreadable", "Card"]
    machine.xid(2, 45)
    expected = [xid(machine.uuid(0), 31), xid(machine.uuid(2), 43), xid(machine.uuid(2), 45)]
    assert [child.ask(f"session.wait({LONG})") for _ in expected] == expected
    assert child.ask("session.wait(0)") is None


def test_a_gpu_that_comes_is_watched(child: NvmlChild, machine: FakeMachine) -> None:
    """From the read on that finds it."""
    machine.remove(0)
    assert kinds(child) == ["Card"] * 2
    assert child.ask("session.watched") == [machine.uuid(1), machine.uuid(2)]
    machine.bring_back(0)
    assert kinds(child) == ["Card"] * 3
    machine.xid(0, 79)
    assert child.ask(f"session.wait({LONG})") == xid(machine.uuid(0), 79)


@pytest.mark.parametrize(
    "trouble",
    [
        pytest.param(lambda machine: machine.unset(1, "events"), id="no events"),
        pytest.param(lambda machine: machine.set(1, "events", 16), id="no Xid events"),
        pytest.param(lambda machine: machine.fault("register", 3, gpu=1), id="not supported"),
        pytest.param(lambda machine: machine.fault("register", 999, gpu=1), id="an error"),
    ],
)
def test_a_gpu_that_cannot_be_watched_is_not_among_the_watched(
    new_child: NewChild, machine: FakeMachine, trouble: Callable[[FakeMachine], None]
) -> None:
    """The others are; none is a failure."""
    trouble(machine)
    child = open_session(new_child(machine))
    assert child.ask("session.watched") == [machine.uuid(0), machine.uuid(2)]
    assert kinds(child) == ["Card"] * 3


@pytest.mark.parametrize(
    "trouble",
    [
        pytest.param(("eventset", 3), id="no event set"),
        pytest.param(("wait", 999), id="waiting fails"),
        pytest.param(("wait", 10), id="waiting times out at once"),
    ],
)
def test_a_wait_that_cannot_work_does_not_spin(
    new_child: NewChild, machine: FakeMachine, trouble: tuple[str, int]
) -> None:
    """It takes its time, as one in which nothing happens."""
    machine.fault(*trouble)
    child = open_session(new_child(machine))
    start, found, end = child.ask("(time.monotonic(), session.wait(0.3), time.monotonic())")
    assert found is None
    assert end - start >= 0.3


def test_a_wait_that_failed_works_again(child: NvmlChild, machine: FakeMachine) -> None:
    """Without a read in between."""
    machine.fault("wait", 999)
    assert child.ask("session.wait(0)") is None
    machine.heal()
    machine.xid(1, 79)
    assert child.ask(f"session.wait({LONG})") == xid(machine.uuid(1), 79)


def test_an_old_driver_has_a_session_without_events_and_conditions(tmp_path: Path, machine: FakeMachine) -> None:
    """It lacks the functions."""
    (tmp_path / "old").mkdir()
    with NvmlChild(build(tmp_path / "old", "-DOLD_DRIVER"), machine.environment()) as child:
        open_session(child)
        assert kinds(child) == ["Card"] * 3
        assert child.ask("session.watched") == []
        assert child.ask("session.wait(0)") is None
        found = child.ask("session.conditions(0)")
        assert (found["recovery_action"], found["row_remap_failed"], found["fabric"]) == (None, False, "")


def test_a_closed_session_is_shut_down(child: NvmlChild) -> None:
    """NVML answers nothing more."""
    child.ask("session.close()")
    assert child.ask("nvml.nvmlDeviceGetCount()") == {"error": 1}
