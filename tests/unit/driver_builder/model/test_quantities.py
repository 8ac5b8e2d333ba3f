"""Amounts of resources."""

from decimal import Decimal

import pytest

from driver_builder.model.quantities import amount


@pytest.mark.parametrize(
    ("quantity", "expected"),
    [
        pytest.param(2, "2", id="number"),
        pytest.param("2", "2", id="digits"),
        pytest.param("500m", "0.5", id="thousandths"),
        pytest.param("1.5k", "1500", id="thousands"),
        pytest.param("1Ki", "1024", id="kibi"),
        pytest.param("8Gi", "8589934592", id="gibi"),
        pytest.param("2E", "2000000000000000000", id="exa"),
    ],
)
def test_an_amount_has_a_unit_of_kubernetes(quantity: str | int, expected: str) -> None:
    """Decimal and binary units, as in a container's resources."""
    assert amount(quantity) == Decimal(expected)


@pytest.mark.parametrize("quantity", ["", "much", "1.2.3", "8GiB", "-1", "1e3", "9" * 33])
def test_other_words_are_no_amount(quantity: str) -> None:
    """The message has the word."""
    with pytest.raises(ValueError, match="is not a quantity"):
        amount(quantity)
