"""When builds are suspended, when one is tried, and when all go on."""

from collections.abc import Iterable

import pytest
from hypothesis import given
from hypothesis import strategies as st

from driver_builder.base.reasons import Reason, suspends
from driver_builder.builds.circuit_breaker import (
    OPENS_AFTER,
    PROBE_SECONDS,
    Breaker,
    after_failure,
    after_start,
    may_start,
)

OUTSIDE = {reason for reason in Reason if suspends(reason)}

NOW = 1_700_000_000.0
DOWN, FULL, OWN = "PackageRepositoryUnavailable", "DiskFull", "CompileError"


def told(failures: Iterable[tuple[str, str]], breaker: Breaker | None = None) -> Breaker:
    """Tell a breaker of failures: key and reason each, a second apart."""
    breaker = breaker or Breaker()
    for number, (key, reason) in enumerate(failures):
        breaker = after_failure(breaker, key=key, reason=reason, now=NOW + number)
    return breaker


ROW = [(f"key-{number}", DOWN) for number in range(OPENS_AFTER)]


@pytest.mark.parametrize(
    ("failures", "is_open"),
    [
        pytest.param(ROW, True, id="five keys, one reason"),
        pytest.param(ROW[:-1], False, id="one too few"),
        pytest.param([*ROW[:-1], ROW[0], ROW[0]], False, id="a key counts once"),
        pytest.param([*ROW[:-1], ("other", FULL)], False, id="another reason"),
        pytest.param([("other", FULL), *ROW], True, id="another reason before"),
        pytest.param([*ROW[:-1], ("other", OWN), ROW[-1]], False, id="a driver's own fault in between"),
        pytest.param([(key, OWN) for key, _ in ROW], False, id="five drivers' own faults"),
        pytest.param([*ROW, ("other", OWN)], True, id="open, then a driver's own fault"),
    ],
)
def test_the_same_failure_of_different_keys_in_a_row_opens(failures: list[tuple[str, str]], is_open: bool) -> None:
    """Only a row of different keys with one outside reason does."""
    breaker = told(failures)
    assert bool(str(breaker)) is is_open
    assert may_start(breaker, running=0, now=NOW + 10) is not is_open


@pytest.mark.parametrize("reason", sorted(OUTSIDE))
def test_every_outside_reason_opens(reason: str) -> None:
    """Engine, disk, repositories, registry and base image are shared by all drivers."""
    assert reason in str(told([(key, reason) for key, _ in ROW]))


@pytest.mark.parametrize(
    "reason",
    sorted(set(Reason) - OUTSIDE),
)
def test_no_other_reason_does(reason: str) -> None:
    """What a driver or its kernel does wrong says nothing about others."""
    assert told([(key, reason) for key, _ in ROW]) == Breaker()


@pytest.mark.parametrize(
    ("running", "seconds", "may"),
    [
        pytest.param(0, PROBE_SECONDS - 1, False, id="too early"),
        pytest.param(0, PROBE_SECONDS, True, id="time for a probe"),
        pytest.param(1, PROBE_SECONDS, False, id="a probe still runs"),
    ],
)
def test_while_open_one_build_per_interval_may_start(running: int, seconds: float, may: bool) -> None:
    """The probe is one build, and the next one is not before the interval has passed again."""
    opened = told(ROW)
    assert opened.open_since is not None
    began = opened.open_since + seconds
    assert may_start(opened, running=running, now=began) is may
    probed = after_start(opened, now=began)
    assert not may_start(probed, running=0, now=began + PROBE_SECONDS - 1)
    assert may_start(probed, running=0, now=began + PROBE_SECONDS)


def test_a_start_does_not_change_a_closed_breaker() -> None:
    """A start changes nothing in a closed breaker; only half-open trials are spaced."""
    assert after_start(Breaker(), now=NOW) == Breaker()


def test_the_words_stay_the_same_while_nothing_changes() -> None:
    """They stand in statuses, which are written only when they change; another reason is news."""
    opened = told(ROW)
    assert DOWN in str(opened)
    assert "2023-11-14T22:13:24Z" in str(opened)
    assert str(told([("x", DOWN)], after_start(opened, now=NOW + 99))) == str(opened)
    assert FULL in str(told([("x", FULL)], opened))


EVENT = st.one_of(
    st.just(None), st.tuples(st.sampled_from(["a", "b", "c", "d", "e", "f"]), st.sampled_from([DOWN, FULL, OWN]))
)


@given(st.lists(EVENT, max_size=30))
def test_it_is_open_exactly_after_such_a_row_and_no_success(events: list[tuple[str, str] | None]) -> None:
    """Against a plain reading of the whole history: None is a success."""
    breaker, is_open, row = Breaker(), False, list[tuple[str, str]]()
    for number, event in enumerate(events):
        if event is None:
            breaker, is_open, row = Breaker(), False, []
        else:
            breaker = after_failure(breaker, key=event[0], reason=event[1], now=NOW + number)
            row.append(event)
            same = []
            for key, reason in reversed(row):
                if reason != event[1] or reason == OWN:
                    break
                same.append(key)
            is_open = is_open or len(set(same)) >= OPENS_AFTER
        assert (breaker.open_since is not None) is is_open
        assert (breaker.probe_at is not None) is is_open
        assert len(breaker.keys) <= OPENS_AFTER
