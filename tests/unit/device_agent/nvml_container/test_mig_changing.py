"""Changing MIG of a card as a request says, on a card that only remembers what was done to it."""

from collections.abc import Callable, Mapping, Sequence

import pytest

from device_agent.boot import seconds_since_boot
from device_agent.gpu_state.mig_change import DONE, FAILED, IN_USE, RESET_REQUIRED, MigChange, NewInstance
from device_agent.gpu_state.state import MigChanged
from device_agent.nvml_container.mig_changing import change_mig
from nvml_inventory.errors import MigInUse, MigUnchanged, MigWantsReset
from nvml_inventory.values import GpuInstance

CARD = "GPU-1"
TWO, ONE = GpuInstance(3, "2g.10gb", 0, 2), GpuInstance(13, "1g.5gb", 6, 1)
SEEN = tuple((one.gi, one.profile, one.start) for one in (ONE, TWO))
BIG = NewInstance("3g.20gb", 4, (2, 1))


class Remembering:
    """A card that notes each step, until one is refused."""

    def __init__(
        self, modes: tuple[int, int] = (1, 1), there: Sequence[GpuInstance] = (), refuses: Mapping[str, Exception] = {}
    ) -> None:
        self.done: list[object] = []
        self._modes = modes
        self._there = there
        self._refuses = refuses

    def modes(self) -> tuple[int, int]:
        """Say modes."""
        self._refuse("modes")
        return self._modes

    def instances(self) -> Sequence[GpuInstance]:
        """Say what is there."""
        self._refuse("instances")
        return self._there

    def set_mode(self, mode: int) -> None:
        """Note a switch."""
        self._note("mode", mode)

    def destroy(self, gi: int) -> None:
        """Note what was destroyed."""
        self._note("destroy", gi)

    def create(self, profile: str, start: int, compute: Sequence[int]) -> None:
        """Note what was created."""
        self._note("create", (profile, start, compute))

    def _note(self, what: str, detail: object) -> None:
        self._refuse(what)
        self.done.append((what, detail))

    def _refuse(self, what: str) -> None:
        if what in self._refuses:
            raise self._refuses[what]


def asked(
    mode: int = 1,
    destroy: tuple[int, ...] = (),
    create: tuple[NewInstance, ...] = (),
    seen: tuple[tuple[int, str, int], ...] = (),
    age: float = 1.0,
) -> MigChange:
    """Make a request; ``at`` is as of when it is sent."""
    return MigChange(7, CARD, mode, destroy, create, -age, seen)


def change(card: Remembering, request: MigChange, begins: Callable[[str], None] = lambda _: None) -> MigChanged:
    """Have a card changed; returns the answer."""
    before = seconds_since_boot()
    answer = change_mig(request._replace(at=before + request.at), begins, lambda _: card)
    assert before <= answer.at <= seconds_since_boot()
    assert (answer.id, answer.card) == (7, CARD)
    return answer


def test_first_instances_go_then_the_mode_switches_then_others_come() -> None:
    """And each step is named before it begins."""
    card, steps = Remembering((0, 0)), list[str]()
    answer = change(card, asked(create=(BIG, NewInstance("1g.5gb", 0, ()))), steps.append)
    assert (answer.outcome, answer.why) == (DONE, "")
    assert card.done == [("mode", 1), ("create", ("3g.20gb", 4, (2, 1))), ("create", ("1g.5gb", 0, ()))]
    assert steps == [
        "enabling MIG mode of GPU-1, for change 7",
        "creating 3g.20gb at slice 4 with 2+1 compute slices of GPU-1, for change 7",
        "creating 1g.5gb at slice 0 of GPU-1, for change 7",
    ]
    card = Remembering(there=(ONE, TWO))
    assert change(card, asked(0, (13, 3), seen=SEEN), steps.append).outcome == DONE
    assert card.done == [("destroy", 13), ("destroy", 3), ("mode", 0)]
    assert steps[3] == "destroying GPU instance 13 (1g.5gb at slice 6) of GPU-1, for change 7"


@pytest.mark.parametrize(
    ("modes", "mode", "switches"),
    [
        pytest.param((0, 0), 0, False, id="off as asked"),
        pytest.param((1, 1), 1, False, id="on as asked"),
        pytest.param((0, 1), 0, True, id="a pending switch is taken back"),
        pytest.param((1, 0), 1, True, id="another one as well"),
        pytest.param((0, 1), 1, True, id="one that others kept from being done is tried again"),
    ],
)
def test_the_mode_is_set_where_it_or_the_pending_one_differs(modes: tuple[int, int], mode: int, switches: bool) -> None:
    """A switch resets the GPU: not without need."""
    card = Remembering(modes)
    assert change(card, asked(mode)).outcome == DONE
    assert card.done == ([("mode", mode)] if switches else [])


@pytest.mark.parametrize(
    ("card", "request_", "why"),
    [
        pytest.param(Remembering(), asked(age=11.0), "the request is 11 s old", id="an old request"),
        pytest.param(Remembering(), asked(age=-60.0), "the request is -60 s old", id="of another boot"),
        pytest.param(
            Remembering(there=(ONE, TWO)), asked(destroy=(3,), seen=SEEN[1:]),
            "other GPU instances than were seen: GPU instance 13 (1g.5gb at slice 6), GPU instance 3", id="one more",
        ),
        pytest.param(
            Remembering(), asked(destroy=(3,), seen=SEEN), "than were seen: no GPU instance;", id="none is left"
        ),
        pytest.param(
            Remembering(there=(ONE._replace(start=5), TWO)), asked(destroy=(3,), seen=SEEN),
            "other GPU instances", id="another place",
        ),
        pytest.param(
            Remembering(there=(ONE, TWO)), asked(0, (3,), seen=SEEN),
            "cannot be disabled with GPU instance 13", id="an instance in the way of the mode",
        ),
        pytest.param(
            Remembering(refuses={"instances": MigUnchanged("cannot be read")}), asked(create=(BIG,)),
            "cannot be read", id="instances that NVML does not say",
        ),
        pytest.param(
            Remembering(refuses={"modes": MigUnchanged("Not Supported")}), asked(create=(BIG,)),
            "Not Supported", id="a card without MIG",
        ),
    ],
)  # fmt: skip
def test_nothing_is_done_to_a_card_that_is_not_as_it_was_seen(card: Remembering, request_: MigChange, why: str) -> None:
    """Not even what could be done. The reason says what is there."""
    answer = change(card, request_)
    assert answer.outcome == FAILED
    assert why in answer.why
    assert card.done == []


@pytest.mark.parametrize(
    ("step", "error", "outcome", "done"),
    [
        pytest.param("destroy", MigInUse("used\n"), IN_USE, [], id="an instance is in use"),
        pytest.param("destroy", MigUnchanged("no"), FAILED, [], id="one cannot be destroyed"),
        pytest.param("mode", MigInUse("used\n"), IN_USE, [("destroy", 13)], id="the card is in use"),
        pytest.param("mode", MigWantsReset("reset"), RESET_REQUIRED, [("destroy", 13)], id="the card wants a reset"),
        pytest.param("create", MigUnchanged("no room"), FAILED, [("destroy", 13), ("mode", 1)], id="no room"),
    ],
)
def test_an_error_ends_it_there(step: str, error: Exception, outcome: str, done: list[object]) -> None:
    """What was done stays done; the reason is one printable line."""
    card = Remembering((1, 0), (ONE, TWO), {step: error})
    answer = change(card, asked(1, (13,), (BIG,), SEEN))
    assert answer.outcome == outcome
    assert answer.why
    assert answer.why.isprintable()
    assert card.done == done


def test_an_error_that_is_none_of_ours_is_no_answer() -> None:
    """The process ends with it, and the cards say what is there."""
    with pytest.raises(ZeroDivisionError):
        change(Remembering(refuses={"modes": ZeroDivisionError()}), asked())
