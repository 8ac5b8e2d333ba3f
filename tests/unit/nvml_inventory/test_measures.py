"""Which of NVML's numbers make sense."""

from math import inf, nan

import pytest

from nvml_inventory.measures import known, only_known, percent


@pytest.mark.parametrize(
    ("value", "is_known"),
    [
        pytest.param(0, True, id="zero"),
        pytest.param(2**62, True, id="large"),
        pytest.param(0.5, True, id="a fraction"),
        pytest.param(None, False, id="no answer"),
        pytest.param(-1, False, id="negative"),
        pytest.param(nan, False, id="not a number"),
        pytest.param(inf, False, id="infinite"),
        pytest.param(2**32 - 1, False, id="NVML's 32 bits of not available"),
        pytest.param(2**64 - 1, False, id="NVML's 64 bits of not available"),
        pytest.param(2**63, False, id="too large"),
    ],
)
def test_a_number_makes_sense_or_is_not_there(value: float | None, is_known: bool) -> None:
    """It is never one that stands for something else."""
    assert known(value) == (value if is_known else None)
    assert only_known({"value": value}) == ({"value": value} if is_known else {})


@pytest.mark.parametrize(
    ("value", "expected"),
    [
        pytest.param(100, 100, id="all"),
        pytest.param(104, 100, id="rounded up"),
        pytest.param(1000, None, id="no percentage"),
        pytest.param(2**32 - 1, None, id="not available"),
        pytest.param(None, None, id="no answer"),
    ],
)
def test_a_percentage_is_a_hundred_at_most(value: float | None, expected: float | None) -> None:
    """What is far above is none."""
    assert percent(value) == expected
