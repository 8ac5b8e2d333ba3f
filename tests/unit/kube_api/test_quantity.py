"""Quantities as Kubernetes reads them."""

import time
from fractions import Fraction

import pytest
from hypothesis import given
from hypothesis import strategies as st

from kube_api.quantity import Quantity, parse_quantity


@pytest.mark.parametrize(
    ("text", "value"),
    [
        pytest.param("0", 0, id="zero"),
        pytest.param("10", 10, id="number"),
        pytest.param("+10", 10, id="plus sign"),
        pytest.param("-10", -10, id="minus sign"),
        pytest.param("007", 7, id="leading zeros"),
        pytest.param("10.", 10, id="point at the end"),
        pytest.param("1k", 1000, id="decimal unit"),
        pytest.param("2Gi", 2 * 1024**3, id="binary unit"),
        pytest.param("0.5Mi", 512 * 1024, id="fraction of a binary unit"),
        pytest.param(".5k", 500, id="point at the beginning"),
        pytest.param("1E", 10**18, id="exa and not an exponent"),
        pytest.param("5e3", 5000, id="exponent"),
        pytest.param("5E+3", 5000, id="exponent with a sign"),
        pytest.param("5000e-3", 5, id="negative exponent"),
        pytest.param("3000m", 3, id="thousandths that make a whole"),
        pytest.param("1e99999", 2**63 - 1, id="never more than the limit"),
        pytest.param("-9Ei", -(2**63 - 1), id="never less than the limit"),
        pytest.param("0e99999", 0, id="nothing however often"),
    ],
)
def test_a_whole_quantity_is_its_integer(text: str, value: int) -> None:
    """All ways of writing a number."""
    quantity = parse_quantity(text)
    assert quantity is not None
    assert (quantity.value, quantity.is_whole) == (value, True)


@pytest.mark.parametrize(
    ("text", "nanos", "value"),
    [
        pytest.param("1500m", 1_500_000_000, 2, id="one and a half"),
        pytest.param("-1500m", -1_500_000_000, -1, id="minus one and a half"),
        pytest.param("100u", 100_000, 1, id="micro"),
        pytest.param("1n", 1, 1, id="nano"),
        pytest.param("0.1n", 1, 1, id="finer than a nano"),
        pytest.param("1e-99999", 1, 1, id="finer by far"),
        pytest.param("-0.1n", -1, 0, id="finer and negative"),
    ],
)
def test_fractions_are_kept_to_the_nano_and_counted_up(text: str, nanos: int, value: int) -> None:
    """Kubernetes rounds a need up, never down."""
    assert parse_quantity(text) == Quantity(nanos)
    assert Quantity(nanos).value == value
    assert not Quantity(nanos).is_whole


@pytest.mark.parametrize(
    "text",
    ["", "-", ".", "k", "-k", "1 ", " 1", "1\n", "1.1.", "1+1", "1i", "1mi", "1KI", "1ki", "1K i", "1e", "1e-", "e3",
     "1e1.5", "0x10", "1_000", "\u0661", "NaN", "inf", "two", "1" * 101],
)  # fmt: skip
def test_anything_else_is_no_quantity(text: str) -> None:
    """The answer is None and no error."""
    assert parse_quantity(text) is None


@given(st.integers(-(10**12), 10**12), st.sampled_from(["", "k", "m", "Mi", "e2"]))
def test_numbers_with_units_are_exact(number: int, unit: str) -> None:
    """No float takes part in it."""
    worth = {
        "": Fraction(1),
        "k": Fraction(1000),
        "m": Fraction(1, 1000),
        "Mi": Fraction(1024**2),
        "e2": Fraction(100),
    }[unit]
    quantity = parse_quantity(f"{number}{unit}")
    assert quantity is not None
    assert quantity.nanos == max(-(2**63 - 1) * 10**9, min(number * worth * 10**9, (2**63 - 1) * 10**9))


@given(st.text() | st.from_regex(r"[+-]?[0-9]*\.?[0-9]*([KMGTPE]i?|[numk]|[eE][+-]?[0-9]*)?", fullmatch=True))
def test_any_text_is_read_or_is_none_and_at_once(text: str) -> None:
    """A value can come from a feature file, which anybody on the node may write."""
    start = time.thread_time()
    quantity = parse_quantity(text)
    assert time.thread_time() - start < 1
    assert quantity is None or abs(quantity.value) < 2**63
