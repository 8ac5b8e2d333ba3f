"""Delays that grow with failures or with time, spread out, and start anew."""

import random

import pytest
from hypothesis import given
from hypothesis import strategies as st

from driver_builder.base.retry import Backoff, Retry, chance_of


@pytest.mark.parametrize(
    ("failures", "seconds"),
    [(0, 30.0), (1, 30.0), (2, 60.0), (3, 120.0), (4, 240.0), (5, 480.0), (6, 600.0), (7, 600.0), (10_000, 600.0)],
)
def test_by_attempt_each_failure_doubles_the_delay(failures: int, seconds: float) -> None:
    """From the first delay to the longest; any number of failures overflows nothing."""
    assert Retry(30.0, 600.0).by_attempt(failures) == seconds


@pytest.mark.parametrize(
    ("elapsed", "seconds"), [(-5.0, 10.0), (0.0, 10.0), (9.0, 10.0), (30.0, 30.0), (119.0, 119.0), (1e9, 120.0)]
)
def test_by_elapsed_the_delay_is_as_long_as_the_time_tried(elapsed: float, seconds: float) -> None:
    """Within the first delay and the longest; a clock that went back gives the first."""
    assert Retry(10.0, 120.0).by_elapsed(elapsed) == seconds


@pytest.mark.parametrize(
    ("chance", "seconds"), [(-1.0, 45.0), (-0.5, 52.5), (0.0, 60.0), (chance_of("8000"), 67.50011), (1.0, 75.0)]
)
def test_jitter_moves_the_delay_by_up_to_a_quarter(chance: float, seconds: float) -> None:
    """Both ways."""
    assert Retry(30.0, 3600.0).with_jitter(2, chance) == pytest.approx(seconds)


def test_digests_spread_from_0_to_1() -> None:
    """The first four digits decide."""
    assert [chance_of(digest) for digest in ("0000ff", "ffff00")] == [0.0, 1.0]
    assert chance_of("8000aa") == 0x8000 / 0xFFFF


def test_a_backoff_doubles_up_to_the_most_and_starts_anew(monkeypatch: pytest.MonkeyPatch) -> None:
    """Success starts over; jitter goes both ways."""
    jitter: list[tuple[float, float]] = []

    def uniform(low: float, high: float) -> float:
        jitter.append((low, high))
        return 0.0

    monkeypatch.setattr(random, "uniform", uniform)
    backoff = Backoff(first=1.0, most=5.0)
    assert [backoff.next() for _ in range(5)] == [1.0, 2.0, 4.0, 5.0, 5.0]
    for _ in range(5000):
        assert backoff.next() == 5.0
    backoff.reset()
    assert backoff.next() == 1.0
    assert set(jitter) == {(-1.0, 1.0)}


@given(st.floats(0.01, 60.0), st.floats(60.0, 3600.0), st.integers(1, 60))
def test_a_delay_is_never_out_of_bounds(first: float, most: float, failures: int) -> None:
    """Jitter included: a quarter below the first, a quarter above the most."""
    backoff = Backoff(first=first, most=most)
    for _ in range(failures):
        assert 0.75 * first <= backoff.next() <= 1.25 * most
