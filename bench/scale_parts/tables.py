"""Tables of figures by cell, how they grow from one cell to the next, and what is asked for. Pure."""

from collections.abc import Mapping, Sequence
from typing import NamedTuple

from bench.scale_parts.cells import TARGET_CELL, Cell


class Row(NamedTuple):
    """A figure: its ``key`` in what was measured, its name and unit, and the most that it may be at the largest."""

    key: str
    name: str
    unit: str = "ms"
    most: float | None = None


Figures = Mapping[str, float]


def table(rows: Sequence[Row], measured: Mapping[Cell, Figures]) -> str:
    """Make a Markdown table: a line for each figure, a column for each cell, and whether the target is met."""
    head = ["", *map(str, measured), "growth", "target"]
    lines = [head, ["---"] + ["--:"] * (len(head) - 1)]
    for row in rows:
        values = [found.get(row.key) for found in measured.values()]
        if any(value is not None for value in values):
            shown = [shown_value(value) for value in values]
            lines.append([f"{row.name} ({row.unit})", *shown, growth(row.key, measured), verdict(row, measured)])
    return "\n".join(f"| {' | '.join(line)} |" for line in lines)


def shown_value(value: float | None) -> str:
    """Write a figure with as many digits as it deserves."""
    if value is None:
        return ""
    return f"{value:,.0f}" if value >= 100 else f"{value:.1f}" if value >= 10 else f"{value:.2f}"


def ratio(more: float, less: float) -> str:
    """Say how many times as much something is."""
    return "-" if less <= 0 else f"{more / less:.1f}x"


def growth(key: str, measured: Mapping[Cell, Figures]) -> str:
    """Say how a figure grows from the first cell to each of the others."""
    values = [found.get(key) for found in measured.values()]
    first = values[0] if values else None
    if first is None:
        return ""
    return " ".join(ratio(value, first) for value in values[1:] if value is not None)


def verdict(row: Row, measured: Mapping[Cell, Figures]) -> str:
    """Say whether the largest cell is within what is asked for."""
    if row.most is None:
        return ""
    asked = f"at most {shown_value(row.most)}"
    value = measured.get(TARGET_CELL, {}).get(row.key)
    if value is None:
        return f"{asked} at {TARGET_CELL}: not measured"
    return f"{asked}: met" if value <= row.most else f"{asked}: **missed**, {ratio(value, row.most)}"
