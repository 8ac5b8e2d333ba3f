"""Maintenance windows: open from each time that a cron expression names, for as long as they last."""

import math
from dataclasses import dataclass
from datetime import UTC, date, datetime, timedelta
from functools import cache
from itertools import pairwise
from typing import NamedTuple
from zoneinfo import ZoneInfo

import pytest
from hypothesis import given
from hypothesis import strategies as st

from driver_builder.api.rollout_settings import Window
from driver_builder.model import cron
from driver_builder.rollout.windows import next_opening, open_until

HOUR = 3600.0
BERLIN, SANTIAGO = "Europe/Berlin", "America/Santiago"


def at(text: str) -> float:
    """Read a time such as ``2026-03-29T01:30+01:00``; without an offset it is UTC."""
    time = datetime.fromisoformat(text)
    return (time if time.tzinfo else time.replace(tzinfo=UTC)).timestamp()


@cache
def changes(zone: str) -> tuple[date, date]:
    """Find the days, of the zone, on which its clocks changed in a year that is over: no law changes these any more."""
    clocks = [datetime.fromtimestamp(at("2025-01-01") + hours * HOUR, ZoneInfo(zone)) for hours in range(365 * 24)]
    first, second = (
        clock.date() for before, clock in pairwise(clocks) if before.utcoffset() != clock.utcoffset()
    )  # fmt: skip
    return first, second


def window(expression: str, hours: float = 1, zone: str = "UTC") -> Window:
    """Make a window."""
    return Window(cron=expression, duration_seconds=hours * HOUR, time_zone=zone)


def hours_open(one: Window, first: str, last: str) -> list[tuple[str, float]]:
    """List each opening from the first time to before the last, in UTC, and for how many hours it is open then."""
    found, now = [], at(first) - 1
    while (opening := next_opening([one], now)) is not None and opening < at(last):
        end = open_until([one], opening)
        assert end is not None
        found.append((datetime.fromtimestamp(opening, UTC).strftime("%d %H:%M"), (end - opening) / HOUR))
        now = opening
    return found


def test_without_windows_it_is_always_open() -> None:
    """Nothing opens, and nothing closes."""
    assert open_until((), at("2026-03-07T22:00")) == math.inf
    assert next_opening((), at("2026-03-07T22:00")) is None


@pytest.mark.parametrize(
    ("now", "end"),
    [
        pytest.param("2026-03-07T21:59:59.999999", None, id="a moment before"),
        pytest.param("2026-03-07T22:00", "2026-03-08T02:00", id="at its beginning"),
        pytest.param("2026-03-08T01:59:59.999999", "2026-03-08T02:00", id="a moment before its end"),
        pytest.param("2026-03-08T02:00", None, id="at its end"),
    ],
)
def test_a_window_is_open_from_its_beginning_to_before_its_end(now: str, end: str | None) -> None:
    """Every Saturday at ten, for four hours."""
    assert open_until([window("0 22 * * 6", 4)], at(now)) == (at(end) if end else None)


@pytest.mark.parametrize(
    ("now", "opening"),
    [
        ("2026-03-07T21:59:59.5", "2026-03-07T22:00"),
        ("2026-03-07T22:00", "2026-03-14T22:00"),
        ("2026-03-07T23:00", "2026-03-14T22:00"),
    ],
)
def test_the_next_opening_is_after_now(now: str, opening: str) -> None:
    """While one is open, it is the one after that."""
    assert next_opening([window("0 22 * * 6", 4)], at(now)) == at(opening)


def test_of_several_windows_the_longest_open_one_counts() -> None:
    """And the next one that opens, whichever it is."""
    several = [window("0 22 * * 6", 4), window("30 22 * * 6", 1), window("0 23 * * 6", 6), window("0 1 * * *", 1)]
    assert open_until(several, at("2026-03-07T22:45")) == at("2026-03-08T02:00")
    assert open_until(several, at("2026-03-07T23:00")) == at("2026-03-08T05:00")
    assert next_opening(several, at("2026-03-07T22:45")) == at("2026-03-07T23:00")


def test_a_window_longer_than_its_period_is_always_open() -> None:
    """Its end moves on with each beginning."""
    daily = window("0 0 * * *", 25)
    assert [open_until([daily], at("2026-03-07T00:00") + hour * HOUR) for hour in (0, 23.9, 24)] == [
        at("2026-03-08T01:00"),
        at("2026-03-08T01:00"),
        at("2026-03-09T01:00"),
    ]


@pytest.mark.parametrize(
    ("expression", "days"),
    [
        pytest.param("0 0 13 * 5", [1, 8, 13, 15, 22, 29], id="either day"),
        pytest.param("0 0 1-15/7 * *", [1, 8, 15], id="days of the month"),
        pytest.param("0 0 * * 0", [3, 10, 17, 24, 31], id="Sunday"),
        pytest.param("0 0 * * 7", [3, 10, 17, 24, 31], id="Sunday as 7"),
        pytest.param("0 0 * May sun", [3, 10, 17, 24, 31], id="names"),
        pytest.param("0 0 */10 * 0", [1, 3, 10, 11, 17, 21, 24, 31], id="steps are days, too"),
        pytest.param("0 0 1 * */4", [1, 3, 7, 10, 14, 17, 21, 24, 28, 31], id="steps are weekdays, too"),
        pytest.param("0 0 */1 * 0", [3, 10, 17, 24, 31], id="every first day is every day"),
        pytest.param("0 0 5,* * 0", [3, 10, 17, 24, 31], id="a day and every day is every day"),
        pytest.param("0 0 * * 5-5/2", [1, 8, 15, 22, 29], id="a step of one day is that day"),
        pytest.param("0 0 30 2 5", [], id="not in May"),
    ],
)
def test_days_are_those_of_a_cronjob(expression: str, days: list[int]) -> None:
    """In May of 2026, which begins with a Friday."""
    found = hours_open(window(expression), "2026-05-01T00:00", "2026-06-01T00:00")
    assert found == [(f"{day:02} 00:00", 1.0) for day in days]


def test_a_rare_day_is_found_in_both_directions() -> None:
    """The 29th of February, over 1900's exception in the other century."""
    leap = window("0 0 29 2 *", 168)
    assert open_until([leap], at("2104-03-06T23:59")) == at("2104-03-07T00:00")
    assert open_until([leap], at("2104-02-28T23:59")) is None
    assert next_opening([leap], at("2096-03-01T00:00")) == at("2104-02-29T00:00")


SKIPPED, TWICE = changes(BERLIN)
"""When the clocks change in Berlin: from 2 to 3 in spring, and from 3 to 2 in autumn."""


@pytest.mark.parametrize(
    ("day", "expression", "openings"),
    [
        pytest.param(SKIPPED, "30 2 * * *", ["{0} 01:00", "{1} 00:30"], id="skipped: right after it"),
        pytest.param(SKIPPED, "30 2,3 * * *", ["{0} 01:00", "{0} 01:30", "{1} 00:30", "{1} 01:30"],
                     id="skipped and next"),
        pytest.param(SKIPPED, "0 4 * * *", ["{0} 02:00", "{1} 02:00"], id="after what is skipped"),
        pytest.param(TWICE, "30 2 * * *", ["{0} 00:30", "{1} 01:30"], id="twice: the first time"),
        pytest.param(TWICE, "0 3 * * *", ["{0} 02:00", "{1} 02:00"], id="after what comes twice"),
        pytest.param(TWICE, "*/30 2 * * *", ["{0} 00:00", "{0} 00:30", "{0} 01:00", "{0} 01:30", "{1} 01:00",
                     "{1} 01:30"], id="every half hour: both"),
    ],
)  # fmt: skip
def test_a_window_opens_once_when_the_clocks_change(day: date, expression: str, openings: list[str]) -> None:
    """And lasts as long as ever: its duration is of real hours. Openings are of that day and of the next, in UTC."""
    noons = [f"{day + timedelta(days)}T12:00" for days in (-1, 1)]
    expected = [text.format(f"{day:%d}", f"{day + timedelta(1):%d}") for text in openings]
    assert hours_open(window(expression, 2, BERLIN), *noons) == [(opening, 2.0) for opening in expected]


@pytest.mark.parametrize(
    ("day", "expression", "now", "end", "opening"),
    [
        pytest.param(TWICE, "45 2 * * *", "{0}T02:30+01:00", "{0}T03:45+01:00", "{1}T02:45+01:00",
                     id="began in the first of two equal hours"),
        pytest.param(TWICE, "15 2 * * *", "{0}T02:30+02:00", "{0}T03:15+01:00", "{1}T02:15+01:00",
                     id="in the first of them"),
        pytest.param(TWICE, "45 2 * * *", "{0}T02:30+02:00", None, "{0}T02:45+02:00", id="before it began"),
        pytest.param(SKIPPED, "30 2 * * *", "{0}T03:00+02:00", "{0}T05:00+02:00", "{1}T02:30+02:00",
                     id="right after the hour that was skipped"),
    ],
)  # fmt: skip
def test_within_an_hour_that_comes_twice(day: date, expression: str, now: str, end: str | None, opening: str) -> None:
    """Two hours, from the first time that it is a quarter to three."""

    def on(text: str) -> float:
        return at(text.format(day, day + timedelta(1)))

    one = window(expression, 2, BERLIN)
    assert open_until([one], on(now)) == (on(end) if end else None)
    assert next_opening([one], on(now)) == on(opening)


@pytest.mark.parametrize("which", [0, 1], ids=["first", "second"])
@pytest.mark.parametrize("zone", [BERLIN, "America/Havana", SANTIAGO, "Africa/Cairo"])
def test_an_hourly_window_of_an_hour_never_closes(zone: str, which: int) -> None:
    """Also on a day when the clocks change, at midnight or later."""
    hourly, noon = [window("0 * * * *", 1, zone)], at(f"{changes(zone)[which]}T12:00")
    for hours in range(-36, 24):
        end = noon + hours * HOUR
        assert open_until(hourly, end - 1) == next_opening(hourly, end - 1) == end


class Field(NamedTuple):
    """A field of an expression: its text, the values that it names, and whether it restricts nothing."""

    text: str
    values: frozenset[int]
    is_any: bool = False


class Minute(NamedTuple):
    """A minute as a clock on the wall shows it."""

    time: int
    minute: int
    hour: int
    day: int
    month: int
    weekday: int


@dataclass(frozen=True)
class Written:
    """An expression, and what it says to someone who looks at the clock every minute."""

    minute: Field
    hour: Field
    day: Field
    month: Field
    weekday: Field

    @property
    def text(self) -> str:
        """The expression."""
        return " ".join(field.text for field in (self.minute, self.hour, self.day, self.month, self.weekday))

    def names(self, now: Minute) -> bool:
        """Whether this is one of its minutes."""
        by_day, by_weekday = now.day in self.day.values, now.weekday in self.weekday.values
        both = self.day.is_any or self.weekday.is_any
        is_day = (by_day and by_weekday) if both else (by_day or by_weekday)
        is_time = now.minute in self.minute.values and now.hour in self.hour.values
        return is_time and is_day and now.month in self.month.values


def values(low: int, high: int) -> st.SearchStrategy[Field]:
    """Fields of one kind: any, steps, ranges, and lists of a few."""
    number = st.integers(low, high)
    step = st.integers(2, 7)
    term = st.one_of(
        number.map(lambda one: Field(str(one), frozenset({one}))),
        st.tuples(number, number).map(lambda of: _range(f"{min(of)}-{max(of)}", min(of), max(of), 1)),
        st.tuples(number, number, step).map(lambda of: _range(f"{min(of[:2])}-{max(of[:2])}/{of[2]}",
                                                              min(of[:2]), max(of[:2]), of[2])),
        step.map(lambda every: _range(f"*/{every}", low, high, every)),
    )  # fmt: skip
    every = Field("*", frozenset(range(low, high + 1)), is_any=True)
    return st.just(every) | st.lists(term, min_size=1, max_size=3).map(
        lambda terms: Field(",".join(one.text for one in terms), frozenset().union(*(one.values for one in terms)))
    )


def _range(text: str, low: int, high: int, step: int) -> Field:
    return Field(text, frozenset(range(low, high + 1, step)))


DAY = 24 * HOUR
BEGUN, ASKED = 7 * DAY, 8 * DAY
"""A week in which windows may begin, and the time after it in which they are asked for.

That one begins on the day of a change: of the zone's own clocks, or of Berlin's, for zones whose clocks do not change.
"""


@cache
def minutes(zone: str, change: float) -> list[Minute]:
    """All minutes of both."""
    times = range(int(change - BEGUN), int(change + ASKED), 60)
    clocks = [datetime.fromtimestamp(time, ZoneInfo(zone)) for time in times]
    return [
        Minute(time, clock.minute, clock.hour, clock.day, clock.month, clock.isoweekday() % 7)
        for time, clock in zip(times, clocks, strict=True)
    ]


expressions = st.builds(
    Written,
    minute=values(0, 59),
    hour=values(0, 23),
    day=values(1, 31),
    month=st.just(Field("*", frozenset(range(1, 13)), is_any=True)) | values(1, 12),
    weekday=values(0, 6),
)
ZONES = st.sampled_from(["UTC", "Asia/Kolkata", "America/Caracas"])
DURATIONS = st.integers(1, 168 * 60)
SECONDS = st.lists(st.integers(0, int(ASKED) - 1), min_size=3, max_size=8)
CHANGES = st.sampled_from([(zone, str(day)) for zone in (BERLIN, SANTIAGO) for day in changes(zone)])


@given(expressions, ZONES, DURATIONS, SECONDS)
def test_it_agrees_with_looking_at_the_clock_every_minute(
    written: Written, zone: str, duration: int, seconds: list[int]
) -> None:
    """For a week, in zones whose clocks do not change."""
    agrees(written, (zone, str(SKIPPED)), duration, seconds)


@given(expressions, CHANGES, DURATIONS, SECONDS)
def test_any_hour_is_of_the_real_time(
    written: Written, change: tuple[str, str], duration: int, seconds: list[int]
) -> None:
    """Where the clocks change, expressions with a star for hours follow what the clock on the wall shows."""
    every = Field("*", frozenset(range(24)), is_any=True)
    agrees(Written(written.minute, every, written.day, written.month, written.weekday), change, duration, seconds)


def agrees(written: Written, change: tuple[str, str], duration: int, seconds: list[int]) -> None:
    """Compare what a window says at some times with all minutes that its expression names."""
    if cron.problem(written.text):
        return
    zone, day = change
    begun = at(day)
    starts = [minute.time for minute in minutes(zone, begun) if written.names(minute)]
    one = Window(cron=written.text, duration_seconds=duration * 60.0, time_zone=zone)
    for second in seconds:
        now = begun + second
        ends = [start + duration * 60.0 for start in starts if start <= now < start + duration * 60.0]
        later = [start for start in starts if start > now]
        opening = next_opening([one], now)
        assert opening is not None
        assert open_until([one], now) == max(ends, default=None)
        assert opening == later[0] if later else opening >= begun + ASKED
