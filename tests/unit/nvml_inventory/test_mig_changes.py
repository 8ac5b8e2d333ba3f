"""Reading and changing MIG mode and instances, by the real pynvml, on the test library (tests/nvml)."""

import signal
from pathlib import Path
from typing import Any

import pytest

from device_agent.mig.tables import model_of
from tests.nvml.child import NvmlChild
from tests.nvml.machine import FakeMachine
from tests.nvml.mig_file import Gi, MigGpu
from tests.nvml.models import A30, A100_40, H100, Model
from tests.unit.nvml_inventory.conftest import NewChild

_HELP = """
from nvml_inventory.errors import MigUnchanged
from nvml_inventory.mig_changes import MigCard
def attempt(what, *arguments):
    try:
        return getattr(card, what)(*arguments)
    except MigUnchanged as error:
        return {"error": type(error).__name__, "why": str(error)}
"""
USED = {"error": "MigInUse"}
WANTS_RESET = {"error": "MigWantsReset"}
UNCHANGED = {"error": "MigUnchanged"}


def started(new_child: NewChild, machine: FakeMachine, gpu: int = 0) -> NvmlChild:
    """Start a process that can change a GPU."""
    child = new_child(machine)
    child.ask("nvml.nvmlInit()")
    child.ask(_HELP)
    child.ask(f"card = MigCard({machine.uuid(gpu)!r})")
    return child


@pytest.fixture
def machine(tmp_path: Path) -> FakeMachine:
    """Make a machine of two GPUs, whose MIG may be changed."""
    return FakeMachine(tmp_path / "machine", A100_40, count=2, changes_mig=True)


@pytest.fixture
def child(new_child: NewChild, machine: FakeMachine) -> NvmlChild:
    """Start a process that can change the first GPU."""
    return started(new_child, machine)


def attempt(child: NvmlChild, what: str, *arguments: Any) -> Any:
    """Try a step; of one that is refused, its kind without its reason."""
    answer = child.ask(f"attempt({what!r}, *{arguments!r})")
    return {"error": answer["error"]} if isinstance(answer, dict) and "why" in answer else answer


def layout(machine: FakeMachine, gpu: int = 0) -> Any:
    """Return what is there."""
    return machine.mig.gpu(machine.uuid(gpu)).layout


def enabled(*instances: Gi) -> MigGpu:
    """Make a GPU in MIG mode."""
    return MigGpu(1, 1, instances)


# ---------------------------------------------------------------- reading


@pytest.mark.parametrize(
    "model", [pytest.param(model, id=model.name.partition(" ")[2]) for model in (A100_40, A30, H100)]
)
def test_profiles_and_places_are_those_of_the_model(new_child: NewChild, tmp_path: Path, model: Model) -> None:
    """As the planner has them in its tables, though NVML asks by another number than it answers; and its PCI id."""
    machine = FakeMachine(tmp_path / "machine", model, changes_mig=True)
    machine.mig.set(machine.uuid(0), enabled())
    child = new_child(machine)
    child.ask("session = open_session(library=sys.argv[1])")
    assert child.ask("session.read().cards[0].pci_id") == model.pci_id
    found = child.ask(f"session.mig_layout({machine.uuid(0)!r})")["profiles"]
    table = model_of(model.name)
    assert table is not None
    wanted = [(one.name, list(one.starts), one.size, one.most) for one in table.profiles]
    assert sorted((one["name"], one["starts"], one["size"], one["most"]) for one in found) == sorted(wanted)
    assert model.pci_id in table.pci_ids


def test_instances_are_read_with_their_places(new_child: NewChild, machine: FakeMachine) -> None:
    """Also one without a compute instance, which no MIG device shows."""
    machine.mig.set(machine.uuid(0), enabled(Gi(2, "3g.20gb", 4, (2, 1)), Gi(7, "1g.5gb", 0)))
    child = new_child(machine)
    child.ask("session = open_session(library=sys.argv[1])")
    names = child.ask("[mig.name for mig in session.read().cards[0].migs]")
    assert names == [f"{A100_40.name} MIG {part}.3g.20gb" for part in ("2c", "1c")]
    found = child.ask(f"session.mig_layout({machine.uuid(0)!r})")["instances"]
    assert [tuple(one.values())[1:] for one in found] == [(7, "1g.5gb", 0, 1), (2, "3g.20gb", 4, 4)]


@pytest.mark.parametrize(
    "place", [pytest.param(place, id=place) for place in ("giprofile", "placements", "gis", "giinfo")]
)
def test_what_cannot_be_read_in_full_is_not_said(new_child: NewChild, machine: FakeMachine, place: str) -> None:
    """A part of the instances would look like all of them."""
    machine.mig.set(machine.uuid(0), enabled(Gi(7, "1g.5gb", 0, (1,))))
    machine.fault(place, 999, gpu=0)
    child = new_child(machine)
    child.ask("session = open_session(library=sys.argv[1])")
    assert child.ask("len(session.read().cards[0].migs)") == 1
    assert child.ask(f"session.mig_layout({machine.uuid(0)!r})") == {
        "kind": "MigLayout", "profiles": [], "instances": [],
    }  # fmt: skip


def renamed(model: Model, name: str, to: str) -> Model:
    """Give a profile another name."""
    return model._replace(profiles=tuple(one._replace(name=to) if one.name == name else one for one in model.profiles))


def test_an_instance_of_a_profile_without_a_name_is_not_left_out(new_child: NewChild, tmp_path: Path) -> None:
    """Without it, its slices would look free: nothing is said, and nothing is compared."""
    machine = FakeMachine(tmp_path / "machine", renamed(A100_40, "1g.5gb", "-"), changes_mig=True)
    machine.mig.set(machine.uuid(0), enabled(Gi(2, "3g.20gb", 4)))
    child = started(new_child, machine)
    child.ask("session = open_session(library=sys.argv[1])")
    child.ask("session.read()")
    layout = f"session.mig_layout({machine.uuid(0)!r})"
    assert child.ask(f"[one.profile for one in {layout}.instances]") == ["3g.20gb"]
    assert "" not in child.ask(f"[one.name for one in {layout}.profiles]")
    machine.mig.set(machine.uuid(0), enabled(Gi(2, "3g.20gb", 4), Gi(7, "-", 0)))
    assert child.ask(f"[{layout}.instances, {layout}.profiles]") == [[], []]
    assert attempt(child, "instances") == UNCHANGED


def test_two_profiles_of_one_name_are_both_looked_at(new_child: NewChild, tmp_path: Path) -> None:
    """Each has an id of its own, by which instances are listed."""
    machine = FakeMachine(tmp_path / "machine", renamed(A100_40, "1g.10gb", "1g.5gb"), changes_mig=True)
    machine.mig.set(machine.uuid(0), MigGpu(1, 1))
    child = started(new_child, machine)
    child.ask(f"gpu = nvml.nvmlDeviceGetHandleByUUID({machine.uuid(0)!r})")
    child.ask("at = nvml.c_nvmlGpuInstancePlacement_t(4, 2)")
    child.ask("nvml.nvmlDeviceCreateGpuInstanceWithPlacement(gpu, 15, ctypes.byref(at))")
    assert [tuple(one.values())[1:] for one in attempt(child, "instances")] == [(5, "1g.5gb", 4, 2)]


def test_a_gpu_out_of_mig_mode_says_no_places(new_child: NewChild, machine: FakeMachine) -> None:
    """NVML answers placements in MIG mode only; both modes are read."""
    machine.mig.set(machine.uuid(0), MigGpu(0, 1))
    child = new_child(machine)
    child.ask("session = open_session(library=sys.argv[1])")
    assert child.ask("(lambda card: [card.mig_mode, card.mig_pending])(session.read().cards[0])") == [0, 1]
    assert child.ask(f"session.mig_layout({machine.uuid(0)!r}).profiles") == []
    assert child.ask("session.mig_layout('GPU-of-another-node').instances") == []


# ---------------------------------------------------------------- changing


def test_all_balanced_is_made_by_place(child: NvmlChild, machine: FakeMachine, new_child: NewChild) -> None:
    """One 3g at 4, a 2g and two 1g, on one GPU alone; another process sees it at once."""
    other = started(new_child, machine)
    assert attempt(child, "set_mode", 1) is None
    for profile, start, compute in (
        ("3g.20gb", 4, (3,)),
        ("2g.10gb", 0, (2,)),
        ("1g.5gb", 2, (1,)),
        ("1g.5gb", 3, (1,)),
    ):
        assert attempt(child, "create", profile, start, compute) is None
    assert attempt(other, "modes") == [1, 1]
    assert [tuple(one.values())[1:] for one in attempt(other, "instances")] == [
        (3, "2g.10gb", 0, 2), (9, "1g.5gb", 2, 1), (10, "1g.5gb", 3, 1), (2, "3g.20gb", 4, 4),
    ]  # fmt: skip
    assert machine.mig.gpu(machine.uuid(1)) == MigGpu()


def test_a_mig_device_of_an_instance_is_known_by_its_uuid(child: NvmlChild, machine: FakeMachine) -> None:
    """It is derived from the instance: made again, it is the same; another one has another."""
    attempt(child, "set_mode", 1)
    made = []
    for profile, start in (("1g.5gb", 0), ("1g.5gb", 0), ("1g.5gb", 1), ("2g.10gb", 0)):
        attempt(child, "create", profile, start, (int(profile[0]),))
        ((gi, uuid),) = ((one.id, one.uuids[0]) for one in machine.mig.gpu(machine.uuid(0)).instances)
        assert child.ask(f"nvml.nvmlDeviceGetGpuInstanceId(nvml.nvmlDeviceGetHandleByUUID({uuid!r}))") == gi
        assert attempt(child, "destroy", gi) is None
        assert child.ask(f"nvml.nvmlDeviceGetHandleByUUID({uuid!r})") == {"error": 6}
        made.append(uuid)
    assert made[0] == made[1]
    assert len(set(made)) == 3
    assert layout(machine) == ()


@pytest.mark.parametrize(
    ("there", "wanted"),
    [
        pytest.param((Gi(2, "3g.20gb", 4), Gi(1, "3g.20gb", 0)), ("1g.5gb", 6), id="compute is free, memory is not"),
        pytest.param((Gi(1, "4g.20gb", 0),), ("2g.10gb", 2), id="in the middle of another one"),
        pytest.param((Gi(7, "1g.5gb+me", 0),), ("1g.5gb+me", 1), id="a second set of media extensions"),
        pytest.param((Gi(1, "3g.20gb", 0),), ("2g.10gb", 2), id="the end of another one"),
    ],
)  # fmt: skip
def test_places_exclude_each_other(
    child: NvmlChild, machine: FakeMachine, there: tuple[Gi, ...], wanted: tuple[str, int]
) -> None:
    """The driver refuses, and what was there stays."""
    machine.mig.set(machine.uuid(0), enabled(*there))
    before = layout(machine)
    answer = child.ask(f"attempt('create', *{wanted!r}, [1])")
    assert answer["error"] == "MigUnchanged"
    assert f"{wanted[0]} at slice {wanted[1]} of {machine.uuid(0)} cannot be created: " in answer["why"]
    assert child.ask("nvml.NVMLError(23)") == "NVMLError_InsufficientResources"
    assert layout(machine) == before
    assert machine.mig.changes() == []


@pytest.mark.parametrize(
    ("arguments", "why"),
    [
        pytest.param(("5g.25gb", 0, (5,)), "has no MIG profile 5g.25gb: it has 1g.5gb, ", id="a profile of no card"),
        pytest.param(("2g.10gb", 1, (2,)), "cannot be created", id="a place that it cannot have"),
    ],
)
def test_what_no_card_can_have_is_refused(
    child: NvmlChild, machine: FakeMachine, arguments: tuple[object, ...], why: str
) -> None:
    """By name, and nothing is made."""
    machine.mig.set(machine.uuid(0), enabled())
    assert why in child.ask(f"attempt('create', *{arguments!r})")["why"]
    assert layout(machine) == ()


@pytest.mark.parametrize(
    ("profile", "compute"),
    [
        pytest.param("3g.20gb", (2, 1), id="two of three, and one"),
        pytest.param("7g.40gb", (3, 3, 1), id="a gap between"),
        pytest.param("4g.20gb", (2, 1, 1), id="half, and two quarters"),
        pytest.param("3g.20gb", (), id="none"),
    ],
)
def test_compute_instances_are_made_largest_first(
    child: NvmlChild, machine: FakeMachine, profile: str, compute: tuple[int, ...]
) -> None:
    """All of an instance, and they go with it."""
    machine.mig.set(machine.uuid(0), enabled())
    assert attempt(child, "create", profile, 0, compute) is None
    assert layout(machine) == ((profile, 0, compute),)
    (made,) = machine.mig.gpu(machine.uuid(0)).instances
    assert attempt(child, "destroy", made.id) is None
    assert layout(machine) == ()


@pytest.mark.parametrize(
    ("profile", "compute"),
    [
        pytest.param("3g.20gb", (2, 2), id="too many slices"),
        pytest.param("4g.20gb", (3, 1), id="slices that the profile cannot have"),
        pytest.param("3g.20gb", (5,), id="slices that none has"),
    ],
)
def test_an_instance_without_its_compute_instances_is_destroyed_again(
    child: NvmlChild, machine: FakeMachine, profile: str, compute: tuple[int, ...]
) -> None:
    """Nothing half-made is left."""
    machine.mig.set(machine.uuid(0), enabled(Gi(11, "1g.5gb", 4, (1,))))
    before = layout(machine)
    assert attempt(child, "create", profile, 0, compute) == UNCHANGED
    assert layout(machine) == before


def test_what_is_used_stays(child: NvmlChild, machine: FakeMachine) -> None:
    """A process on a MIG device keeps its instance; one on the GPU the mode, and the switch is pending."""
    machine.mig.set(machine.uuid(0), enabled(Gi(11, "1g.5gb", 4, (1,), ("MIG-1",))))
    machine.add_process(0, 4242, 2**20, mig="MIG-1")
    assert attempt(child, "destroy", 11) == USED
    assert layout(machine) == (("1g.5gb", 4, (1,)),)
    machine.remove_process(0, 4242)
    assert attempt(child, "destroy", 11) is None
    machine.add_process(0, 4243, 2**20)
    assert attempt(child, "set_mode", 0) == USED
    assert attempt(child, "modes") == [1, 0]
    machine.remove_process(0, 4243)
    assert attempt(child, "set_mode", 0) is None
    assert attempt(child, "modes") == [0, 0]


def test_the_mode_stays_while_there_are_instances(child: NvmlChild, machine: FakeMachine) -> None:
    """They have to go first."""
    machine.mig.set(machine.uuid(0), enabled(Gi(11, "1g.5gb", 4)))
    assert attempt(child, "set_mode", 0) == USED
    assert attempt(child, "modes") == [1, 1]


def test_a_switch_that_wants_a_reset_is_pending_until_the_boot(child: NvmlChild, machine: FakeMachine) -> None:
    """And can be taken back before that."""
    machine.switch_wants_reset(0)
    assert attempt(child, "set_mode", 1) == WANTS_RESET
    assert attempt(child, "modes") == [0, 1]
    assert attempt(child, "set_mode", 0) is None
    assert attempt(child, "modes") == [0, 0]
    assert attempt(child, "set_mode", 1) == WANTS_RESET
    machine.reload_driver()
    assert attempt(child, "modes") == [0, 1]
    machine.boot()
    assert attempt(child, "modes") == [1, 1]


@pytest.mark.parametrize(
    ("status", "kind"),
    [
        pytest.param(19, USED, id="in use"),
        pytest.param(16, WANTS_RESET, id="reset"),
        pytest.param(999, UNCHANGED, id="other"),
    ],
)
def test_the_status_of_a_switch_says_what_became_of_it(
    child: NvmlChild, machine: FakeMachine, status: int, kind: object
) -> None:
    """The question itself succeeds."""
    machine.set(0, "activation", status)
    assert attempt(child, "set_mode", 1) == kind
    assert attempt(child, "modes") == [0, 1]


def test_a_switch_may_give_another_minor(child: NvmlChild, machine: FakeMachine, tmp_path: Path) -> None:
    """With the mode; what /proc says follows, also of instances."""
    machine.set(0, "newminor", 5)
    machine.write_proc(tmp_path / "proc")
    minor = f"nvml.nvmlDeviceGetMinorNumber(nvml.nvmlDeviceGetHandleByUUID({machine.uuid(0)!r}))"
    information = tmp_path / "proc/gpus" / machine.pci(0) / "information"
    folders = tmp_path / "proc/capabilities"
    assert child.ask(minor) == 0
    assert "Device Minor: \t 0\n" in information.read_text()
    attempt(child, "set_mode", 1)
    attempt(child, "create", "2g.10gb", 2, (1, 1))
    assert child.ask(minor) == 5
    assert "Device Minor: \t 5\n" in information.read_text()
    found = {str(file.relative_to(folders)): file.read_text().split()[1] for file in folders.glob("**/access")}
    first = 3 + (5 * 15 + 4) * 9
    names = ("gpu5/mig/gi4/access", "gpu5/mig/gi4/ci0/access", "gpu5/mig/gi4/ci1/access")
    assert found == {name: str(first + at) for at, name in enumerate(names)}
    attempt(child, "destroy", 4)
    assert list(folders.glob("**/access")) == []
    attempt(child, "set_mode", 0)
    assert child.ask(minor) == 0


@pytest.mark.parametrize(
    ("model", "mode"), [pytest.param(A100_40, 1, id="Ampere keeps it"), pytest.param(H100, 0, id="Hopper loses it")]
)
def test_a_reload_of_the_driver_takes_instances(new_child: NewChild, tmp_path: Path, model: Model, mode: int) -> None:
    """And the mode of some GPUs."""
    machine = FakeMachine(tmp_path / "machine", model, changes_mig=True)
    machine.mig.set(machine.uuid(0), enabled(Gi(0, model.profiles[-1].name, 0, (7,))))
    machine.reload_driver()
    child = started(new_child, machine)
    assert attempt(child, "modes") == [mode, mode]
    assert attempt(child, "instances") == []


def test_an_older_gpu_has_no_mig(new_child: NewChild, tmp_path: Path) -> None:
    """Nothing is done to it."""
    machine = FakeMachine(tmp_path / "machine", A100_40)
    child = started(new_child, machine)
    assert attempt(child, "set_mode", 1) == UNCHANGED
    assert attempt(child, "instances") == []


# ---------------------------------------------------------------- the end of the program


@pytest.mark.parametrize("point", [pytest.param(point, id=f"point {point}") for point in range(1, 11)])
def test_a_killed_program_leaves_a_whole_step(new_child: NewChild, machine: FakeMachine, point: int) -> None:
    """Before each change and after it: the change is done, or it is not, and others can go on."""
    steps = (
        "card.set_mode(1)",
        "card.create('3g.20gb', 4, (2, 1))",
        "card.destroy(2)",
    )
    after = [(), (), ("3g.20gb", 4, ()), ("3g.20gb", 4, (2,)), ("3g.20gb", 4, (2, 1)), ("3g.20gb", 4, (2,))]
    machine.die_at(point)
    child = started(new_child, machine)
    child.start("; ".join(steps))
    assert child.end() == -signal.SIGKILL
    assert machine.mig.points() == point
    done = point // 2
    assert len(machine.mig.changes()) == done
    assert layout(machine) == ((after[done],) if after[done] else ())
    assert attempt(started(new_child, machine), "modes") == ([1, 1] if done else [0, 0])


@pytest.mark.parametrize("place", [pytest.param(place, id=place) for place in ("setmig", "setmig+")])
def test_a_question_can_kill(new_child: NewChild, machine: FakeMachine, place: str) -> None:
    """By its name, before the change or after it."""
    machine.kill(place, gpu=0)
    child = started(new_child, machine)
    child.start("card.set_mode(1)")
    assert child.end() == -signal.SIGKILL
    assert machine.mig.gpu(machine.uuid(0)).mode == int(place.endswith("+"))
