"""Errors are held against GPUs until a reading shows that they are over."""

from collections.abc import Sequence

import pytest
from hypothesis import given
from hypothesis import strategies as st

from device_agent.config.options import ALL_XIDS
from device_agent.gpu_state.state import FAILED, CardState, State, XidEvent
from device_agent.sources.nvidia.health import (
    ANSWER_SECONDS,
    LOST,
    RESET_XIDS,
    USUAL,
    USUALLY_IGNORED,
    Rules,
    Verdict,
    judged,
    new_events,
    why_unhealthy,
)
from tests.unit.device_agent.nvidia.states import BOOT, LOAD, card, lost, split, state, uuid, xid

OLD = {"recovery_action": None}
"""Of a driver that does not know whether a GPU has to be recovered."""


def held(*verdicts: Verdict, said: State, events: Sequence[XidEvent] = (), rules: Rules = USUAL) -> tuple[Verdict, ...]:
    """Judge by a state whose GPUs are all known."""
    return judged(verdicts, said, events, said.cards, rules)


def verdict(code: int = 79, of: int = 0, at: float = 101.0, **fields: object) -> Verdict:
    """Make a verdict of this boot and load."""
    return Verdict(**{"uuid": uuid(of), "xid": code, "at": at, "boot": BOOT, "load": LOAD, **fields})  # type: ignore[arg-type]


@pytest.mark.parametrize("code", sorted(USUALLY_IGNORED))
def test_errors_of_programs_change_no_health(code: int) -> None:
    """The GPU is well."""
    assert held(said=state(), events=[xid(1, code)]) == ()


@pytest.mark.parametrize(
    ("ignored", "counted", "code", "does"),
    [
        pytest.param((), (), 79, True, id="usually"),
        pytest.param((79,), (), 79, False, id="ignored"),
        pytest.param((79,), (), 48, True, id="another one ignored"),
        pytest.param((ALL_XIDS,), (), 79, False, id="all ignored"),
        pytest.param((), (31,), 31, True, id="counted though it is usually ignored"),
        pytest.param((79,), (79,), 79, True, id="both"),
        pytest.param((ALL_XIDS,), (48,), 48, True, id="one counted of all that are ignored"),
        pytest.param((ALL_XIDS,), (48,), 79, False, id="the others of all that are ignored"),
        pytest.param((79,), (ALL_XIDS,), 13, True, id="all counted"),
    ],
)
def test_an_admin_chooses_which_errors_count(
    ignored: tuple[int, ...], counted: tuple[int, ...], code: int, does: bool
) -> None:
    """As with NVIDIA's device plugin: what is counted overrides what is ignored."""
    rules = Rules(ignored=frozenset(ignored), counted=frozenset(counted))
    assert bool(held(said=state(), events=[xid(1, code)], rules=rules)) is does
    assert bool(held(verdict(code), said=state(at=102.0), rules=rules)) is does


def test_an_error_takes_its_gpu_and_all_instances() -> None:
    """And no other GPU."""
    found = held(said=state(split(0, "1g.5gb", "1g.5gb"), card(1)), events=[xid(1, 79)])
    one = split(0, "1g.5gb", "1g.5gb")
    assert [bool(why_unhealthy(one, found, USUAL, (gi, 0))) for gi in (1, 2)] == [True, True]
    assert why_unhealthy(card(1), found, USUAL) == ""


def test_an_error_of_an_instance_takes_that_one() -> None:
    """And the GPU, where it is given as a whole."""
    one = split(0, "1g.5gb", "1g.5gb")
    found = held(said=state(one), events=[xid(1, 94, gi=2, ci=0)])
    assert [why_unhealthy(one, found, USUAL, (gi, 0)) for gi in (1, 2)] == [
        "",
        "Xid 94: it is given again when it has answered for 30 s",
    ]
    assert why_unhealthy(one, found, USUAL).startswith("Xid 94")
    assert why_unhealthy(split(0, "1g.5gb", recovery_action=1), found, USUAL, (1, 0)) == ""


def test_an_error_of_an_unknown_gpu_takes_all() -> None:
    """None is known to be spared."""
    found = held(said=state(), events=[xid(1, 79, uuid="")])
    assert {one.uuid for one in found} == {uuid(number) for number in range(4)}


def test_an_error_of_a_gpu_that_is_not_known_yet_is_held() -> None:
    """It counts once: the GPU may be read later. Of how many, is bounded."""
    failed = state(status=FAILED, reason="NVML hangs")
    found = judged((), failed, [xid(1, 79, of=9)], (), USUAL)
    assert why_unhealthy(card(9), held(*found, said=state(card(9), at=102.0)), USUAL).startswith("Xid 79")
    many = [xid(number, 79, of=number) for number in range(4, 500)]
    assert len(held(said=state(), events=[*many, xid(500, 79, of=0)])) == 64 + 1


def test_more_instances_than_a_gpu_has_are_the_gpu() -> None:
    """What is kept is bounded, and nothing is given that was not."""
    said = state(split(0, "1g.5gb"))
    found = held(said=said, events=[xid(number, 94, gi=number, ci=0) for number in range(1, 500)])
    assert len(found) < 70
    assert any(one.gi is None for one in found)


def test_a_gpu_is_given_again_when_it_has_answered_twice() -> None:
    """Thirty seconds apart, and nothing is to be done: what was read before the error is no answer."""
    found = held(said=state(at=100.0), events=[xid(1, 79, at=101.0)])
    for at, is_held in [(100.0, True), (102.0, True), (131.0, True), (131.0, True), (132.0, False)]:
        found = held(*found, said=state(at=at))
        assert bool(found) is is_held, at


@pytest.mark.parametrize(
    "between",
    [
        pytest.param(state(lost(0, uuid="GPU-0"), at=120.0), id="lost"),
        pytest.param(state(card(0, recovery_action=1), at=120.0), id="an action is asked for"),
        pytest.param(state(card(1), at=120.0), id="not listed"),
    ],
)
def test_the_two_answers_have_nothing_bad_between_them(between: State) -> None:
    """It begins again."""
    found = held(verdict(), said=state(at=110.0))
    found = judged(found, between, (), between.cards, USUAL)
    found = held(*found, said=state(at=141.0))
    assert found
    assert held(*found, said=state(at=171.0)) == ()


@pytest.mark.parametrize("code", [79, 94])
def test_silence_between_two_answers_begins_again(code: int) -> None:
    """However old the error is: the driver knows of recovery, and did not say that nothing is to be done."""
    found = held(verdict(code), said=state(at=990.0))
    found = held(*found, said=state(card(0, **OLD), at=1000.0))
    assert why_unhealthy(card(0, **OLD), found, USUAL).endswith("when the driver says that it asks for nothing")
    found = held(*found, said=state(at=1025.0))
    assert found
    assert held(*found, said=state(at=1055.0)) == ()


def test_an_error_between_two_answers_begins_again() -> None:
    """The same one or another one."""
    found = held(verdict(), said=state(at=110.0))
    found = held(*found, said=state(at=135.0), events=[xid(2, 48, at=130.0)])
    assert held(*found, said=state(at=141.0)) != ()
    assert held(*found, said=state(at=165.0)) == ()


@pytest.mark.parametrize("code", sorted(RESET_XIDS))
def test_without_an_action_an_error_that_wants_a_reset_holds(code: int) -> None:
    """Until the next boot or load of the driver, whatever it answers."""
    found = held(said=state(card(0, **OLD)), events=[xid(1, code)])
    found = held(*found, said=state(card(0, **OLD), at=1e9))
    assert len(found) == 1
    assert held(*found, said=state(card(0, **OLD), at=1.0, boot="boot-2")) == ()
    assert held(*found, said=state(card(0, **OLD), at=1e9, load="101")) == ()
    assert held(*found, said=state(card(0, **OLD), at=1e9, load="", boot="", status=FAILED)) != ()


def test_without_an_action_another_error_holds_for_a_while() -> None:
    """From the last one on, and a reading has to come after it."""
    rules = Rules(hold_seconds=60.0)
    found = held(said=state(card(0, **OLD)), events=[xid(1, 94, at=101.0), xid(2, 94, at=130.0)], rules=rules)
    assert held(*found, said=state(card(0, **OLD), at=189.0), rules=rules) != ()
    assert held(*found, said=state(card(0, **OLD), at=190.0), rules=rules) == ()


def test_an_error_that_wants_a_reset_is_not_replaced_by_a_lesser_one() -> None:
    """In either order."""
    for codes in ((48, 94), (94, 48)):
        events = [xid(number, code, at=100.0 + number) for number, code in enumerate(codes, 1)]
        (found,) = held(said=state(card(0, **OLD)), events=events)
        assert (found.xid, found.at) == (48, 102.0)


@pytest.mark.parametrize("action", [0, None], ids=["with an action", "without"])
def test_a_lost_gpu_that_comes_back_is_given_by_the_same_rule(action: int | None) -> None:
    """From its return on."""
    well, rules = card(0, recovery_action=action), Rules(hold_seconds=30.0)
    found = held(said=state(lost(0, uuid="GPU-0"), at=100.0), rules=rules)
    assert [(one.xid, one.is_away) for one in found] == [(LOST, True)]
    found = held(*found, said=state(lost(0, uuid="GPU-0"), at=500.0), rules=rules)
    found = held(*found, said=state(well, at=510.0), rules=rules)
    found = held(*found, said=state(well, at=539.0), rules=rules)
    assert found
    assert held(*found, said=state(well, at=540.0), rules=rules) == ()


def test_while_nothing_is_read_nothing_is_forgiven() -> None:
    """And what is reported meanwhile is held."""
    failed = state(at=1000.0, status=FAILED, reason="NVML hangs")
    before = (verdict(good_since=102.0),)
    assert held(*before, said=failed) == before
    assert len(held(*before, said=failed, events=[xid(2, 79, of=1)])) == 2


@pytest.mark.parametrize(
    ("one", "verdicts", "why"),
    [
        pytest.param(card(0), [], "", id="well"),
        pytest.param(card(0, why="GPU is lost"), [], "GPU is lost", id="lost"),
        pytest.param(card(0, why="GPU is lost"), [verdict(LOST)], "GPU is lost", id="lost, and held"),
        pytest.param(card(0, why="GPU is lost"), [verdict()], "GPU is lost, after Xid 79", id="lost after an Xid"),
        pytest.param(card(0), [verdict(LOST)], "it was lost: it is given again when it has answered for 30 s",
                     id="back"),
        pytest.param(card(0, recovery_action=1), [verdict()],
                     "Xid 79: the driver asks for recovery action 1 (reset the GPU)", id="an action"),
        pytest.param(card(0, recovery_action=99), [verdict()],
                     "Xid 79: the driver asks for recovery action 99 (unknown)", id="a new action"),
        pytest.param(card(0, **OLD), [verdict()],
                     "Xid 79: it is given again after the next boot or load of the driver", id="a reset"),
        pytest.param(card(0, **OLD), [verdict(94)], "Xid 94: it is given again 600 s after the last error",
                     id="a while"),
        pytest.param(card(0, recovery_action=2), [], "the driver asks for recovery action 2 (reboot the node)",
                     id="an action for an error that nobody saw"),
        pytest.param(card(0, row_remap_failed=True), [],
                     "row remap failed: its memory is broken and has no spare rows left; replace it", id="rows"),
        pytest.param(card(0, fabric="it is in progress"), [],
                     "the fabric of NVSwitch is not ready for it: it is in progress", id="fabric"),
        pytest.param(card(1), [verdict()], "", id="another GPU's error"),
    ],
)  # fmt: skip
def test_each_reason_has_its_words(one: CardState, verdicts: list[Verdict], why: str) -> None:
    """An admin reads what is wrong and what helps."""
    assert why_unhealthy(one, verdicts, USUAL) == why


def test_each_event_is_counted_once() -> None:
    """A container that starts again counts from 1."""
    said = state(xids=(xid(3, 79), xid(4, 79)))
    assert [event.number for event in new_events(said, "s1", 3)] == [4]
    assert [event.number for event in new_events(said, "s0", 3)] == [3, 4]
    assert new_events(said, "s1", 4) == ()


_XIDS = st.sampled_from([13, 31, 48, 63, 79, 94])
_EVENTS = st.lists(st.tuples(st.integers(0, 2), _XIDS, st.sampled_from([None, 1, 2])), max_size=3)
_STEPS = st.lists(
    st.tuples(
        st.floats(min_value=0.1, max_value=400.0),  # seconds since the step before
        _EVENTS,
        st.lists(st.sampled_from(["well", "asks", "old", "lost", "failed"]), min_size=3, max_size=3),
    ),
    max_size=12,
)


@given(_STEPS)
def test_a_gpu_is_never_given_too_soon_and_never_for_another_ones_error(steps: list[tuple[float, list, list]]) -> None:  # type: ignore[type-arg] # as Hypothesis makes them
    """Whatever happens: not within 30 s of an error that counts, and always where nothing ever happened to it.

    What is held is why, and is over only for a GPU that has just answered.
    """
    now, number, is_touched = 100.0, 0, [False] * 3
    found: tuple[Verdict, ...] = ()
    last: list[float] = [-1e9] * 3
    for seconds, happened, conditions in steps:
        now += seconds
        events = []
        for of, code, gi in happened:
            number += 1
            events.append(xid(number, code, of, at=now - seconds / 2, gi=gi, ci=None if gi is None else 0))
            if USUAL.does_count(code):
                last[of], is_touched[of] = now - seconds / 2, True
        cards = tuple(_in_condition(of, condition) for of, condition in enumerate(conditions))
        for of, one in enumerate(cards):
            is_touched[of] = is_touched[of] or bool(one.why or one.recovery_action)
        before, found = found, judged(found, state(*cards, at=now), events, cards, USUAL)
        over = {one.place for one in before} - {one.place for one in found}
        assert all(conditions[int(name[-1])] in ("well", "old") for name, _, _ in over)
        assert all(why_unhealthy(cards[int(one.uuid[-1])], found, USUAL) for one in found)
        for of, one in enumerate(cards):
            why = why_unhealthy(one, found, USUAL)
            if now < last[of] + ANSWER_SECONDS:
                assert why
            if not is_touched[of]:
                assert why == ""


def _in_condition(of: int, condition: str) -> CardState:
    return {
        "well": card(of),
        "asks": card(of, recovery_action=1),
        "old": card(of, **OLD),
        "lost": lost(of, uuid=uuid(of)),
        "failed": card(of, why="NVML: unknown error", error=999),
    }[condition]
