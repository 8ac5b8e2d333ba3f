"""What the state is after something has happened."""

import pytest

from device_agent.gpu_state.mig_change import DONE, IN_USE
from device_agent.gpu_state.state import (
    ABSENT,
    FAILED,
    MOST_CARDS,
    MOST_XIDS,
    OK,
    CardState,
    MigChanged,
    NodeState,
    State,
    XidEvent,
)
from device_agent.gpu_state.use import MOST_XID_COUNTS, XidCount
from device_agent.nvml_container.following import (
    after_failure,
    after_load,
    after_look,
    after_xid,
    count_xid,
    differ,
    is_news,
    pause,
    with_known,
)
from device_agent.nvml_container.messages import Look, XidSeen
from device_agent.nvml_container.settings import Timing
from tests.unit.device_agent.gpu_state.examples import CARD, STATE

A, B, C = (CARD._replace(index=n, uuid=f"GPU-{n}", pci=f"0000:{n}b:00.0", minor=n) for n in range(3))
NODE = NodeState("/dev/nvidia0", 195, 0)


def lost(index: int, uuid: str = "") -> CardState:
    """Make a card that cannot be read."""
    return CardState(index, uuid=uuid, why="lost", error=15)


def known(card: CardState) -> CardState:
    """Make a card that cannot be read, with what was known of it."""
    return card._replace(why="lost", error=15, recovery_action=None)


@pytest.mark.parametrize(
    ("before", "now", "expected"),
    [
        pytest.param((A, B, C), (A, lost(1), C), (A, known(B), C), id="one is lost"),
        pytest.param((A, known(B), C), (A, lost(1), C), (A, known(B), C), id="one stays lost"),
        pytest.param((A, known(B), C), (A, B, C), (A, B, C), id="one is back"),
        pytest.param((A, B, C), (lost(0), lost(1), C), (known(A), known(B), C), id="two are lost"),
        pytest.param((A, B), (lost(0), lost(1)), (known(A), known(B)), id="all are lost"),
        pytest.param((A, B, C), (A, lost(1, "GPU-1"), C), (A, known(B), C), id="one that says its UUID"),
        pytest.param((A, B), (A, lost(1, "GPU-9")), (A, lost(1, "GPU-9")), id="a stranger that says its UUID"),
        pytest.param((A, B, C), (A, lost(1)), (A, lost(1)), id="another count"),
        pytest.param(
            (A, B, C),
            (A, C._replace(index=1), lost(2)),
            (A, C._replace(index=1), lost(2)),
            id="another card has its index",
        ),
        pytest.param((A, B), (lost(0), A._replace(index=1)), (lost(0), A._replace(index=1)), id="all have moved"),
        pytest.param((), (lost(0),), (lost(0),), id="nothing was known"),
        pytest.param((lost(0), B), (lost(0), B), (lost(0), B), id="that one was never known"),
    ],
)
def test_a_lost_card_keeps_what_was_known_of_it_when_it_can_be_no_other(
    before: tuple[CardState, ...], now: tuple[CardState, ...], expected: tuple[CardState, ...]
) -> None:
    """By its index, as long as each card that can be read has its own."""
    assert with_known(now, before) == expected


def test_an_inventory_is_the_state() -> None:
    """The session, the boot and the events stay."""
    look = Look(OK, driver="560.1", cards=(A,), nodes=(NODE,))
    expected = STATE._replace(status=OK, driver="560.1", cards=(A,), nodes=(NODE,), read_at=7.0)
    assert after_look(STATE._replace(status=FAILED, reason="x"), look, 7.0) == expected


def test_an_absent_driver_has_no_cards() -> None:
    """What was known of them is forgotten."""
    state = after_look(STATE, Look(ABSENT, "no library"), 7.0)
    assert (state.status, state.reason, state.driver, state.cards, state.nodes) == (ABSENT, "no library", "", (), ())
    assert state.xids == STATE.xids


def test_an_inventory_that_failed_leaves_the_cards() -> None:
    """Its reason and its device nodes count; nothing was read."""
    state = after_look(STATE, Look(FAILED, "versions differ", nodes=(NODE,)), 7.0)
    assert state == STATE._replace(status=FAILED, reason="versions differ", nodes=(NODE,))


def test_without_an_inventory_all_but_the_status_stays() -> None:
    """Cards, device nodes and events are those of before."""
    assert after_failure(STATE, "killed") == STATE._replace(status=FAILED, reason="killed")


@pytest.mark.parametrize(
    ("load", "expected"),
    [
        pytest.param(STATE.load, STATE, id="the same"),
        pytest.param("9", STATE._replace(load="9", cards=(), nodes=(), read_at=0.0), id="another one"),
        pytest.param("", STATE._replace(load="", cards=(), nodes=()), id="unloaded"),
    ],
)
def test_cards_and_their_device_nodes_are_those_of_one_load(load: str, expected: State) -> None:
    """Minors and majors may be others after it."""
    assert after_load(STATE, load) == expected


def test_the_last_events_are_kept_and_counted_on() -> None:
    """More than are kept."""
    state = State("session")
    for at in range(MOST_XIDS + 5):
        state = after_xid(state, XidSeen("GPU-1", at, 7, 0), float(at))
    assert [event.number for event in state.xids] == list(range(6, MOST_XIDS + 6))
    assert state.xids[-1] == (MOST_XIDS + 5, MOST_XIDS + 4.0, "GPU-1", MOST_XIDS + 4, 7, 0)


def test_a_storm_of_one_kind_pushes_no_other_event_out() -> None:
    """The last one of each kind is kept, with its own number and time."""
    state = after_xid(State("session"), XidSeen("GPU-0", 79), 0.0)
    for at in range(1, MOST_XIDS + 5):
        state = after_xid(state, XidSeen("GPU-1", 31, 7, 0), float(at))
    last = MOST_XIDS + 4
    assert state.xids == (XidEvent(1, 0.0, "GPU-0", 79), XidEvent(last + 1, float(last), "GPU-1", 31, 7, 0))


@pytest.mark.parametrize(
    ("seen", "at", "expected"),
    [
        pytest.param(XidSeen("GPU-1", 31), 15.0, False, id="the same"),
        pytest.param(XidSeen("GPU-1", 31), 70.0, True, id="the same after a minute"),
        pytest.param(XidSeen("GPU-1", 79), 15.0, True, id="another number"),
        pytest.param(XidSeen("GPU-0", 31), 15.0, True, id="another card"),
        pytest.param(XidSeen("GPU-1", 31, 7, 0), 15.0, True, id="of an instance"),
    ],
)
def test_an_event_is_news_when_there_was_none_of_its_kind(seen: XidSeen, at: float, *, expected: bool) -> None:
    """For a minute."""
    assert is_news(after_xid(State("session"), XidSeen("GPU-1", 31), 10.0), seen, at) == expected


@pytest.mark.parametrize(
    ("status", "load", "failures", "seconds"),
    [
        pytest.param(FAILED, "1", 1, 1.0, id="first failure"),
        pytest.param(FAILED, "1", 2, 2.0, id="second failure"),
        pytest.param(FAILED, "1", 5, 16.0, id="fifth failure"),
        pytest.param(FAILED, "1", 6, 30.0, id="sixth failure"),
        pytest.param(FAILED, "1", 10**9, 30.0, id="failures without end"),
        pytest.param(FAILED, "1", 0, 1.0, id="not counted yet"),
        pytest.param(ABSENT, "1", 0, 10.0, id="absent with a module"),
        pytest.param(ABSENT, "", 7, 60.0, id="absent without a module"),
        pytest.param(OK, "1", 0, 1.0, id="ended without a reason"),
    ],
)
def test_the_pause_before_the_next_child(status: str, load: str, failures: int, seconds: float) -> None:
    """From 1 s to 30 s after failures; a node without a driver is asked seldom."""
    assert pause(State("session", status=status, load=load), failures, Timing()) == seconds


def test_without_a_driver_the_next_child_starts_at_once_while_use_is_followed() -> None:
    """The one before has waited itself, and has looked at the cards of other drivers meanwhile."""
    state = State("session", status=ABSENT)
    assert pause(state, 0, Timing(), is_used=True) == 1.0
    assert pause(state._replace(status=FAILED), 4, Timing(), is_used=True) == 8.0


def test_xid_events_are_counted_by_card_and_number_and_the_last_one_is_last() -> None:
    """Whatever instance they are about."""
    counts: tuple[XidCount, ...] = ()
    for seen in (XidSeen("A", 31), XidSeen("A", 79), XidSeen("B", 31), XidSeen("A", 31, 7, 0), XidSeen("", 31)):
        counts = count_xid(counts, seen)
    assert counts == (XidCount("A", 79, 1), XidCount("B", 31, 1), XidCount("A", 31, 2), XidCount("", 31, 1))


def test_of_too_many_kinds_the_oldest_are_forgotten() -> None:
    """A driver that reports nonsense needs no memory."""
    counts: tuple[XidCount, ...] = ()
    for number in range(MOST_XID_COUNTS + 5):
        counts = count_xid(counts, XidSeen("A", number))
    assert [counts[0].xid, counts[-1].xid, len(counts)] == [5, MOST_XID_COUNTS + 4, MOST_XID_COUNTS]


def answer(number: int, card: str, outcome: str = DONE) -> MigChanged:
    """Make the answer to a change of MIG."""
    return MigChanged(number, card, outcome, "", float(number))


def test_of_each_card_the_last_answer_is_kept() -> None:
    """The last one last, beside the cards that were read after it; an inventory that failed brings none."""
    state = after_look(STATE._replace(mig_changes=()), Look(OK, cards=(A,), mig_changes=(answer(1, "GPU-0"),)), 20.0)
    assert (state.cards, state.mig_changes) == ((A,), (answer(1, "GPU-0"),))
    state = after_look(state, Look(OK, cards=(A,), mig_changes=(answer(2, "GPU-1"), answer(3, "GPU-2"))), 21.0)
    state = after_look(state, Look(OK, cards=(A,), mig_changes=(answer(4, "GPU-1", IN_USE),)), 22.0)
    assert state.mig_changes == (answer(1, "GPU-0"), answer(3, "GPU-2"), answer(4, "GPU-1", IN_USE))
    assert after_look(state, Look(OK, cards=(A,)), 23.0).mig_changes == state.mig_changes
    assert after_look(state, Look(FAILED, "no", mig_changes=(answer(5, "GPU-0"),)), 24.0).mig_changes == (
        state.mig_changes
    )
    many = tuple(answer(number, f"GPU-{number}") for number in range(1, MOST_CARDS + 9))
    assert after_look(state, Look(OK, mig_changes=many), 25.0).mig_changes == many[-MOST_CARDS:]


def test_an_answer_is_news() -> None:
    """It is sent at once, also where the cards are as before."""
    assert differ(STATE, STATE._replace(mig_changes=(answer(9, "GPU-1", IN_USE),)))
