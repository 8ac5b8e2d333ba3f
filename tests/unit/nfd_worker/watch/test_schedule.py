"""When a cycle is due: bursts are one, streams do not put it off, and nothing asks for more than it needs."""

from collections import deque
from itertools import pairwise

import pytest

from nfd_worker.watch.schedule import (
    BURSTS_IN_A_ROW,
    COALESCE_SECONDS,
    CONFIG,
    DEVICE,
    FILE,
    INTERVAL,
    NEVER,
    RESYNC,
    SECONDS_PER_BURST,
    SETTLE,
    START,
    Schedule,
)

T0 = 1000.0


def started(interval: float = 60.0, resync: float = 3600.0) -> Schedule:
    """Give a schedule whose first cycle ran at T0."""
    schedule = Schedule(interval, resync)
    assert schedule.take(T0) == {START}
    return schedule


def run(schedule: Schedule, events: dict[float, str], until: float) -> list[tuple[float, set[str]]]:
    """Play events against a schedule; gives the cycles: seconds after T0, and what asked for them."""
    cycles: list[tuple[float, set[str]]] = []
    times = deque(sorted(events))
    now = T0
    while now <= T0 + until:
        while times and T0 + times[0] <= now:
            schedule.ask(events[times.popleft()], now)
        if triggers := schedule.take(now):
            cycles.append((round(now - T0, 3), set(triggers)))
        now = min(schedule.due, T0 + times[0] if times else NEVER)
    return cycles


def test_the_first_cycle_is_due_at_once() -> None:
    """A started worker does not wait for an event."""
    assert Schedule(60.0, 3600.0).due <= 0


def test_the_interval_counts_from_the_last_cycle() -> None:
    """What asked for that one does not matter: each cycle reads everything."""
    assert run(started(), {30.0: DEVICE}, 100.0) == [(30.3, {DEVICE}), (90.3, {INTERVAL})]


def test_an_infinite_interval_leaves_only_events_and_the_resync() -> None:
    """With ``sleepInterval: 0`` only events and the resync start a cycle."""
    schedule = started(interval=NEVER)
    assert schedule.due == T0 + 3600.0
    assert run(schedule, {30.0: FILE}, 3599.0) == [(30.3, {FILE})]


def test_the_resync_comes_again_and_counts_as_itself() -> None:
    """Labels that somebody removed by hand come back."""
    assert run(started(NEVER, 100.0), {}, 250.0) == [(100.0, {RESYNC}), (200.0, {RESYNC})]


def test_a_burst_is_one_cycle() -> None:
    """All that comes within a moment, of whatever kind."""
    assert run(started(), {10.0: DEVICE, 10.1: FILE, 10.25: DEVICE}, 50.0) == [(10.3, {DEVICE, FILE})]


def test_a_stream_does_not_put_the_cycle_off() -> None:
    """The first event of a burst sets the time."""
    events = {10.0 + n / 10: DEVICE for n in range(20)}
    assert run(started(), events, 11.9)[0] == (10.0 + COALESCE_SECONDS, {DEVICE})


def test_a_stream_without_end_gets_a_cycle_every_few_seconds() -> None:
    """An hour of ten events a second costs what an interval of five seconds costs."""
    cycles = run(started(), {n / 10: FILE for n in range(36000)}, 3600.0)
    assert len(cycles) <= BURSTS_IN_A_ROW + 3600 / SECONDS_PER_BURST + 1
    gaps = [later - earlier for (earlier, _), (later, _) in pairwise(cycles)]
    assert max(gaps) <= SECONDS_PER_BURST + COALESCE_SECONDS + 0.2


def test_after_a_stream_the_next_event_is_answered_at_once_again() -> None:
    """After a pause the allowance of immediate answers is restored."""
    events = {n / 10: FILE for n in range(600)} | {200.0: FILE}
    assert run(started(NEVER), events, 300.0)[-1] == (200.3, {FILE})


@pytest.mark.parametrize("amount", range(1, BURSTS_IN_A_ROW))
def test_some_bursts_in_a_row_are_answered_at_once(amount: int) -> None:
    """Several bursts in a row, as on a booting node, are each answered at once."""
    cycles = run(started(), {float(n): DEVICE for n in range(amount)}, 20.0)
    assert [seconds for seconds, _ in cycles] == [n + COALESCE_SECONDS for n in range(amount)]


def test_new_periods_count_from_now() -> None:
    """A shorter interval from a reloaded file does not wait for the old one to pass."""
    schedule = started(interval=3600.0)
    schedule.change(30.0, 3600.0, T0 + 10)
    assert schedule.due == T0 + 40
    schedule.change(30.0, 3600.0, T0 + 20)
    assert schedule.due == T0 + 40


def test_what_asked_in_the_meantime_is_answered_by_the_same_cycle() -> None:
    """The interval comes first, and the event that waits for its burst is read with it."""
    assert run(started(), {59.9: CONFIG}, 100.0) == [(60.0, {CONFIG, INTERVAL})]


def test_what_is_complete_is_looked_at_at_once_and_again_after_its_burst() -> None:
    """An addition is published at once; what else the burst brings is seen by the second cycle."""
    schedule = started()
    schedule.ask(FILE, T0 + 1)
    assert schedule.take(T0 + 1.001) == frozenset()
    schedule.ask(FILE, T0 + 1.01, at_once=True)
    assert schedule.due == T0 + 1.01
    assert schedule.take(T0 + 1.01) == {FILE}
    assert schedule.is_in_burst
    schedule.ask(DEVICE, T0 + 1.2, at_once=True)
    assert schedule.due == T0 + 1 + COALESCE_SECONDS
    assert schedule.take(schedule.due) == {FILE, DEVICE}
    assert not schedule.is_in_burst
    assert schedule.due == T0 + 1 + COALESCE_SECONDS + 60


def test_a_stream_without_end_is_not_looked_at_at_once() -> None:
    """It costs one cycle every few seconds, whatever it asks for."""
    schedule, cycles, now = started(NEVER), 0, T0
    for step in range(36000):
        now = T0 + step / 10
        schedule.ask(DEVICE, now, at_once=True)
        while schedule.take(now):
            cycles += 1
    assert cycles <= 2 * BURSTS_IN_A_ROW + 3600 / SECONDS_PER_BURST + 1


def test_a_removal_is_looked_at_when_it_has_settled_and_ends_no_burst() -> None:
    """The burst that is under way still has its own cycle."""
    schedule = started()
    schedule.settle(T0 + 1)
    schedule.ask(FILE, T0 + 0.9)
    assert schedule.take(T0 + 1) == {SETTLE}
    assert schedule.take(T0 + 0.9 + COALESCE_SECONDS) == {FILE}
    schedule.settle(NEVER)
    assert schedule.take(T0 + 2) == frozenset()
