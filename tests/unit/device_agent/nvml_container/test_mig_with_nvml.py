"""Changing MIG through the container's socket, with the real pynvml, on the test library (tests/nvml)."""

import os
import signal
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path
from typing import Any

import pytest

from device_agent.boot import seconds_since_boot
from device_agent.gpu_state.mig_change import DONE, FAILED, IN_USE, RESET_REQUIRED, MigChange, NewInstance
from device_agent.gpu_state.requests import LOOK
from device_agent.gpu_state.state import OK, CardState, GpuInstanceState, MigChanged, State
from tests.nvml.machine import FakeMachine
from tests.nvml.mig_file import Gi, MigGpu
from tests.nvml.models import A100_40
from tests.unit.device_agent.nvml_container.running import Client, WithNvml, wait_for

ALL_BALANCED = (
    NewInstance("3g.20gb", 4, (3,)),
    NewInstance("2g.10gb", 0, (2,)),
    NewInstance("1g.5gb", 2, (1,)),
    NewInstance("1g.5gb", 3, (1,)),
)
BALANCED = tuple(sorted((one.profile, one.start, one.compute) for one in ALL_BALANCED))


@pytest.fixture
def machine(tmp_path: Path) -> FakeMachine:
    """Make a machine of two GPUs, whose MIG may be changed."""
    return FakeMachine(tmp_path / "machine", A100_40, 2, changes_mig=True)


class Node:
    """The container's processes, and a client that follows its state."""

    def __init__(self, running: WithNvml, machine: FakeMachine) -> None:
        self.running = running
        self.machine = machine
        self.client = running.follower()
        self._asked = 0

    def state(self) -> State:
        """Wait for a state of which all was read from now on: the second one, the first was perhaps begun before."""
        return self._read_after(self._read_after(seconds_since_boot()).read_at)

    def _read_after(self, at: float) -> State:
        self.client.ask(LOOK)
        return self.client.state(lambda state: state.status == OK and state.read_at > at)

    def card(self, gpu: int = 0) -> CardState:
        """Return a card as it is said now."""
        return self.state().cards[gpu]

    def ask(self, gpu: int = 0, **changes: Any) -> MigChange:
        """Ask for a change of a card as it is said now; it is in MIG mode then."""
        there = self.card(gpu).gpu_instances
        self._asked += 1
        asked = MigChange(
            id=self._asked,
            card=self.machine.uuid(gpu),
            mode=1,
            destroy=(),
            create=(),
            at=seconds_since_boot(),
            seen=tuple((one.gi, one.profile, one.start) for one in there),
        )._replace(**changes)
        self.client.change(asked)
        return asked

    def answered(self, asked: MigChange) -> tuple[State, MigChanged]:
        """Wait for the answer."""

        def has_it(state: State) -> bool:
            return any(one.id == asked.id for one in state.mig_changes)

        state = self.client.state(has_it)
        return state, next(one for one in state.mig_changes if one.id == asked.id)

    def change(self, gpu: int = 0, **changes: Any) -> tuple[State, MigChanged]:
        """Ask, and wait for the answer."""
        return self.answered(self.ask(gpu, **changes))

    def layout(self, gpu: int = 0) -> tuple[tuple[str, int, tuple[int, ...]], ...]:
        """Return what is there by the library."""
        return self.machine.mig.gpu(self.machine.uuid(gpu)).layout

    def log(self) -> str:
        """Return what was logged."""
        return self.running.log.read_text()


@contextmanager
def node_of(folder: Path, library: Path, machine: FakeMachine, *, may: bool = True, **timing: float) -> Iterator[Node]:
    """Start the processes."""
    environment = {**machine.environment(), **({"DEVICE_AGENT_CHANGES_MIG": "true"} if may else {})}
    with WithNvml(folder, library, environment, **timing) as running:
        yield Node(running, machine)


@pytest.fixture
def node(tmp_path: Path, library: Path, machine: FakeMachine) -> Iterator[Node]:
    """Start the processes, which may change MIG."""
    with node_of(tmp_path, library, machine) as node:
        yield node


def said(card: CardState) -> tuple[tuple[str, int, tuple[int, ...]], ...]:
    """Return what the state says of a card's instances."""
    return tuple(sorted((one.profile, one.start, one.compute) for one in card.gpu_instances))


def test_a_card_says_what_a_plan_needs(node: Node, machine: FakeMachine) -> None:
    """PCI id, both modes, places of instances, also of one that no MIG device shows, and the profiles of the model."""
    assert node.card()[15:] == ("0x20b010de", 0, (), ())
    machine.mig.set(machine.uuid(0), MigGpu(1, 0, (Gi(2, "3g.20gb", 4, (2, 1)), Gi(7, "1g.5gb", 0))))
    card = node.card()
    assert (card.mig_mode, card.mig_pending) == (1, 0)
    assert card.gpu_instances == (
        GpuInstanceState(7, "1g.5gb", 0, 1, ()),
        GpuInstanceState(2, "3g.20gb", 4, 4, (2, 1)),
    )
    assert sorted(one.profile for one in card.instances) == ["1c.3g.20gb", "2c.3g.20gb"]
    names = [(one.name, one.starts, one.size, one.most) for one in card.mig_profiles]
    assert ("2g.10gb", (0, 2, 4), 2, 3) in names
    assert len(names) == len(A100_40.profiles)


def test_a_layout_is_made_and_the_answer_comes_with_the_cards(node: Node, machine: FakeMachine) -> None:
    """Mode and instances, of one card alone; another layout then keeps an instance."""
    machine.set(0, "newminor", 7)
    before = node.card(1)
    state, answer = node.change(create=ALL_BALANCED)
    assert answer == MigChanged(1, machine.uuid(0), DONE, "", answer.at)
    assert state.read_at >= answer.at
    assert (state.cards[0].mig_mode, state.cards[0].mig_pending, state.cards[0].minor) == (1, 1, 7)
    assert said(state.cards[0]) == node.layout() == BALANCED
    assert len(state.cards[0].instances) == len(ALL_BALANCED)
    assert state.cards[1] == before
    kept = next(one for one in state.cards[0].instances if one.profile == "3g.20gb")
    gone = tuple(one.gi for one in state.cards[0].gpu_instances if one.start < 4)
    state, answer = node.change(destroy=gone, create=(NewInstance("4g.20gb", 0, (2, 1, 1)),))
    assert answer.outcome == DONE
    assert said(state.cards[0]) == (("3g.20gb", 4, (3,)), ("4g.20gb", 0, (2, 1, 1)))
    assert kept in state.cards[0].instances
    assert "MIG: creating 4g.20gb at slice 0 with 2+1+1 compute slices of GPU-" in node.log()
    assert f"MIG: change 2 of {machine.uuid(0)}: done\n" in node.log()


def test_cards_are_changed_one_after_the_other(node: Node, machine: FakeMachine) -> None:
    """Whatever is asked for meanwhile; each gets its answer."""
    one = node.ask(create=ALL_BALANCED)
    other = one._replace(id=100, card=machine.uuid(1), at=seconds_since_boot(), seen=())
    node.client.change(other)
    state = node.client.state(lambda state: len(state.mig_changes) == 2)
    assert [(answer.card, answer.outcome) for answer in state.mig_changes] == [
        (machine.uuid(0), DONE),
        (machine.uuid(1), DONE),
    ]
    assert node.layout(0) == node.layout(1) == BALANCED
    cards = [line.split()[1 if line.startswith("mode") else 2] for line in machine.mig.changes()]
    assert cards == sorted(cards), "a change began before the one of the other card had ended"


def test_nothing_is_changed_where_that_is_not_switched_on(tmp_path: Path, library: Path, machine: FakeMachine) -> None:
    """Whoever has the socket; the answer says which flag is missing."""
    with node_of(tmp_path, library, machine, may=False) as node:
        _, answer = node.change(create=ALL_BALANCED)
        assert answer.outcome == FAILED
        assert "without --changes-mig=true" in answer.why
        assert machine.mig.changes() == []


@pytest.mark.parametrize(
    ("changes", "why"),
    [
        pytest.param({"at": 0.0}, "s old: nothing was done", id="an old request"),
        pytest.param({"seen": ((7, "1g.5gb", 1),)}, "has other GPU instances than were seen", id="another card"),
        pytest.param({"card": "GPU-of-another-node"}, "MIG mode of GPU-of-another-node cannot be read", id="no card"),
        pytest.param({"mode": 0}, "cannot be disabled with GPU instance 11", id="an instance in the way"),
    ],
)
def test_a_request_that_does_not_fit_the_card_changes_nothing(
    node: Node, machine: FakeMachine, changes: dict[str, Any], why: str
) -> None:
    """The answer says why."""
    machine.mig.set(machine.uuid(0), MigGpu(1, 1, (Gi(11, "1g.5gb", 4, (1,)),)))
    _, answer = node.change(**changes)
    assert answer.outcome == FAILED
    assert why in answer.why
    assert machine.mig.changes() == []


def test_who_is_in_the_way_and_what_wants_a_reset_is_said(node: Node, machine: FakeMachine) -> None:
    """By outcomes of their own; after the boot it goes on."""
    machine.add_process(0, 4242, 2**20)
    state, answer = node.change(create=ALL_BALANCED)
    assert answer.outcome == IN_USE
    assert "end the programs" in answer.why or "other programs use the GPU" in answer.why
    assert (state.cards[0].mig_mode, state.cards[0].mig_pending) == (0, 1)
    machine.remove_process(0, 4242)
    machine.switch_wants_reset(0)
    state, answer = node.change(create=ALL_BALANCED)
    assert answer.outcome == RESET_REQUIRED
    assert (state.cards[0].mig_mode, state.cards[0].mig_pending) == (0, 1)
    machine.boot()
    state, answer = node.change(create=ALL_BALANCED)
    assert answer.outcome == DONE
    assert said(state.cards[0]) == BALANCED


def test_an_instance_that_is_used_is_not_destroyed(node: Node, machine: FakeMachine) -> None:
    """And those after it stay as well."""
    machine.mig.set(
        machine.uuid(0), MigGpu(1, 1, (Gi(3, "2g.10gb", 0, (2,), ("MIG-1",)), Gi(11, "1g.5gb", 4, (1,), ("MIG-2",))))
    )
    machine.add_process(0, 4242, 2**20, mig="MIG-1")
    before = node.layout()
    state, answer = node.change(destroy=(3, 11), create=ALL_BALANCED)
    assert answer.outcome == IN_USE
    assert "GPU instance 3 of" in answer.why
    assert said(state.cards[0]) == node.layout() == before


def test_a_part_that_does_not_fit_is_said_with_what_is_there(node: Node) -> None:
    """What was made before it stays."""
    create = (NewInstance("3g.20gb", 0, (3,)), NewInstance("2g.10gb", 2, (2,)))
    state, answer = node.change(create=create)
    assert answer.outcome == FAILED
    assert "2g.10gb at slice 2 of" in answer.why
    assert said(state.cards[0]) == (("3g.20gb", 0, (3,)),)


def test_a_change_that_hangs_is_killed_and_the_cards_say_what_is_there(
    tmp_path: Path, library: Path, machine: FakeMachine
) -> None:
    """As other questions are. It gets no answer, and is not tried again by itself."""
    machine.hang("createci", gpu=0)
    with node_of(tmp_path, library, machine, silence=2.0) as node:
        node.ask(create=ALL_BALANCED)
        node.client.state(lambda state: "was killed" in state.reason)
        machine.heal()
        state = node.client.state(lambda state: state.status == OK)
        assert state.mig_changes == ()
        assert said(state.cards[0]) == node.layout() == (("3g.20gb", 4, ()),)
        lost = tuple(one.gi for one in state.cards[0].gpu_instances)
        state, answer = node.change(destroy=lost, create=ALL_BALANCED)
        assert answer.outcome == DONE
        assert said(state.cards[0]) == BALANCED


@pytest.mark.parametrize("point", [pytest.param(point, id=f"point {point}") for point in (1, 2, 3, 6, 11)])
def test_a_child_that_dies_in_between_gives_no_answer(
    tmp_path: Path, library: Path, machine: FakeMachine, point: int
) -> None:
    """The next one says what is there, and changes it when it is asked again."""
    machine.die_at(point)
    with node_of(tmp_path, library, machine) as node:
        node.ask(create=ALL_BALANCED)
        wait_for(lambda: machine.mig.points() >= point, "the death")
        state = node.state()
        assert state.mig_changes == ()
        assert said(state.cards[0]) == node.layout()
        assert len(machine.mig.changes()) == point // 2
        there = tuple(one.gi for one in state.cards[0].gpu_instances)
        state, answer = node.change(destroy=there, create=ALL_BALANCED)
        assert answer.outcome == DONE
        assert said(state.cards[0]) == BALANCED


def test_the_end_of_the_container_leaves_a_whole_step(tmp_path: Path, library: Path, machine: FakeMachine) -> None:
    """SIGKILL of both in the middle; the next ones go on from what the cards say."""
    machine.hang("creategi", gpu=0)
    with node_of(tmp_path, library, machine) as node:
        node.ask(create=ALL_BALANCED)
        wait_for(lambda: machine.mig.gpu(machine.uuid(0)).mode == 1, "the mode")
        os.kill(node.running.child(), signal.SIGKILL)
        node.running.process.kill()
        node.running.process.wait()
    machine.heal()
    with node_of(tmp_path, library, machine) as node:
        card = node.card()
        assert (card.mig_mode, card.gpu_instances) == (1, ())
        assert node.change(create=ALL_BALANCED)[1].outcome == DONE


def test_a_client_that_asks_for_nonsense_is_dropped(node: Node, machine: FakeMachine) -> None:
    """Nothing is done, and others are served on."""
    client: Client = node.running.client()
    client.change(MigChange(1, machine.uuid(0), 0, (), ALL_BALANCED, seconds_since_boot(), ()))
    assert b"create has instances although" in client.line()
    assert client.has_ended()
    assert node.change(create=ALL_BALANCED)[1].outcome == DONE
