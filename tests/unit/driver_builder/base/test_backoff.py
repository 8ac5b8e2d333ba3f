"""Delays that grow with failures, spread out, and start anew."""

import pytest
from hypothesis import given
from hypothesis import strategies as st

from driver_builder.base import backoff as backoff_module
from driver_builder.base.backoff import Backoff


def test_delays_double_up_to_the_most_and_start_anew(monkeypatch: pytest.MonkeyPatch) -> None:
    """Doubling with jitter of a quarter; success starts over."""
    jitter: list[tuple[float, float]] = []

    def uniform(low: float, high: float) -> float:
        jitter.append((low, high))
        return 1.0

    monkeypatch.setattr(backoff_module.random, "uniform", uniform)  # type: ignore[attr-defined]
    backoff = Backoff(first=1.0, most=5.0)
    assert [backoff.next() for _ in range(5)] == [1.0, 2.0, 4.0, 5.0, 5.0]
    for _ in range(5000):
        assert backoff.next() == 5.0
    backoff.reset()
    assert backoff.next() == 1.0
    assert set(jitter) == {(0.75, 1.25)}


@given(st.floats(0.01, 60.0), st.floats(60.0, 3600.0), st.integers(1, 60))
def test_a_delay_is_never_out_of_bounds(first: float, most: float, failures: int) -> None:
    """Jitter included: a quarter below the first, a quarter above the most."""
    backoff = Backoff(first=first, most=most)
    for _ in range(failures):
        assert 0.75 * first <= backoff.next() <= 1.25 * most
