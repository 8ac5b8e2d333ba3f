"""Durations as Go writes them."""

import pytest
from hypothesis import given
from hypothesis import strategies as st

from nfd_worker.config.duration import parse_duration


@pytest.mark.parametrize(
    ("text", "seconds"),
    [
        ("60s", 60),
        ("1m30s", 90),
        ("1.5h", 5400),
        ("500ms", 0.5),
        ("2us", 2e-6),
        ("2\u00b5s", 2e-6),
        ("2\u03bcs", 2e-6),
        (".5s", 0.5),
        ("0", 0),
        ("-1s", -1),
        ("+5s", 5),
        ("1h15m30.5s", 4530.5),
    ],
)
def test_a_duration_is_read_as_go_reads_it(text: str, seconds: float) -> None:
    """All units and their combinations give seconds."""
    assert parse_duration(text) == pytest.approx(seconds)


@pytest.mark.parametrize("text", ["", "60", "s", "1x", "1 s", "1m 30s", "--1s", "1d", ".s", "\u0661s", "1" * 100_000])
def test_what_go_refuses_is_refused(text: str) -> None:
    """A number without a unit is the usual mistake."""
    with pytest.raises(ValueError, match="is not a duration such as 60s"):
        parse_duration(text)


@pytest.mark.parametrize("text", ["3000000h", "9" * 400 + "s"])
def test_a_duration_has_the_longest_that_go_can_count(text: str) -> None:
    """The longest duration is the one that Go holds in 64 bits of nanoseconds."""
    with pytest.raises(ValueError, match="is longer than 292 years"):
        parse_duration(text)


@given(st.integers(0, 1000), st.integers(0, 59), st.integers(0, 59))
def test_hours_minutes_and_seconds_add_up(hours: int, minutes: int, seconds: int) -> None:
    """Any whole duration reads back."""
    assert parse_duration(f"{hours}h{minutes}m{seconds}s") == hours * 3600 + minutes * 60 + seconds
