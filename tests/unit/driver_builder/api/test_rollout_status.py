"""``status.rollout``: what it says is read back, and what is of another shape is given up."""

from typing import Any

import pytest
from hypothesis import given
from hypothesis import strategies as st

from driver_builder.api.rollout_status import Phase, Wave, previous_wave, render_wave

waves = st.builds(
    Wave,
    phase=st.sampled_from(Phase),
    message=st.text("abc;", max_size=50),
    started=st.integers(0, 1 << 32).map(float),
    canary_proven=st.none() | st.integers(0, 1 << 32).map(float),
    nodes=st.integers(0, 9),
    updated=st.integers(0, 9),
    unavailable=st.integers(0, 9),
    failed=st.integers(0, 9),
    left_out=st.integers(0, 9),
    max_unavailable=st.integers(0, 9),
    targets=st.dictionaries(st.text("abc", min_size=1, max_size=4), st.text("xyz", max_size=4), max_size=3),
    failed_on=st.dictionaries(st.text("abc", min_size=1), st.text("xyz"), max_size=3),
    failed_before=st.sets(st.text("abc", min_size=1), max_size=3).map(lambda names: tuple(sorted(names))),
)
json = st.recursive(
    st.none() | st.booleans() | st.floats() | st.integers() | st.text(max_size=30),
    lambda part: st.lists(part, max_size=3) | st.dictionaries(st.text(max_size=10), part, max_size=3),
)


@given(waves)
def test_what_is_written_is_read(wave: Wave) -> None:
    """Nothing of a wave is lost when the controller restarts."""
    assert previous_wave({"rollout": render_wave(wave)}) == wave


@given(json)
def test_any_value_is_a_wave_or_none(value: Any) -> None:
    """What somebody else wrote costs no reconcile."""
    found = previous_wave({"rollout": value})
    assert found is None or render_wave(found)


@pytest.mark.parametrize(
    "field",
    [
        {"nodes": 1e400},
        {"startTime": "0001-01-01T00:00:00+23:59"},
        {"canaryProvenTime": "9999-12-31T23:59:59Z"},
        {"targets": ["t"]},
        {"phase": "Done"},
    ],
    ids=lambda field: next(iter(field)),
)
def test_a_field_that_cannot_be_right_begins_the_wave_anew(field: dict[str, Any]) -> None:
    """Slower, never faster: the canary soaks again."""
    good = render_wave(Wave(phase=Phase.ROLLING, started=0.0, targets={"t": "x"}))
    assert previous_wave({"rollout": good}) is not None
    assert previous_wave({"rollout": {**good, **field}}) is None
