"""What ``bench/scale.py`` computes: cells, ratios, growth, and whether a target is met."""

import pytest

from bench.scale_parts.cells import CELLS, TARGET_CELL, Cell, parse_cell
from bench.scale_parts.tables import Row, growth, ratio, shown_value, table, verdict

SMALL = Cell(1000, 5, 1)
ROW = Row("steady", "memory", "MiB", 150)


def test_a_cell_is_read_as_it_is_written() -> None:
    """What a cell prints names it."""
    assert [parse_cell(str(cell)) for cell in CELLS] == list(CELLS)
    assert parse_cell("5000x50x10").pods == 50_000


@pytest.mark.parametrize("text", ["", "1000", "1000x5", "0x5x1", "1000x5x1x2", "1e3x5x1", "5x50x1"])
def test_another_text_is_no_cell(text: str) -> None:
    """Also one with more kernels than nodes."""
    with pytest.raises(ValueError, match=f"'{text}'|{text}"):
        parse_cell(text)


@pytest.mark.parametrize(
    ("value", "said"),
    [
        pytest.param(150.0, "at most 150: met", id="exactly"),
        pytest.param(151.0, "at most 150: **missed**, 1.0x", id="just above"),
        pytest.param(450.0, "at most 150: **missed**, 3.0x", id="far above"),
    ],
)
def test_a_target_is_met_up_to_its_limit(value: float, said: str) -> None:
    """A missed one says by how much."""
    assert verdict(ROW, {SMALL: {"steady": 999.0}, TARGET_CELL: {"steady": value}}) == said


def test_a_target_is_judged_at_the_largest_cell_alone() -> None:
    """Where that was not measured, the table says so."""
    assert verdict(ROW, {SMALL: {"steady": 999.0}}) == "at most 150 at 5000x50x10: not measured"
    assert verdict(Row("steady", "memory"), {TARGET_CELL: {"steady": 1.0}}) == ""


def test_growth_is_beside_the_first_cell() -> None:
    """One ratio for each of the others."""
    measured = {SMALL: {"a": 2.0}, CELLS[1]: {"a": 3.0}, TARGET_CELL: {"a": 20.0}}
    assert growth("a", measured) == "1.5x 10.0x"
    assert growth("b", measured) == ""
    assert ratio(1.0, 0.0) == "-"


def test_a_value_has_the_digits_that_it_deserves() -> None:
    """Three of them, and all of an integer part."""
    assert [shown_value(value) for value in (None, 0.123, 12.34, 1234.5)] == ["", "0.12", "12.3", "1,234"]


def test_a_figure_that_nobody_measured_has_no_line() -> None:
    """All cells stand in the head."""
    lines = table((ROW, Row("absent", "x")), {SMALL: {"steady": 50.0}, TARGET_CELL: {"steady": 100.0}}).splitlines()
    assert lines[0] == "|  | 1000x5x1 | 5000x50x10 | growth | target |"
    assert lines[2:] == ["| memory (MiB) | 50.0 | 100 | 2.0x | at most 150: met |"]
